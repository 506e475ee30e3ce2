/**
 * What the package.json of this package says of it: the version, and where `edge-gateway build` has made it, the
 * features that it has.
 */
import { readFileSync } from "node:fs";

const own = ownPackage();

/** SemVer; "0.0.0-unknown" if the files were taken out of their package. */
export const version: string = own.version;

/** The names of the features, plugin kinds and commands that a build has. Null: this is the whole program. */
export const builtWith: ReadonlySet<string> | null =
  own.edgeGateway === undefined ? null : new Set(own.edgeGateway.parts);

/** Whether this program has the feature, plugin kind or command. */
export function isInBuild(name: string): boolean {
  return builtWith?.has(name) ?? true;
}

interface Package {
  readonly version: string;
  readonly edgeGateway?: { readonly parts: readonly string[] };
}

/** This file is in lib/base/ in the sources and in dist/lib/base/ once built. */
function ownPackage(): Package {
  for (const path of ["../../package.json", "../../../package.json"]) {
    try {
      const found = JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8")) as Partial<Package> & {
        readonly name?: unknown;
      };
      if (found.name === "edge-gateway" && typeof found.version === "string") return found as Package;
    } catch {
      // It is in the other folder, or nowhere.
    }
  }
  return { version: "0.0.0-unknown" };
}

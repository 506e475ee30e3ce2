/**
 * What the package.json of this package says of it: the version, and where `edge-gateway build` has made it, the parts that it has.
 */
import { readFileSync } from "node:fs";

const own = packageAbove(new URL(import.meta.url));

/** SemVer; "0.0.0-unknown" if the files were taken out of their package. */
export const version: string = own.version;

/** The names of the parts, plugin kinds and commands that a build has. Null: this is the whole program. */
export const builtParts: ReadonlySet<string> | null = own.edgeGateway === undefined ? null : new Set(own.edgeGateway.parts);

/** Whether this program has the part, plugin kind or command. */
export function isInBuild(name: string): boolean {
  return builtParts?.has(name) ?? true;
}

interface Package {
  readonly version: string;
  readonly edgeGateway?: { readonly parts: readonly string[] };
}

/** Searches upwards: this file is in lib/base/ in the sources and in dist/lib/base/ once built. */
function packageAbove(file: URL): Package {
  for (let folder = new URL(".", file); ; folder = new URL("..", folder)) {
    try {
      const found = JSON.parse(readFileSync(new URL("package.json", folder), "utf8")) as Partial<Package> & { readonly name?: unknown };
      if (found.name === "edge-gateway" && typeof found.version === "string") return found as Package;
    } catch {
      // No package.json here: look further up.
    }
    if (folder.pathname === new URL("..", folder).pathname) return { version: "0.0.0-unknown" };
  }
}

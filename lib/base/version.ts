/**
 * The version of this package, from its package.json.
 */
import { readFileSync } from "node:fs";

/** SemVer; "0.0.0-unknown" if the files were taken out of their package. */
export const version: string = versionAbove(new URL(import.meta.url));

/** Searches upwards: this file is in lib/base/ in the sources and in dist/lib/base/ once built. */
function versionAbove(file: URL): string {
  for (let folder = new URL(".", file); ; folder = new URL("..", folder)) {
    try {
      const found = JSON.parse(readFileSync(new URL("package.json", folder), "utf8")) as { name?: unknown; version?: unknown };
      if (found.name === "edge-gateway" && typeof found.version === "string") return found.version;
    } catch {
      // No package.json here: look further up.
    }
    if (folder.pathname === new URL("..", folder).pathname) return "0.0.0-unknown";
  }
}

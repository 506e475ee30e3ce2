/** The files below a folder, and the modes that they have in the package. */
import { chmodSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";

/** Sorted; a path that is no folder is itself. */
export function filesOf(path: string): string[] {
  return statSync(path).isDirectory()
    ? readdirSync(path)
        .sort()
        .flatMap((name) => filesOf(join(path, name)))
    : [path];
}

/** The same modes on every machine: git and the compiler leave them to the umask. */
export function setModes(paths: readonly string[]): void {
  for (const path of paths.flatMap(filesOf)) chmodSync(path, path.endsWith("/bin/edge-gateway.js") ? 0o755 : 0o644);
}

/**
 * Makes the package the same on every machine. `dist`, after the compiler: removes the declarations that no import of the package can reach, and
 * sets the modes of dist/. `sources`, before `npm pack`: sets the modes of all other files of the package, which git leaves to the umask.
 */
import { chmodSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";

const PROGRAM = "dist/bin/edge-gateway.js";

if (process.argv[2] === "dist") {
  const exported = reachable("dist/lib/index.d.ts");
  for (const path of filesOf("dist")) if (path.endsWith(".d.ts") && !exported.has(path)) rmSync(path);
  setModes(["dist"]);
} else {
  const { files } = JSON.parse(readFileSync("package.json", "utf8")) as { readonly files: readonly string[] };
  setModes([...files.filter((name) => name !== "dist" && !name.startsWith("!")), "package.json", "README.md", "LICENSE"]);
}

/** The declarations that this one imports, and those that they import, and itself. */
function reachable(path: string, found = new Set<string>()): ReadonlySet<string> {
  if (found.has(path)) return found;
  found.add(path);
  for (const [, specifier] of readFileSync(path, "utf8").matchAll(/(?:\bfrom |\bimport\()"(\.[^"]+)\.[jt]s"/g)) {
    reachable(join(path, "..", `${specifier}.d.ts`), found);
  }
  return found;
}

function setModes(paths: readonly string[]): void {
  for (const path of paths.flatMap(filesOf)) chmodSync(path, path === PROGRAM ? 0o755 : 0o644);
}

function filesOf(path: string): string[] {
  return statSync(path).isDirectory() ? readdirSync(path).flatMap((name) => filesOf(join(path, name))) : [path];
}

/**
 * `npm run build`: compiles lib/ and bin/ to dist/, unless dist/ is what these sources compile to. It is part of `npm
 * ci`, of `npm pack` and of the first `npx edge-gateway` in a clone. Every file of dist/ is replaced by renaming, so
 * that a gateway that runs from there finds it at any time.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { filesOf, setModes } from "./files.ts";

/** What dist/ depends on; package-lock.json names the compiler. */
const SOURCES = ["lib", "bin", "build/build.ts", "tsconfig.json", "package.json", "package-lock.json"];
const PAGES = "lib/manager/assets";
const MANIFEST = "lib/modules.json";
/**
 * The sums of the sources and of dist/, when it was built. A build that was killed, or met by another one, leaves a
 * dist/ of another sum.
 */
const SUMS = ".dist.sums";

process.chdir(join(import.meta.dirname, ".."));
const sum = sumOf(SOURCES);
try {
  if (!isBuilt()) build();
} catch (error) {
  console.error(`build: ${(error as Error).message}`);
  process.exitCode = 1;
}

function isBuilt(): boolean {
  try {
    return readFileSync(SUMS, "utf8") === `${sum} ${sumOf(["dist"])}`;
  } catch {
    return false; // One of them is not there.
  }
}

function build(): void {
  removeLeftOver();
  const folder = `.dist-${process.pid}`;
  try {
    // What these check the next one need not check again.
    compile(["--outDir", folder, "--declaration", "--emitDeclarationOnly", "--removeComments", "false"]);
    compile(["--outDir", folder, "--noCheck"]);
    compile(["-p", PAGES, "--outDir", folder]);
    for (const name of readdirSync(PAGES))
      if (/\.(html|css|svg)$/.test(name)) copyFileSync(join(PAGES, name), join(folder, PAGES, name));
    const exported = reachable(join(folder, "lib/index.d.ts"));
    for (const path of filesOf(folder)) if (path.endsWith(".d.ts") && !exported.has(path)) rmSync(path);
    writeFileSync(join(folder, MANIFEST), manifestOf(folder));
    setModes([folder]);
    const sums = `${sum} ${sumOf([folder], folder)}`;
    replace(folder);
    writeFileSync(SUMS, sums);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The folders of builds that were killed. */
function removeLeftOver(): void {
  for (const name of readdirSync(".")) {
    if (/^\.dist-\d+$/.test(name) && !isRunning(Number(name.slice(".dist-".length))))
      rmSync(name, { recursive: true, force: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0) && pid !== process.pid;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function compile(words: readonly string[]): void {
  const { status } = spawnSync(process.execPath, ["node_modules/typescript/bin/tsc", ...words], { stdio: "inherit" });
  if (status !== 0) throw new Error("the sources do not compile; dist is as it was");
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

/** File by file: a folder with files cannot be replaced by renaming without a moment in which it is not there. */
function replace(folder: string): void {
  mkdirSync("dist", { recursive: true });
  const made = filesOf(folder).map((from) => ({ from, to: join("dist", relative(folder, from)) }));
  for (const { from, to } of made) {
    mkdirSync(dirname(to), { recursive: true });
    renameSync(from, to);
  }
  const kept = new Set(made.map(({ to }) => to));
  for (const path of filesOf("dist")) if (!kept.has(path)) rmSync(path, { force: true });
}

/** See `lib/base/own_code.ts`. The pages are for browsers. */
function manifestOf(folder: string): string {
  const modules = filesOf(folder).filter((path) => path.endsWith(".js") && !path.includes(PAGES));
  const sums = modules.map((path) => [
    relative(folder, path),
    createHash("sha256").update(readFileSync(path)).digest("hex"),
  ]);
  return `${JSON.stringify(Object.fromEntries(sums), null, 2)}\n`;
}

function sumOf(paths: readonly string[], folder = "dist"): string {
  const hash = createHash("sha256");
  for (const path of paths.flatMap(filesOf)) {
    const content = readFileSync(path);
    hash.update(`${relative(folder, path)} ${content.length}\n`).update(content);
  }
  return hash.digest("hex");
}

/** Prepares a benchmark: builds the gateway and installs the packages of `spec/bench/package.json`. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
export const PROGRAM = fileURLToPath(new URL("../../dist/bin/edge-gateway.js", import.meta.url));
const OWN = fileURLToPath(new URL(".", import.meta.url));

/**
 * Builds `dist/`. What runs from the sources runs through a loader that wraps every function to keep its name: closures
 * cost more there than in what is delivered. Throws with what the compiler says.
 */
export function build(): void {
  run("npm", ["run", "--silent", "build"], ROOT);
}

/** A module of the built gateway, such as "route/table". Its type is that of the source. */
export async function builtModule<T>(name: string): Promise<T> {
  return (await import(new URL(`../../dist/lib/${name}.js`, import.meta.url).href)) as T;
}

/** Installs the packages if they are missing or differ from the lock file, without their install scripts. */
export function install(): void {
  const hidden = `${OWN}node_modules/.package-lock.json`;
  if (existsSync(hidden) && fits(hidden)) return;
  console.log("installing the packages of spec/bench/package.json");
  run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], OWN);
}

/** Whether the installed packages are those of the lock file. */
function fits(hidden: string): boolean {
  type Lock = { readonly packages: Readonly<Record<string, { readonly version?: string }>> };
  const installed = (JSON.parse(readFileSync(hidden, "utf8")) as Lock).packages;
  const locked = (JSON.parse(readFileSync(`${OWN}package-lock.json`, "utf8")) as Lock).packages;
  return Object.entries(locked).every(([path, { version }]) => path === "" || installed[path]?.version === version);
}

/** The version of an installed package. */
export function versionOf(name: string): string {
  return (JSON.parse(readFileSync(`${OWN}node_modules/${name}/package.json`, "utf8")) as { version: string }).version;
}

/** Runs a program to its end and returns its standard output. Throws with all its output if it fails. */
export function run(command: string, words: readonly string[], cwd = ROOT): string {
  const { status, error, stdout, stderr } = spawnSync(command, words, { cwd, encoding: "utf8" });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`${command} ${words.join(" ")} ended with ${status}\n${stdout}${stderr}`);
  return stdout;
}

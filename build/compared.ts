/**
 * `npm run compared`: writes into CHANGELOG.md what `edge-gateway compare` finds between the last release and this
 * version for the configurations in examples/. `npm run compared -- FOLDER` names the package of the last release;
 * without it that is built from the commit which made it.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const ROOT = resolve(import.meta.dirname, "..");

/** What is used here of the output of `compare --json`. */
export interface Found {
  readonly old: { readonly version: string; readonly accepts: boolean };
  readonly new: { readonly accepts: boolean };
  readonly differences: readonly {
    readonly kind: string;
    readonly what: string;
    readonly old: string;
    readonly new: string;
    readonly routes: readonly string[];
    readonly example: string | null;
  }[];
  readonly not_compared: readonly string[];
}

/** The heading of the section, which `npm run release` looks for. */
export const HEADING = "### Compared with ";

/** `found`: by the names of configurations. */
export function sectionOf(found: ReadonlyMap<string, Found>): string {
  const [first] = found.values();
  const lines = [...found].map(
    ([name, { differences }]) =>
      `- \`${name}\`: ${differences.length === 0 ? "nothing differs" : differences.map(sentence).join("; ")}`,
  );
  // Who reads that a version refuses a configuration needs no word more.
  const silent = new Set(
    [...found.values()].flatMap((each) => (each.old.accepts && each.new.accepts ? each.not_compared : [])),
  );
  return [
    `${HEADING}${first!.old.version}\n`,
    "What `edge-gateway compare` finds for the configurations in `examples/`:\n",
    ...lines,
    ...(silent.size === 0 ? [] : [`\nNot compared: ${[...silent].join("; ")}.`]),
  ].join("\n");
}

function sentence({ kind, what, old, new: now, routes, example }: Found["differences"][number]): string {
  if (kind === "acceptance") return what;
  return (
    `${routes.length === 0 ? "" : `${routes.join(", ")}: `}${what}, ${old} before, ` +
    `${now} now${example === null ? "" : ` (\`${example}\`)`}`
  );
}

/** The changelog with the section at the end of "Unreleased", in place of one that is there. */
export function withSection(changelog: string, section: string): string {
  const [unreleased] = /^## \[Unreleased\]\n[^]*?(?=^## \[|$(?![^]))/m.exec(changelog) ?? [];
  if (unreleased === undefined) throw new Error("CHANGELOG.md has no heading [Unreleased]");
  const kept = unreleased.replace(new RegExp(`^${HEADING}[^]*?(?=^### |$(?![^]))`, "m"), "").trimEnd();
  return changelog.replace(unreleased, () => `${kept}\n\n${section}\n\n`);
}

/** Of a folder with `dist/`, and this version. */
export function comparisons(last: string): ReadonlyMap<string, Found> {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-compared-"));
  try {
    // What one of them names beside it.
    cpSync(join(ROOT, "examples/errors"), join(folder, "errors"), { recursive: true });
    return new Map(
      readdirSync(join(ROOT, "examples"))
        .filter((name) => name.endsWith(".json"))
        .map((name) => [name, comparison(last, name, folder)]),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function comparison(last: string, name: string, folder: string): Found {
  const text = readFileSync(join(ROOT, "examples", name), "utf8");
  const key = join(folder, "key.pem");
  if (!existsSync(key))
    writeFileSync(key, generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));
  const secret = (of: string) => `${of.replace(/\W/g, "-")}${"-x".repeat(24)}`;
  const environment = Object.fromEntries(
    Array.from(text.matchAll(/\$\{env:(\w+)\}/g), ([, variable]) => [
      variable,
      variable!.endsWith("_FILE") ? key : secret(variable!),
    ]),
  );
  const file = join(folder, name);
  writeFileSync(
    file,
    text.replace(/\$\{file:([^}]+)\}/g, (_, path: string) => secret(path)),
  );
  const words = [join(ROOT, "dist/bin/edge-gateway.js"), "compare", last, ROOT, "--config", file, "--json"];
  const { status, stdout, stderr } = spawnSync(process.execPath, words, {
    encoding: "utf8",
    env: environment,
    maxBuffer: 2 ** 26,
  });
  if (status !== 0 && status !== 1) throw new Error(`examples/${name}: ${stderr}`);
  return JSON.parse(stdout) as Found;
}

/**
 * The commit that gave package.json this version; undefined where the history does not have it, as in a shallow clone.
 */
export function commitOf(version: string): string | undefined {
  return (
    git("log", "--reverse", "--format=%H", `-S"version": "${version}"`, "--", "package.json").split("\n")[0] ||
    undefined
  );
}

/** Builds a commit in this folder, with the compiler of this version: its types need not fit the rules of today. */
export function buildCommit(commit: string, folder: string): void {
  execFileSync("tar", ["-x", "-C", folder], {
    input: execFileSync("git", ["archive", commit, "lib", "bin", "package.json", "tsconfig.json"], {
      cwd: ROOT,
      maxBuffer: 2 ** 28,
    }),
  });
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  execFileSync(process.execPath, [join(ROOT, "node_modules/typescript/bin/tsc"), "--noCheck"], {
    cwd: folder,
    stdio: "inherit",
  });
}

function git(...words: readonly string[]): string {
  return execFileSync("git", words, { cwd: ROOT, encoding: "utf8" }).trim();
}

/** The newest one that a changelog has. */
export function lastRelease(changelog: string): string {
  const [, version] = /^## \[(\d[^\]]*)\]/m.exec(changelog) ?? [];
  if (version === undefined) throw new Error("CHANGELOG.md has no release");
  return version;
}

function main(given: string | undefined): void {
  const path = join(ROOT, "CHANGELOG.md");
  const changelog = readFileSync(path, "utf8");
  execFileSync("npm", ["run", "--silent", "build"], { cwd: ROOT, stdio: "inherit" });
  const folder = given === undefined ? mkdtempSync(join(tmpdir(), "edge-gateway-last-")) : resolve(given);
  try {
    if (given === undefined) {
      const version = lastRelease(changelog);
      const commit = commitOf(version);
      if (commit === undefined)
        throw new Error(
          `the history here does not have the commit of ${version}: name the folder of its package, ` +
            `npm run compared -- FOLDER`,
        );
      buildCommit(commit, folder);
    }
    const section = sectionOf(comparisons(folder));
    writeFileSync(path, withSection(changelog, section));
    console.log(section);
  } finally {
    if (given === undefined) rmSync(folder, { recursive: true, force: true });
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  try {
    main(process.argv[2]);
  } catch (error) {
    console.error(`compared: ${(error as Error).message}`);
    process.exitCode = 1;
  }
}

/**
 * `npm run release`: makes release/ from the commit that is checked out: the tarball, an SBOM, a VEX document, the
 * provenance, their checksums and, with RELEASE_KEY, a signature. The same commit, Node, npm and SOURCE_DATE_EPOCH give
 * the same bytes on every machine.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { devNull, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { gunzipSync } from "node:zlib";
import { signatureOf } from "../lib/base/signature.ts";
import { HEADING } from "./compared.ts";
import { sha256, type Artefact, type Facts, type Lock } from "./facts.ts";
import { provenance } from "./provenance.ts";
import { sbom } from "./sbom.ts";
import { vex } from "./vex.ts";

const ROOT = resolve(import.meta.dirname, "..");

try {
  release();
} catch (error) {
  console.error(`release: ${(error as Error).message}`);
  process.exitCode = 1;
}

function release(): void {
  process.umask(0o022);
  if (git("status", "--porcelain", "--untracked-files=no") !== "")
    throw new Error(
      "there are changes that are not committed: a release is made from a commit (git stash, or git commit)",
    );
  const { name, version, description } = JSON.parse(read("package.json")) as {
    readonly [field in "name" | "version" | "description"]: string;
  };
  if (version.includes("-"))
    throw new Error(`${version} is a version between releases: run npm version ${version.replace(/-.*/, "")} first`);
  if (/^## \[Unreleased\]\n+(?!## )./m.test(read("CHANGELOG.md"))) {
    throw new Error(`CHANGELOG.md has changes that ${version} does not have: begin the next version with npm version`);
  }
  const [ofVersion = ""] =
    new RegExp(`^## \\[${version.replaceAll(".", "\\.")}\\][^]*?(?=^## |$(?![^]))`, "m").exec(read("CHANGELOG.md")) ??
    [];
  if (!ofVersion.includes(HEADING))
    throw new Error(
      `CHANGELOG.md does not say how ${version} differs from the release before: ` +
        `run npm run compared before npm version`,
    );
  const seconds = process.env.SOURCE_DATE_EPOCH ?? git("log", "-1", "--format=%ct");
  if (!/^\d{1,11}$/.test(seconds)) throw new Error("SOURCE_DATE_EPOCH must be a whole number of seconds since 1970");
  const key = readKey();
  const lock = JSON.parse(read("package-lock.json")) as Lock;
  checkInstalled(lock);
  const tarball = pack(`${name}-${version}.tgz`);
  const facts: Facts = {
    name,
    version,
    description,
    lock,
    tarball,
    epoch: Number(seconds),
    commit: git("rev-parse", "HEAD"),
    tree: git("rev-parse", "HEAD^{tree}"),
    node: process.versions.node,
    npm: run("npm", ["--version"], ROOT).trim(),
    lockSum: sha256(read("package-lock.json")),
    tarSum: sha256(gunzipSync(tarball.content)),
  };
  const bom: Artefact = { name: `${name}-${version}.cdx.json`, content: jsonOf(sbom(facts)) };
  const statements: Artefact = { name: "vex.openvex.json", content: jsonOf(vex(facts)) };
  const made = [tarball, bom, statements];
  const artefacts = [...made, { name: `${name}-${version}.provenance.json`, content: jsonOf(provenance(facts, made)) }];
  artefacts.sort((a, b) => (a.name < b.name ? -1 : 1));
  const sums = Buffer.from(artefacts.map((each) => `${sha256(each.content)}  ${each.name}\n`).join(""));
  write([
    ...artefacts,
    { name: "SHA256SUMS", content: sums },
    ...(key === null ? [] : [{ name: "SHA256SUMS.sig", content: Buffer.from(sign(sums, key)) }]),
  ]);
  if (key === null)
    console.log(
      "RELEASE_KEY is not set, so this release is not signed; to sign it: " +
        "npx edge-gateway sign release/SHA256SUMS --key private.pem",
    );
}

/** Built and packed in a new folder, from the commit alone: no file that git does not know gets into it. */
function pack(name: string): Artefact {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-release-"));
  try {
    git("checkout-index", "--all", `--prefix=${folder}/`);
    symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
    run("npm", ["run", "--silent", "build"], folder);
    run("npm", ["pack", "--silent", "--offline", "--ignore-scripts"], folder);
    return { name, content: readFileSync(join(folder, name)) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Only the tools that package-lock.json names, in those versions, may build a release. */
function checkInstalled({ packages }: Lock): void {
  const installed = (JSON.parse(read("node_modules/.package-lock.json")) as Lock).packages;
  const other = Object.keys(installed).filter((path) => installed[path]!.integrity !== packages[path]?.integrity);
  if (other.length > 0) throw new Error(`${other[0]} is not what package-lock.json names: run npm ci`);
}

interface Key {
  readonly path: string;
  readonly pem: Buffer;
}

/** Null without RELEASE_KEY. Signs nothing once, so that a wrong key is found before the build. */
function readKey(): Key | null {
  const { RELEASE_KEY: path = "" } = process.env;
  if (path === "") return null;
  const key = { path, pem: readFileSync(path) };
  sign(Buffer.alloc(0), key);
  return key;
}

function sign(content: Buffer, { path, pem }: Key): string {
  const signed = signatureOf(content, pem);
  if (signed.problem !== undefined) throw new Error(`${path} (RELEASE_KEY) ${signed.problem}`);
  return signed.signature;
}

function write(files: readonly Artefact[]): void {
  const folder = join(ROOT, "release");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const { name, content } of files) {
    writeFileSync(join(folder, name), content);
    console.log(`release/${name}  ${content.length} bytes`);
  }
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}

function git(...words: readonly string[]): string {
  return run("git", words, ROOT).trim();
}

/** Its standard output. Neither settings of the user's npm nor those of the npm that runs this program apply. */
function run(command: string, words: readonly string[], cwd: string): string {
  const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)));
  return execFileSync(command, words, {
    cwd,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...environment, npm_config_userconfig: devNull },
  });
}

function jsonOf(value: unknown): Buffer {
  return Buffer.from(`${JSON.stringify(value, null, 2)}\n`);
}

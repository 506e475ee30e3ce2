/**
 * Starts a version in a process of its own, with the least rights that this Node can give it, and asks it questions.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Readable } from "node:stream";
import { fileURLToPath, pathToFileURL } from "node:url";
import { waitAtMost } from "../../base/clock.ts";
import { whyUnreadable } from "../../base/regular_file.ts";
import { PACKAGE_FOLDER } from "../audit_modules.ts";
import { Failure } from "../failure.ts";
import { PROGRAM } from "../touched_files.ts";
import type { VersionAnswer, AskedRequest, VersionReport } from "./child.ts";

/** A version that says nothing for so long is taken to hang. */
const MAX_SILENT_MS = 60_000;
/** Bytes of one message. */
const MAX_MESSAGE = 2 ** 28;
/** Characters of standard error that are kept. */
const MAX_ERRORS = 4_000;

/** Of a package as it is released; of one that `build` has made. */
const MAINS = ["dist/lib/index.js", "dist/lib/cli/config_file.js"];

export interface ProcessOptions {
  readonly config: string;
  /** What the configuration names outside of its folder. */
  readonly files: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

export class VersionProcess {
  /** "0.2.0" */
  readonly name: string;
  readonly folder: string;
  readonly #child: ChildProcess;
  #errors = "";
  /** The beginning of the next message, and its bytes. */
  #partial: Buffer[] = [];
  #size = 0;
  #messages: string[] = [];
  /** Why there will be no more messages; null: there may be some. */
  #over: string | null = null;
  #wake = () => {};

  /** Throws a `Failure` for a folder that has no version. */
  constructor(folder: string, options: ProcessOptions) {
    this.folder = folder;
    this.name = versionIn(folder);
    const root = realpathSync(folder);
    const main = MAINS.map((name) => join(root, name)).find((path) => existsSync(path));
    if (main === undefined) throw new Failure(`${folder} has no ${MAINS.join(" and no ")}: a clone needs npm run build, a package of build --with explain --with test`, 2);
    const [child, version] = [new URL("child.js", import.meta.url), pathToFileURL(main)].map(({ href }) => JSON.stringify(href));
    const text = `import { answerFor } from ${child}; import * as version from ${version}; await answerFor(version, ${JSON.stringify(options.config)});`;
    this.#child = spawn(process.execPath, [...rightsOf(root, options), "--input-type=module", "--eval", text], { cwd: root, env: options.environment, stdio: ["pipe", "ignore", "pipe", "pipe"] });
    this.#child.on("error", ({ message }) => this.#end(message)).on("close", (code, signal) => this.#end(`it ended with ${signal ?? `exit code ${code}`}`));
    this.#child.stdin!.on("error", () => {});
    this.#child.stderr!.on("data", (bytes: Buffer) => (this.#errors = (this.#errors + bytes).slice(0, MAX_ERRORS)));
    (this.#child.stdio[3] as Readable).on("data", (bytes: Buffer) => this.#take(bytes));
  }

  /** What it makes of the configuration; to be asked for once. Rejects with a `Failure` if the version cannot be run. */
  report(): Promise<VersionReport> {
    return this.#next((found: any) => Array.isArray(found?.issues) && Array.isArray(found.silent));
  }

  ask(questions: readonly AskedRequest[]): Promise<readonly VersionAnswer[]> {
    this.#child.stdin!.write(`${JSON.stringify(questions)}\n`);
    return this.#next((found: any) => Array.isArray(found) && found.length === questions.length);
  }

  end(): void {
    this.#child.kill("SIGKILL");
  }

  async #next<T>(isIt: (found: unknown) => boolean): Promise<T> {
    if (this.#messages.length === 0 && this.#over === null) await waitAtMost(new Promise<void>((resolve) => (this.#wake = resolve)), MAX_SILENT_MS);
    const why = this.#over ?? `it has not answered within ${MAX_SILENT_MS / 1000} s`;
    let found: unknown;
    try {
      found = JSON.parse(this.#messages.shift() ?? "");
    } catch {
      const [, error] = /^(\w*Error\b.*)/m.exec(this.#errors) ?? [];
      throw new Failure(`${this.folder} (edge-gateway ${this.name}) cannot be run: ${why}${error === undefined ? "" : `: ${error}`}`, 2);
    }
    if (isIt(found)) return found as T;
    throw new Failure(`${this.folder} (edge-gateway ${this.name}) cannot be compared: its answers have another form`, 2);
  }

  #take(bytes: Buffer): void {
    this.#partial.push(bytes);
    this.#size += bytes.length;
    if (this.#size > MAX_MESSAGE) this.#end(`it answered with more than ${MAX_MESSAGE} bytes`);
    if (!bytes.includes("\n")) return;
    const lines = Buffer.concat(this.#partial).toString().split("\n");
    this.#partial = [Buffer.from(lines.pop()!)];
    this.#size = this.#partial[0]!.length;
    this.#messages.push(...lines);
    this.#wake();
  }

  #end(why: string): void {
    this.#over ??= why;
    this.end();
    this.#wake();
  }
}

/** It reads its own files and those of the configuration; it writes nothing, starts no programs, and loads no addons. */
function rightsOf(root: string, { config, files }: ProcessOptions): readonly string[] {
  const paths = [...new Set([root, fileURLToPath(new URL("lib", PROGRAM)), join(PACKAGE_FOLDER, "package.json"), dirname(config), ...files])];
  // Node forbids a folder again when a flag names a file in it.
  const needed = paths.filter((path) => !paths.some((folder) => folder !== path && path.startsWith(join(folder, "/"))));
  const odd = needed.find((path) => /[,*]/.test(path));
  if (odd !== undefined) throw new Failure(`${odd} has a comma or an asterisk, which flags of Node's permission model cannot have: rename it`, 2);
  const model = process.allowedNodeEnvironmentFlags.has("--permission") ? "--permission" : "--experimental-permission";
  return [model, ...needed.map((path) => `--allow-fs-read=${statSync(path).isDirectory() ? join(path, "*") : path}`)];
}

function versionIn(folder: string): string {
  let found: { readonly name?: unknown; readonly version?: unknown } | null;
  try {
    found = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as typeof found;
  } catch (error) {
    throw new Failure(`${folder} is no version of edge-gateway: its package.json cannot be read: ${whyUnreadable(error)}`, 2);
  }
  if (found?.name === "edge-gateway" && typeof found.version === "string") return found.version;
  throw new Failure(`${folder} is no version of edge-gateway: its package.json is that of ${JSON.stringify(found?.name ?? null)}`, 2);
}

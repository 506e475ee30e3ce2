/**
 * Starts a version in a process of its own, with the least rights that this Node can give it, and asks it questions.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { pathToFileURL } from "node:url";
import { waitAtMost } from "../../base/clock.ts";
import { ignore } from "../../base/errors.ts";
import { whyUnreadable } from "../../base/regular_file.ts";
import type { Question } from "../../proof/explain.ts";
import { PACKAGE_FOLDER } from "../audit_modules.ts";
import { Failure } from "../failure.ts";
import { readable } from "../touched_files.ts";
import type { VersionAnswer, VersionReport } from "./child.ts";

/** A version that says nothing for so long is taken to hang. */
const MAX_SILENT_MS = 60_000;
/** Bytes of one answer. */
const MAX_ANSWER = 2 ** 28;
/** Characters of standard error that are kept. */
const MAX_ERRORS = 4_000;

interface ProcessOptions {
  readonly config: string;
  /** What the configuration names outside of its folder. */
  readonly files: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly questions: readonly Question[];
}

export class VersionProcess {
  /** "0.2.0" */
  readonly name: string;
  readonly folder: string;
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  /** Why there are no more lines. */
  readonly #ended: Promise<string>;
  #errors = "";
  /** Bytes since the last line that was asked for. */
  #size = 0;

  /** Throws a `Failure` for a folder that has no version. */
  constructor(folder: string, options: ProcessOptions) {
    this.folder = folder;
    this.name = versionIn(folder);
    const root = realpathSync(folder);
    const [main] = MAINS.find((files) => files.every((file) => existsSync(join(root, file)))) ?? [];
    if (main === undefined)
      throw new Failure(
        `${folder} has no ${MAINS.map((files) => files.join(", ")).join(" and no ")}: ` +
          `a clone needs npm run build, a package of build --with explain --with test`,
        2,
      );
    const [child, version] = [new URL("child.js", import.meta.url), pathToFileURL(join(root, main))].map(({ href }) =>
      JSON.stringify(href),
    );
    const text =
      `import { answerFor } from ${child}; import * as version from ${version}; await answerFor(version, ` +
      `${JSON.stringify(options.config)});`;
    this.#child = spawn(process.execPath, [...rightsOf(root, options), "--input-type=module", "--eval", text], {
      cwd: root,
      env: options.environment,
      stdio: ["pipe", "ignore", "pipe", "pipe"],
    });
    this.#ended = new Promise((resolve) => {
      this.#child
        .on("error", ({ message }) => resolve(message))
        .on("close", (code, signal) => resolve(`it ended with ${signal ?? `exit code ${code}`}`));
    });
    this.#child.stdin!.on("error", ignore).end(JSON.stringify(options.questions));
    this.#child.stderr!.on("data", (bytes: Buffer) => (this.#errors = (this.#errors + bytes).slice(0, MAX_ERRORS)));
    const input = this.#child.stdio[3] as Readable;
    this.#lines = createInterface({ input })[Symbol.asyncIterator]();
    input.on("data", ({ length }: Buffer) => (this.#size += length) > MAX_ANSWER && this.end());
  }

  /**
   * What it makes of the configuration; to be asked for first, and once. Rejects with a `Failure` if the version cannot
   * be run.
   */
  report(): Promise<VersionReport> {
    return this.#next("silent");
  }

  /** The answer to the next question. */
  answer(): Promise<VersionAnswer> {
    return this.#next("plugins");
  }

  end(): void {
    this.#child.kill("SIGKILL");
  }

  /** `list`: a member that tells it from other answers. */
  async #next<T>(list: keyof T & string): Promise<T> {
    let why = `it has not answered within ${MAX_SILENT_MS / 1000} s`;
    let found: T | null = null;
    this.#size = 0;
    const next = this.#lines.next().then(async ({ value, done }) => {
      if (done) return void (why = await this.#ended);
      why = "its answers have another form";
      found = JSON.parse(value) as T;
    });
    await waitAtMost(next.catch(ignore), MAX_SILENT_MS);
    if (Array.isArray((found as T | null)?.[list])) return found!;
    const [, error] = /^(\w*Error\b.*)/m.exec(this.#errors) ?? [];
    throw new Failure(
      `${this.folder} (edge-gateway ${this.name}) cannot be run: ${why}${error === undefined ? "" : `: ${error}`}`,
      2,
    );
  }
}

/** The first file is that which is loaded: of a package as it is released; of one that `build` has made. */
const MAINS = [["lib/index.js"], ["lib/cli/config_file.js", "lib/proof/explain.js", "lib/proof/run_tests.js"]].map(
  (files) => files.map((file) => `dist/${file}`),
);

/**
 * It reads its own files and those of the configuration; it writes nothing, starts no programs, and loads no addons.
 */
function rightsOf(root: string, { config, files }: ProcessOptions): readonly string[] {
  const named = [root, dirname(config), ...files].map((path) =>
    statSync(path).isDirectory() ? join(path, "/") : path,
  );
  const needed = readable({ watched: [], reads: [join(PACKAGE_FOLDER, "package.json"), ...named], writes: [] });
  const odd = needed.find((path) => /[,*]/.test(path));
  if (odd !== undefined)
    throw new Failure(
      `${odd} has a comma or an asterisk, which flags of Node's permission model cannot have: rename it`,
      2,
    );
  const model = process.allowedNodeEnvironmentFlags.has("--permission") ? "--permission" : "--experimental-permission";
  return [model, ...needed.map((path) => `--allow-fs-read=${path}`)];
}

function versionIn(folder: string): string {
  let found: { readonly name?: unknown; readonly version?: unknown } | null;
  try {
    found = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as typeof found;
  } catch (error) {
    throw new Failure(
      `${folder} is no version of edge-gateway: its package.json cannot be read: ${whyUnreadable(error)}`,
      2,
    );
  }
  if (found?.name === "edge-gateway" && typeof found.version === "string") return found.version;
  throw new Failure(
    `${folder} is no version of edge-gateway: its package.json is that of ${JSON.stringify(found?.name ?? null)}`,
    2,
  );
}

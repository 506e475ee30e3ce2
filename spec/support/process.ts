/** Runs the program as a child process that ends with the test at the latest. */
import { spawn, type ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { codec } from "./codec.ts";

/** The program as `build.ts` has built it, which starts in a third of the time that the sources take. */
export const PROGRAM = fileURLToPath(new URL("../../dist/bin/edge-gateway.js", import.meta.url));

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Program {
  readonly child: ChildProcess;
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Resolves with the output when it contains or matches `fits`; rejects when the process ends before. */
  says(fits: string | RegExp, where?: "stdout" | "stderr"): Promise<string>;
  /** Resolves when the process has ended and all of its output is in. */
  readonly ended: Promise<Ended>;
}

export interface ProgramOptions {
  /** The environment in addition to PATH. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Its standard input. */
  readonly input?: string;
  /** The Node that runs it; by default the one that runs the specs. */
  readonly node?: string;
  /** Its main file; by default that of `dist`. */
  readonly main?: string;
}

/** Starts `edge-gateway WORDS…`. Its standard error is no terminal, so it logs JSON unless told otherwise. */
export function program(
  words: readonly string[],
  { environment = {}, cwd, input, node = process.execPath, main = PROGRAM }: ProgramOptions = {},
): Program {
  let stop = async () => {};
  // Before the process is started: outside of a test this throws, and no process is left behind.
  onTestFinished(() => stop());
  const child = spawn(node, [main, ...words], {
    env: { PATH: process.env.PATH, ...environment },
    stdio: ["pipe", "pipe", "pipe"],
    ...(cwd === undefined ? {} : { cwd }),
  });
  child.stdin!.on("error", () => {});
  child.stdin!.end(input);
  const texts = { stdout: "", stderr: "" };
  const looks = new Set<() => void>();
  const look = () => [...looks].forEach((each) => each());
  let over = false;
  for (const where of ["stdout", "stderr"] as const) {
    child[where]!.setEncoding("utf8").on("data", (text: string) => {
      texts[where] += text;
      look();
    });
  }
  const ended = new Promise<Ended>((resolve) => {
    child.once("close", (code, signal) => {
      over = true;
      look();
      resolve({ code, signal, ...texts });
    });
  });
  stop = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  return {
    child,
    stdout: () => texts.stdout,
    stderr: () => texts.stderr,
    says: (fits, where = "stderr") =>
      new Promise((resolve, reject) => {
        const found = () => (typeof fits === "string" ? texts[where].includes(fits) : fits.test(texts[where]));
        const see = () => {
          if (!found() && !over) return;
          looks.delete(see);
          if (found()) resolve(texts[where]);
          else reject(new Error(`it ended without saying ${String(fits)}: ${texts.stdout}${texts.stderr}`));
        };
        looks.add(see);
        see();
      }),
    ended,
  };
}

/** An empty folder, removed when the test ends. */
export function emptyFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A file in its own folder, removed when the test ends. */
export function fileWith(content: unknown, name = "gw.json"): string {
  const path = join(emptyFolder(), name);
  writeFileSync(path, typeof content === "string" ? content : textOf(content));
  return path;
}

/**
 * A configuration of one service whose plugin, of the kind "own", is defined by `{ name, schema, MEMBERS }` in a module
 * beside it.
 */
export function fileWithKind(members: string): string {
  const module =
    `export default (kit) => kit.definePlugin({ name: "own", schema: ` + `kit.schema.object({}), ${members} });\n`;
  const path = fileWith(module, "own.mjs");
  const plugins = [{ name: "own", config: {} }];
  const global = { plugin_modules: [{ path, sha256: createHash("sha256").update(module).digest("hex") }] };
  return fileWith({
    global,
    services: [
      { name: "s", base_path: "/", upstreams: [{ host: "10.0.0.5", port: 8080 }], plugins, routes: [{ path: "/x" }] },
    ],
  });
}

/** A configuration as JSON, with the HTTP/1 codec of this run. */
export function textOf(config: unknown): string {
  if (codec === "wire" || typeof config !== "object" || config === null || !("services" in config))
    return JSON.stringify(config);
  const { global } = config as { readonly global?: object };
  return JSON.stringify({ ...config, global: { http1: codec, ...global } });
}

export interface RunningProgram extends Program {
  readonly file: string;
  /** Port of the plain listener, or of the one for HTTPS where it is off. */
  readonly port: number;
  /** The start-up line, which is JSON. */
  readonly started: Readonly<Record<string, unknown>>;
}

/** Starts the program on free ports of 127.0.0.1; resolves when it has logged its start. */
export function runningProgram(
  config: unknown,
  words: readonly string[] = [],
  environment: Record<string, string> = {},
  node?: string,
): Promise<RunningProgram> {
  return runningFile(fileWith(config), words, environment, node);
}

/** As `runningProgram`, with a file that is there. */
export async function runningFile(
  file: string,
  words: readonly string[] = [],
  environment: Record<string, string> = {},
  node?: string,
  main?: string,
): Promise<RunningProgram> {
  const ports = [
    ...("HTTP_PORT" in environment ? [] : ["--http-port", "0"]),
    "--https-port",
    "0",
    "--listen-host",
    "127.0.0.1",
  ];
  // Not without them: they name settings that not every start loads.
  const isOperated = [...Object.keys(environment), ...words].some((name) =>
    /^(?:ADMIN_|MANAGER|--admin-|--manager)/.test(name),
  );
  const variables = { ...environment, ...(isOperated && { ADMIN_PORT: "0", MANAGER_PORT: "0" }) };
  const running = program(["--config", file, ...ports, ...words], {
    environment: variables,
    ...(node !== undefined && { node }),
    ...(main !== undefined && { main }),
  });
  await running.says(/"message":"edge-gateway [^"]+ started".*\n/);
  const started = logLines(running.stderr()).find(({ message }) => / started$/.test(String(message)))!;
  return {
    ...running,
    file,
    started,
    port: Number(new URL([started.http, started.https].find(Array.isArray)![0] as string).port),
  };
}

/** Every line of the log, each of which has to be JSON. */
export function logLines(text: string): Record<string, unknown>[] {
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** Starts the built gateway as its own process, as a user does, and ends it with the test. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

export const PROGRAM = fileURLToPath(new URL("../../dist/bin/edge-gateway.js", import.meta.url));
export const CREDENTIALS = { user: "admin", password: "peers-only" };

export interface Built {
  readonly process: ChildProcess;
  readonly url: string;
  readonly port: number;
  readonly adminUrl: string;
  /** Of the management UI; null without it. */
  readonly managerUrl: string | null;
  /** Of the listener for probes; null without it. */
  readonly probeUrl: string | null;
  /** The configuration. */
  readonly file: string;
}

/** Remembers what has to be done at the end: of the test, or of a file whose tests share something. */
export type AtEnd = (act: () => void | Promise<void>) => void;

/** An empty folder that is gone at the end. */
export function emptyFolder(atEnd: AtEnd = onTestFinished): string {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-"));
  atEnd(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export interface StartOptions {
  /** Default: the end of the test. */
  readonly atEnd?: AtEnd;
  /** What else the gateway has to find beside its file. */
  readonly prepare?: (file: string) => void;
}

/** Writes `config`, or its text, to a file and runs the program on it; resolves when it says what listens where. */
export async function startBuilt(
  config: unknown,
  environment: Record<string, string> = {},
  program: readonly string[] = [process.execPath, PROGRAM],
  { atEnd = onTestFinished, prepare }: StartOptions = {},
): Promise<Built> {
  const file = join(emptyFolder(atEnd), "gw.json");
  writeFileSync(file, typeof config === "string" ? config : JSON.stringify(config));
  prepare?.(file);
  const child = spawn(
    program[0]!,
    [...program.slice(1), "--config", file, "--http-port", "0", "--listen-host", "127.0.0.1"],
    {
      env: {
        PATH: process.env.PATH,
        ADMIN_PORT: "0",
        ADMIN_USER: CREDENTIALS.user,
        ADMIN_PASSWORD: CREDENTIALS.password,
        LOG_FORMAT: "text",
        ...environment,
      },
      stdio: ["ignore", "ignore", "pipe"],
    },
  );
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  atEnd(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const said = await new Promise<string>((resolve, reject) => {
    let text = "";
    child.stderr!.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      if (/^ {2}reload/m.test(text)) resolve(text);
    });
    child.once("exit", (code) => reject(new Error(`the gateway ended with ${code}: ${text}`)));
  });
  const url = /^ {2}http +(\S+)/m.exec(said)![1]!;
  return {
    process: child,
    url,
    port: Number(new URL(url).port),
    adminUrl: /^ {2}admin +(\S+)/m.exec(said)![1]!,
    probeUrl: /^ {2}probes +(http\S+)/m.exec(said)?.[1] ?? null,
    managerUrl: /^ {2}manager +(http\S+)/m.exec(said)?.[1] ?? null,
    file,
  };
}

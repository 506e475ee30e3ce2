/** Starts the processes of a benchmark and ends them all with it. */
import { spawn } from "node:child_process";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import type { Figures } from "./child.ts";

const CHILD = fileURLToPath(new URL("./child.ts", import.meta.url));
const LOADER = new URL("../../node_modules/tsx/dist/loader.mjs", import.meta.url).href;
const MAX_START_MS = 20_000;

export type LogLine = Readonly<Record<string, unknown>>;

export interface Child {
  readonly port: number;
  /** The log so far. */
  readonly lines: readonly LogLine[];
  signal(name: NodeJS.Signals): void;
  figures(): Promise<Figures>;
}

export interface GatewayChild extends Child {
  /** Replaces its configuration file, as a deployment does. */
  configure(config: AnyConfigInput): void;
}

export interface Processes {
  upstream(): Promise<Child>;
  gateway(config: AnyConfigInput): Promise<GatewayChild>;
}

/** Ends everything that `run` has started when `run` returns. */
export async function withProcesses<T>(run: (processes: Processes) => Promise<T>): Promise<T> {
  const ends: (() => Promise<void>)[] = [];
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-bench-"));
  const file = join(folder, "gw.json");
  const configure = (config: AnyConfigInput) => {
    writeFileSync(`${file}.new`, JSON.stringify(config));
    renameSync(`${file}.new`, file);
  };
  try {
    return await run({
      upstream: () => start(["upstream"], ends),
      async gateway(config) {
        configure(config);
        const ports = ["--http-port", "0", "--https-port", "0", "--admin-port", "0", "--listen-host", "127.0.0.1"];
        return { ...(await start(["gateway", "--config", file, ...ports], ends)), configure };
      },
    });
  } finally {
    await Promise.all(ends.map((end) => end()));
    rmSync(folder, { recursive: true, force: true });
  }
}

async function start(words: readonly string[], ends: (() => Promise<void>)[]): Promise<Child> {
  const child = spawn(process.execPath, ["--expose-gc", "--import", LOADER, CHILD, ...words], {
    env: { PATH: process.env.PATH },
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
  const closed = new Promise<void>((resolve) => child.once("close", () => resolve()));
  ends.push(async () => {
    child.kill("SIGKILL");
    await closed;
  });
  const lines: LogLine[] = [];
  let rest = "";
  const port = await new Promise<number>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${words[0]} did not start: ${rest}`)), MAX_START_MS);
    child.stderr!.setEncoding("utf8").on("data", (text: string) => {
      const parts = (rest + text).split("\n");
      rest = parts.pop()!;
      for (const part of parts) {
        const line = lineOf(part);
        lines.push(line);
        if (!/ started$/.test(String(line.message))) continue;
        clearTimeout(timer);
        resolve(Number(new URL((line.http as string[])[0]!).port));
      }
    });
    void closed.then(() =>
      reject(new Error(`${words[0]} ended: ${lines.map(({ message }) => String(message)).join("; ")} ${rest}`)),
    );
  });
  return {
    port,
    lines,
    signal: (name) => void child.kill(name),
    figures: () =>
      new Promise((resolve) => {
        child.once("message", (figures) => resolve(figures as Figures));
        child.send("figures");
      }),
  };
}

/** A line that is not JSON is the error of a process that does not start. */
function lineOf(text: string): LogLine {
  try {
    return JSON.parse(text) as LogLine;
  } catch {
    return { message: text };
  }
}

/**
 * Measures a rate limit decision in Redis: processor time of the server and of this process, and the bytes that a
 * caller takes there.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { silentLog } from "../../lib/base/log.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { WriteBatch } from "../../lib/base/event_loop.ts";
import type { Window } from "../../lib/store/counters.ts";
import { memoryCounters } from "../../lib/store/memory.ts";
import { RedisCounters } from "../../lib/store/redis.ts";
import { markdown, median } from "./figures.ts";

const CALLERS = 2_000;
const ROUNDS = 100;
/** Decisions of one round of the event loop. */
const TOGETHER = 100;

const window = (name: string, ms: number, limit: number): Window => ({ name, ms, limit });
const CASES: readonly (readonly [string, readonly Window[]])[] = [
  ["one window, limit 60", [window("minute", 60_000, 60)]],
  [
    "three windows, limits 20, 600, 10,000",
    [window("second", 1_000, 20), window("minute", 60_000, 600), window("hour", 3_600_000, 10_000)],
  ],
];

/** Prints its figures; there are no targets. Needs redis-server and redis-cli; the server is started on a free port. */
export async function counters(): Promise<boolean> {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-redis-"));
  const socket = join(folder, "redis.sock");
  const server = spawn(
    "redis-server",
    ["--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", "--enable-debug-command", "local"],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const ended = once(server, "exit");
  try {
    await new Promise<void>((resolve, reject) => {
      server.stdout!.on("data", (chunk: Buffer) => /ready to accept connections/i.test(String(chunk)) && resolve());
      ended.then(([code]) => reject(new Error(`redis-server ended with ${String(code)}`)), reject);
    });
    const rows: string[][] = [];
    for (const [what, windows] of CASES) rows.push([what, ...(await measured(socket, windows))]);
    console.log(
      `${execFileSync("redis-server", ["--version"]).toString().trim()}; ` +
        `Node ${process.versions.node}; a Unix socket\n`,
    );
    console.log(
      markdown(
        [
          "a decision",
          "server, µs",
          "gateway, µs",
          "one alone, µs",
          "bytes of a caller: one request",
          "64 requests or more in every window",
        ],
        rows,
      ),
    );
    return true;
  } finally {
    server.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measured(path: string, windows: readonly Window[]): Promise<string[]> {
  const cli = (...words: string[]) =>
    execFileSync("redis-cli", ["-s", path, ...words])
      .toString()
      .trim();
  cli("FLUSHALL");
  const store = new RedisCounters(
    {
      servers: [{ host: path, port: 1 }],
      isCluster: false,
      credentials: null,
      database: 0,
      timeoutMs: 10_000,
      onError: "deny",
      prefix: "edge-gateway:",
    },
    {
      ...{
        clock: systemClock,
        log: silentLog,
        local: memoryCounters(systemClock),
        errors: new Map(),
        writeBatch: new WriteBatch(),
        random: Math.random,
      },
      connect: () => ({ socket: net.connect(path), ready: "connect" }),
    },
  );
  const limiter = store.limiter("k", { windows, maxCallers: 10 });
  const round = (i: number) =>
    Promise.all(
      Array.from({ length: TOGETHER }, (_, j) => limiter.decide(`ip:10.0.0.${(i * TOGETHER + j) % CALLERS}`)),
    );
  await limiter.decide("one");
  const bytes = [bytesOf(cli)];
  for (let i = 0; i < ROUNDS; i++) await round(i);
  cli("CONFIG", "RESETSTAT");
  const before = process.cpuUsage();
  for (let i = 0; i < ROUNDS; i++) await round(i);
  const { user, system } = process.cpuUsage(before);
  const serverMicros = Number(/cmdstat_evalsha:.*usec_per_call=([\d.]+)/.exec(cli("INFO", "commandstats"))![1]);
  const alone: number[] = [];
  for (let i = 0; i < 1_000; i++) {
    const from = performance.now();
    await limiter.decide(`alone ${i}`);
    alone.push((performance.now() - from) * 1_000);
  }
  // The most that any limits take.
  const full = store.limiter("full", {
    windows: windows.map((each) => ({ ...each, limit: 64, ms: 3_600_000 })),
    maxCallers: 10,
  });
  cli("FLUSHALL");
  for (let i = 0; i < 64; i++) await full.decide("one");
  bytes.push(bytesOf(cli));
  await store.close();
  return [
    serverMicros.toFixed(1),
    ((user + system) / (ROUNDS * TOGETHER)).toFixed(1),
    median(alone).toFixed(0),
    ...bytes.map(String),
  ];
}

/** Of the only caller. */
function bytesOf(cli: (...words: string[]) => string): number {
  const key = cli("KEYS", "*")
    .split("\n")
    .find((each) => !each.includes("{probe}"))!;
  return Number(cli("MEMORY", "USAGE", key));
}

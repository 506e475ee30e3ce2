/**
 * Measures the cost of an access log line in both formats, with counting, batching and writing to a file. The target is
 * three microseconds.
 */
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { createLog } from "../../lib/base/log.ts";
import type { RequestFacts } from "../../lib/http/request_facts.ts";
import { Call } from "../../lib/http/exchange.ts";
import { jsonLines } from "../../lib/observe/access_line.ts";
import * as combinedLog from "../../lib/observe/combined_line.ts";
import * as logFilter from "../../lib/observe/line_filter.ts";
import * as serverTiming from "../../lib/observe/server_timing.ts";
import * as logFile from "../../lib/observe/log_file.ts";
import { AccessLog } from "../../lib/observe/access_log.ts";
import { printTable } from "./load.ts";

const MAX_NS = 3_000;
const LINES = 200_000;
/** The requests that end in a busy turn of the event loop. */
const PER_TURN = 20;
const ROUNDS = 5;

/** Prints its figures; true when the promise holds. */
export async function accessLog(): Promise<boolean> {
  const entries = Array.from({ length: 64 }, (_none, i) => entry(i));
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-bench-"));
  try {
    const figures: [string, number][] = [
      ["JSON.stringify of all fields, for comparison", spelt(entries, stringified)],
      ["a line of JSON", spelt(entries, jsonLines())],
      ["a line of the combined format", spelt(entries, combinedLog.combinedLines())],
      ["JSON, counted, batched, written to a file", await written(entries, "json", join(folder, "json.log"))],
      [
        "combined, counted, batched, written to a file",
        await written(entries, "combined", join(folder, "combined.log")),
      ],
    ];
    const fine = figures.map(([, ns], i) => i === 0 || ns < MAX_NS);
    printTable(
      ["figure", "ns a line", ""],
      figures.map(([what, ns], i) => [what, Math.round(ns), i === 0 ? "" : fine[i] ? "ok" : "FAILED"]),
    );
    return fine.every((each) => each);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The best of several rounds; the others were disturbed or warming up. */
function spelt(
  entries: readonly RequestFacts[],
  line: (entry: RequestFacts, now: number, wall: number) => string,
): number {
  let best = Infinity;
  let characters = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const began = performance.now();
    for (let i = 0; i < LINES; i++)
      characters += line(entries[i % entries.length]!, performance.now(), Date.now()).length;
    best = Math.min(best, (performance.now() - began) / LINES);
  }
  if (characters === 0) throw new Error("there were no lines");
  return best * 1e6;
}

/** Processor time, background work included. */
async function written(entries: readonly RequestFacts[], format: "json" | "combined", file: string): Promise<number> {
  const log = new AccessLog({
    sink: null,
    clock: systemClock,
    log: createLog(),
    features: { logs: { ...combinedLog, ...logFile, ...logFilter, ...serverTiming } },
  });
  log.start();
  log.apply({ enabled: true, format, sample: 1, exclude: [], file });
  let best = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage();
    for (let i = 0; i < LINES; i++) {
      const noted = entries[i % entries.length]!;
      log.write(noted, performance.now());
      if (i % PER_TURN === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const { user, system } = process.cpuUsage(before);
    best = Math.min(best, (user + system) / LINES);
  }
  await log.close();
  if (statSync(file).size < ROUNDS * LINES * 100) throw new Error("lines are missing");
  return best * 1e3;
}

function entry(i: number): RequestFacts {
  const call = new Call({
    id: `56f8d222-8133-46d6-b2ee-11f6d81d${8800 + i}`,
    remoteAddress: "192.0.2.1",
    trustedRemote: false,
    startedAt: performance.now(),
    inform: () => {},
    tlsVersion: "TLSv1.3",
  });
  const notes = {
    service: "orders",
    route: "GET /orders/{id}",
    status: 200,
    upstream: "10.0.1.9:8080",
    attempts: 1,
    upstreamMs: 3.21,
    received: 0,
    sent: 1234,
  };
  Object.assign(call.notes, notes, { answeredAt: call.startedAt + 4.56, identity: "anna" });
  return {
    call,
    method: "GET",
    target: `/orders/${i}?page=2`,
    httpVersion: "1.1",
    scheme: "https",
    authority: "shop.example",
    clientAddress: `192.0.2.${i}`,
    headers: [
      ...[
        "Host",
        "shop.example",
        "User-Agent",
        "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
        "Accept",
        "*/*",
      ],
      ...[
        "Accept-Encoding",
        "gzip, br",
        "traceparent",
        `00-0af7651916cd43dd8448eb211c8031${10 + i}-b7ad6b7169203331-01`,
      ],
    ],
  };
}

function stringified(
  { call, method, scheme, authority, target, httpVersion, clientAddress, headers }: RequestFacts,
  now: number,
  wall: number,
): string {
  const { notes } = call;
  const fields = {
    time: new Date(wall).toISOString(),
    request_id: call.id,
    trace_id: headers[9]!.slice(3, 35),
    client_ip: clientAddress,
    method,
    ...{ scheme, host: authority, tls: call.tlsVersion },
    path: target.split("?", 1)[0],
    protocol: `HTTP/${httpVersion}`,
    ...{
      status: notes.status,
      code: notes.code,
      bytes_received: notes.received,
      bytes_sent: notes.sent,
      service: notes.service,
      route: notes.route,
    },
    ...{
      upstream: notes.upstream,
      attempts: notes.attempts,
      caller: notes.identity,
      duration_ms: Math.round((now - call.startedAt) * 100) / 100,
    },
    ...{ upstream_ms: notes.upstreamMs, plugins_ms: 1.35, user_agent: headers[3] },
  };
  return `${JSON.stringify(fields)}\n`;
}

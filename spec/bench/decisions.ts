/**
 * Measures what it costs to remember a request, besides an empty loop and the metrics of the same request: `npx tsx
 * spec/bench/decisions.ts`.
 */
import { systemClock } from "../../lib/base/clock.ts";
import { Call } from "../../lib/http/exchange.ts";
import { jsonLines } from "../../lib/observe/access_line.ts";
import { Decisions } from "../../lib/observe/decisions.ts";
import { Metrics } from "../../lib/observe/metrics_plan.ts";

const REQUESTS = 1_000_000;
const ROUNDS = 5;

const decisions = new Decisions(systemClock);
decisions.ring = decisions.ringFor(10_000, (_name, bytes) => new SharedArrayBuffer(bytes));
const metrics = new Metrics();
const line = jsonLines();
const inbounds = Array.from({ length: 64 }, (_, i) => inboundOf(i));

function inboundOf(i: number) {
  const call = new Call({
    id: crypto.randomUUID(),
    remoteAddress: "203.0.113.9",
    trustedRemote: false,
    startedAt: 0,
    inform() {},
  });
  const isRefused = i % 8 === 0;
  const tried = isRefused
    ? null
    : { upstream: `127.0.0.1:${9001 + (i % 3)}`, status: 200, from: 0.5, ms: 1.25, before: null };
  const facts = {
    status: isRefused ? 403 : 200,
    code: isRefused ? "forbidden" : null,
    service: "shop",
    route: `items ${i % 20}`,
    digest: "0123456789ab",
  };
  Object.assign(call.notes, facts, { tried, attempts: isRefused ? 0 : 1 });
  const rest = { httpVersion: "1.1", scheme: "http", headers: ["Host", "shop.example.com"] } as const;
  // As parsers make it: another string each time.
  const authority = Buffer.from("shop.example.com").toString("latin1");
  return { call, method: "GET", target: `/shop/items/${i}?page=1`, authority, clientAddress: "203.0.113.9", ...rest };
}

let sink = 0;
const jobs: Readonly<Record<string, (i: number) => void>> = {
  nothing: (i) => void (sink += inbounds[i & 63]!.target.length),
  metrics: (i) => metrics.unrouted.ended("GET", inbounds[i & 63]!.call.notes, 1),
  line: (i) => void (sink += line(inbounds[i & 63]!, 2, 1e12).length),
  decision: (i) => decisions.add(inbounds[i & 63]!, 2),
};

const best: Record<string, number> = {};
for (let round = 0; round < ROUNDS; round++) {
  for (const [name, job] of Object.entries(jobs)) {
    const start = performance.now();
    for (let i = 0; i < REQUESTS; i++) job(i);
    best[name] = Math.min(best[name] ?? Infinity, ((performance.now() - start) / REQUESTS) * 1e6);
  }
}
for (const [name, ns] of Object.entries(best)) console.log(`${name.padEnd(10)} ${ns.toFixed(0).padStart(5)} ns`);
console.log(
  `decision / line: ${((best.decision! - best.nothing!) / (best.line! - best.nothing!)).toFixed(2)}`,
  sink > 0 ? "" : "?",
);

/**
 * Measures the cost of metrics: nanoseconds per request and per try, and the time to write the text of a large
 * configuration.
 */
import type { Notes } from "../../lib/http/exchange.ts";
import { createGateway } from "../../lib/index.ts";
import { METHODS } from "../../lib/base/http_grammar.ts";
import { type RouteMeter, type ServiceMeter } from "../../lib/observe/metrics.ts";
import { Metrics } from "../../lib/observe/metrics_plan.ts";

const ROUTES = 1_000;
/** The routes in the text that is written while requests arrive. */
const MAX_ROUTES = 10_000;
/** The longest delay of a request by a scrape, in milliseconds. */
const MAX_TURN_MS = 20;
const ROUNDS = 5_000_000;
/** A whole request takes about a hundred times as much processor time. */
const MAX_NS = 500;

export async function metrics(): Promise<boolean> {
  const { routes, meter, upstreams } = filled();
  const notes = [200, 200, 200, 304, 404, 502].map(
    (status) => ({ status, code: null, route: "r", attempts: 1 }) as Notes,
  );
  const measure = (): { requestNs: number; grownBytes: number } => {
    const heap = process.memoryUsage().heapUsed;
    const begun = performance.now();
    for (let i = 0; i < ROUNDS; i++) {
      routes[i % ROUTES]!.ended(METHODS[i % 3]!, notes[i % notes.length]!, i % 100);
      meter.tried(upstreams[i % upstreams.length]!, i % 100, 200);
    }
    return {
      requestNs: ((performance.now() - begun) * 1e6) / ROUNDS,
      grownBytes: (process.memoryUsage().heapUsed - heap) / ROUNDS,
    };
  };
  measure(); // warms up
  const { requestNs, grownBytes } = measure();
  console.log(
    `a request with one try: ${requestNs.toFixed(0)} ns, ` +
      `${Math.max(0, grownBytes).toFixed(2)} bytes allocated; at most ${MAX_NS} ns`,
  );

  const gateway = createGateway({
    config: {
      services: [{ name: "s", base_path: "/", upstreams: [{ host: "127.0.0.1", port: 9 }], routes: many(MAX_ROUTES) }],
    },
  });
  for (let i = 0; i < MAX_ROUTES; i++) await gateway.inject({ url: `/r${i}` });
  gateway.metrics();
  const begun = performance.now();
  const text = gateway.metrics();
  console.log(
    `the text of ${MAX_ROUTES} routes: ${(performance.now() - begun).toFixed(0)} ms at once, ` +
      `${(text.length / 1024).toFixed(0)} KiB`,
  );
  let turnMs = Infinity;
  // The best of some rounds: the others were disturbed or not compiled yet.
  for (let round = 0; round < 5; round++) {
    const longest = await longestTurnMs(async () => {
      for await (const _slice of gateway.metricsStream());
    });
    turnMs = Math.min(turnMs, longest);
  }
  console.log(
    `as a stream: the longest turn of the event loop took ${turnMs.toFixed(1)} ms; at most ${MAX_TURN_MS} ms`,
  );
  await gateway.close(0);
  return requestNs <= MAX_NS && turnMs <= MAX_TURN_MS;
}

/** The longest turn of the event loop while `act` runs, in milliseconds. */
async function longestTurnMs(act: () => Promise<void>): Promise<number> {
  let longest = 0;
  let last = performance.now();
  let isOver = false;
  const turn = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  await act();
  isOver = true;
  return longest;
}

function many(count: number): { name: string; path: string }[] {
  return Array.from({ length: count }, (_, i) => ({ name: `r${i}`, path: `/r${i}` }));
}

function filled(): { routes: readonly RouteMeter[]; meter: ServiceMeter; upstreams: readonly string[] } {
  const upstreams = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"];
  const all = new Metrics();
  const plan = all.plan();
  const { routes, meter } = plan.service({
    name: "s",
    upstreams: upstreams.map((id) => ({ id })),
    routes: many(ROUTES),
  });
  plan.apply();
  return { routes: [...routes.values()], meter, upstreams };
}

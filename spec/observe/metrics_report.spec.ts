import { describe, expect, it } from "vitest";
import { Notes, type CacheResult } from "../../lib/http/exchange.ts";
import { type RouteMeter } from "../../lib/observe/metrics.ts";
import { Metrics } from "../../lib/observe/metrics_plan.ts";
import { addMetrics, takeMetrics } from "../../lib/observe/metrics_report.ts";
import { Stats } from "../../lib/observe/stats.ts";
import { manualClock } from "../support/clock.ts";
import { random as seeded, type Random } from "../support/random.ts";

const SERVICES = ["orders", "users"];
const ROUTES = ["list", "one", "all"];
const UPSTREAMS = ["a", "b"];
const PLUGIN = { name: "key_auth", level: "global", service: null, route: null, id: "1" };

function made(routes = ROUTES) {
  const metrics = new Metrics();
  const plan = metrics.plan();
  for (const name of SERVICES)
    plan.service({
      name,
      upstreams: UPSTREAMS.map((id) => ({ id })),
      routes: routes.map((route) => ({ name: route })),
    });
  const plugin = plan.plugin(PLUGIN);
  plan.apply();
  return { metrics, plugin };
}

type Made = ReturnType<typeof made>;

/** Sends a worker's report to the main thread, as a copy. */
function report(worker: Made, whole: Made, hold: (meter: RouteMeter, inFlight: number) => void = () => {}): void {
  addMetrics(whole.metrics, structuredClone(takeMetrics(worker.metrics)), hold);
}

/** Something that is counted, for any of several copies of the same meters. */
function event({ pick, chance, int, next }: Random): (to: Made) => void {
  const [service, route, upstream, ms] = [
    pick(SERVICES),
    chance(0.1) ? null : pick(ROUTES),
    pick(UPSTREAMS),
    Math.exp(next() * 12 - 3),
  ];
  const method = pick(["GET", "POST", "BREW"]);
  const notes = Object.assign(new Notes(), {
    route,
    status: pick([200, 200, 304, 404, 429, 502, 101, 700, null]),
    code: pick([null, null, "rate_limited", "key_missing", "upstream_timeout", `own_${int(1, 100)}`]),
    cache: pick<CacheResult | null>([null, "hit", "miss"]),
    received: pick([null, 0, int(1, 5_000)]),
    sent: pick([null, int(1, 5_000)]),
  });
  const [requests, tries, retries] = [int(0, 2), int(0, 2), int(0, 1)];
  const [status, result] = [pick([200, 503, null]), pick(["sent", "dropped"])];
  return ({ metrics, plugin }) => {
    const { meter, routes } = metrics.services.get(service)!;
    (route === null ? metrics.unrouted : routes.get(route)!).ended(method, notes, ms);
    for (let i = 0; i < tries; i++) meter.tried(upstream, ms / 2, status);
    for (let i = 0; i < retries; i++) meter.retried();
    plugin.requests += requests;
    plugin.ms += requests * ms;
    if (requests === 2) plugin.tally(result);
  };
}

/**
 * Everything that metrics and statistics are made of. Sums of times are rounded: their order decides about the last
 * digits.
 */
function all({ metrics, plugin }: Made, stats: Stats) {
  const rounded = (ms: number) => Number(ms.toPrecision(9));
  const byCode = (refused: readonly (readonly [string, number])[]) => ({
    // Which codes are counted together depends on the order.
    codes: refused.filter(([code]) => !/^own_|^other$/.test(code)),
    inAll: rounded(refused.reduce((sum, [, count]) => sum + count, 0)),
  });
  const read = stats.read("all", { total: 0, upstream: () => 0 });
  const ofRoute = (meter: RouteMeter) => {
    const { recent, rateLimited, receivedBytes, sentBytes, cached, refusals } = meter;
    const requests = [...meter.requests()].map(([method, code, count]) => `${method} ${code} ${count}`).sort();
    const named = (counts: ReadonlyMap<string, number> | null) => [...(counts ?? [])].sort();
    return {
      counts: recent.counts,
      sumMs: rounded(recent.sumMs),
      rateLimited,
      receivedBytes,
      sentBytes,
      requests,
      cached: named(cached),
      refused: byCode(named(refusals)),
    };
  };
  return {
    unrouted: ofRoute(metrics.unrouted),
    services: Array.from(metrics.services, ([name, { meter, routes }]) => ({
      name,
      retries: meter.retries,
      routes: Array.from(routes, ([route, of]) => [route, ofRoute(of)]),
      upstreams: Array.from(meter.upstreams, ([id, { counts, sumMs }]) => [id, counts, rounded(sumMs)]),
    })),
    plugin: [plugin.requests, rounded(plugin.ms), [...(plugin.results ?? [])].sort()],
    stats: { ...read, codesPerS: byCode(Object.entries(read.codesPerS).sort()) },
  };
}

describe("the reports of workers", () => {
  it(
    "add up to what one thread would have counted, for any requests, any worker of each, " +
      "and any moments of the reports",
    () => {
      for (let seed = 1; seed <= 40; seed++) {
        const random = seeded(seed);
        const clock = manualClock();
        const [one, whole] = [made(), made()];
        const [ofOne, ofWhole] = [new Stats(clock, one.metrics), new Stats(clock, whole.metrics)];
        const workers = random.list(1, 4, () => made());
        for (let i = 0; i < 300; i++) {
          const count = event(random);
          count(one);
          count(random.pick(workers));
          if (random.chance(0.1)) report(random.pick(workers), whole);
          if (random.chance(0.05)) {
            for (const worker of workers) report(worker, whole);
            expect(all(whole, ofWhole), `seed ${seed}`).toEqual(all(one, ofOne));
            clock.advance(random.int(1, 20_000));
          }
        }
        for (const worker of workers) report(worker, whole);
        expect(all(whole, ofWhole), `seed ${seed}`).toEqual(all(one, ofOne));
      }
    },
  );

  it("have each count once: a second report without requests between has none", () => {
    const random = seeded(3);
    const [worker, whole] = [made(), made()];
    const stats = new Stats(manualClock(), whole.metrics);
    for (let i = 0; i < 50; i++) event(random)(worker);
    report(worker, whole);
    const before = all(whole, stats);
    expect(takeMetrics(worker.metrics)).toMatchObject({ services: [], plugins: [], pluginFaults: [] });
    report(worker, whole);
    expect(all(whole, stats)).toEqual(before);
  });

  it("have the requests in flight of each route at their moment", () => {
    const [worker, whole] = [made(), made()];
    const [busy, quiet] = ["one", "all"].map((route) => worker.metrics.services.get("users")!.routes.get(route)!);
    busy!.inFlight = 3;
    quiet!.ended("GET", Object.assign(new Notes(), { status: 200 }), 1);
    const held = new Map<RouteMeter, number>();
    report(worker, whole, (meter, inFlight) => held.set(meter, inFlight));
    const { routes } = whole.metrics.services.get("users")!;
    expect([...held]).toEqual([
      [routes.get("one"), 3],
      [routes.get("all"), 0],
    ]);
    expect(busy!.inFlight).toBe(3);
  });

  it("count in all the requests of a route that end after a reload of the worker has removed it", () => {
    const [worker, whole] = [made(), made()];
    const removed = worker.metrics.services.get("orders")!.routes.get("one")!;
    removed.inFlight = 1;
    for (const { metrics } of [worker, whole]) {
      const plan = metrics.plan();
      plan.service({ name: "orders", upstreams: [], routes: [{ name: "list" }] });
      plan.apply();
    }
    const notes = Object.assign(new Notes(), { status: 200, meter: removed });
    removed.ended("GET", notes, 5);
    report(worker, whole);
    expect(whole.metrics.total.requests).toBe(1);
    report(worker, whole);
    expect(whole.metrics.total.requests).toBe(1);
  });

  it(
    "count requests in all only where the main thread has another configuration, " +
      "and leave the rest of the report readable",
    () => {
      const random = seeded(5);
      const [worker, whole, one] = [made(), made(["one"]), made()];
      for (let i = 0; i < 100; i++) {
        const count = event(random);
        count(worker);
        count(one);
      }
      report(worker, whole);
      const stats = (of: Made) => all(of, new Stats(manualClock(), of.metrics));
      const [told, expected] = [stats(whole), stats(one)];
      expect([told.unrouted, told.plugin, told.stats.total]).toEqual([
        expected.unrouted,
        expected.plugin,
        expected.stats.total,
      ]);
      for (const [i, { routes, retries, upstreams }] of expected.services.entries()) {
        expect(told.services[i]).toEqual({
          name: SERVICES[i],
          retries,
          upstreams,
          routes: routes.filter(([name]) => name === "one"),
        });
      }
    },
  );

  it("have the tries of endpoints that have no name of their own in the main thread counted as those of others", () => {
    const following = (isFollowing: boolean, ...labels: readonly string[]) => {
      const metrics = new Metrics();
      const plan = metrics.plan();
      plan.service({ name: "s", upstreams: [{ id: "u" }], routes: [] });
      const peers = labels.map((label) => ({ id: label, label, group: null }));
      if (isFollowing) plan.setUpstreams("s", peers, 0);
      plan.apply();
      return metrics;
    };
    const counted = (from: Metrics, to: Metrics) => {
      const { meter } = from.services.get("s")!;
      for (const label of meter.upstreams.keys()) meter.tried(label, 1, 200);
      addMetrics(to, structuredClone(takeMetrics(from)), () => {});
      return Array.from(to.services.get("s")!.meter.upstreams, ([label, { requests }]) => [label, requests]);
    };
    const main = following(true, "u/a:1", "u/b:1");
    const worker = following(true, "u/a:1", "u/c:1", "other");
    expect(counted(worker, main)).toEqual([
      ["u/a:1", 1],
      ["u/b:1", 0],
      ["other", 2],
    ]);
    expect(counted(worker, main).at(-1)).toEqual(["other", 4]);
    // An upstream that a reload has removed is no endpoint.
    expect(counted(worker, following(false))).toEqual([["u", 0]]);
  });
});

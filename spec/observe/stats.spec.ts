import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { createGateway, type Gateway, type TryFigures } from "../../lib/index.ts";
import type { Notes } from "../../lib/http/exchange.ts";
import { Metrics } from "../../lib/observe/metrics_plan.ts";
import { DURATION_BUCKETS, Counts, Recent } from "../../lib/observe/metrics.ts";
import { Stats } from "../../lib/observe/stats.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { closedPort } from "../support/origin.ts";
import { random as seeded } from "../support/random.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";

const named = (port: number | readonly number[], ...routes: string[]): AnyConfigInput =>
  oneService(port, { routes: routes.map((name) => ({ path: `/${name}`, name })) });

async function timed(config: AnyConfigInput): Promise<{ gateway: Gateway; port: number; clock: ManualClock }> {
  const clock = manualClock();
  const { gateway, port } = await running(config, { clock });
  return { gateway, port, clock };
}

const routeOf = (gateway: Gateway, name: string) =>
  gateway.stats.services[0]!.routes.find((route) => route.name === name);

describe("times in buckets", () => {
  it(
    "times in buckets give every quantile within 6.25 % of the true value, " + "apart from rounding to three digits",
    () => {
      const { next: random } = seeded(7);
      for (let round = 0; round < 50; round++) {
        const times = Array.from({ length: 1 + Math.floor(random() * 300) }, () =>
          Math.exp(Math.log(0.1) + random() * Math.log(1e6)),
        );
        const steps = { current: 0 };
        const recent = new Recent(steps);
        const sum = new Counts();
        for (const ms of times) recent.count(false, false, ms);
        if (random() < 0.5) steps.current++;
        recent.addTo(sum, "window");
        times.sort((a, b) => a - b);
        for (const share of [0.01, 0.5, 0.95, 0.99, 1]) {
          const exact = times[Math.max(1, Math.ceil(share * times.length)) - 1]!;
          expect(Math.abs(sum.quantile(share)! / exact - 1)).toBeLessThan(0.068);
        }
      }
    },
  );

  it(
    "times in buckets count exactly the times up to each of Prometheus' bounds, " +
      "over past steps and the current one",
    () => {
      const { next: random } = seeded(11);
      const steps = { current: 0 };
      const recent = new Recent(steps);
      const times: number[] = [];
      for (const bound of DURATION_BUCKETS)
        for (const factor of [0.9, 1 - 1e-9, 1, 1 + 1e-9, 1.1]) times.push(bound * 1000 * factor);
      for (let i = 0; i < 2_000; i++) times.push(Math.exp(Math.log(0.01) + random() * Math.log(1e7)));
      for (const [i, ms] of times.entries()) {
        recent.count(false, false, ms);
        if (i % 100 === 99) steps.current++;
      }
      let below = 0;
      for (const [i, bound] of DURATION_BUCKETS.entries())
        expect([bound, (below += recent.counts![i]!)]).toEqual([
          bound,
          times.filter((ms) => ms <= bound * 1000).length,
        ]);
      expect(below + recent.counts!.at(-1)!).toBe(times.length);
      expect(recent.sumMs).toBeCloseTo(
        times.reduce((sum, ms) => sum + ms, 0),
        3,
      );
    },
  );

  it("times in buckets keep Prometheus' counts after the last request has left the window", () => {
    const steps = { current: 0 };
    const recent = new Recent(steps);
    recent.count(false, false, 7);
    steps.current += 20;
    expect([recent.isActive, recent.counts!.reduce((sum, count) => sum + count, 0)]).toEqual([false, 1]);
  });

  it("times in buckets put times shorter or longer than all bounds into the first or the last bucket", () => {
    const recent = new Recent();
    const sum = new Counts();
    for (const ms of [0, 0.01, 1e9, Infinity]) recent.count(false, false, ms);
    recent.addTo(sum, "step");
    expect([sum.quantile(0.5), sum.quantile(1)]).toEqual([0.0664, 1_020_000]);
  });

  it(
    "times in buckets have no quantile without times, " +
      "and make a route inactive once its last request has left the window",
    () => {
      const steps = { current: 0 };
      const recent = new Recent(steps);
      expect([recent.isActive, new Counts().quantile(0.5)]).toEqual([false, null]);
      recent.count(false, false, 1);
      for (let i = 0; i < 11; i++) {
        steps.current++;
        expect(recent.isActive).toBe(true);
      }
      steps.current++;
      expect(recent.isActive).toBe(false);
    },
  );
});

describe("figures of the last minute", () => {
  it(
    "figures of the last minute have rates, errors, rate limits and times by route, " + "by upstream and in total",
    async () => {
      const clock = manualClock();
      const { port } = await backend((request, response) => {
        clock.advance(20);
        response.writeHead(request.url === "/bad" ? 503 : 200).end();
      });
      const config = oneService(port, {
        health: { passive: { max_failures: 0 } },
        routes: [
          { path: "/ok", name: "ok" },
          { path: "/bad", name: "bad" },
          { path: "/few", name: "few", plugins: [{ name: "rate_limit", config: { limit_hour: 1 } }] },
        ],
      });
      const { gateway } = await running(config, { clock });
      clock.advance(59_000);
      for (const path of ["/a/ok", "/a/ok", "/a/bad", "/a/few", "/a/few", "/a/few", "/nowhere"])
        await gateway.inject({ url: path });
      const { total, services, windowS } = gateway.stats;
      expect(windowS).toBe(60);
      const [service] = services;
      const seconds = 59.08;
      const row = (figures: TryFigures & { readonly limitedPerS?: number }) =>
        [figures.requestsPerS, figures.errorsPerS, figures.limitedPerS ?? NaN]
          .map((each) => each * seconds)
          .map((each) => Math.round(each * 100) / 100);
      expect(service!.routes.map((route) => [route.name, ...row(route)])).toEqual([
        ["ok", 2, 0, 0],
        ["bad", 1, 1, 0],
        ["few", 3, 0, 2],
      ]);
      expect(service!.upstreams.map((upstream) => [upstream.id, ...row(upstream)])).toEqual([
        [`127.0.0.1:${port}`, 4, 1, NaN],
      ]);
      expect(row(total)).toEqual([7, 1, 2]);
      for (const { p50Ms, p99Ms } of [...service!.upstreams, service!.routes[0]!])
        for (const ms of [p50Ms!, p99Ms!]) expect(Math.abs(ms / 20 - 1)).toBeLessThan(0.07);
      expect(total.p50Ms).toBeGreaterThan(18);
    },
  );

  it(
    "figures of the last minute have classes of statuses and refusals with 401, 403 and 404, of the gateway, " +
      "services, routes, and of requests without a route",
    async () => {
      const { port } = await backend(
        (request, response) => void response.writeHead(Number(request.url!.slice(1))).end(),
      );
      const closed = [{ name: "key_auth", config: { key: "k" } }];
      const config = oneService(port, {
        routes: [
          { path: "/{status}", name: "open" },
          { path: "/closed", name: "closed", plugins: closed },
          { path: "/from", name: "from", plugins: [{ name: "acl", config: { whitelist: ["10.0.0.0/8"] } }] },
        ],
      });
      const { gateway, clock } = await timed(config);
      clock.advance(9_000);
      for (const path of [
        "/a/200",
        "/a/204",
        "/a/302",
        "/a/404",
        "/a/410",
        "/a/500",
        "/a/closed",
        "/a/from",
        "/nowhere",
        "/none",
        "/a/../x",
      ])
        await gateway.inject({ url: path });
      clock.advance(1_000);
      const { total, unrouted, services, point, history } = gateway.stats;
      const counts = (rates: Readonly<Record<string, number>>) =>
        Object.fromEntries(Object.entries(rates).map(([name, rate]) => [name, Math.round(rate * 10)]));
      expect(services[0]!.routes.map(({ statusesPerS }) => counts(statusesPerS))).toEqual([
        { "2xx": 2, "3xx": 1, "4xx": 2, "5xx": 1, "404": 1 },
        { "4xx": 1, "401": 1 },
        { "4xx": 1, "403": 1 },
      ]);
      expect(counts(services[0]!.total.statusesPerS)).toEqual({
        "2xx": 2,
        "3xx": 1,
        "4xx": 4,
        "5xx": 1,
        "401": 1,
        "403": 1,
        "404": 1,
      });
      expect([counts(unrouted.statusesPerS), Math.round(unrouted.requestsPerS * 10)]).toEqual([
        { "4xx": 3, "404": 2 },
        3,
      ]);
      expect(counts(total.statusesPerS)).toEqual({
        "2xx": 2,
        "3xx": 1,
        "4xx": 7,
        "5xx": 1,
        "401": 1,
        "403": 1,
        "404": 3,
      });
      expect([point.statuses, history.at(-1)!.statuses]).toEqual([
        {},
        { "2xx": 2, "3xx": 1, "4xx": 7, "5xx": 1, "401": 1, "403": 1, "404": 3 },
      ]);
    },
  );

  it(
    "figures of the last minute have the codes of the gateway's errors, " + "without those of upstreams' replies",
    async () => {
      const { port } = await backend((_request, response) => void response.writeHead(500).end());
      const config = oneService(port, {
        routes: [
          { path: "/open", name: "open" },
          { path: "/closed", name: "closed", plugins: [{ name: "key_auth", config: { key: "k" } }] },
        ],
      });
      const { gateway, clock } = await timed(config);
      clock.advance(9_000);
      for (const path of ["/a/open", "/a/closed", "/a/closed", "/nowhere"]) await gateway.inject({ url: path });
      clock.advance(1_000);
      expect(gateway.stats.codesPerS).toEqual({ key_missing: 0.2, route_not_found: 0.1 });
      clock.advance(40_000);
      await gateway.inject({ url: "/a/closed" });
      expect(Object.keys(gateway.stats.codesPerS)).toEqual(["key_missing", "route_not_found"]);
      clock.advance(15_000);
      expect(Object.keys(gateway.stats.codesPerS)).toEqual(["key_missing"]);
      expect(gateway.stats.codesPerS.key_missing! * 60).toBeCloseTo(1, 0);
      clock.advance(60_000);
      expect(gateway.stats.codesPerS).toEqual({});
    },
  );

  it(
    "figures of the last minute have 64 codes at most: " +
      'those of an embedder\'s plugins are counted together as "other"',
    () => {
      const metrics = new Metrics();
      const notes = (code: string) =>
        ({
          status: 403,
          code,
          route: null,
          attempts: 0,
          meter: null,
          received: null,
          sent: null,
          cache: null,
        }) as unknown as Notes;
      for (let i = 0; i < 100; i++) metrics.unrouted.ended("GET", notes(`own_${i}`), 1);
      const { codesPerS } = new Stats(manualClock(), metrics).read("total", { total: 0, upstream: () => 0 });
      expect([Object.keys(codesPerS).length, codesPerS.other]).toEqual([65, 36]);
    },
  );

  it(
    "figures of the last minute have percentiles of all requests of a service and of a group, " +
      "instead of those of the slowest member",
    () => {
      const clock = manualClock();
      const metrics = new Metrics();
      const plan = metrics.plan();
      const upstreams = [{ id: "a" }, { id: "b", group: "canary" }, { id: "c", group: "canary" }];
      const { meter, routes } = plan.service({ name: "s", upstreams, routes: [{ name: "busy" }, { name: "slow" }] });
      plan.apply();
      const notes = {
        status: 200,
        code: null,
        route: "r",
        attempts: 1,
        meter: null,
        received: null,
        sent: null,
        cache: null,
        isTimed: true,
      } as unknown as Notes;
      for (let i = 0; i < 99; i++) (routes.get("busy")!.ended("GET", notes, 10), meter.tried("b", 10, 200));
      (routes.get("slow")!.ended("GET", notes, 1000), meter.tried("c", 1000, 200), meter.tried("a", 5, 200));
      const [service] = new Stats(clock, metrics).read("services", {
        total: 0,
        upstream: (_service, id) => (id === "a" ? 0 : 1),
      }).services;
      expect(service).toMatchObject({ name: "s", routes: [], upstreams: [] });
      const { p50Ms, p95Ms, p99Ms } = service!.total;
      for (const ms of [p50Ms, p95Ms, p99Ms]) expect(Math.abs(ms! / 10 - 1)).toBeLessThan(0.07);
      expect(
        service!.groups.map(({ group, inFlight, p95Ms: ofGroup }) => [group, inFlight, Math.round(ofGroup!)]),
      ).toEqual([
        [null, 0, 5],
        ["canary", 2, 10],
      ]);
    },
  );

  it(
    "figures of the last minute are computed of one service alone, or of none, " + "where no more is asked for",
    async () => {
      const { port } = await backend();
      const [one, two] = [
        oneService(port).services[0]!,
        { ...oneService(port).services[0]!, name: "two", base_path: "/two" },
      ];
      const { gateway } = await timed({ services: [one, two] });
      for (const path of ["/a/x", "/two/x"]) await gateway.inject({ url: path });
      const names = (extent: Parameters<Gateway["recentStats"]>[0]) =>
        gateway.recentStats(extent).services.map(({ name, routes }) => [name, routes.length]);
      expect([names("total"), names({ service: "two" }), names("services"), names("busy")]).toEqual([
        [],
        [["two", 1]],
        [
          ["s", 0],
          ["two", 0],
        ],
        [
          ["s", 1],
          ["two", 1],
        ],
      ]);
    },
  );

  it("figures of the last minute count a try without an answer as an error of its upstream", async () => {
    const { gateway, clock } = await timed(named(await closedPort(), "r"));
    await gateway.inject({ url: "/a/r" });
    clock.advance(10_000);
    const { routes, upstreams } = gateway.stats.services[0]!;
    expect([routes[0]!.errorsPerS, upstreams[0]!.errorsPerS]).toEqual([0.1, 0.1]);
  });

  it(
    "figures of the last minute leave out requests older than a minute, " +
      "and include quiet routes and upstreams with zeros",
    async () => {
      const { port } = await backend();
      const { gateway, clock } = await timed(named(port, "one", "two"));
      await gateway.inject({ url: "/a/one" });
      clock.advance(10_000);
      expect(routeOf(gateway, "one")!.requestsPerS).toBe(0.1);
      expect(routeOf(gateway, "two")).toMatchObject({ requestsPerS: 0, p50Ms: null, p99Ms: null, inFlight: 0 });
      clock.advance(44_999);
      expect(routeOf(gateway, "one")!.requestsPerS).toBeGreaterThan(0.018);
      clock.advance(10_001);
      const { routes, upstreams } = gateway.stats.services[0]!;
      expect([...routes, ...upstreams].map(({ requestsPerS, p50Ms }) => [requestsPerS, p50Ms])).toEqual([
        [0, null],
        [0, null],
        [0, null],
      ]);
    },
  );

  it("figures of the last minute have only routes that are busy, where those are asked for", async () => {
    const { port } = await backend();
    const { gateway, clock } = await timed(named(port, "one", "two"));
    expect(gateway.recentStats("busy").services).toEqual([]);
    await gateway.inject({ url: "/a/one" });
    clock.advance(6_000);
    const { services } = gateway.recentStats("busy");
    expect(services.map(({ routes, upstreams }) => [routes.map(({ name }) => name), upstreams.length])).toEqual([
      [["one"], 1],
    ]);
    clock.advance(60_000);
    expect(gateway.recentStats("busy").services).toEqual([]);
  });

  it(
    "figures of the last minute have the requests in flight of each route and upstream, even over a reload, " +
      "without refused requests",
    async () => {
      const held = await backend((request, response) => void (request.url === "/one" ? null : response.end()));
      const { gateway, port, clock } = await timed(named(held.port, "one", "two"));
      const client = await connect(port);
      client.send("GET /a/one HTTP/1.1\r\nHost: a\r\n\r\n");
      await eventually(() => held.seen.length === 1, "one request at the upstream");
      await gateway.reload(named(held.port, "one", "two", "three"));
      await ask(port, { path: "/a/two" });
      await ask(port, { path: "/nowhere" });
      const inFlight = () => {
        const { total, services } = gateway.stats;
        return [
          total.inFlight,
          ...services[0]!.routes.map((route) => route.inFlight),
          services[0]!.upstreams[0]!.inFlight,
        ];
      };
      expect(inFlight()).toEqual([1, 1, 0, 0, 1]);
      clock.advance(300_000);
      expect(gateway.recentStats("busy").services[0]!.routes.map(({ name, inFlight }) => [name, inFlight])).toEqual([
        ["one", 1],
      ]);
      client.socket.destroy();
      await eventually(() => gateway.inFlight === 0, "no request in flight");
      expect(inFlight()).toEqual([0, 0, 0, 0, 0]);
    },
  );

  it(
    "figures of the last minute continue over reloads for names that stay, " + "and start from 0 for names that return",
    async () => {
      const { port } = await backend();
      const { gateway, clock } = await timed(named(port, "one", "two"));
      for (const path of ["/a/one", "/a/two"]) await gateway.inject({ url: path });
      clock.advance(10_000);
      await gateway.reload(named(port, "one"));
      await gateway.reload(named(port, "one", "two"));
      expect([routeOf(gateway, "one")!.requestsPerS, routeOf(gateway, "two")!.requestsPerS]).toEqual([0.1, 0]);
    },
  );
});

describe("the end of a step", () => {
  const ROUTES = Array.from({ length: 450 }, (_, i) => ({ name: `r${i}` }));
  const NONE = { total: 0, upstream: () => 0 };

  /** Stats of 450 routes and an upstream, counted by hand. */
  function manyRoutes() {
    const clock = manualClock();
    const metrics = new Metrics();
    const plan = metrics.plan();
    const { meter, routes } = plan.service({ name: "s", upstreams: [{ id: "u" }], routes: ROUTES });
    plan.apply();
    const stats = new Stats(clock, metrics);
    stats.start();
    const count = (route: string, ms: number) => {
      routes
        .get(route)!
        .ended("GET", { status: 200, code: null, route, attempts: 1, meter: null } as unknown as Notes, ms);
      meter.tried("u", ms, 200);
    };
    return { clock, stats, count, routes };
  }

  it(
    "the end of a step does not iterate over routes: each route ends its step at its next request or reading, " +
      "and every request counts once",
    () => {
      const { clock, stats, count, routes } = manyRoutes();
      for (const { name } of ROUTES) count(name, 10);
      const looked: string[] = [];
      for (const { recent } of routes.values()) recent.addTo = () => void looked.push("route");
      clock.advance(9_000);
      expect(looked).toEqual([]);
      for (const { recent } of routes.values()) delete (recent as Partial<Recent>).addTo;
      for (const name of ["r0", "r449"]) count(name, 20);
      const { history, point, total, services } = stats.read("all", NONE);
      expect([history.map(({ requests }) => requests), point.requests, Math.round(total.requestsPerS * 9)]).toEqual([
        [450],
        2,
        452,
      ]);
      expect(services[0]!.routes.reduce((sum, { requestsPerS }) => sum + requestsPerS, 0)).toBeCloseTo(452 / 9);
      expect(services[0]!.upstreams[0]!.requestsPerS).toBeCloseTo(452 / 9);
      expect(clock.pending).toBe(1);
    },
  );

  it(
    "the end of a step gives the same figures to a reader of each second and to a " + "reader of once in 37 seconds",
    () => {
      const { next: random } = seeded(11);
      const [often, once] = [manyRoutes(), manyRoutes()];
      for (const { clock } of [often, once]) clock.advance(500);
      for (let second = 1; second <= 150; second++) {
        for (let i = 0; i < 40; i++) {
          const [route, ms] = [`r${Math.floor(random() ** 3 * 450)}`, Math.exp(random() * 8)];
          for (const { count } of [often, once]) count(route, ms);
        }
        for (const { clock } of [often, once]) clock.advance(1_000);
        often.stats.read("busy", NONE);
        if (second % 37 === 0) expect(often.stats.read("all", NONE)).toEqual(once.stats.read("all", NONE));
      }
    },
  );
});

describe("the history of several workers", () => {
  function collected() {
    const clock = manualClock();
    const metrics = new Metrics();
    let answer = () => {};
    let asked = 0;
    const stats = new Stats(clock, metrics, () => {
      asked++;
      return new Promise((resolve) => (answer = resolve));
    });
    stats.start();
    const answered = async () => {
      answer();
      await new Promise((resolve) => setImmediate(resolve));
    };
    const history = () => stats.read("all", { total: 0, upstream: () => 0 }).history.map(({ requests }) => requests);
    return { clock, metrics, stats, answered, history, asked: () => asked };
  }

  it("asks them at the end of each step, and what they have counted by then belongs to that step", async () => {
    const { clock, metrics, answered, history, asked } = collected();
    for (const count of [3, 0, 2]) {
      clock.advance(5_000);
      for (let i = 0; i < count; i++) metrics.total.count(false, false, 1);
      await answered();
    }
    expect([asked(), history()]).toEqual([3, [3, 0, 2]]);
  });

  it("goes on after a step whose answers came late, and counts them in the step in which they came", async () => {
    const { clock, metrics, answered, history } = collected();
    clock.advance(5_000);
    clock.advance(500);
    metrics.total.count(false, false, 1);
    await answered();
    clock.advance(4_500);
    await answered();
    expect(history()).toEqual([1, 0]);
  });

  it("asks nobody once it is closed, also while it awaits an answer", async () => {
    const { clock, stats, answered, asked } = collected();
    clock.advance(5_000);
    stats.close();
    await answered();
    clock.advance(60_000);
    expect([asked(), clock.pending]).toEqual([1, 0]);
  });
});

describe("the history", () => {
  it(
    "the history has steps of 5 s that begin at multiples of 5 s, " + "with the counts of all requests, for 15 minutes",
    async () => {
      const { port } = await backend();
      const clock = manualClock();
      clock.advance(3_000);
      const { gateway } = await running(named(port, "r"), { clock });
      for (const path of ["/a/r", "/nowhere"]) await gateway.inject({ url: path });
      const begin = Date.UTC(2026, 0, 1);
      expect(gateway.stats).toMatchObject({
        at: begin + 3_000,
        stepS: 5,
        history: [],
        point: { at: begin, requests: 2, errors: 0 },
      });
      clock.advance(2_000);
      await gateway.inject({ url: "/a/r" });
      clock.advance(9_000);
      const { history, point } = gateway.stats;
      expect(history.map(({ at, requests }) => [at - begin, requests])).toEqual([
        [0, 2],
        [5_000, 1],
      ]);
      expect(point).toMatchObject({ at: begin + 10_000, requests: 0, p50Ms: null });
      clock.advance(3_600_000);
      const later = gateway.stats;
      expect(later.history.length).toBe(180);
      expect(later.history.every(({ at }, i, all) => at === later.point.at - (all.length - i) * 5_000)).toBe(true);
    },
  );

  it(
    "the history has no gap after a blocked event loop: " + "requests counted meanwhile belong to the first step",
    async () => {
      const { port } = await backend();
      const manual = manualClock();
      let late = 0;
      const clock = { now: () => manual.now() + late, wall: () => manual.wall() + late, after: manual.after };
      const { gateway } = await running(named(port, "r"), { clock });
      await gateway.inject({ url: "/a/r" });
      late = 17_000;
      expect(gateway.stats.history.map(({ requests }) => requests)).toEqual([1, 0, 0]);
      expect(gateway.stats.point.at).toBe(Date.UTC(2026, 0, 1, 0, 0, 15));
    },
  );

  it("the history has no timer before its start, one timer from then on, and none after its end", () => {
    const clock = manualClock();
    const stats = new Stats(clock, new Metrics());
    const pending: number[] = [clock.pending];
    for (const act of [() => stats.start(), () => clock.advance(60_000), () => stats.close()]) {
      act();
      pending.push(clock.pending);
    }
    expect(pending).toEqual([0, 1, 1, 0]);
    const gateway = createGateway({ config: named(9, "r"), clock });
    expect([gateway.stats.total.requestsPerS, clock.pending]).toEqual([0, 0]);
  });
});

import http from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { Runtime, type InUse, type PlannedPools } from "../../lib/gateway/runtime.ts";
import { ANYWHERE } from "../support/anywhere.ts";
import { HEALTH_BYTES } from "../../lib/upstream/health.ts";
import { addFailures } from "../../lib/upstream/shared_health.ts";
import { UpstreamTls } from "../../lib/upstream/tls.ts";
import { manualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { upstreamSetReport } from "../../lib/upstream/upstream_report.ts";
import { threadsOf } from "../support/threads.ts";

const features = withAllFeatures();
const made = () => new Runtime(manualClock(), silentLog, undefined, undefined, features);
/** Those of one service. */
function poolsOf({ pools }: InUse, service: string): PlannedPools {
  const known = pools.get(service) ?? new Map();
  pools.set(service, known);
  return known;
}
const OPTIONS = { ...ANYWHERE, protocol: "http", host: "127.0.0.1", port: 9, keepaliveIdleMs: 1000 } as const;

describe("Runtime", () => {
  it("an upstream of a service keeps its pool in the next configuration", () => {
    const runtime = made();
    const first = runtime.inUse(1000);
    const pool = runtime.pool("s", OPTIONS, 4, poolsOf(first, "s"));
    runtime.apply(first);
    expect(runtime.pool("s", { ...OPTIONS }, 4, new Map())).toBe(pool);
  });

  it.each([
    ["another service", "t", OPTIONS],
    ["another port", "s", { ...OPTIONS, port: 10 }],
    ["another host", "s", { ...OPTIONS, host: "localhost" }],
    ["another protocol", "s", { ...OPTIONS, protocol: "https" as const, tls: new UpstreamTls() }],
    ["another keepalive_idle_ms", "s", { ...OPTIONS, keepaliveIdleMs: 2000 }],
    ["other TLS settings", "s", { ...OPTIONS, protocol: "https" as const, tls: new UpstreamTls({ verify: false }) }],
  ])("an upstream with %s gets a separate pool", (_what, service, options) => {
    const runtime = made();
    const first = runtime.inUse(1000);
    const pool = runtime.pool("s", OPTIONS, 4, poolsOf(first, "s"));
    runtime.apply(first);
    expect(runtime.pool(service, options, 4, new Map())).not.toBe(pool);
  });

  it("two upstreams of a service at one address share a pool", () => {
    const runtime = made();
    const inUse = runtime.inUse(1000);
    expect(runtime.pool("s", OPTIONS, 4, poolsOf(inUse, "s"))).toBe(runtime.pool("s", OPTIONS, 4, poolsOf(inUse, "s")));
    expect(inUse.pools.get("s")!.size).toBe(1);
  });

  it("max_connections of a pool changes when the configuration comes into force, not before", () => {
    const runtime = made();
    const first = runtime.inUse(1000);
    const pool = runtime.pool("s", OPTIONS, 4, poolsOf(first, "s"));
    runtime.apply(first);
    const second = runtime.inUse(1000);
    runtime.pool("s", OPTIONS, 9, poolsOf(second, "s"));
    expect(pool.leases.maxConnections).toBe(4);
    runtime.apply(second);
    expect(pool.leases.maxConnections).toBe(9);
  });

  it("upstreams of removed services are released, and upstreams of the other services stay", () => {
    const runtime = made();
    const apply = (...services: string[]) => {
      const inUse = runtime.inUse(1000);
      for (const service of services)
        inUse.upstreamSets.set(service, {
          upstreamSet: runtime.upstreamSet(service),
          plans: [],
          breaker: null,
          checks: null,
        });
      runtime.apply(inUse);
      return inUse.upstreamSets;
    };
    const before = apply("a", "b");
    expect(apply("a").get("a")!.upstreamSet).toBe(before.get("a")!.upstreamSet);
    expect(apply("a", "b").get("b")!.upstreamSet).not.toBe(before.get("b")!.upstreamSet);
    expect(runtime.upstreamSets.map(({ service }) => service)).toEqual(["a", "b"]);
  });
});

describe("a reload", () => {
  it("a reload keeps the connections to an upstream that is still configured", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port));
    await ask(port, { path: "/a/1" });
    await gateway.reload(oneService(origin.port, { routes: [{ path: "/{other*}" }] }));
    await ask(port, { path: "/a/2" });
    expect(origin.connections).toEqual({ total: 1, open: 1 });
  });

  it("a reload closes the idle connections to a removed upstream", async () => {
    const [old, next] = [await backend(), await backend()];
    const { gateway, port } = await running(oneService(old.port));
    await ask(port, { path: "/a/1" });
    expect(old.connections.open).toBe(1);
    await gateway.reload(oneService(next.port));
    await eventually(() => old.connections.open === 0, "no open connection at the upstream");
    await ask(port, { path: "/a/2" });
    expect(next.seen).toHaveLength(1);
  });

  it("a request to a removed upstream finishes, and its connection is closed afterwards", async () => {
    let finish = () => {};
    const old = await backend((_request, response) => {
      response.write("begun ");
      finish = () => void response.end("and finished");
    });
    const next = await backend();
    const { gateway, port } = await running(oneService(old.port));
    const answer = ask(port, { path: "/a/1" });
    await eventually(() => old.seen.length === 1, "one request at the upstream");
    await gateway.reload(oneService(next.port));
    finish();
    expect((await answer).body.toString()).toBe("begun and finished");
    await eventually(() => old.connections.open === 0, "no open connection at the upstream");
  });

  it("a reload does not refill a rate limit, whatever else changes", async () => {
    const origin = await backend();
    const limited = (name: string) =>
      oneService(origin.port, {
        plugins: [{ name: "rate_limit", id: "r", config: { limit_hour: 2 } }],
        routes: [{ name, path: `/{${name}*}` }],
      });
    const { gateway, port } = await running(limited("one"));
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    await gateway.reload(limited("two"));
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    await gateway.reload(limited("three"));
    expect((await ask(port, { path: "/a/x" })).status).toBe(429);
  });

  it("requests from before a reload count against a smaller limit", async () => {
    const origin = await backend();
    const limited = (limit: number) =>
      oneService(origin.port, { plugins: [{ name: "rate_limit", config: { limit_hour: limit } }] });
    const { gateway, port } = await running(limited(5));
    for (let i = 0; i < 3; i++) expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    await gateway.reload(limited(3));
    expect((await ask(port, { path: "/a/x" })).status).toBe(429);
  });

  it("a reload does not restart the rotation over upstreams", async () => {
    const names: string[] = [];
    const origins = await Promise.all(
      ["one", "two", "three"].map((name) => backend((_request, response) => (names.push(name), response.end()))),
    );
    const config = (path: string) =>
      oneService(
        origins.map(({ port }) => port),
        { routes: [{ path }] },
      );
    const { gateway, port } = await running(config("/{a*}"));
    await ask(port, { path: "/a/x" });
    await gateway.reload(config("/{b*}"));
    await ask(port, { path: "/a/x" });
    await gateway.reload(config("/{c*}"));
    await ask(port, { path: "/a/x" });
    expect(names).toEqual(["one", "two", "three"]);
  });

  it("a smaller max_connections applies to the next requests", async () => {
    const answers: http.ServerResponse[] = [];
    const origin = await backend((_request, response) => void answers.push(response));
    const clock = manualClock();
    const config = (most: number) =>
      oneService(origin.port, { pool: { max_connections: most }, timeouts: { connect_ms: 500 } });
    const { gateway, port } = await running(config(2), { clock });
    await gateway.reload(config(1));
    const first = ask(port, { path: "/a/1" });
    await eventually(() => answers.length === 1, "one request to answer");
    const pending = clock.pending;
    const second = ask(port, { path: "/a/2" });
    // it waits for a connection
    await eventually(() => clock.pending === pending + 1, "a request that waits for a connection");
    clock.advance(500);
    expect(JSON.parse((await second).body.toString())).toMatchObject({ status: 503, code: "upstream_saturated" });
    answers[0]!.end("ok");
    expect((await first).status).toBe(200);
  });

  it("a larger max_connections applies to the next requests", async () => {
    const answers: http.ServerResponse[] = [];
    const origin = await backend((_request, response) => void answers.push(response));
    const config = (most: number) =>
      oneService(origin.port, { pool: { max_connections: most } }, { limits: { max_client_share: 1 } });
    const { gateway, port } = await running(config(1));
    await gateway.reload(config(2));
    const both = [ask(port, { path: "/a/1" }), ask(port, { path: "/a/2" })];
    await eventually(() => answers.length === 2, "two requests to answer");
    for (const answer of answers) answer.end();
    await Promise.all(both);
  });

  it("a reload keeps client connections open", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port));
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    await ask(port, { path: "/a/1", agent });
    const sockets = () => Object.values(agent.freeSockets).flatMap((list) => list ?? []);
    await eventually(() => sockets().length === 1, "one client connection");
    const [socket] = sockets();
    await gateway.reload(oneService(origin.port, { routes: [{ path: "/{other*}" }] }));
    await ask(port, { path: "/a/2", agent });
    await eventually(() => sockets().length === 1, "one client connection");
    expect(sockets()[0]).toBe(socket);
  });
});

describe("the runtime of a program with workers", () => {
  const shared = () => {
    const threads = threadsOf(3);
    const lookups: string[] = [];
    const lookup = (host: string) => {
      lookups.push(host);
      return Promise.resolve([{ address: "127.0.0.1", family: 4 }]);
    };
    const clock = manualClock();
    return {
      clock,
      lookups,
      start: (place: number) => new Runtime(clock, silentLog, { lookup }, threads(place), features),
    };
  };

  it.each([
    [256, [86, 85, 85]],
    [3, [1, 1, 1]],
    [4, [2, 1, 1]],
    [1, [1, 1, 1]],
  ])("the workers share a max_connections of %i as %j, each with at least one", (most, shares) => {
    const { start } = shared();
    const found = [0, 1, 2].map((place) => {
      const runtime = start(place);
      return runtime.pool("s", OPTIONS, most, new Map()).leases.maxConnections;
    });
    expect(found).toEqual(shares);
  });

  it("a runtime gives back the requests and connections of a dead worker, and those of no other", () => {
    const { start } = shared();
    const [main, one, two] = [start(-1), start(0), start(1)];
    for (const { inFlight, connections } of [one, one, two]) {
      inFlight!.take(0);
      connections!.take("192.0.2.1", 0, 0);
    }
    expect([main.inFlight!.total, main.connections!.open, two.connections!.take("192.0.2.1", 0, 3)]).toEqual([
      3,
      3,
      "max_connections_per_ip",
    ]);
    main.forget(2, 0);
    expect([main.inFlight!.total, main.connections!.open, two.connections!.take("192.0.2.1", 0, 2)]).toEqual([
      1,
      1,
      expect.any(Function),
    ]);
  });

  it(
    "a runtime of the main thread looks up only the upstreams that it checks, " +
      "and a worker looks up all and checks none",
    async () => {
      const checked: string[] = [];
      const { port } = await backend((request, response) => {
        checked.push(request.url!);
        response.end();
      });
      const { start, lookups, clock } = shared();
      const activate = (runtime: Runtime) => {
        const inUse = runtime.inUse(1000);
        const settings = {
          path: "/healthz",
          intervalMs: 1000,
          timeoutMs: 1000,
          expects: () => true,
          expectStatus: "200",
        };
        for (const [service, host] of [
          ["checked", "checked.example"],
          ["other", "other.example"],
        ] as const) {
          const upstreamSet = runtime.upstreamSet(service);
          const options = { ...OPTIONS, host, port };
          const peer = upstreamSet.peer("u", runtime.pool(service, options, 4, poolsOf(inUse, service)));
          const health = {
            active: { healthyThreshold: 1, unhealthyThreshold: 1 },
            passive: { maxFailures: 2, windowMs: 1000, ejectMs: 1000, statuses: [], slowStartMs: 0 },
          };
          inUse.upstreamSets.set(service, {
            upstreamSet,
            plans: [{ peer, weight: 1, health, memory: runtime.memory(`health ${service}`, HEALTH_BYTES, inUse) }],
            breaker: null,
            checks:
              service === "checked"
                ? { settings, dials: new Map([[peer, ANYWHERE.egress.dialer({ host, port, why: "health" })]]) }
                : null,
          });
        }
        runtime.apply(inUse);
        runtime.activate();
        onTestFinished(() => runtime.destroy());
        return runtime;
      };
      activate(start(0));
      expect(lookups.splice(0)).toEqual(["checked.example", "other.example"]);
      const main = activate(start(-1));
      expect(lookups).toEqual(["checked.example"]);
      clock.advance(1000);
      await eventually(
        () => upstreamSetReport(main.upstreamSets[0]!).upstreams[0]!.state === "healthy",
        "a check has passed",
      );
      expect(checked).toEqual(["/healthz"]);
    },
  );

  it(
    "failures that a worker reports count as those of the main thread, " + "and those of unknown upstreams are ignored",
    () => {
      const { start } = shared();
      const main = start(-1);
      const inUse = main.inUse(1000);
      const upstreamSet = main.upstreamSet("s");
      const plans = [9, 10].map((port) => {
        const options = { ...OPTIONS, port };
        const peer = upstreamSet.peer(String(port), main.pool("s", options, 4, poolsOf(inUse, "s")));
        const memory = main.memory(`health ${port}`, HEALTH_BYTES, inUse);
        return {
          peer,
          weight: 1,
          memory,
          health: {
            active: null,
            passive: { maxFailures: 3, windowMs: 1000, ejectMs: 1000, statuses: [], slowStartMs: 0 },
          },
        };
      });
      inUse.upstreamSets.set("s", { upstreamSet, plans, breaker: null, checks: null });
      main.apply(inUse);
      onTestFinished(() => main.destroy());
      const find = (service: string, id: string) => main.peer(service, id);
      addFailures(
        [
          { service: "s", upstream: "9", count: 2, reason: "broken" },
          { service: "s", upstream: "gone", count: 3, reason: "broken" },
          { service: "gone", upstream: "9", count: 3, reason: "broken" },
        ],
        find,
      );
      expect(upstreamSetReport(upstreamSet).upstreams.map(({ state }) => state)).toEqual(["unknown", "unknown"]);
      addFailures([{ service: "s", upstream: "9", count: 1, reason: "the last" }], find);
      expect(upstreamSetReport(upstreamSet).upstreams.map(({ state, reason }) => [state, reason])).toEqual([
        ["ejected", "the last"],
        ["unknown", null],
      ]);
    },
  );
});

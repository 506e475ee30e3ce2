import { Readable } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { createProbes, type ProbesOptions } from "../../lib/admin/probes.ts";
import { silentLog } from "../../lib/base/log.ts";
import { manualClock } from "../support/clock.ts";
import { ask, type Ask } from "../support/raw_client.ts";

const TOKEN = "0123456789abcdef";

async function probes(changes: Partial<ProbesOptions> = {}): Promise<(request: Ask) => ReturnType<typeof ask>> {
  const common = {
    ready: () => true,
    metrics: () => Readable.from(["# metrics\n"]),
    metricsToken: null,
    hosts: [],
    clock: manualClock(),
    log: silentLog,
  };
  const server = createProbes({ ...common, ...changes });
  onTestFinished(() => server.close());
  const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
  return (request) => ask(port, request);
}

describe("the listener for probes", () => {
  it(
    "the listener for probes answers /healthz, /readyz and /metrics without a login, " +
      "and lets nobody store the answers",
    async () => {
      const get = await probes();
      const answers = await Promise.all(["/healthz", "/readyz?x=1", "/metrics"].map((path) => get({ path })));
      expect(answers.map(({ status, body }) => [status, body.toString()])).toEqual([
        [200, '{"status":"ok"}\n'],
        [200, '{"status":"ready"}\n'],
        [200, "# metrics\n"],
      ]);
      expect(answers[2]!.headers["content-type"]).toBe("text/plain; version=0.0.4; charset=utf-8");
      expect(answers.map(({ headers }) => headers["cache-control"])).toEqual(["no-store", "no-store", "no-store"]);
    },
  );

  it(
    "the listener for probes reports readiness as it is at the moment, " + "and that the process lives in any case",
    async () => {
      let isReady = true;
      const get = await probes({ ready: () => isReady });
      isReady = false;
      expect([(await get({ path: "/readyz" })).status, (await get({ path: "/healthz" })).status]).toEqual([503, 200]);
      expect((await get({ path: "/readyz" })).body.toString()).toBe('{"status":"not_ready"}\n');
    },
  );

  it.each([
    "/",
    "/login",
    "/logout",
    "/gateway",
    "/gateway/config",
    "/gateway/status",
    "/gateway/reload",
    "/healthz/",
    "/Metrics",
    "/constructor",
    "/__proto__",
  ])("the listener for probes has nothing at %s: 404", async (path) => {
    const answer = await (await probes())({ path });
    expect([answer.status, (JSON.parse(answer.body.toString()) as { code: string }).code]).toEqual([
      404,
      "route_not_found",
    ]);
  });

  it("the listener for probes answers HEAD without a body, and any other method than GET with 405", async () => {
    const get = await probes();
    const head = await get({ method: "HEAD", path: "/readyz" });
    expect([head.status, head.body.length]).toEqual([200, 0]);
    for (const method of ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"]) {
      const answer = await get({ method, path: "/metrics" });
      expect([answer.status, answer.headers.allow]).toEqual([405, "GET, HEAD"]);
    }
  });

  it("the listener for probes refuses WebSockets and targets that are no paths with 400", async () => {
    const get = await probes();
    const upgrade = [
      "Connection",
      "Upgrade",
      "Upgrade",
      "websocket",
      "Sec-WebSocket-Version",
      "13",
      "Sec-WebSocket-Key",
      "AAAAAAAAAAAAAAAAAAAAAA==",
    ];
    expect((await get({ path: "/metrics", headers: upgrade })).status).toBe(400);
    expect((await get({ method: "OPTIONS", path: "*" })).status).toBe(400);
  });
});

describe("/metrics of the listener for probes", () => {
  it.each(["127.0.0.1:9090", "[::1]:9090", "localhost", "prometheus-target.internal", "METRICS.internal."])(
    "without METRICS_TOKEN it answers a request for %s",
    async (Host) => {
      const get = await probes({ hosts: ["prometheus-target.internal", "metrics.internal"] });
      expect((await get({ path: "/metrics", headers: { Host } })).status).toBe(200);
    },
  );

  it(
    "without METRICS_TOKEN it answers other host names, behind which may be a page that reads what it should not, " +
      "with 421; probes get their answer",
    async () => {
      const get = await probes({ hosts: ["metrics.internal"] });
      const headers = { Host: "rebound.example:9090" };
      expect((await get({ path: "/metrics", headers })).status).toBe(421);
      expect((await get({ path: "http://rebound.example/metrics", headers: { Host: "localhost" } })).status).toBe(421);
      expect([
        (await get({ path: "/healthz", headers })).status,
        (await get({ path: "/readyz", headers })).status,
      ]).toEqual([200, 200]);
    },
  );

  it.each([
    ["nothing", {}],
    ["another token", { Authorization: `Bearer ${TOKEN}x` }],
    ["the beginning of the token", { Authorization: `Bearer ${TOKEN.slice(0, -1)}` }],
    ["the token in capitals", { Authorization: `Bearer ${TOKEN.toUpperCase()}` }],
    ["the token as Basic", { Authorization: `Basic ${TOKEN}` }],
    ["the token in the query", {}, `/metrics?token=${TOKEN}`],
    ["the token as a cookie", { Cookie: `token=${TOKEN}` }],
    ["two tokens", { Authorization: `Bearer ${TOKEN} ${TOKEN}` }],
  ] as [string, Record<string, string>, string?][])(
    "with METRICS_TOKEN it answers a request with %s with 401, and names the scheme",
    async (_name, headers, path = "/metrics") => {
      const answer = await (await probes({ metricsToken: TOKEN }))({ path, headers });
      expect([answer.status, answer.headers["www-authenticate"]]).toEqual([401, 'Bearer realm="edge-gateway metrics"']);
      expect(answer.body.toString()).not.toContain(TOKEN);
    },
  );

  it(
    "with METRICS_TOKEN it answers a request with the token, " + "whatever the host name; probes need no token",
    async () => {
      const get = await probes({ metricsToken: TOKEN });
      for (const scheme of ["Bearer", "bearer", "BEARER "]) {
        expect(
          (await get({ path: "/metrics", headers: { Authorization: `${scheme} ${TOKEN}`, Host: "metrics.example" } }))
            .status,
        ).toBe(200);
      }
      expect([(await get({ path: "/healthz" })).status, (await get({ path: "/readyz" })).status]).toEqual([200, 200]);
    },
  );
});

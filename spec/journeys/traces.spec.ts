import { describe, expect, it } from "vitest";
import {
  createGateway,
  definePlugin,
  schema,
  type ConfigInput,
  type GatewayOptions,
  type TracingSettings,
} from "../../lib/index.ts";
import { collector, type Collector, type ReadSpan } from "../support/collector.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Session } from "../support/h2_client.ts";
import { closedPort } from "../support/origin.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { readMetrics } from "../support/metrics_text.ts";
import {
  backend,
  byteBackend,
  client,
  get,
  PROTOCOLS,
  restartableBackend,
  rawBackend,
  recordedLog,
  speaking,
} from "./harness.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const PARENT = "b7ad6b7169203331";
const SAMPLED = `00-${TRACE}-${PARENT}-01`;
const UNSAMPLED = `00-${TRACE}-${PARENT}-00`;
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-(0[01])$/;

interface Heard {
  readonly headers: readonly string[];
}
const valuesOf = ({ headers }: Heard, name: string) =>
  headers.filter((_text, i) => i % 2 === 1 && headers[i - 1]!.toLowerCase() === name);
const traceparentOf = (heard: Heard) => {
  const values = valuesOf(heard, "traceparent");
  expect(values).toHaveLength(1);
  const [, traceId, spanId, flags] = TRACEPARENT.exec(values[0]!)!;
  return { traceId, spanId, flags };
};
const byKind = (spans: readonly ReadSpan[]) => ({
  server: spans.filter(({ kind }) => kind === 2),
  plugins: spans.filter(({ kind }) => kind === 1),
  tries: spans.filter(({ kind }) => kind === 3),
});

/** A gateway whose spans come to a collector of its own, at the latest when `flushed` closes it. */
async function traced(
  config: ConfigInput,
  { tracing, ...options }: Partial<Omit<GatewayOptions, "tracing">> & { tracing?: Partial<TracingSettings> } = {},
) {
  const to = await collector();
  let log = "";
  const made = await running(config, {
    ...options,
    accessLog: (text) => void (log += text),
    tracing: { url: to.url, ...tracing },
  });
  const flushed = async (): Promise<readonly ReadSpan[]> => {
    await eventually(() => made.gateway.inFlight === 0, "the end of all requests");
    await made.gateway.close(0);
    return to.spans;
  };
  const lines = () =>
    log
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { ...made, collector: to, flushed, lines };
}

describe("a request with a valid traceparent", () => {
  it(
    "a request with a valid traceparent continues the trace: the same trace id, " +
      "and the upstream gets the id of its try as parent",
    async () => {
      const origin = await backend();
      const { port, flushed, lines } = await traced(oneService(origin.port));
      await ask(port, { path: "/a/x", headers: { traceparent: SAMPLED, tracestate: "vendor=opaque" } });
      const sent = traceparentOf(origin.seen[0]!);
      expect(valuesOf(origin.seen[0]!, "tracestate")).toEqual(["vendor=opaque"]);
      const { server, tries } = byKind(await flushed());
      expect(server).toMatchObject([
        { traceId: TRACE, parentSpanId: PARENT, flags: 0x301, traceState: "vendor=opaque" },
      ]);
      expect(tries).toMatchObject([
        { traceId: TRACE, parentSpanId: server[0]!.spanId, flags: 0x101, traceState: "vendor=opaque" },
      ]);
      expect(sent).toEqual({ traceId: TRACE, spanId: tries[0]!.spanId, flags: "01" });
      expect(lines()).toMatchObject([{ trace_id: TRACE }]);
    },
  );

  it(
    "a request with a valid traceparent exports no span if unsampled, " +
      "and passes the flags on with a new parent id",
    async () => {
      const origin = await backend();
      const { port, flushed } = await traced(oneService(origin.port));
      for (let i = 0; i < 2; i++)
        await ask(port, { path: "/a/x", headers: { traceparent: UNSAMPLED, tracestate: "v=1" } });
      const [first, second] = origin.seen.map(traceparentOf);
      expect([first, second]).toMatchObject([
        { traceId: TRACE, flags: "00" },
        { traceId: TRACE, flags: "00" },
      ]);
      expect(new Set([PARENT, first!.spanId, second!.spanId]).size).toBe(3);
      expect(valuesOf(origin.seen[0]!, "tracestate")).toEqual(["v=1"]);
      expect(await flushed()).toEqual([]);
    },
  );
});

describe("a request without a valid traceparent", () => {
  it.each<[string, readonly string[]]>([
    ["none", []],
    ["one of zeros", ["traceparent", `00-${"0".repeat(32)}-${PARENT}-01`]],
    ["one in upper case", ["traceparent", SAMPLED.toUpperCase()]],
    ["two", ["traceparent", SAMPLED, "Traceparent", SAMPLED]],
  ])("a trace begins when the request has %s as traceparent, and tracestate is dropped", async (_title, headers) => {
    const origin = await backend();
    const { port, flushed, lines } = await traced(oneService(origin.port));
    await ask(port, { path: "/a/x", headers: [...headers, "tracestate", "v=1"] });
    const sent = traceparentOf(origin.seen[0]!);
    expect(sent.traceId).not.toBe(TRACE);
    expect(valuesOf(origin.seen[0]!, "tracestate")).toEqual([]);
    const { server, tries } = byKind(await flushed());
    expect(server).toMatchObject([{ traceId: sent.traceId, parentSpanId: null, traceState: null, flags: 0x101 }]);
    expect(tries).toMatchObject([{ traceId: sent.traceId, spanId: sent.spanId }]);
    expect(lines()).toMatchObject([{ trace_id: sent.traceId }]);
  });

  it(
    "a request without a valid traceparent exports no span with always_off, " +
      "and passes that decision to the upstream",
    async () => {
      const origin = await backend();
      const { port, flushed } = await traced(oneService(origin.port), { tracing: { sampler: "always_off" } });
      expect(await ask(port, { path: "/a/x" })).toMatchObject({ status: 200 });
      expect(traceparentOf(origin.seen[0]!).flags).toBe("00");
      expect(await flushed()).toEqual([]);
    },
  );
});

describe("without tracing", () => {
  it("passes traceparent and tracestate on unchanged, valid or not", async () => {
    const origin = await backend();
    const { port } = await running(oneService(origin.port));
    await ask(port, { path: "/a/x", headers: ["Traceparent", "what", "tracestate", "a", "TraceState", "b"] });
    await ask(port, { path: "/a/x", headers: ["traceparent", SAMPLED] });
    await ask(port, { path: "/a/x" });
    expect(origin.seen.map((heard) => valuesOf(heard, "traceparent"))).toEqual([["what"], [SAMPLED], []]);
    expect(valuesOf(origin.seen[0]!, "tracestate")).toEqual(["a", "b"]);
  });
});

describe("spans", () => {
  it("spans describe a request and its try by the conventions for HTTP, with times within each other", async () => {
    const origin = await backend((_request, response) => void response.writeHead(201).end("made"));
    const {
      port,
      flushed,
      collector: to,
    } = await traced(oneService(origin.port, { routes: [{ name: "item", path: "/items/{id}" }] }));
    const before = BigInt(Date.now() - 1) * 1_000_000n;
    const answer = await ask(port, {
      method: "POST",
      path: "/a/items/42?size=l",
      headers: { "User-Agent": "spec/1", Host: `shop.example:${port}` },
    });
    const { server, tries } = byKind(await flushed());
    const after = BigInt(Date.now() + 1) * 1_000_000n;
    expect(server).toHaveLength(1);
    expect(server[0]).toMatchObject({ name: "POST /a/items/{id}", failed: false });
    expect(server[0]!.attributes).toEqual({
      "http.request.method": "POST",
      "url.scheme": "http",
      "url.path": "/a/items/42",
      "url.query": "size=l",
      "http.route": "/a/items/{id}",
      "http.response.status_code": 201n,
      "server.address": "shop.example",
      "server.port": BigInt(port),
      "client.address": "127.0.0.1",
      "network.peer.address": "127.0.0.1",
      "network.protocol.version": "1.1",
      "user_agent.original": "spec/1",
      "edge_gateway.request_id": answer.headers["x-request-id"],
      "edge_gateway.service": "s",
      "edge_gateway.route": "item",
    });
    expect(tries).toHaveLength(1);
    expect(tries[0]).toMatchObject({ name: "POST", failed: false });
    expect(tries[0]!.attributes).toEqual({
      "http.request.method": "POST",
      "url.full": `http://127.0.0.1:${origin.port}/items/42?size=l`,
      "server.address": "127.0.0.1",
      "server.port": BigInt(origin.port),
      "network.protocol.version": "1.1",
      "http.response.status_code": 201n,
      "edge_gateway.upstream": `127.0.0.1:${origin.port}`,
    });
    const [all, one] = [server[0]!, tries[0]!];
    expect([before <= all.start, all.start <= one.start, one.end <= all.end, all.end <= after]).toEqual([
      true,
      true,
      true,
      true,
    ]);
    expect(to.exports[0]!.resource).toEqual({ "service.name": "edge-gateway" });
  });

  it("spans contain neither API keys nor tokens, wherever a client puts them", async () => {
    const origin = await backend();
    const config = oneService(origin.port, { plugins: [{ name: "key_auth", config: { key: "hush-key" } }] });
    const { port, flushed, collector: to } = await traced(config);
    const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodXNoIn0.c2lnbmF0dXJl";
    const paths = [
      "/a/x?apiKey=hush-key&a=1",
      "/a/x?api%4Bey=hush-key",
      "/a/x?apiKey=hush-wrong",
      `/a/reset/${jwt}/now?apiKey=hush-key&t=${jwt}`,
      "/none?token=hush-key",
    ];
    for (const path of paths)
      await ask(port, { path, headers: { Authorization: "Bearer hush", Cookie: "s=hush", apiKey: "hush-key" } });
    await ask(port, { path: `http://user:hush@gw.example/a/x?apiKey=hush-key` });
    const { server } = byKind(await flushed());
    expect(server.map(({ attributes }) => attributes["url.query"])).toContain("apiKey=[redacted]&a=1");
    expect(server).toHaveLength(6);
    for (const { text } of to.exports) expect(text).not.toMatch(/hush|eyJ/);
  });

  it(
    "spans contain no token in a query parameter in which a plugin of the " + "configuration looks for tokens",
    async () => {
      const jwt = {
        name: "jwt",
        config: { alg: "HS256", secret: "a secret of at least thirty-two bytes", aud: "a", from: "query:Sid" },
      };
      const routes = [{ path: "/{rest*}" }, { path: "/guarded", plugins: [jwt] }];
      const { port, flushed, collector: to } = await traced(oneService((await backend()).port, { routes }));
      for (const path of ["/a/guarded?Sid=geheim", "/a/other?Sid=geheim", "/nowhere?Sid=geheim"])
        await ask(port, { path });
      expect(
        (await flushed()).map(({ attributes }) => attributes["url.query"] ?? "").filter((query) => query !== ""),
      ).toHaveLength(3);
      for (const { text } of to.exports) expect(text).not.toContain("geheim");
    },
  );

  it("spans name an unknown method _OTHER, and have the original in an attribute", async () => {
    const origin = await backend();
    const { port, flushed } = await traced(oneService(origin.port));
    await ask(port, { method: "PURGE", path: "/a/x" });
    const { server, tries } = byKind(await flushed());
    expect([server[0]!.name, tries[0]!.name]).toEqual(["HTTP /a/{rest*}", "HTTP"]);
    expect(server[0]!.attributes).toMatchObject({
      "http.request.method": "_OTHER",
      "http.request.method_original": "PURGE",
    });
  });

  it("spans have the status and no route for requests without a route, and for one that cannot be parsed", async () => {
    const { port, flushed } = await traced(oneService(await closedPort()));
    await ask(port, { path: "/none" });
    await ask(port, { path: "/a/%zz" });
    const { server, tries } = byKind(await flushed());
    expect(
      server.map(({ name, failed, attributes }) => [
        name,
        failed,
        attributes["http.response.status_code"],
        attributes["edge_gateway.code"],
      ]),
    ).toEqual([
      ["GET", false, 404n, "route_not_found"],
      ["GET", false, 400n, "path_ambiguous"],
    ]);
    expect(tries).toEqual([]);
  });
});

describe("spans of retries", () => {
  it("spans of retries have an own span and parent id for each try", async () => {
    const failing = await backend((_request, response) => void response.writeHead(503).end());
    const fine = await backend();
    const config = oneService([failing.port, fine.port], {
      retries: { on: [503] },
      health: { passive: { max_failures: 0 } },
    });
    const { port, flushed } = await traced(config);
    expect((await ask(port, { path: "/a/x", headers: { traceparent: SAMPLED } })).status).toBe(200);
    const { server, tries } = byKind(await flushed());
    expect(tries.map(({ parentSpanId }) => parentSpanId)).toEqual([server[0]!.spanId, server[0]!.spanId]);
    expect(tries.map(({ spanId }) => spanId)).toEqual(
      [failing, fine].map(({ seen }) => traceparentOf(seen[0]!).spanId),
    );
    expect(
      tries.map(({ attributes, failed }) => [
        attributes["http.request.resend_count"],
        attributes["http.response.status_code"],
        attributes["error.type"],
        failed,
      ]),
    ).toEqual([
      [undefined, 503n, "503", true],
      [1n, 200n, undefined, false],
    ]);
    expect(server[0]).toMatchObject({ failed: false, attributes: { "http.response.status_code": 200n } });
  });

  it("spans of retries have the error of each failed try, and of the request if all fail", async () => {
    const { port, flushed } = await traced(oneService([await closedPort(), await closedPort()], { retries: {} }));
    await ask(port, { path: "/a/x" });
    const { server, tries } = byKind(await flushed());
    expect(
      tries.map(({ attributes, failed }) => [
        attributes["error.type"],
        attributes["http.response.status_code"],
        failed,
      ]),
    ).toEqual([
      ["upstream_connect_failed", undefined, true],
      ["upstream_connect_failed", undefined, true],
    ]);
    expect(server[0]).toMatchObject({
      failed: true,
      attributes: { "error.type": "upstream_connect_failed", "http.response.status_code": 502n },
    });
  });
});

describe("spans of plugins", () => {
  const route = [
    { name: "key_auth", id: "mine", config: { key: "k" } },
    { name: "rate_limit", config: { limit_min: 100 } },
  ];

  it("spans of plugins nest by the order of the instances, with the try in the innermost", async () => {
    const origin = await backend();
    const { port, flushed } = await traced(
      oneService(origin.port, { plugins: route }, { plugins: [{ name: "bot_protection" }] }),
    );
    await ask(port, { path: "/a/x", headers: { apiKey: "k", "User-Agent": "spec/1" } });
    const { server, plugins, tries } = byKind(await flushed());
    const [bots, auth, limit] = ["plugin bot_protection", "plugin key_auth", "plugin rate_limit"].map((name) =>
      plugins.find((span) => span.name === name)!,
    );
    expect([bots!.parentSpanId, auth!.parentSpanId, limit!.parentSpanId, tries[0]!.parentSpanId]).toEqual([
      server[0]!.spanId,
      bots!.spanId,
      auth!.spanId,
      limit!.spanId,
    ]);
    expect(bots!.attributes).toEqual({
      "edge_gateway.plugin": "bot_protection",
      "edge_gateway.plugin.level": "global",
    });
    expect(auth!.attributes).toEqual({
      "edge_gateway.plugin": "key_auth",
      "edge_gateway.plugin.level": "service",
      "edge_gateway.plugin.id": "mine",
    });
    expect([bots!.end >= auth!.end, auth!.end >= limit!.end, limit!.end >= tries[0]!.end]).toEqual([true, true, true]);
  });

  it(
    "spans of plugins end at the plugin that refuses: status 401, " + "and no span of later plugins or the upstream",
    async () => {
      const origin = await backend();
      const { port, flushed } = await traced(oneService(origin.port, { plugins: route }));
      expect((await ask(port, { path: "/a/x" })).status).toBe(401);
      const { server, plugins, tries } = byKind(await flushed());
      expect(server).toMatchObject([
        { failed: false, attributes: { "http.response.status_code": 401n, "edge_gateway.code": "key_missing" } },
      ]);
      expect(server[0]!.attributes).not.toHaveProperty("error.type");
      expect(plugins.map(({ name }) => name)).toEqual(["plugin key_auth"]);
      expect(tries).toEqual([]);
    },
  );

  it.each(["at once", "later"])(
    "spans of plugins have the error of a plugin that throws %s, and the request is a failure",
    async (when) => {
      const faulty = definePlugin({
        name: "faulty",
        schema: schema.object({}),
        create: () => () => () => {
          if (when === "at once") throw new RangeError("hush");
          return Promise.reject(new RangeError("hush"));
        },
      });
      const {
        gateway,
        port,
        flushed,
        collector: to,
      } = await traced(oneService(await closedPort(), { plugins: [{ name: "faulty" }] }), { plugins: [faulty] });
      expect((await ask(port, { path: "/a/x" })).status).toBe(500);
      expect(gateway.status.pluginFaults).toMatchObject([{ plugin: "faulty", count: 1 }]);
      const { server, plugins } = byKind(await flushed());
      expect(plugins).toMatchObject([{ failed: true, attributes: { "error.type": "RangeError" } }]);
      expect(server).toMatchObject([{ failed: true, attributes: { "error.type": "internal" } }]);
      expect(to.exports[0]!.text).not.toContain("hush");
    },
  );

  it("spans of plugins contain the fetches of a cache, and a hit has no fetch", async () => {
    const origin = await backend(
      (_request, response) => void response.writeHead(200, { "Cache-Control": "max-age=60" }).end("ok"),
    );
    const { port, flushed } = await traced(oneService(origin.port, { plugins: [{ name: "response_cache" }] }));
    for (let i = 0; i < 2; i++) await ask(port, { path: "/a/x" });
    const { server, plugins, tries } = byKind(await flushed());
    expect([server.length, plugins.length, tries.length]).toEqual([2, 2, 1]);
    expect(plugins.map(({ spanId }) => spanId)).toContain(tries[0]!.parentSpanId);
    expect(traceparentOf(origin.seen[0]!)).toMatchObject({ traceId: tries[0]!.traceId, spanId: tries[0]!.spanId });
  });
});

describe("traces over other protocols", () => {
  it("traces over other protocols cover HTTP/2 from the client", async () => {
    const origin = await backend();
    const { port, flushed } = await traced(oneService(origin.port, {}, { h2c: true }));
    const session = h2Session(port);
    const stream = session.request({ ":path": "/a/x", traceparent: SAMPLED });
    stream.resume();
    await new Promise((resolve) => stream.once("close", resolve));
    const { server } = byKind(await flushed());
    expect(server).toMatchObject([
      {
        traceId: TRACE,
        parentSpanId: PARENT,
        attributes: { "network.protocol.version": "2", "server.address": "127.0.0.1", "server.port": BigInt(port) },
      },
    ]);
    expect(traceparentOf(origin.seen[0]!).traceId).toBe(TRACE);
  });

  it.each(PROTOCOLS)(
    "traces over other protocols send one traceparent, which names the try, to the upstream over %s",
    async (protocol) => {
      const upstream = await restartableBackend(protocol);
      const heard: string[] = [];
      upstream.answer = (request, response) => {
        heard.push(String(request.headers["traceparent"]));
        response.end("ok");
      };
      const { port, flushed } = await traced(oneService(upstream.port, speaking(protocol)));
      expect((await ask(port, { path: "/a/x", headers: { traceparent: SAMPLED } })).status).toBe(200);
      const { tries } = byKind(await flushed());
      expect(heard).toEqual([`00-${TRACE}-${tries[0]!.spanId}-01`]);
      const isH2 = protocol === "h2" || protocol === "h2c";
      const scheme = protocol === "https" || protocol === "h2" ? "https" : "http";
      expect(tries[0]!.attributes).toMatchObject({
        "network.protocol.version": isH2 ? "2" : "1.1",
        "url.full": `${scheme}://127.0.0.1:${upstream.port}/x`,
      });
    },
  );

  it("traces over other protocols cover requests by inject", async () => {
    const origin = await backend();
    const { gateway, flushed } = await traced(oneService(origin.port));
    await gateway.inject({ url: "/a/x", headers: { traceparent: SAMPLED } });
    expect(byKind(await flushed()).server).toMatchObject([
      { traceId: TRACE, attributes: { "http.response.status_code": 200n } },
    ]);
  });

  it("traces over other protocols end the span of a WebSocket with the 101, while the tunnel continues", async () => {
    const upstream = await byteBackend((socket) => {
      let isOpen = false;
      socket.on("data", (chunk: Buffer) => {
        if (isOpen) return void socket.write(chunk.toString().toUpperCase());
        isOpen = true;
        socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
      });
    });
    const clock = manualClock();
    const { port, collector: to, gateway } = await traced(oneService(upstream.port), { clock });
    const connection = await client(port);
    connection.send(
      get(
        "/a/chat",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
      ),
    );
    await connection.until("\r\n\r\n");
    clock.advance(1_000);
    const { server, tries } = byKind(await to.until(2));
    expect(server).toMatchObject([{ failed: false, attributes: { "http.response.status_code": 101n } }]);
    expect(tries).toMatchObject([
      { failed: false, parentSpanId: server[0]!.spanId, attributes: { "http.response.status_code": 101n } },
    ]);
    expect(gateway.inFlight).toBe(1);
    connection.send("still here");
    await connection.until("STILL HERE");
    connection.socket.destroy();
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    await gateway.close(0);
    expect(to.spans).toHaveLength(2);
  });
});

describe("spans of requests that fail", () => {
  it(
    "spans of requests that fail have client_closed when the client disconnects, " +
      "which is not an error of the gateway",
    async () => {
      const origin = await rawBackend(() => {});
      const { port, flushed, gateway } = await traced(oneService(origin.port));
      const connection = await connect(port);
      connection.send(get());
      await eventually(() => origin.connections.total === 1, "a connection to the upstream");
      connection.socket.destroy();
      await eventually(() => gateway.inFlight === 0, "no request being in flight");
      const { server, tries } = byKind(await flushed());
      expect(server).toMatchObject([{ failed: false, attributes: { "error.type": "client_closed" } }]);
      expect(server[0]!.attributes).not.toHaveProperty("http.response.status_code");
      expect(tries).toMatchObject([{ failed: true, attributes: { "error.type": "client_closed" } }]);
    },
  );

  it("spans of requests that fail are errors with a code when the upstream breaks off after its 200", async () => {
    const origin = await rawBackend((_request, response) => {
      response.writeHead(200, { "Content-Length": "10" });
      response.write("abc", () => response.destroy());
    });
    const { port, flushed } = await traced(oneService(origin.port));
    await expect(ask(port, { path: "/a/x" })).rejects.toThrow();
    expect(byKind(await flushed()).server).toMatchObject([
      { failed: true, attributes: { "http.response.status_code": 200n, "error.type": "upstream_reset" } },
    ]);
  });
});

describe("a collector", () => {
  const many = 40;
  const sendRequests = async (port: number) => {
    for (let i = 0; i < many; i++) expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  };

  it(
    "a collector that is unreachable delays no request and no shutdown, " + "and the lost spans are logged and counted",
    async () => {
      const origin = await backend();
      const { log, lines } = recordedLog();
      const { gateway, port } = await running(oneService(origin.port), {
        log,
        tracing: { url: `http://127.0.0.1:${await closedPort()}/v1/traces` },
      });
      await sendRequests(port);
      // The test's own time limit bounds the wait.
      await gateway.close(0);
      const lost = lines.filter(({ message }) => message === "spans of traces were lost");
      expect(lost).toMatchObject([
        { level: "warn", spans: 2 * many, error: expect.stringContaining("ECONNREFUSED") as string },
      ]);
      const metrics = readMetrics(gateway.metrics());
      expect(metrics.one("edge_gateway_trace_spans_dropped_total")).toBe(2 * many);
      expect(metrics.one("edge_gateway_trace_spans_exported_total")).toBe(0);
    },
  );

  it("a collector that hangs delays no request, and delays a shutdown by at most a second", async () => {
    const origin = await backend();
    const clock = manualClock();
    const { gateway, port, collector: to } = await traced(oneService(origin.port), { clock });
    to.answer = () => {};
    await sendRequests(port);
    const closing = gateway.close(0);
    await eventually(() => to.spans.length === 2 * many, "the spans at the collector");
    clock.advance(1_000);
    // Without the bound of a second this would never end.
    await closing;
    expect(to.spans.length).toBe(2 * many);
  });

  it("a collector gets the waiting spans when the gateway closes, and they are counted", async () => {
    const origin = await backend();
    const { gateway, port, flushed } = await traced(oneService(origin.port), { clock: manualClock() });
    await ask(port, { path: "/a/x" });
    expect(await flushed()).toHaveLength(2);
    expect(readMetrics(gateway.metrics()).one("edge_gateway_trace_spans_exported_total")).toBe(2);
  });

  it("a collector gets the configured headers, service name and resource", async () => {
    const origin = await backend();
    const to: Collector = await collector();
    const tracing = {
      url: to.url,
      headers: { "X-Key": "secret" },
      serviceName: "shop edge",
      resource: { "deployment.environment.name": 'a "b"' },
    };
    const { gateway, port } = await running(oneService(origin.port), { tracing });
    await ask(port, { path: "/a/x" });
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    await gateway.close(0);
    expect(to.exports[0]).toMatchObject({
      url: "/v1/traces",
      headers: { "x-key": "secret" },
      resource: { "service.name": "shop edge", "deployment.environment.name": 'a "b"' },
    });
  });

  it("a collector with an invalid URL is refused when the gateway is created", () => {
    const config = oneService(1);
    expect(() => createGateway({ config, tracing: { url: "collector:4318" } })).toThrow(
      "tracing.url: expected an http:// or https:// URL",
    );
    expect(() => createGateway({ config, tracing: { url: "http://h/", ratio: 2 } })).toThrow("tracing.ratio");
  });
});

describe("global.server_timing", () => {
  const plugin = definePlugin({
    name: "slow",
    schema: schema.object({}),
    create:
      (_config, { clock }) =>
      (next) =>
      async (exchange) => {
        (clock as ReturnType<typeof manualClock>).advance(1.5);
        return next(exchange);
      },
  });

  it("adds Server-Timing after the Server-Timing of the upstream", async () => {
    const clock = manualClock();
    const origin = await backend((_request, response) => {
      clock.advance(12.4);
      response.writeHead(200, { "Server-Timing": "db;dur=5" }).end("ok");
    });
    const config = oneService(origin.port, { plugins: [{ name: "slow" }] }, { server_timing: true });
    const { port } = await running(config, { clock, plugins: [plugin] });
    const { rawHeaders } = await ask(port, { path: "/a/x" });
    expect(valuesOf({ headers: rawHeaders }, "server-timing")).toEqual([
      "db;dur=5",
      "gateway;dur=13.9, plugins;dur=1.5, upstream;dur=12.4",
    ]);
  });

  it("leaves out the upstream for a refusal, and the plugins without a route", async () => {
    const config = oneService(1, { plugins: [{ name: "key_auth", config: { key: "k" } }] }, { server_timing: true });
    const { gateway } = await running(config);
    expect((await gateway.inject({ url: "/a/x" })).header("server-timing")).toMatch(
      /^gateway;dur=[\d.]+, plugins;dur=[\d.]+$/,
    );
    expect((await gateway.inject({ url: "/none" })).header("server-timing")).toMatch(/^gateway;dur=[\d.]+$/);
  });

  it("adds nothing by default", async () => {
    const origin = await backend();
    const { port } = await running(oneService(origin.port));
    expect((await ask(port, { path: "/a/x" })).headers).not.toHaveProperty("server-timing");
  });

  it("global.server_timing applies over HTTP/2 too, and a reload changes it", async () => {
    const origin = await backend();
    const config = (server_timing: boolean) => oneService(origin.port, {}, { h2c: true, server_timing });
    const { gateway, port } = await running(config(true));
    const session = h2Session(port);
    const timing = () =>
      new Promise<unknown>((resolve) => {
        const stream = session.request({ ":path": "/a/x" });
        stream.resume();
        stream.once("response", (headers) => resolve(headers["server-timing"]));
      });
    expect(await timing()).toMatch(/^gateway;dur=.*, plugins;dur=.*, upstream;dur=/);
    await gateway.reload(config(false));
    expect(await timing()).toBeUndefined();
  });
});

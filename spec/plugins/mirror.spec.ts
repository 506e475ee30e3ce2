import { once } from "node:events";
import http from "node:http";
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import { definePlugin, schema, type Gateway } from "../../lib/index.ts";
import { mirror } from "../../lib/plugins/mirror.ts";
import { backend, byteBackend, client, gate, get, rawBackend, recordedLog } from "../journeys/harness.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { manualClock } from "../support/clock.ts";
import { checked, instance, madeUpTools } from "../support/exercise.ts";
import { oneService, running } from "../support/gateway.ts";
import { readMetrics } from "../support/metrics_text.ts";
import { closedPort } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";

const plugin = (port: number, config: object = {}) => ({
  name: "mirror",
  config: { url: `http://127.0.0.1:${port}/base/`, timeout_ms: 60_000, ...config },
});

/** Copies by result. */
function results(gateway: Gateway): Record<string, number> {
  const samples = readMetrics(gateway.metrics()).all("edge_gateway_plugin_results_total");
  return Object.fromEntries(samples.map(({ labels, value }) => [labels.result, value]));
}

const counted = (gateway: Gateway, result: string, count: number) =>
  eventually(() => results(gateway)[result] === count, `${count} copies ${result}`);

/** A gateway whose one service has an upstream and a mirror. */
async function mirrored(config: object = {}, parts: object = {}, options: Parameters<typeof running>[1] = {}) {
  const [upstream, copies] = [await backend(), await backend()];
  const made = await running(oneService(upstream.port, { plugins: [plugin(copies.port, config)], ...parts }), options);
  return { ...made, upstream, copies };
}

describe("the copy of a request", () => {
  it(
    "has its method, its path below the base path, its query as it is, its end-to-end headers, X-Mirrored, " +
      "and the Host of the mirror",
    async () => {
      const { gateway, port, copies, upstream } = await mirrored();
      await ask(port, {
        path: "/a/x-y/{z}?q=%41&e=|%22",
        method: "DELETE",
        headers: [
          "Host",
          "shop.example",
          "Authorization",
          "Bearer x",
          "X-A",
          "1",
          "X-A",
          "2",
          "Connection",
          "X-Hop",
          "X-Hop",
          "1",
        ],
      });
      await counted(gateway, "sent", 1);
      const [seen] = copies.seen;
      expect([seen!.method, seen!.url, seen!.body.length]).toEqual(["DELETE", "/base/x-y/%7Bz%7D?q=%41&e=|%22", 0]);
      expect(seen!.url).toBe(`/base${upstream.seen[0]!.url}`);
      const value = (name: string) => headerValue(seen!.headers, name);
      expect([
        value("host"),
        value("authorization"),
        value("x-mirrored"),
        value("x-hop"),
        value("content-length"),
      ]).toEqual([`127.0.0.1:${copies.port}`, "Bearer x", "1", undefined, undefined]);
      expect(headerValues(seen!.headers, "x-a")).toEqual(["1", "2"]);
      expect(value("x-request-id")).toBe(headerValue(upstream.seen[0]!.headers, "x-request-id"));
    },
  );

  it("says whose request it is, and repeats no forged forwarding header", async () => {
    const { gateway, port, copies } = await mirrored();
    const forged = [
      "X-Forwarded-For",
      "6.6.6.6",
      "X-Forwarded-Host",
      "evil.example",
      "Forwarded",
      "for=6.6.6.6",
      "X-Real-IP",
      "6.6.6.6",
      "X-Request-Id",
      "mine",
    ];
    await ask(port, { path: "/a/x", headers: ["Host", "shop.example", ...forged] });
    await counted(gateway, "sent", 1);
    const values = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip"].map((name) =>
      headerValues(copies.seen[0]!.headers, name),
    );
    expect(values).toEqual([["127.0.0.1"], ["shop.example"], ["http"], [], []]);
    expect(copies.seen[0]!.headers).not.toContain("mine");
  });

  it.each([
    ["small", "POST", "hello", []],
    ["empty", "PUT", "", []],
    ["of several packets", "POST", "x".repeat(60_000), []],
    ["chunked", "PATCH", "y".repeat(60_000), ["Transfer-Encoding", "chunked"]],
  ])("has the body of the request: %s", async (_what, method, body, headers) => {
    const { gateway, port, copies, upstream } = await mirrored();
    expect((await ask(port, { path: "/a/x", method, body, headers })).status).toBe(200);
    await counted(gateway, "sent", 1);
    expect([
      copies.seen[0]!.method,
      copies.seen[0]!.body.toString(),
      headerValue(copies.seen[0]!.headers, "content-length"),
    ]).toEqual([method, body, String(body.length)]);
    expect(upstream.seen[0]!.body.toString()).toBe(body);
  });

  it.each([100, 60_000])(
    "has the body of a request over HTTP/2, and of one that Node's server receives: %d bytes",
    async (bytes) => {
      const [upstream, copies] = [await backend(), await backend()];
      const config = (global: object) => oneService(upstream.port, { plugins: [plugin(copies.port)] }, global);
      const [wire, node] = [await running(config({ h2c: true })), await running(config({ http1: "node" }))];
      const body = "x".repeat(bytes);
      await h2Ask(h2Session(wire.port), { method: "POST", body, trailers: { "x-after": "1" } });
      await ask(node.port, { path: "/a/x", method: "POST", body });
      await counted(wire.gateway, "sent", 1);
      await counted(node.gateway, "sent", 1);
      expect(copies.seen.map((seen) => seen.body.toString() === body)).toEqual([true, true]);
    },
  );

  it("has the body that a plugin behind it reads by an iterator, and replaces", async () => {
    const [upstream, copies] = [await backend(), await backend()];
    const upper = definePlugin({
      name: "upper",
      schema: schema.object({}),
      create: () => (next) => async (exchange) => {
        let text = "";
        for await (const chunk of exchange.body!) text += String(chunk).toUpperCase();
        return next(exchange.with({ body: Readable.from([text]) }));
      },
    });
    const { gateway, port } = await running(
      oneService(upstream.port, { plugins: [plugin(copies.port), { name: "upper" }] }),
      { plugins: [upper] },
    );
    const body = "x".repeat(60_000);
    for (const headers of [[], ["Transfer-Encoding", "chunked"]])
      await ask(port, { path: "/a/x", method: "POST", body, headers });
    await counted(gateway, "sent", 2);
    expect([upstream, copies].map(({ seen }) => seen.map((each) => each.body.toString()))).toEqual([
      Array(2).fill(body.toUpperCase()),
      Array(2).fill(body),
    ]);
  });

  it.each<[string, (body: Readable) => Promise<Readable>]>([
    [
      "looks at its beginning and puts it back",
      async (body) => {
        await once(body, "readable");
        body.unshift(body.read() as Buffer);
        return body;
      },
    ],
    [
      "reads its beginning alone, and the rest later",
      async (body) => {
        const parts: AsyncIterator<Buffer> = body.iterator({ destroyOnReturn: false });
        const first = (await parts.next()).value as Buffer;
        await parts.return?.();
        await new Promise((resolve) => setImmediate(resolve));
        return Readable.from(
          (async function* () {
            yield first;
            yield* body;
          })(),
        );
      },
    ],
    ["reads it as text", async (body) => Readable.from([(await body.setEncoding("utf8").toArray()).join("")])],
  ])("has the body, and the upstream too, where a plugin behind it %s", async (_what, readBy) => {
    const [upstream, copies] = [await backend(), await backend()];
    const reader = definePlugin({
      name: "reader",
      schema: schema.object({}),
      create: () => (next) => async (exchange) => next(exchange.with({ body: await readBy(exchange.body!) })),
    });
    const { gateway, port } = await running(
      oneService(upstream.port, { plugins: [plugin(copies.port, { max_body_bytes: 1_000_000 }), { name: "reader" }] }),
      { plugins: [reader] },
    );
    const body = "0123456789".repeat(20_000);
    expect((await ask(port, { path: "/a/x", method: "POST", body })).status).toBe(200);
    await counted(gateway, "sent", 1);
    expect([upstream, copies].map(({ seen }) => seen[0]!.body.toString() === body)).toEqual([true, true]);
  });

  it(
    "is what the plugin sees: after changes of plugins before it, " + "and before changes of plugins behind it",
    async () => {
      const [upstream, copies] = [await backend(), await backend()];
      const set = (value: string) => ({ name: "request_headers", config: { set: { "X-Step": value } } });
      const { gateway, port } = await running(
        oneService(upstream.port, { plugins: [set("before"), plugin(copies.port), set("behind")] }),
      );
      await ask(port, { path: "/a/x" });
      await counted(gateway, "sent", 1);
      expect([copies, upstream].map(({ seen }) => headerValue(seen[0]!.headers, "x-step"))).toEqual([
        "before",
        "behind",
      ]);
    },
  );

  it(
    "is sent on a kept connection, and its answer is discarded: a redirect is not followed, " +
      "a long answer is broken off",
    async () => {
      const upstream = await backend();
      const copies = await backend((request, response) => {
        if (request.url === "/base/long") response.end(Buffer.alloc(2 * 1024 * 1024));
        else
          response
            .writeHead(request.url === "/base/moved" ? 302 : 500, { Location: "/elsewhere" })
            .end("x".repeat(100_000));
      });
      const { gateway, port } = await running(oneService(upstream.port, { plugins: [plugin(copies.port)] }));
      let sent = 0;
      for (const path of ["/a/moved", "/a/x", "/a/y"]) {
        expect(await ask(port, { path })).toMatchObject({ status: 200, body: Buffer.from("ok") });
        await counted(gateway, "sent", ++sent);
      }
      expect([copies.connections.total, copies.seen.map(({ url }) => url)]).toEqual([
        1,
        ["/base/moved", "/base/x", "/base/y"],
      ]);
      await ask(port, { path: "/a/long" });
      await counted(gateway, "sent", 4);
      await eventually(() => copies.connections.open === 0);
    },
  );
});

describe("which requests are copied", () => {
  it("exactly the percentage, evenly spread", async () => {
    const { gateway, port, copies } = await mirrored({ percent: 20 });
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    for (let i = 1; i <= 50; i++) await ask(port, { path: `/a/${i}`, agent });
    agent.destroy();
    await counted(gateway, "sent", 10);
    expect(copies.seen.map(({ url }) => Number(url.slice("/base/".length))).sort((a, b) => a - b)).toEqual([
      5, 10, 15, 20, 25, 30, 35, 40, 45, 50,
    ]);
  });

  it("none that a plugin refuses, before or behind the mirror, and none that a cache answers", async () => {
    const [upstream, copies] = [
      await backend(
        (_request, response) => void response.writeHead(200, { "Cache-Control": "public, max-age=60" }).end(),
      ),
      await backend(),
    ];
    const plugins = [
      { name: "key_auth", config: { key: "k" } },
      plugin(copies.port),
      { name: "bot_protection", config: { blacklist: ["robot"] } },
      { name: "response_cache" },
    ];
    const { gateway, port } = await running(oneService(upstream.port, { plugins }));
    const send = (headers: Record<string, string>, body?: string) =>
      ask(port, { path: "/a/x", headers, ...(body !== undefined && { body, method: "POST" }) });
    const robot = { apiKey: "k", "User-Agent": "robot" };
    expect([(await send({})).status, (await send(robot)).status, (await send(robot, "body")).status]).toEqual([
      401, 403, 403,
    ]);
    for (let i = 0; i < 3; i++) expect((await send({ apiKey: "k", "User-Agent": "x" })).status).toBe(200);
    await counted(gateway, "sent", 1);
    expect([upstream.seen.length, copies.seen.length, results(gateway)]).toEqual([1, 1, { sent: 1 }]);
  });

  it("one that an upstream answers with an error or not at all, and none for which there is no upstream", async () => {
    const copies = await backend();
    const { gateway, port } = await running({
      global: { plugins: [plugin(copies.port)] },
      services: [
        oneService(await closedPort(), { name: "down" }).services[0]!,
        {
          ...oneService(1, { name: "none", base_path: "/none" }).services[0]!,
          upstreams: [{ host: "127.0.0.1", port: 1, weight: 0 }],
        },
      ],
    });
    expect((await ask(port, { path: "/none/x" })).status).toBe(503);
    expect((await ask(port, { path: "/a/x", method: "POST", body: "hello" })).status).toBe(502);
    await counted(gateway, "sent", 1);
    expect(copies.seen.map(({ url, body }) => [url, body.toString()])).toEqual([["/base/x", "hello"]]);
  });

  it("no copies: two gateways that mirror each other do not send a request round in circles", async () => {
    const upstream = await backend();
    const two = await running(oneService(upstream.port, { base_path: "/" }));
    const one = await running(
      oneService(upstream.port, {
        base_path: "/",
        plugins: [plugin(two.port, { url: `http://127.0.0.1:${two.port}` })],
      }),
    );
    await two.gateway.reload(
      oneService(upstream.port, {
        base_path: "/",
        plugins: [plugin(one.port, { url: `http://127.0.0.1:${one.port}` })],
      }),
    );
    await ask(one.port, { path: "/x" });
    await counted(one.gateway, "sent", 1);
    expect([upstream.seen.length, results(two.gateway)]).toEqual([2, {}]);
  });

  it("no WebSockets, no gRPC, and no request that is a copy itself", async () => {
    const copies = await backend();
    const upstream = await byteBackend(
      (socket) =>
        void socket.once("data", () =>
          socket.write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
              "websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
          ),
        ),
    );
    const plain = await backend();
    const { gateway, port } = await running({
      global: { plugins: [plugin(copies.port)] },
      services: [
        oneService(upstream.port).services[0]!,
        oneService(plain.port, { name: "plain", base_path: "/plain" }).services[0]!,
      ],
    });
    const socket = await client(port);
    socket.send(
      get(
        "/a/x",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
      ),
    );
    await socket.until("HTTP/1.1 101");
    await ask(port, {
      path: "/plain/x",
      method: "POST",
      headers: { "Content-Type": "application/grpc+proto" },
      body: "x",
    });
    await ask(port, { path: "/plain/x", headers: { "x-mirrored": "1" } });
    await ask(port, { path: "/plain/y" });
    await counted(gateway, "sent", 1);
    expect(copies.seen.map(({ url }) => url)).toEqual(["/base/y"]);
  });

  it("no body longer than max_body_bytes, stated or not; the request itself passes whole", async () => {
    const { gateway, port, copies, upstream } = await mirrored({ max_body_bytes: 1_000 });
    const send = (bytes: number, headers: readonly string[] = []) =>
      ask(port, { path: "/a/x", method: "POST", body: "x".repeat(bytes), headers });
    const chunked = ["Transfer-Encoding", "chunked"];
    for (const [bytes, headers] of [
      [1_001, []],
      [100_000, []],
      [1_001, chunked],
      [100_000, chunked],
    ] as const)
      await send(bytes, headers);
    expect(results(gateway)).toEqual({ too_long: 4 });
    await send(1_000);
    await send(1_000, chunked);
    await counted(gateway, "sent", 2);
    expect([upstream.seen.map(({ body }) => body.length), copies.seen.map(({ body }) => body.length)]).toEqual([
      [1_001, 100_000, 1_001, 100_000, 1_000, 1_000],
      [1_000, 1_000],
    ]);
  });

  it("no request that did not arrive whole: its memory is free for others", async () => {
    const { gateway, port, upstream } = await mirrored({ max_in_flight: 1, max_body_bytes: 1_000 }, {}, {});
    const half = await client(port);
    half.send("POST /a/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + "x".repeat(900));
    await eventually(() => gateway.status.inFlight === 1 && upstream.connections.open === 1);
    half.socket.destroy();
    await eventually(() => gateway.status.inFlight === 0);
    for (const sent of [1, 2]) {
      await ask(port, { path: "/a/x", method: "POST", body: "y".repeat(1_000) });
      await counted(gateway, "sent", sent);
    }
    expect(results(gateway)).toEqual({ sent: 2 });
  });

  it("also one whose client disconnects before the reply, since the upstream got it", async () => {
    const { opened, open } = gate();
    const upstream = await backend((_request, response) => void opened.then(() => response.end()));
    const copies = await backend();
    const { gateway, port } = await running(oneService(upstream.port, { plugins: [plugin(copies.port)] }));
    const impatient = await client(port);
    impatient.send("POST /a/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    await eventually(() => upstream.seen.length === 1);
    impatient.socket.destroy();
    await counted(gateway, "sent", 1);
    expect(copies.seen[0]!.body.toString()).toBe("hi");
    open();
  });

  it("none in tests and explanations of a configuration, which need no answer of the mirror", async () => {
    const { gateway, copies, upstream } = await mirrored();
    const tests = [{ name: "passes", request: { method: "POST", url: "/a/x", body: "x" }, expect: { status: 200 } }];
    await gateway.reload({ ...oneService(upstream.port, { plugins: [plugin(copies.port)] }), tests });
    expect(await gateway.test()).toMatchObject({ passed: 1, failed: 0 });
    expect((await gateway.explain({ method: "GET", url: "/a/x" })).plugins.map(({ verdict }) => verdict)).toEqual([
      "passes the request on",
    ]);
    expect([copies.connections.total, results(gateway)]).toEqual([0, {}]);
  });
});

describe("the request itself", () => {
  it(
    "does not wait for a mirror that never answers; copies beyond max_in_flight are dropped, " +
      "and those in time limits fail",
    async () => {
      const clock = manualClock();
      const [upstream, silent] = [await backend(), await rawBackend(() => {})];
      const { log, lines } = recordedLog();
      const { gateway, port } = await running(
        oneService(upstream.port, { plugins: [plugin(silent.port, { max_in_flight: 2, timeout_ms: 1_000 })] }),
        { clock, log },
      );
      for (let i = 0; i < 5; i++)
        expect((await ask(port, { path: "/a/x", method: "POST", body: "x" })).status).toBe(200);
      expect(results(gateway)).toEqual({ dropped: 3 });
      clock.advance(1_000);
      await counted(gateway, "failed", 2);
      await ask(port, { path: "/a/x" });
      expect(results(gateway)).toEqual({ dropped: 3, failed: 2 });
      expect(lines.filter(({ message }) => message === "mirror cannot deliver copies")).toMatchObject([
        { host: `127.0.0.1:${silent.port}`, copies: 1, error: "no answer within 1000 ms" },
      ]);
    },
  );

  it("is not changed by a mirror that cannot be reached, breaks off or answers nonsense", async () => {
    const upstream = await backend();
    const broken = await byteBackend((socket) => void socket.once("data", () => socket.end("nonsense")));
    for (const to of [await closedPort(), broken.port]) {
      const { gateway, port } = await running(oneService(upstream.port, { plugins: [plugin(to)] }));
      expect(await ask(port, { path: "/a/x", method: "POST", body: "x" })).toMatchObject({
        status: 200,
        body: Buffer.from("ok"),
      });
      await counted(gateway, "failed", 1);
    }
  });

  it("is read at the pace of its upstream: the mirror gets nothing before it is complete", async () => {
    const { opened, open } = gate();
    const upstream = await rawBackend(
      (request, response) => void opened.then(() => request.resume().once("end", () => response.end("read"))),
    );
    const copies = await backend();
    const { gateway, port } = await running(
      oneService(upstream.port, { plugins: [plugin(copies.port, { max_body_bytes: 16 * 1024 * 1024 })] }),
    );
    const body = Buffer.alloc(12 * 1024 * 1024, "z");
    let flushed = false;
    const request = http.request({
      port,
      host: "127.0.0.1",
      path: "/a/x",
      method: "POST",
      headers: { "Content-Length": body.length },
    });
    const replied = new Promise<number>((resolve, reject) =>
      request.on("error", reject).on("response", (response) => resolve(response.resume().statusCode!)),
    );
    request.end(body, () => (flushed = true));
    await eventually(() => upstream.connections.open === 1);
    expect([flushed, copies.connections.total]).toEqual([false, 0]);
    open();
    expect(await replied).toBe(200);
    await counted(gateway, "sent", 1);
    expect(copies.seen[0]!.body.equals(body)).toBe(true);
  });

  it("goes to a second upstream as without the mirror", async () => {
    const [second, copies] = [await backend(), await backend()];
    const retries = { attempts: 1 };
    for (const parts of [{ retries }, { retries: { ...retries, max_replay_bytes: 0 } }]) {
      const { gateway, port } = await running(
        oneService([await closedPort(), second.port], { ...parts, plugins: [plugin(copies.port)] } as never),
      );
      for (let i = 0; i < 2; i++)
        expect((await ask(port, { path: "/a/x", method: "POST", body: "hello" })).status).toBe(200);
      await counted(gateway, "sent", 2);
    }
    expect([second.seen, copies.seen].map((seen) => seen.map(({ body }) => body.toString()))).toEqual([
      Array(4).fill("hello"),
      Array(4).fill("hello"),
    ]);
  });

  it(
    "bodies that are recorded at the same time take no more than max_in_flight " + "times max_body_bytes together",
    async () => {
      const { gateway, port, upstream } = await mirrored({ max_in_flight: 2, max_body_bytes: 1_000 });
      const uploads = await Promise.all([0, 1, 2].map(() => client(port)));
      for (const [i, upload] of uploads.entries()) {
        upload.send("POST /a/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + "x".repeat(900));
        await eventually(() => gateway.status.inFlight === i + 1 && upstream.connections.open === i + 1);
      }
      // The last one in the line is also the last one to be recorded.
      for (const upload of uploads) {
        upload.send("x".repeat(100));
        await upload.until(/ok$/);
      }
      await counted(gateway, "sent", 2);
      expect(results(gateway)).toEqual({ sent: 2, dropped: 1 });
    },
  );
});

describe("reload and close", () => {
  it("a reload keeps the connections and the counts while the settings are equal", async () => {
    const { gateway, port, copies, upstream } = await mirrored();
    await ask(port, { path: "/a/x" });
    await counted(gateway, "sent", 1);
    await gateway.reload(oneService(upstream.port, { plugins: [plugin(copies.port)] }));
    await ask(port, { path: "/a/x" });
    await counted(gateway, "sent", 2);
    expect(copies.connections.total).toBe(1);
    await gateway.reload(oneService(upstream.port));
    await eventually(() => copies.connections.open === 0);
  });

  it("closing waits for copies on their way, and cuts those that have no answer half a second later", async () => {
    const clock = manualClock();
    const { opened, open } = gate();
    const slow = await backend(
      (request, response) => void (request.url === "/base/slow" && opened.then(() => response.end())),
    );
    const upstream = await backend();
    const { gateway, port } = await running(oneService(upstream.port, { plugins: [plugin(slow.port)] }), { clock });
    for (const path of ["/a/slow", "/a/never"]) await ask(port, { path });
    await eventually(() => slow.seen.length === 2);
    let isClosed = false;
    const closed = gateway.close(0).then(() => (isClosed = true));
    open();
    await counted(gateway, "sent", 1);
    expect([isClosed, slow.connections.open > 0]).toEqual([false, true]);
    clock.advance(500);
    await closed;
    await eventually(() => slow.connections.open === 0);
    expect(results(gateway)).toEqual({ sent: 1, failed: 1 });
  });
});

describe("configuration", () => {
  it.each<[object, string]>([
    [
      {},
      "url: is required (Where copies are sent: scheme, host, port, " +
        "and a base path that is put before the upstream's path.)",
    ],
    [{ url: "ftp://a/" }, "url: expected an http:// or https:// URL, found a string"],
    [{ url: "http://ada:pw@a/" }, "url: is a URL with a user name or password: leave them out"],
    [{ url: "http://a/?x=1" }, "url: has a query or a fragment: copies have the query of their request"],
    [{ url: "http://a/?" }, "url: has a query or a fragment: copies have the query of their request"],
    [{ url: "http://a/#x" }, "url: has a query or a fragment: copies have the query of their request"],
    [{ url: "http://a/", tls: {} }, "tls: applies to https:// URLs; this one starts with http://"],
    [{ url: "http://a/", percent: 100.5 }, "percent: expected a number 0–100 with at most two decimals, found 100.5"],
    [{ url: "http://a/", max_body_bytes: -1 }, "max_body_bytes: expected an integer 0–16777216, found -1"],
    [{ url: "http://a/", max_in_flight: 0 }, "max_in_flight: expected an integer 1–10000, found 0"],
    [{ url: "http://a/", timeout_ms: 0 }, "timeout_ms: expected an integer 1–600000, found 0"],
  ])("mirror reports %j as a configuration error", (config, issue) =>
    expect(checked(mirror.schema, config).issues).toEqual([issue]),
  );

  it("passes requests on without a promise of its own", () => {
    const reply = { status: 200, headers: [], body: null };
    const middleware = instance(mirror, { url: "http://127.0.0.1:1/" }, madeUpTools());
    expect(
      middleware(() => reply)({ upgrade: null, headers: [], body: null, call: { notes: { attempts: 0 } } } as never),
    ).toBe(reply);
  });
});

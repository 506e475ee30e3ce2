import { once } from "node:events";
import { PassThrough } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Reply } from "../../lib/http/reply.ts";
import { httpLog } from "../../lib/plugins/http_log.ts";
import type { KeptState, Tools } from "../../lib/plugins/plugin.ts";
import { backend, gate, rawBackend } from "../journeys/harness.ts";
import { manualClock } from "../support/clock.ts";
import { checked, exercise, instance, madeUpExchange, madeUpTools, plainReply } from "../support/exercise.ts";
import { counted, growth, LINEAR } from "../support/growth.ts";
import { closedPort, type Origin } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

interface Entry {
  readonly request: Record<string, unknown>;
  readonly response: Record<string, unknown>;
  readonly [name: string]: unknown;
}

/** An instance that sends to a server on this port. */
function logging(port: number, config: object = {}, plugin = httpLog) {
  let kept: KeptState | null = null;
  const keep: Tools["keep"] = (_name, _settings, make) => {
    const made = make();
    kept = made;
    return made;
  };
  const clock = manualClock();
  /** For how long each timer was set, in order. */
  const timers: number[] = [];
  const after: typeof clock.after = (ms, run) => {
    timers.push(ms);
    return clock.after(ms, run);
  };
  const own = madeUpTools({
    keep,
    secretParameters: new Set(["x-shop-key"]),
    clock: { now: clock.now, wall: clock.wall, after },
  });
  const middleware = instance(plugin, { http_endpoint: `http://127.0.0.1:${port}/in`, ...config }, own);
  onTestFinished(async () => {
    const closed = kept!.close();
    clock.advance(10_000);
    await closed;
  });
  const run = (parts: Parameters<typeof madeUpExchange>[0] = {}, reply: Reply = plainReply) => {
    const exchange = madeUpExchange(parts);
    return { exchange, returned: exercise(middleware, exchange, () => reply).returned };
  };
  /** A request whose reply has been sent. */
  const done = (parts: Parameters<typeof madeUpExchange>[0] = {}, reply: Reply = plainReply) => {
    const { exchange } = run(parts, reply);
    exchange.call.notes.status = reply.status;
    exchange.call.close();
  };
  return { run, done, clock, timers, lines: own.lines, middleware, close: () => kept!.close() };
}

const batches = ({ seen }: Origin) => seen.map(({ body }) => JSON.parse(body.toString()) as Entry[]);

/** The one entry that comes of this. */
async function entryOf(act: (log: ReturnType<typeof logging>) => void | Promise<void>): Promise<Entry> {
  const server = await backend();
  const log = logging(server.port, { batch_size: 1 });
  await act(log);
  await eventually(() => server.seen.length === 1, "a request at the server");
  return batches(server)[0]![0]!;
}

describe("an entry", () => {
  it("an entry describes the request, its reply, and how long it took", async () => {
    const entry = await entryOf(({ run, clock }) => {
      clock.advance(5);
      const { exchange } = run({
        query: "?q=1",
        headers: ["Host", "gw", "X-A", "1", "x-a", "2"],
        clientAddress: "198.51.100.7",
      });
      clock.advance(7.251);
      exchange.call.notes.status = 200;
      exchange.call.notes.identity = "ann";
      exchange.call.close();
    });
    expect(entry).toEqual({
      service: "a",
      route: "b",
      request: {
        id: "request-1",
        method: "GET",
        scheme: "http",
        host: "gateway.example",
        path: "/a/b",
        query: "?q=1",
        http_version: "1.1",
        headers: { host: "gw", "x-a": ["1", "2"] },
        bytes: 0,
      },
      response: { status: 200, headers: { "content-type": "text/plain" }, bytes: 13, code: null },
      latency: 12.25,
      client_ip: "198.51.100.7",
      caller: "ann",
      started_at: "2026-01-01T00:00:00.000Z",
      ended_at: "2026-01-01T00:00:00.012Z",
    });
  });

  it("an entry is made once the reply is over, and counts the bytes of the body that were read", async () => {
    const server = await backend();
    const { run, clock } = logging(server.port, { batch_size: 1 });
    const body = new PassThrough();
    const { exchange } = run({}, { ...plainReply, body });
    body.write("abc");
    const received: Buffer[] = [];
    body.on("data", (chunk: Buffer) => received.push(chunk));
    await eventually(() => received.length === 1, "a request at the server");
    clock.advance(60_000);
    expect(server.seen).toEqual([]);
    body.end("de");
    await eventually(() => body.readableEnded, "the end of the body");
    exchange.call.close();
    await eventually(() => server.seen.length === 1, "a request at the server");
    expect(batches(server)[0]![0]!.response["bytes"]).toBe(5);
    expect(Buffer.concat(received).toString()).toBe("abcde");
  });

  it("an entry does not read a body that has no other reader", async () => {
    const body = new PassThrough();
    body.end("abc");
    const entry = await entryOf(({ run }) => run({}, { ...plainReply, body }).exchange.call.close());
    expect(entry.response["bytes"]).toBeNull();
    expect(body.readableFlowing).toBeNull();
  });

  it("an entry has no status and the code client_closed if the client disconnects", async () => {
    const entry = await entryOf(({ run }) => run().exchange.call.abort());
    expect(entry.response).toMatchObject({ status: null, code: "client_closed" });
  });

  it("an entry describes a request whose inner plugin fails, and the fault passes", async () => {
    const server = await backend();
    const { middleware } = logging(server.port, { batch_size: 1 });
    for (const fail of [
      () => {
        throw new Error("no");
      },
      () => Promise.reject(new Error("no")),
    ]) {
      const exchange = madeUpExchange();
      await expect((async () => exercise(middleware, exchange, fail).returned)()).rejects.toThrow("no");
      exchange.call.notes.status = 500;
      exchange.call.notes.code = "internal";
      exchange.call.close();
    }
    await eventually(() => server.seen.length === 2, "two requests at the server");
    expect(batches(server)[1]![0]!.response).toEqual({ status: 500, headers: {}, bytes: null, code: "internal" });
  });

  it("an entry appears for a WebSocket when the WebSocket ends", async () => {
    const server = await backend();
    const { run } = logging(server.port, { batch_size: 1 });
    const socket = new PassThrough();
    const { exchange } = run(
      { upgrade: "websocket" },
      { status: 101, headers: [], body: null, tunnel: { socket, head: Buffer.alloc(0), idleMs: 0 } },
    );
    exchange.call.notes.status = 101;
    exchange.call.close();
    await new Promise(setImmediate);
    expect(server.seen).toEqual([]);
    socket.destroy();
    await eventually(() => server.seen.length === 1, "a request at the server");
    expect(batches(server)[0]![0]!.response).toMatchObject({ status: 101, bytes: null });
  });

  it("an entry appears with the reply if a WebSocket ended before its reply was sent", async () => {
    const socket = new PassThrough();
    socket.destroy();
    await once(socket, "close");
    const entry = await entryOf(({ run }) =>
      run(
        { upgrade: "websocket" },
        { status: 101, headers: [], body: null, tunnel: { socket, head: Buffer.alloc(0), idleMs: 0 } },
      ).exchange.call.close(),
    );
    expect(entry.response).toMatchObject({ status: 101, bytes: null });
  });

  it("an entry holds no credentials", async () => {
    const jwt = "eyJhbGciOiJub25lIn0.e30.";
    const headers = [
      "Authorization",
      "Basic geheim",
      "Proxy-Authorization",
      "geheim",
      "Cookie",
      "a=geheim",
      "cookie",
      "b=geheim",
      "APIKEY",
      "geheim",
      "X-Shop-Key",
      "geheim",
      "X-Token",
      jwt,
      "Referer",
      "http://a/b?token=geheim&c=d",
    ];
    const query =
      "?a=1&X-Shop-Key=geheim&apiKey=geheim&api%4Bey=geheim&ACCESS_TOKEN=geheim&x=eyJgeheim&y=%65yJgeheim&flag&%zz=2";
    const entry = await entryOf(({ run }) =>
      run(
        { headers, query },
        { ...plainReply, headers: ["Set-Cookie", "a=geheim", "Location", "/x?access_token=geheim#f"] },
      ).exchange.call.close(),
    );
    expect(JSON.stringify(entry)).not.toMatch(/geheim|eyJhb/);
    expect(entry.request["query"]).toBe(
      "?a=1&X-Shop-Key=[redacted]&apiKey=[redacted]&api%4Bey=[redacted]&ACCESS_TOKEN=[redacted]&" +
        "x=[redacted]&y=[redacted]&flag&%zz=2",
    );
    expect(entry.request["headers"]).toMatchObject({
      authorization: "[redacted]",
      cookie: ["[redacted]", "[redacted]"],
      referer: "http://a/b?token=[redacted]&c=d",
    });
  });

  it("an entry holds no credentials of fragments, paths and URLs in other headers", async () => {
    const jwt = "eyJhbGciOiJub25lIn0.e30.geheim";
    const headers = [
      "X-Hop",
      `Bearer ${jwt}`,
      "Sec-WebSocket-Protocol",
      `access_token, ${jwt}`,
      "X-Original-URL",
      "/x?a=/y?token=geheim&b=1",
      "Referer",
      "https://u:geheim@h/p?n=%2F%3Ft%3DeyJgeheim",
    ];
    const entry = await entryOf(({ run }) =>
      run(
        { headers, path: `/reset/${jwt}/now` },
        {
          ...plainReply,
          headers: [
            "Location",
            "https://app/#id_token=geheim&s=1",
            "Link",
            "</x?sig=geheim>; rel=next",
            "X-Auth-Token",
            "geheim",
          ],
        },
      ).exchange.call.close(),
    );
    expect(JSON.stringify(entry)).not.toContain("geheim");
    expect(entry.request).toMatchObject({
      path: "/reset/[redacted]/now",
      headers: { "x-hop": "Bearer [redacted]", "x-original-url": "/x?a=/y?token=[redacted]&b=1" },
    });
    expect(entry.response["headers"]).toMatchObject({
      location: "https://app/#id_token=[redacted]&s=1",
      link: "</x?sig=[redacted]>; rel=next",
    });
  });

  it("an entry is made in linear time for hostile texts", async () => {
    const fresh = await counted(() => import("../../lib/plugins/http_log.ts"));
    const { run } = logging(await closedPort(), {}, fresh.httpLog);
    const log = (size: number) => {
      const of = (part: string) => part.repeat(size / part.length);
      run({
        query: of("?a="),
        headers: ["X-A", of("//"), "X-B", of("&a"), "X-C", of("%65yJ?=")],
      }).exchange.call.close();
    };
    expect(growth(log, 1_000)).toBeLessThan(LINEAR);
  });
});

describe("a response", () => {
  it("a response is returned unchanged, without waiting", async () => {
    const { run, middleware } = logging(await closedPort());
    expect(run().returned).toBe(plainReply);
    const exchange = madeUpExchange();
    expect(await exercise(middleware, exchange, () => Promise.resolve(plainReply)).returned).toBe(plainReply);
  });
});

describe("batches", () => {
  it("batches are sent when they are full, or after flush_ms, with method, content type and headers", async () => {
    const server = await backend();
    const { done, clock, timers } = logging(server.port, {
      batch_size: 3,
      flush_ms: 500,
      method: "PUT",
      headers: { Authorization: "Bearer log" },
    });
    for (let i = 0; i < 4; i++) done();
    await eventually(() => server.seen.length === 1, "a request at the server");
    expect(batches(server)[0]).toHaveLength(3);
    const [seen] = server.seen;
    expect([seen!.method, seen!.url]).toEqual(["PUT", "/in"]);
    expect(seen!.headers.slice(2, 6)).toEqual(["Content-Type", "application/json", "Authorization", "Bearer log"]);
    await eventually(() => timers.at(-1) === 500, "a timer of 500 ms");
    clock.advance(499);
    expect(server.seen).toHaveLength(1);
    clock.advance(1);
    await eventually(() => server.seen.length === 2, "two requests at the server");
    expect(batches(server)[1]).toHaveLength(1);
  });

  it("batches consist of lines of JSON with application/x-ndjson", async () => {
    const server = await backend();
    const { done } = logging(server.port, { batch_size: 2, content_type: "application/x-ndjson; charset=utf-8" });
    done();
    done();
    await eventually(() => server.seen.length === 1, "a request at the server");
    const lines = server.seen[0]!.body.toString().split("\n");
    expect(lines).toHaveLength(3);
    expect(lines.slice(0, 2).map((line) => (JSON.parse(line) as Entry)["service"])).toEqual(["a", "a"]);
    expect(lines[2]).toBe("");
  });

  it("batches are sent again after 500, 1000 and 2000 ms where that may help, then dropped and logged", async () => {
    let tries = 0;
    const server = await backend((_request, response) => void response.writeHead(++tries < 5 ? 503 : 200).end());
    const { done, clock, timers, lines } = logging(server.port, { batch_size: 2 });
    done();
    done();
    for (const [i, pause] of [500, 1_000, 2_000].entries()) {
      await eventually(() => timers.at(-1) === pause, "the timer of the next pause");
      clock.advance(pause - 1);
      expect(tries).toBe(i + 1);
      clock.advance(1);
    }
    await eventually(() => lines.length === 1, "a log line");
    expect(lines[0]).toMatchObject({
      level: "warn",
      message: "http_log has lost entries",
      fields: { entries: 2, error: "the server answered with status 503" },
    });
    done();
    done();
    await eventually(() => tries === 5, "five tries");
  });

  it.each([
    [503, "7", 7_000],
    [429, new Date(Date.UTC(2026, 0, 1) + 6_000).toUTCString(), 6_000],
    [503, "86400", 30_000],
    [500, "later", 500],
  ])("batches are sent again after a %d when Retry-After says so: %s", async (status, value, ms) => {
    let tries = 0;
    const server = await backend(
      (_request, response) => void response.writeHead(tries++ === 0 ? status : 200, { "Retry-After": value }).end(),
    );
    const { done, clock, timers } = logging(server.port, { batch_size: 1 });
    done();
    await eventually(() => timers.length === 2, "two timers");
    expect(timers[1]).toBe(ms);
    clock.advance(ms);
    await eventually(() => server.seen.length === 2, "two requests at the server");
    expect(batches(server)[1]).toEqual(batches(server)[0]);
  });

  it("batches are dropped without another try where that cannot help", async () => {
    const server = await backend((_request, response) => void response.writeHead(400).end());
    const { done, lines } = logging(server.port, { batch_size: 1 });
    done();
    await eventually(() => lines.length === 1, "a log line");
    expect(server.seen).toHaveLength(1);
  });

  it("batches wait in a bounded queue for a slow server; the oldest entries are dropped", async () => {
    const held = gate<() => void>();
    let first = true;
    const ids: string[][] = [];
    const server = await rawBackend((request, response) => {
      let text = "";
      request.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
      request.on("end", () => {
        ids.push((JSON.parse(text) as Entry[]).map((entry) => String(entry.request["path"])));
        if (first) held.open(() => void response.end());
        else response.end();
        first = false;
      });
    });
    const { done, lines, clock, timers, close } = logging(server.port, { batch_size: 2, max_queue: 3, flush_ms: 100 });
    for (const path of ["/0", "/1"]) done({ path });
    const answer = await held.opened;
    for (const path of ["/2", "/3", "/4", "/5", "/6"]) done({ path });
    answer();
    await eventually(() => ids.length === 2, "two request ids");
    await eventually(() => timers.at(-1) === 100, "a timer of 100 ms");
    clock.advance(100);
    await eventually(() => ids.length === 3, "three request ids");
    expect(ids).toEqual([["/0", "/1"], ["/4", "/5"], ["/6"]]);
    await close();
    expect(lines.map(({ fields }) => fields!["entries"])).toEqual([1, 1]);
  });
});

describe("the end of an instance", () => {
  it("the end of an instance sends the waiting entries, and the entries of requests that end later", async () => {
    const server = await backend();
    const { run, done, close } = logging(server.port);
    const late = run();
    done();
    await close();
    expect(batches(server).map((batch) => batch.length)).toEqual([1]);
    late.exchange.call.close();
    await eventually(() => server.seen.length === 2, "two requests at the server");
    await eventually(() => server.connections.open === 0, "the connections to the server closing");
  });
});

describe("configuration", () => {
  it("http_log has defaults for every field but http_endpoint", () => {
    expect(checked(httpLog.schema, { http_endpoint: "https://a/" }).value).toEqual({
      ...{ httpEndpoint: "https://a/", method: "POST", contentType: "application/json", headers: {} },
      ...{ batchSize: 100, flushMs: 1_000, maxQueue: 10_000, timeoutMs: 5_000 },
    });
  });

  it.each<[string, object, RegExp]>([
    ["no endpoint", {}, /^http_endpoint: is required/],
    ["a file", { http_endpoint: "file:///a" }, /^http_endpoint: expected an http/],
    [
      "a password in it",
      { http_endpoint: "https://u:geheim@a/" },
      /^http_endpoint: is a URL with a user name or password/,
    ],
    ["GET", { http_endpoint: "https://a/", method: "GET" }, /^method: expected "POST", "PUT" or "PATCH"/],
    [
      "a content type that is none",
      { http_endpoint: "https://a/", content_type: "json" },
      /^content_type: expected a media type/,
    ],
    [
      "framing",
      { http_endpoint: "https://a/", headers: { "content-length": "1" } },
      /^headers\.content-length: is not the name of a header that can be set here/,
    ],
    [
      "a line break",
      { http_endpoint: "https://a/", headers: { "X-A": "1\r\nX-B: 2" } },
      /^headers\.X-A: expected text that a header can carry/,
    ],
  ])("http_log reports %s as a configuration error", (_what, config, message) => {
    const { issues } = checked(httpLog.schema, config);
    expect(issues.map((issue) => issue.replace(/\["(.*?)"\]/, ".$1"))).toEqual([expect.stringMatching(message)]);
  });
});

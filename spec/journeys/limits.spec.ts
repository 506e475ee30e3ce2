import { once } from "node:events";
import type { ClientHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { definePlugin, schema } from "../../lib/index.ts";
import { CA, SERVER } from "../support/certs.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { codec } from "../support/codec.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Open, h2TlsSession } from "../support/h2_client.ts";
import { closedPort } from "../support/origin.ts";
import {
  ACK,
  CODES,
  DATA,
  END_STREAM,
  frame,
  HEADERS,
  PING,
  POST,
  rawSession,
  type RawSession,
} from "../support/h2_raw.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { backend, client, codeIn, gate, get, rawBackend, statusesIn } from "./harness.ts";

type Limits = NonNullable<NonNullable<AnyConfigInput["global"]>["limits"]>;

const post = (...lines: string[]) => ["POST /a/x HTTP/1.1", "Host: h", ...lines, "", ""].join("\r\n");
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;
const FILES = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };

/** Collects the access log; `until` resolves with its lines when there are `count`. */
function accessLines() {
  const lines: string[] = [];
  const until = async (count: number) => {
    const found = () =>
      lines
        .join("")
        .split("\n")
        .filter((line) => line !== "");
    await eventually(() => found().length === count, `${count} lines in the access log`);
    return found().map((line) => JSON.parse(line) as Record<string, unknown>);
  };
  return { accessLog: (text: string) => void lines.push(text), until };
}

/**
 * An HTTP/2 connection without TLS, frame by frame; `problemOn` resolves with the error code that a stream was answered
 * with.
 */
async function frames(port: number) {
  const connection = await rawSession(port);
  onTestFinished(() => void connection.socket.destroy());
  return Object.assign(connection, { problemOn });
}

async function problemOn(this: RawSession, stream: number): Promise<string> {
  await this.until((got) => got.type === DATA && got.stream === stream && (got.flags & END_STREAM) !== 0);
  const text = this.frames
    .filter((got) => got.type === DATA && got.stream === stream)
    .map(({ payload }) => payload.toString());
  return codeIn(text.join("")) ?? text.join("");
}

/**
 * Resolves as `promise` does. The gateway's own codec checks its deadlines on the clock, which runs fast here; Node's
 * server needs real time.
 */
async function onFastClock<T>(clock: ManualClock, promise: Promise<T>): Promise<T> {
  const timer = codec === "wire" ? setInterval(() => clock.advance(100), 2) : undefined;
  return promise.finally(() => clearInterval(timer));
}

const limited = (port: number, limits: Limits, parts: Parameters<typeof oneService>[1] = {}) =>
  oneService(port, parts, { limits });

/** An HTTP/2 session over TLS with a gateway. */
async function tlsSession(gateway: {
  listen(options: object): Promise<{ port: number }>;
}): Promise<ClientHttp2Session> {
  return h2TlsSession((await gateway.listen({ port: 0, tls: FILES })).port);
}

/** A request over HTTP/2 whose body, if any, the test writes; `answered` resolves with its status and error code. */
function requestHttp2(session: ClientHttp2Session, headers: Record<string, string>, endStream: boolean) {
  const { stream, reply } = h2Open(session, { headers }, endStream);
  return { stream, answered: reply.then(({ status, body }) => `${status || undefined} ${codeIn(body) ?? body}`) };
}

describe("max_uri_bytes, max_headers and max_header_bytes", () => {
  const limits = { max_uri_bytes: 100, max_headers: 4, max_header_bytes: 1024 };

  it.each<[title: string, bytes: string, status: number, code: string | undefined]>([
    ["accepts a target of max_uri_bytes", get("/a/" + "x".repeat(97)), 200, undefined],
    ["answers 414 to a target longer than max_uri_bytes", get("/a/" + "x".repeat(98)), 414, "uri_too_long"],
    ["answers 414 to a target longer than max_header_bytes", get("/a/" + "x".repeat(2000)), 414, "uri_too_long"],
    ["accepts max_headers header lines", get("/a/x", "A: 1", "B: 2", "C: 3"), 200, undefined],
    [
      "answers 431 to one header line more than max_headers",
      get("/a/x", "A: 1", "B: 2", "C: 3", "D: 4"),
      431,
      "headers_too_large",
    ],
    ["accepts a head of nearly max_header_bytes", get("/a/x", "A: " + "x".repeat(900)), 200, undefined],
    [
      "answers 431 to a head longer than max_header_bytes",
      get("/a/x", "A: " + "x".repeat(1100)),
      431,
      "headers_too_large",
    ],
  ])("%s", async (_title, bytes, status, code) => {
    const upstream = await backend();
    const { port } = await running(limited(upstream.port, limits));
    const connection = await client(port);
    connection.send(bytes);
    if (code === undefined) await connection.until("ok");
    else expect(codeIn(await connection.closed())).toBe(code);
    expect(statusesIn(connection.text())).toEqual([status]);
    expect(upstream.seen).toHaveLength(status === 200 ? 1 : 0);
  });

  it("max_uri_bytes, max_headers and max_header_bytes hold for HTTP/2", async () => {
    const upstream = await backend();
    const { gateway } = await running(limited(upstream.port, limits));
    const session = await tlsSession(gateway);
    expect(await requestHttp2(session, { ":path": "/a/" + "x".repeat(98) }, true).answered).toBe("414 uri_too_long");
    expect(await requestHttp2(session, { a: "1", b: "2", c: "3", d: "4", e: "5" }, true).answered).toBe(
      "431 headers_too_large",
    );
    // Each field counts 32 bytes in addition to name and value (RFC 9113 §10.5.1), pseudo-headers included.
    expect(await requestHttp2(session, { a: "x".repeat(700) }, true).answered).toBe("200 ok");
    expect(await requestHttp2(session, { a: "x".repeat(1_024) }, true).answered).toBe("431 headers_too_large");
    expect(await requestHttp2(session, { a: "x".repeat(60_000) }, true).answered).toBe("431 headers_too_large");
    expect(await requestHttp2(session, {}, true).answered).toBe("200 ok");
    expect(upstream.seen).toHaveLength(2);
  });
});

describe("headers_timeout_ms", () => {
  it.each([
    ["a head stops in the middle", "GET /a/x HTTP/1.1\r\nHos"],
    ["no head arrives", ""],
  ])("answers 408 and closes the connection when %s", async (_title, bytes) => {
    const upstream = await backend();
    const clock = manualClock();
    const { port } = await running(limited(upstream.port, { headers_timeout_ms: 100 }), { clock });
    const connection = await client(port);
    connection.send(bytes);
    const received = await onFastClock(clock, connection.closed());
    expect([statusesIn(received), codeIn(received)]).toEqual([[408], "request_timeout"]);
    expect(received).toMatch(/\r\nConnection: close\r\n/i);
    expect(upstream.connections.total).toBe(0);
  });

  it("does not limit the time between requests, nor the time of a reply", async () => {
    const go = gate();
    const upstream = await rawBackend((_request, response) => void go.opened.then(() => response.end("ok")));
    const clock = manualClock();
    const { port } = await running(limited(upstream.port, { headers_timeout_ms: 50 }), { clock });
    const [idle, waiting, slow] = [await client(port), await client(port), await client(port)];
    idle.send(get("/none"));
    await idle.until("route_not_found");
    waiting.send(get());
    await eventually(() => upstream.connections.total === 1, "a connection to the upstream");
    // The sweep that closes a connection with a slow head has checked the other connections too.
    slow.send("GET");
    await onFastClock(clock, slow.closed());
    go.open();
    await waiting.until("ok");
    idle.send(get());
    await idle.until("ok");
  });
});

describe("request_timeout_ms", () => {
  it(
    "answers 408 when the request is not complete in time, " + "cancels the upstream request and closes the connection",
    async () => {
      const upstream = await rawBackend(() => {});
      const clock = manualClock();
      const { port } = await running(limited(upstream.port, { request_timeout_ms: 100 }), { clock });
      const connection = await client(port);
      connection.send(post("Transfer-Encoding: chunked") + chunk("begun"));
      await eventually(() => upstream.connections.open === 1, "a connection to the upstream");
      const received = await onFastClock(clock, connection.closed());
      expect([statusesIn(received), codeIn(received)]).toEqual([[408], "request_timeout"]);
      await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
    },
  );

  it("appears in the access log as request_timeout with the request id that the client was sent", async () => {
    const upstream = await rawBackend(() => {});
    const { accessLog, until } = accessLines();
    const clock = manualClock();
    const { port } = await running(limited(upstream.port, { request_timeout_ms: 100 }), { accessLog, clock });
    const connection = await client(port);
    connection.send(post("Content-Length: 10") + "begun");
    await eventually(() => upstream.connections.open === 1, "a connection to the upstream");
    const id = /"request_id":"([^"]+)"/.exec(await onFastClock(clock, connection.closed()))?.[1];
    expect((await until(1))[0]).toMatchObject({
      status: 408,
      code: "request_timeout",
      request_id: id,
      upstream: `127.0.0.1:${upstream.port}`,
    });
  });

  it("closes the connection when the reply has begun, and the access log shows why", async () => {
    const upstream = await rawBackend((request, response) => {
      request.on("error", () => {});
      response.on("error", () => {}).write("begun");
    });
    const { accessLog, until } = accessLines();
    const clock = manualClock();
    const { port } = await running(limited(upstream.port, { request_timeout_ms: 500 }), { accessLog, clock });
    const connection = await client(port);
    connection.send(post("Content-Length: 10") + "begun");
    await connection.until("begun");
    expect(statusesIn(await onFastClock(clock, connection.closed()))).toEqual([200]);
    expect((await until(1))[0]).toMatchObject({ status: 200, code: "request_timeout" });
  });

  it(
    "answers 408 over HTTP/2, stops the upload, cancels the upstream request and " + "leaves other streams alone",
    async () => {
      const clock = manualClock();
      let whole = 0;
      const upstream = await rawBackend(
        (request) =>
          void request
            .on("error", () => {})
            .on("end", () => whole++)
            .resume(),
      );
      const { accessLog, until } = accessLines();
      const config = oneService(upstream.port, {}, { h2c: true, limits: { request_timeout_ms: 2_000 } });
      const { port, gateway } = await running(config, { clock, accessLog });
      const connection = await frames(port);
      connection.headers(1, POST, 0);
      connection.headers(3, POST, 0);
      connection.send(frame(DATA, 0, 1, Buffer.from("begun")), frame(DATA, END_STREAM, 3, Buffer.from("whole")));
      await eventually(
        () => upstream.connections.open === 2 && whole === 1,
        "two connections to the upstream, one request complete",
      );
      clock.advance(1_999);
      expect(gateway.inFlight).toBe(2);
      clock.advance(1);
      expect(await connection.problemOn(1)).toBe("request_timeout");
      expect(await connection.reset(1)).toBe(CODES.NO_ERROR);
      await eventually(
        () => upstream.connections.open === 1 && gateway.inFlight === 1,
        "the upstream's request being cancelled",
      );
      expect((await until(1))[0]).toMatchObject({ protocol: "HTTP/2.0", status: 408, code: "request_timeout" });
    },
  );

  it("resets the HTTP/2 stream when the reply has begun", async () => {
    const clock = manualClock();
    const upstream = await rawBackend((request, response) => {
      request.on("error", () => {}).resume();
      response.on("error", () => {}).write("begun");
    });
    const { accessLog, until } = accessLines();
    const config = oneService(upstream.port, {}, { h2c: true, limits: { request_timeout_ms: 2_000 } });
    const { port, gateway } = await running(config, { clock, accessLog });
    const connection = await frames(port);
    connection.headers(1, POST, 0);
    await connection.until(({ type, stream }) => type === HEADERS && stream === 1);
    clock.advance(2_000);
    expect(await connection.reset(1)).toBe(CODES.CANCEL);
    await eventually(
      () => upstream.connections.open === 0 && gateway.inFlight === 0,
      "the connections to the upstream closing and no request being in flight",
    );
    expect((await until(1))[0]).toMatchObject({ status: 200, code: "request_timeout" });
    expect(connection.isClosed()).toBe(false);
  });

  it("does not limit the reply to a request that is complete", async () => {
    const go = gate();
    const upstream = await rawBackend((request, response) => {
      request.resume();
      void go.opened.then(() => response.end("ok"));
    });
    const clock = manualClock();
    const { port } = await running(limited(upstream.port, { request_timeout_ms: 50 }), { clock });
    const [whole, slow] = [await client(port), await client(port)];
    whole.send(post("Content-Length: 4") + "body");
    slow.send(post("Content-Length: 4") + "bo");
    await eventually(() => upstream.connections.open === 2, "two connections to the upstream");
    expect(statusesIn(await onFastClock(clock, slow.closed()))).toEqual([408]);
    go.open();
    await whole.until("ok");
  });
});

describe("min_body_bytes_per_s", () => {
  const patient = { timeouts: { connect_ms: 3_600_000, response_ms: 3_600_000, idle_ms: 3_600_000 } };

  async function uploading(head: string, sent: string, limits: Limits = {}) {
    const clock = manualClock();
    let arrived = 0;
    const upstream = await rawBackend((request, response) => {
      request.on("error", () => {});
      request.on("data", (piece: Buffer) => (arrived += piece.length));
      if (request.method === "GET") response.end("ok");
      if (request.headers["x-live"] !== undefined) response.flushHeaders();
    });
    const { port } = await running(limited(upstream.port, limits, { ...patient, pool: { max_connections: 1 } }), {
      clock,
    });
    const connection = await client(port);
    connection.send(head);
    await eventually(() => upstream.connections.open === 1, "a connection to the upstream");
    connection.send(sent);
    await eventually(() => arrived === sent.replace(/[0-9a-f]+\r\n|\r\n/g, "").length, "the beginning of the body");
    const pass = (seconds: number) => {
      for (let i = 0; i < seconds; i++) clock.advance(1_000);
    };
    return { clock, upstream, connection, port, pass };
  }

  it.each<[what: string, head: string, sent: string]>([
    ["of stated length", post("Content-Length: 100000"), "x".repeat(900)],
    ["in chunks", post("Transfer-Encoding: chunked"), chunk("x".repeat(900))],
  ])(
    "answers 408 to a body %s that arrives too slowly for ten seconds, and frees its upstream connection for others",
    async (_what, head, sent) => {
      const { connection, pass, port } = await uploading(head, sent);
      const other = ask(port, { path: "/a/x" });
      pass(10);
      await ask(port, { path: "/none" });
      expect(connection.text()).toBe("");
      pass(1);
      const received = await connection.closed();
      expect([statusesIn(received), codeIn(received)]).toEqual([[408], "request_timeout"]);
      expect((await other).status).toBe(200);
    },
  );

  it(
    "lets a chunked body be slow once its reply has begun, " + "and still refuses a slow body of known length",
    async () => {
      const live = await uploading(post("X-Live: 1", "Transfer-Encoding: chunked"), chunk("x"));
      const counted = await uploading(post("X-Live: 1", "Content-Length: 100000"), "x");
      for (const { connection, pass } of [live, counted]) {
        await connection.until("HTTP/1.1 200 OK");
        pass(600);
      }
      await counted.connection.closed();
      await ask(live.port, { path: "/none" });
      expect([live.connection.socket.destroyed, live.upstream.connections.open]).toEqual([false, 1]);
    },
  );

  it("does not limit any body when it is 0", async () => {
    for (const [head, sent] of [
      [post("Content-Length: 100000"), "x"],
      [post("Transfer-Encoding: chunked"), chunk("x")],
    ] as const) {
      const { connection, pass, port, upstream } = await uploading(head, sent, { min_body_bytes_per_s: 0 });
      pass(600);
      await ask(port, { path: "/none" });
      expect(upstream.connections.open).toBe(1);
      expect(connection.text()).toBe("");
    }
  });

  it("a slow upload is logged as 408 request_timeout", async () => {
    const clock = manualClock();
    const upstream = await rawBackend((request) => void request.on("error", () => {}).resume());
    const { accessLog, until } = accessLines();
    const { port } = await running(limited(upstream.port, {}, patient), { clock, accessLog });
    const connection = await client(port);
    connection.send(post("Content-Length: 100000") + "x");
    await eventually(() => upstream.connections.open === 1, "a connection to the upstream");
    for (let i = 0; i < 12; i++) clock.advance(1_000);
    await connection.closed();
    expect((await until(1))[0]).toMatchObject({
      status: 408,
      code: "request_timeout",
      fault: "the body arrives too slowly",
    });
  });

  describe("over HTTP/2", () => {
    type Fields = readonly (readonly [string, string])[];

    /** Never answers requests for /held. */
    const holder = definePlugin({
      name: "holder",
      schema: schema.object({}),
      create: () => (next) => (exchange) => (exchange.path === "/a/held" ? new Promise(() => {}) : next(exchange)),
    });

    async function streaming(limits: Limits = {}) {
      const clock = manualClock();
      let arrived = 0;
      const upstream = await rawBackend((request, response) => {
        request.on("error", () => {});
        request.on("data", (piece: Buffer) => (arrived += piece.length));
        if (request.headers["x-live"] !== undefined) response.flushHeaders();
      });
      const { accessLog, until } = accessLines();
      const config = oneService(upstream.port, { ...patient, plugins: [{ name: "holder" }] }, { h2c: true, limits });
      const { port, gateway } = await running(config, { clock, accessLog, plugins: [holder] });
      const connection = await frames(port);
      const begin = async (stream: number, fields: Fields, body: string) => {
        const before = arrived;
        connection.headers(stream, fields, 0);
        connection.send(frame(DATA, 0, stream, Buffer.from(body)));
        await eventually(() => arrived === before + body.length, "the beginning of the body");
      };
      const pass = (seconds: number) => {
        for (let i = 0; i < seconds; i++) clock.advance(1_000);
      };
      let trips = 0;
      /** Resolves when everything that either side has sent so far has arrived. */
      const roundTrip = async () => {
        const mark = Buffer.alloc(8, ++trips);
        connection.send(frame(PING, 0, 0, mark));
        await connection.until(
          ({ type, flags, payload }) => type === PING && (flags & ACK) !== 0 && payload.equals(mark),
        );
      };
      return { upstream, gateway, connection, begin, pass, until, roundTrip };
    }
    const length: Fields = [...POST, ["content-length", "100000"]];

    it.each<[what: string, fields: Fields]>([
      ["of stated length", length],
      ["without a length", POST],
    ])(
      "answers 408 to a body %s that arrives too slowly for ten seconds, " +
        "stops the stream and keeps the connection open",
      async (_what, fields) => {
        const { upstream, gateway, connection, begin, pass, until } = await streaming();
        await begin(1, fields, "x".repeat(900));
        await begin(3, fields, "x".repeat(12_000));
        pass(10);
        expect(gateway.inFlight).toBe(2);
        pass(1);
        expect(await connection.problemOn(1)).toBe("request_timeout");
        expect(await connection.reset(1)).toBe(CODES.NO_ERROR);
        await eventually(
          () => upstream.connections.open === 1 && gateway.inFlight === 1,
          "the upstream's request being cancelled",
        );
        expect((await until(1))[0]).toMatchObject({ status: 408, code: "request_timeout" });
      },
    );

    it(
      "lets a body be slow that has no length and whose reply has begun, " + "and any body when the limit is 0",
      async () => {
        const live: Fields = [...POST, ["x-live", "1"]];
        for (const [limits, fields] of [
          [{}, live],
          [{ min_body_bytes_per_s: 0 }, length],
          [{ min_body_bytes_per_s: 0 }, POST],
        ] as const) {
          const { gateway, connection, begin, pass, roundTrip } = await streaming(limits);
          await begin(1, fields, "x");
          if (fields === live) await connection.until(({ type }) => type === HEADERS);
          pass(60);
          await roundTrip();
          expect([gateway.inFlight, connection.frames.filter(({ type }) => type === HEADERS).length]).toEqual([
            1,
            fields === live ? 1 : 0,
          ]);
        }
      },
    );

    it("lets a body be slow that is held back because other streams of its connection are not read", async () => {
      const { connection, begin, pass, roundTrip } = await streaming({ min_body_bytes_per_s: 10_000 });
      await begin(1, [...POST, ["content-length", "100000"]], "x");
      const held = POST.map(([name, value]) => [name, name === ":path" ? "/a/held" : value] as const);
      for (let stream = 3; stream < 15; stream += 2) {
        connection.headers(stream, [...held, ["content-length", "1000000"]], 0);
        for (let i = 0; i < 3; i++) connection.send(frame(DATA, 0, stream, Buffer.alloc(16_000)));
        await roundTrip();
      }
      pass(20);
      await roundTrip();
      // Nothing reads the bodies of the other streams.
      expect(connection.frames.filter(({ type }) => type === HEADERS).map(({ stream }) => stream)).toEqual([1]);
    });
  });

  it("leaves no timer behind when the uploads have ended", async () => {
    const clock = manualClock();
    const upstream = await backend();
    const { port } = await running(limited(upstream.port, {}), { clock });
    const idle = clock.pending;
    for (let i = 0; i < 3; i++) await ask(port, { method: "POST", path: "/a/x", body: "hello" });
    await eventually(() => clock.pending === idle, "the timers ending");
  });
});

describe("max_body_bytes", () => {
  it(
    "answers 413 to a larger Content-Length at once, without 100 Continue or the upstream, " +
      "and closes the connection",
    async () => {
      const upstream = await backend();
      const { port } = await running(limited(upstream.port, { max_body_bytes: 10 }));
      const connection = await client(port);
      connection.send(post("Content-Length: 11", "Expect: 100-continue"));
      const received = await connection.closed();
      expect([statusesIn(received), codeIn(received)]).toEqual([[413], "body_too_large"]);
      expect(upstream.connections.total).toBe(0);
    },
  );

  it("accepts a body of exactly the limit, with a length and chunked", async () => {
    const upstream = await backend();
    const { port, gateway } = await running(limited(upstream.port, { max_body_bytes: 10 }));
    for (const headers of [{}, { "Transfer-Encoding": "chunked" }]) {
      expect((await ask(port, { method: "POST", path: "/a/x", body: "0123456789", headers })).status).toBe(200);
    }
    const { stream, answered } = requestHttp2(await tlsSession(gateway), { ":method": "POST" }, false);
    stream.end("0123456789");
    expect(await answered).toBe("200 ok");
    expect(upstream.seen.map(({ body }) => body.toString())).toEqual(["0123456789", "0123456789", "0123456789"]);
  });

  it("answers 413 when a chunked body passes the limit, and cancels the upstream request", async () => {
    const got: string[] = [];
    const upstream = await rawBackend((request) => {
      request.on("error", () => {});
      request.on("data", (piece: Buffer) => got.push(piece.toString()));
    });
    const { port } = await running(limited(upstream.port, { max_body_bytes: 10 }));
    const connection = await client(port);
    connection.send(post("Transfer-Encoding: chunked") + chunk("fits"));
    await eventually(() => got.join("") === "fits", "the bytes 'fits'");
    connection.send(chunk("but not this"));
    expect(codeIn(await connection.until('"code"'))).toBe("body_too_large");
    expect(statusesIn(connection.text())).toEqual([413]);
    await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
    expect(got.join("")).toBe("fits");
  });

  it("answers 413 when the whole chunked body arrives at once, and behind a slow plugin", async () => {
    const upstream = await backend();
    const slow = definePlugin({
      name: "slow",
      schema: schema.object({}),
      create: () => (next) => async (exchange) => {
        await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
        return next(exchange);
      },
    });
    for (const plugins of [[], [{ name: "slow" }]]) {
      const config = limited(upstream.port, { max_body_bytes: 10 }, { plugins });
      const { port } = await running(config, { plugins: [slow] });
      const connection = await client(port);
      connection.send(post("Transfer-Encoding: chunked") + chunk("01234567890") + "0\r\n\r\n");
      expect(codeIn(await connection.until('"code"'))).toBe("body_too_large");
      expect(statusesIn(connection.text())).toEqual([413]);
      // The body arrived whole, so the start of the next request is known.
      connection.send(get());
      await connection.until(/ok$/);
    }
    expect(upstream.seen.map(({ method }) => method)).toEqual(["GET", "GET"]);
  });

  it.each([10, 20_000, 60_000, 200_000, 900_000])(
    "frees connection and stream of an unwanted body of %d bytes",
    async (size) => {
      const config = limited(await closedPort(), { max_body_bytes: 1_000_000 });
      const { port, gateway } = await running(config);
      const connection = await client(port);
      for (let i = 1; i <= 3; i++) {
        connection.send(post("Transfer-Encoding: chunked") + chunk("x".repeat(size)));
        await eventually(() => statusesIn(connection.text()).length === i, `answer ${i}`);
        connection.send("0\r\n\r\n");
      }
      expect(statusesIn(connection.text())).toEqual([502, 502, 502]);
      const session = await tlsSession(gateway);
      for (let i = 0; i < 3; i++) {
        const { stream, answered } = requestHttp2(session, { ":method": "POST" }, false);
        stream.end("x".repeat(size));
        expect(await answered).toBe("502 upstream_connect_failed");
      }
      await eventually(() => gateway.inFlight === 0, "the streams ending");
    },
  );

  it("answers 413, not 500, when the plugin that reads the body runs into the limit", async () => {
    const upstream = await backend();
    const reader = definePlugin({
      name: "reader",
      schema: schema.object({}),
      create: () => (next) => async (exchange) => {
        for await (const _ of exchange.body!);
        return next(exchange);
      },
    });
    const config = limited(upstream.port, { max_body_bytes: 10 }, { plugins: [{ name: "reader" }] });
    const { port } = await running(config, { plugins: [reader] });
    const answer = await ask(port, {
      method: "POST",
      path: "/a/x",
      body: "01234567890",
      headers: { "Transfer-Encoding": "chunked" },
    });
    expect(`${answer.status} ${codeIn(answer.body.toString())}`).toBe("413 body_too_large");
  });

  it("applies to HTTP/2, by Content-Length and while the body streams", async () => {
    const got: string[] = [];
    const upstream = await rawBackend((request) => {
      request.on("error", () => {});
      request.on("data", (piece: Buffer) => got.push(piece.toString()));
    });
    const { gateway } = await running(limited(upstream.port, { max_body_bytes: 10 }));
    const session = await tlsSession(gateway);
    expect(await requestHttp2(session, { ":method": "POST", "content-length": "11" }, false).answered).toBe(
      "413 body_too_large",
    );
    expect(upstream.connections.total).toBe(0);
    const { stream, answered } = requestHttp2(session, { ":method": "POST" }, false);
    stream.write("fits");
    await eventually(() => got.join("") === "fits", "the bytes 'fits'");
    stream.write("but not this");
    expect(await answered).toBe("413 body_too_large");
    await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
  });

  it("breaks off a reply in progress when the body passes the limit", async () => {
    const upstream = await rawBackend((request, response) => {
      request.on("error", () => {});
      response.on("error", () => {});
      response.write("begun");
    });
    const { port } = await running(limited(upstream.port, { max_body_bytes: 10 }));
    const connection = await client(port);
    connection.send(post("Transfer-Encoding: chunked") + chunk("fits"));
    await connection.until("begun");
    connection.send(chunk("but not this"));
    const received = await connection.closed();
    expect(statusesIn(received)).toEqual([200]);
    expect(received).not.toMatch(/0\r\n\r\n$/);
    await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
  });
});

describe("max_connections and max_connections_per_ip", () => {
  /** Resolves with the fate of a new connection: "served", or the error it ends with. */
  async function tried(port: number): Promise<string> {
    const connection = await connect(port).catch((error: NodeJS.ErrnoException) => error.code!);
    if (typeof connection === "string") return connection;
    onTestFinished(() => void connection.socket.destroy());
    const reset = new Promise<string>((resolve) =>
      connection.socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code!)),
    );
    connection.send(get("/none"));
    return Promise.race([
      connection.until("route_not_found").then(
        () => "served",
        () => reset,
      ),
      reset,
    ]);
  }

  it.each<[string, Limits]>([
    ["of all clients", { max_connections: 2 }],
    ["of one address, loopback included,", { max_connections_per_ip: 2 }],
  ])(
    "resets the connection beyond the limit %s, serves the others, and accepts a new one when one closes",
    async (_title, limits) => {
      const { port } = await running(limited((await backend()).port, limits));
      const [one, two] = [await client(port), await client(port)];
      one.send(get());
      await one.until("ok");
      expect(await tried(port)).toBe("ECONNRESET");
      two.send(get());
      await two.until("ok");
      one.socket.destroy();
      let outcome = "";
      while (outcome !== "served") outcome = await tried(port);
    },
  );

  it("does not limit the connections of a trusted proxy per address", async () => {
    const config = oneService(
      (await backend()).port,
      {},
      { trusted_proxies: ["127.0.0.1"], limits: { max_connections_per_ip: 1 } },
    );
    const { port } = await running(config);
    await client(port);
    expect(await tried(port)).toBe("served");
  });

  it("counts plain and TLS connections together, and resets a surplus one before the TLS handshake", async () => {
    const { port, gateway } = await running(limited((await backend()).port, { max_connections: 1 }));
    const secure = await gateway.listen({ port: 0, tls: FILES });
    const plain = await client(port);
    plain.send(get());
    await plain.until("ok");
    const socket: Socket = tls.connect({ port: secure.port, host: "127.0.0.1", servername: "localhost", ca: CA.cert });
    onTestFinished(() => void socket.destroy());
    let shaken = false;
    socket.once("secureConnect", () => (shaken = true));
    await once(socket, "error");
    expect(shaken).toBe(false);
    plain.socket.destroy();
    const served = await (async () => {
      for (;;) {
        const next = tls.connect({ port: secure.port, host: "127.0.0.1", servername: "localhost", ca: CA.cert });
        onTestFinished(() => void next.destroy());
        const up = await new Promise<boolean>((resolve) =>
          next.once("secureConnect", () => resolve(true)).once("error", () => resolve(false)),
        );
        if (up) return next;
      }
    })();
    expect(served.authorized).toBe(true);
  });
});

describe("max_requests_in_flight", () => {
  it(
    "answers 503 overloaded beyond the limit, before any matching, " + "and finishes the requests in progress",
    async () => {
      const go = gate();
      const upstream = await rawBackend((_request, response) => void go.opened.then(() => response.end("ok")));
      const { port } = await running(limited(upstream.port, { max_requests_in_flight: 2, max_client_share: 1 }));
      const under = [await client(port), await client(port)];
      for (const connection of under) connection.send(get());
      await eventually(() => upstream.connections.total === 2, "two connections to the upstream");
      for (const path of ["/a/x", "/none"]) {
        const answer = await ask(port, { path });
        expect(`${answer.status} ${codeIn(answer.body.toString())}`).toBe("503 overloaded");
        expect(answer.headers["retry-after"]).toBe("1");
      }
      go.open();
      for (const connection of under) expect(statusesIn(await connection.until("ok"))).toEqual([200]);
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
      expect(upstream.connections.total).toBe(2);
    },
  );

  it("counts HTTP/2 streams one by one", async () => {
    const go = gate();
    const upstream = await rawBackend((_request, response) => void go.opened.then(() => response.end("ok")));
    const { gateway } = await running(limited(upstream.port, { max_requests_in_flight: 2, max_client_share: 1 }));
    const session = await tlsSession(gateway);
    const under = [requestHttp2(session, {}, true), requestHttp2(session, {}, true)];
    await eventually(() => upstream.connections.total === 2, "two connections to the upstream");
    expect(await requestHttp2(session, {}, true).answered).toBe("503 overloaded");
    go.open();
    expect(await Promise.all(under.map(({ answered }) => answered))).toEqual(["200 ok", "200 ok"]);
  });

  it("does not count a refused request, even while its client does not read the refusal", async () => {
    const go = gate();
    const upstream = await rawBackend((_request, response) => void go.opened.then(() => response.end("ok")));
    const { port, gateway } = await running(limited(upstream.port, { max_requests_in_flight: 1 }));
    const under = await client(port);
    under.send(get());
    await eventually(() => upstream.connections.total === 1, "a connection to the upstream");
    const lazy = await client(port);
    lazy.socket.pause();
    lazy.send(post("Content-Length: 10"));
    await eventually(() => gateway.inFlight >= 1, "a request in flight");
    go.open();
    await under.until("ok");
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });
});

it("a reload changes the limits for later connections and requests", async () => {
  const upstream = await backend();
  const config = (limits: Limits) => limited(upstream.port, limits);
  const { port, gateway } = await running(config({}));
  const before = await client(port);
  const long = get("/a/" + "x".repeat(200), "A: " + "x".repeat(2000));
  before.send(long);
  await before.until("ok");
  await gateway.reload(config({ max_uri_bytes: 100, max_header_bytes: 1024, max_body_bytes: 3, max_connections: 2 }));
  const after = await client(port);
  after.send(get("/a/x", "A: " + "x".repeat(2000)));
  expect(statusesIn(await after.closed())).toEqual([431]);
  before.send(get("/a/" + "x".repeat(200)));
  expect(statusesIn(await before.closed())).toEqual([200, 414]);
  expect((await ask(port, { method: "POST", path: "/a/x", body: "four" })).status).toBe(413);
  await gateway.reload(config({}));
  expect((await ask(port, { method: "POST", path: "/a/x", body: "four" })).status).toBe(200);
});

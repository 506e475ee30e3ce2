import { once } from "node:events";
import type { ClientHttp2Session, OutgoingHttpHeaders } from "node:http2";
import type { Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyPlugin } from "../../lib/plugins/plugin.ts";
import * as s from "../../lib/config/schema.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import {
  block,
  CODES,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  GET,
  GOAWAY,
  HEADERS,
  number32,
  PING,
  POST,
  PRIORITY,
  rawSession,
  RST_STREAM,
  SETTINGS,
  WINDOW_UPDATE,
  type RawSession,
} from "../support/h2_raw.ts";
import { h2Ask, h2Session, replyOn } from "../support/h2_client.ts";
import { eventually } from "../support/raw_client.ts";
import { backend, byteBackend, gate, rawBackend } from "./harness.ts";

const h2c = { h2c: true };
type Fields = readonly (readonly [string, string])[];

async function raw(port: number): Promise<RawSession> {
  const session = await rawSession(port);
  onTestFinished(() => void session.socket.destroy());
  // The client has acknowledged the gateway's SETTINGS: from here on both sides have to keep to them.
  await session.until(({ type, flags }) => type === SETTINGS && flags === 1);
  return session;
}

const ask = (session: ClientHttp2Session, headers: OutgoingHttpHeaders, body?: string) =>
  h2Ask(session, { headers, body });

const without = (name: string): Fields => GET.filter(([each]) => each !== name);
const changed = (name: string, value: string, fields: Fields = GET): Fields =>
  fields.map(([each, old]) => [each, each === name ? value : old]);

describe("an HTTP/2 request that is not valid", () => {
  const RESET: readonly [string, Fields][] = [
    ["a header name in upper case", [...GET, ["X-Up", "1"]]],
    ["a Connection header", [...GET, ["connection", "close"]]],
    ["a Keep-Alive header", [...GET, ["keep-alive", "1"]]],
    ["a Proxy-Connection header", [...GET, ["proxy-connection", "x"]]],
    ["a Transfer-Encoding header", [...GET, ["transfer-encoding", "chunked"]]],
    ["an Upgrade header", [...GET, ["upgrade", "websocket"]]],
    ["a TE header other than trailers", [...GET, ["te", "gzip"]]],
    ["no :method", without(":method")],
    ["no :path", without(":path")],
    ["no :scheme", without(":scheme")],
    ["no :authority and no Host", without(":authority")],
    ["two :path pseudo-headers", [...GET, [":path", "/a/y"]]],
    ["an unknown pseudo-header", [...GET, [":foo", "1"]]],
    ["a pseudo-header of responses", [...GET, [":status", "200"]]],
    ["a pseudo-header behind a header", [["x", "1"], ...GET]],
    [":protocol without CONNECT", [...GET, [":protocol", "websocket"]]],
    ["a path without a slash", changed(":path", "a/x")],
    ["an empty path", changed(":path", "")],
    ["an absolute target as path", changed(":path", "http://elsewhere/a/x")],
    ["a space in the path", changed(":path", "/a/x y")],
    ["a method that is no token", changed(":method", "GE T")],
    ["two Host headers", [...GET, ["host", "gw.example"], ["host", "gw.example"]]],
    ["two Content-Length headers", [...POST, ["content-length", "1"], ["content-length", "1"]]],
    ["a Content-Length that is no number", [...POST, ["content-length", "+1"]]],
    ["a Content-Length without a body", [...POST, ["content-length", "2"]]],
  ];

  it.each(RESET)("resets the stream for %s, forwards nothing, and keeps the connection open", async (_what, fields) => {
    const origin = await backend();
    const { port, gateway } = await running(oneService(origin.port, {}, h2c));
    const connection = await raw(port);
    connection.headers(1, fields);
    expect(await connection.reset(1)).toBe(CODES.PROTOCOL_ERROR);
    connection.headers(3, GET);
    await connection.until(({ type, stream }) => type === HEADERS && stream === 3);
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    expect(origin.seen).toHaveLength(1);
  });

  it.each<[string, Fields, string]>([
    [
      "an empty :authority beside another Host",
      [...changed(":authority", "gw.example"), ["host", "elsewhere"]],
      "bad_request",
    ],
    [
      "an unknown scheme with an absolute target",
      changed(":scheme", "x", changed(":path", "http://elsewhere/a/x")),
      "bad_request",
    ],
    [
      "CONNECT",
      [
        [":method", "CONNECT"],
        [":authority", "elsewhere:443"],
      ],
      "bad_request",
    ],
    [
      "an extended CONNECT for another protocol than websocket",
      [...changed(":method", "CONNECT"), [":protocol", "connect-udp"]],
      "bad_request",
    ],
    ["a path with an encoded slash", changed(":path", "/a/%2fx"), "path_ambiguous"],
    ["a path with dots", changed(":path", "/a/../x"), "path_ambiguous"],
    ["a path with dots and parameters", changed(":path", "/a/..;/x"), "path_ambiguous"],
    ["an unknown method", changed(":method", "GETS"), "bad_request"],
    ["a method in lower case", changed(":method", "get"), "bad_request"],
    ["an expectation other than 100-continue", [...GET, ["expect", "200-ok"]], "expectation_failed"],
    ["a byte outside ASCII in the query", changed(":path", "/a/x?q=caf\xe9"), "bad_request"],
    ["two hosts in :authority", changed(":authority", "evil.com,a.example.com"), "bad_request"],
    ["another expectation before 100-continue", [...GET, ["expect", "x 100-continue"]], "expectation_failed"],
    ["a target longer than max_uri_bytes", changed(":path", `/a/${"x".repeat(9000)}`), "uri_too_long"],
    [
      "more headers than max_headers",
      [...GET, ...Array.from({ length: 220 }, (_, i) => ["x", String(i)] as const)],
      "headers_too_large",
    ],
  ])("answers with a problem document for %s, and forwards nothing", async (_what, fields, code) => {
    const origin = await backend();
    const { port } = await running(oneService(origin.port, {}, h2c));
    const connection = await raw(port);
    connection.headers(1, fields);
    const { payload } = await connection.until(({ type, stream }) => type === DATA && stream === 1);
    expect(JSON.parse(payload.toString())).toMatchObject({ code });
    expect(origin.seen).toEqual([]);
  });

  it.each(["010", "00", "1".repeat(16)])(
    "answers with a problem document for the Content-Length %s, which HTTP/1.1 refuses too, and forwards nothing",
    async (length) => {
      const origin = await backend();
      const { port } = await running(oneService(origin.port, {}, h2c));
      const connection = await raw(port);
      connection.headers(1, [...POST, ["content-length", length]], 0);
      const { payload } = await connection.until(({ type, stream }) => type === DATA && stream === 1);
      expect(JSON.parse(payload.toString())).toMatchObject({
        code: "bad_request",
        detail: expect.stringContaining("Content-Length") as string,
      });
      expect(origin.seen).toEqual([]);
    },
  );

  it("answers with a problem document or resets the stream for userinfo in :authority", async () => {
    const origin = await backend();
    const { port } = await running(oneService(origin.port, {}, h2c));
    const connection = await raw(port);
    connection.headers(1, changed(":authority", "user:word@gw.example"));
    const { type, payload } = await connection.until(
      ({ type, stream }) => (type === DATA || type === RST_STREAM) && stream === 1,
    );
    if (type === DATA) expect(JSON.parse(payload.toString())).toMatchObject({ code: "bad_request" });
    else expect(payload.readUInt32BE(0)).toBe(CODES.PROTOCOL_ERROR);
    connection.headers(3, GET);
    await connection.until(({ type, stream }) => type === HEADERS && stream === 3);
    expect(origin.seen).toHaveLength(1);
  });

  it.each(["a\r\nx-b: c", "a\nb", "a\0b", " a", "a "])(
    "drops a header whose value is %j, so that no line break reaches the upstream",
    async (value) => {
      const origin = await backend();
      const { port } = await running(oneService(origin.port, {}, h2c));
      const connection = await raw(port);
      connection.headers(1, [...GET, ["x-evil", value], ["x-fine", "1"]]);
      await connection.until(({ type, stream }) => type === HEADERS && stream === 1);
      expect(origin.seen[0]!.headers).toContain("x-fine");
      expect(origin.seen[0]!.headers.join("\n")).not.toMatch(/evil|x-b/);
    },
  );

  it.each([
    ["longer", "2"],
    ["shorter", "5"],
  ])(
    "aborts the upstream request, and the stream or connection, for a body %s than its Content-Length",
    async (how, length) => {
      let aborted = 0;
      let whole = 0;
      const origin = await rawBackend((request, response) => {
        request
          .on("error", () => aborted++)
          .on("end", () => whole++)
          .resume();
        response.on("error", () => {});
      });
      const { port, gateway } = await running(oneService(origin.port, {}, h2c));
      const connection = await raw(port);
      connection.headers(1, [...POST, ["content-length", length]], 0);
      await eventually(() => origin.connections.open === 1, "a connection to the upstream");
      connection.send(frame(DATA, END_STREAM, 1, Buffer.from("abc")));
      const { type, payload } = await connection.until(
        ({ type }) => type === RST_STREAM || (type === GOAWAY && how === "longer"),
      );
      if (type === RST_STREAM) expect(payload.readUInt32BE(0)).toBe(CODES.PROTOCOL_ERROR);
      else expect(payload.readUInt32BE(4)).not.toBe(CODES.NO_ERROR);
      await eventually(
        () => gateway.inFlight === 0 && origin.connections.open === 0,
        "no request being in flight and the connections to the upstream closing",
      );
      expect([aborted <= 1, whole]).toEqual([true, 0]);
    },
  );
});

describe("an HTTP/2 connection that misbehaves", () => {
  const start = async (global = {}) => {
    const origin = await backend();
    const started = await running(oneService(origin.port, {}, { ...h2c, ...global }));
    return { ...started, origin, connection: await raw(started.port) };
  };

  const cancelRequests = (connection: RawSession, from: number, count: number) => {
    for (let i = from; i < from + count; i++) {
      connection.send(
        frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * i, block(GET)),
        frame(RST_STREAM, 0, 1 + 2 * i, number32(CODES.CANCEL)),
      );
    }
  };
  /** Resolves when the gateway has processed everything sent so far, or has closed the connection. */
  const processed = async (connection: RawSession) => {
    const before = connection.frames.filter(({ type }) => type === PING).length;
    connection.send(frame(PING, 0, 0, Buffer.alloc(8)));
    await connection.until(
      ({ type }) => type === GOAWAY || connection.frames.filter((each) => each.type === PING).length > before,
    );
  };

  it(
    "sends GOAWAY with ENHANCE_YOUR_CALM to a client that cancels its requests at once " +
      "(CVE-2023-44487), and serves others",
    async () => {
      const { port, gateway, connection } = await start();
      for (let i = 0; i < 3_000 && !connection.frames.some(({ type }) => type === GOAWAY); i += 100) {
        cancelRequests(connection, i, 100);
        await processed(connection);
      }
      expect(await connection.goaway()).toBe(CODES.ENHANCE_YOUR_CALM);
      await connection.closed();
      await eventually(() => gateway.inFlight === 0, "no request being in flight");
      expect((await ask(h2Session(port), { ":path": "/a/x" })).status).toBe(200);
    },
  );

  it(
    "closes a connection that cancels thousands of requests in one burst, " +
      "with ENHANCE_YOUR_CALM or INTERNAL_ERROR",
    async () => {
      const { port, gateway, connection } = await start();
      cancelRequests(connection, 0, 3_000);
      expect([CODES.ENHANCE_YOUR_CALM, CODES.INTERNAL_ERROR]).toContain(await connection.goaway());
      await connection.closed();
      await eventually(() => gateway.inFlight === 0, "no request being in flight");
      expect((await ask(h2Session(port), { ":path": "/a/x" })).status).toBe(200);
    },
  );

  it("keeps a connection whose client leaves a page with 100 open streams, four times in a row", async () => {
    const { connection } = await start();
    for (let i = 0; i < 400; i += 100) {
      cancelRequests(connection, i, 100);
      await processed(connection);
    }
    connection.headers(801, GET);
    await connection.until(({ type, stream }) => type === HEADERS && stream === 801);
  });

  it("keeps a connection that cancels 400 requests in one burst", async () => {
    const { connection } = await start();
    cancelRequests(connection, 0, 400);
    await processed(connection);
    connection.headers(801, GET);
    await connection.until(({ type, stream }) => type === HEADERS && stream === 801);
  });

  it("keeps a connection whose upstream breaks off every reply", async () => {
    const origin = await byteBackend((socket) => {
      socket.on("data", () => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", () => socket.destroy()));
    });
    const { port } = await running(oneService(origin.port, {}, h2c));
    const connection = await raw(port);
    for (let i = 0; i < 600; i += 50) {
      for (let j = i; j < i + 50; j++) connection.headers(1 + 2 * j, GET);
      await eventually(
        () => connection.frames.filter(({ type }) => type === RST_STREAM).length === i + 50,
        "the RST_STREAM frames",
      );
    }
    expect(connection.frames.some(({ type }) => type === GOAWAY)).toBe(false);
  });

  it("counts streams that the gateway resets for the client's errors as well (CVE-2025-8671)", async () => {
    const { connection } = await start();
    let next = 1;
    const some = () => {
      for (let i = 0; i < 50; i++, next += 2) {
        connection.send(frame(HEADERS, END_HEADERS, next, block(POST)), frame(WINDOW_UPDATE, 0, next, number32(0)));
      }
      if (!connection.isClosed() && next < 5_000) setImmediate(some);
    };
    some();
    expect([CODES.ENHANCE_YOUR_CALM, CODES.PROTOCOL_ERROR, CODES.INTERNAL_ERROR]).toContain(await connection.goaway());
  });

  it("sends GOAWAY with ENHANCE_YOUR_CALM for a flood of SETTINGS frames", async () => {
    const { connection } = await start();
    connection.send(...Array.from({ length: 200 }, () => frame(SETTINGS, 0, 0)));
    expect(await connection.goaway()).toBe(CODES.ENHANCE_YOUR_CALM);
    await connection.closed();
  });

  it("sends GOAWAY with ENHANCE_YOUR_CALM for a flood of PING frames", async () => {
    const { connection } = await start();
    // In batches that are each answered: nghttp2 itself closes a connection with more than 1000 unanswered PINGs.
    const pings = Array.from({ length: 500 }, () => frame(PING, 0, 0, Buffer.alloc(8)));
    const answered = () => connection.frames.filter(({ type }) => type === PING).length;
    for (let sent = 500; !connection.frames.some(({ type }) => type === GOAWAY); sent += 500) {
      connection.send(...pings);
      await eventually(() => answered() === sent || connection.isClosed(), "the answers to the PINGs");
      expect(sent).toBeLessThan(1_000_000);
    }
    expect(await connection.goaway()).toBe(CODES.ENHANCE_YOUR_CALM);
  });

  it.each<[string, (connection: RawSession) => void]>([
    [
      "CONTINUATION frames without end (CVE-2024-28182)",
      (connection) =>
        connection.send(
          frame(HEADERS, END_STREAM, 1, block(GET)),
          ...Array.from({ length: 20 }, () => frame(CONTINUATION, 0, 1)),
        ),
    ],
    [
      "empty DATA frames (CVE-2019-9518)",
      (connection) => {
        connection.headers(1, POST, 0);
        connection.send(...Array.from({ length: 300 }, () => frame(DATA, 0, 1)));
      },
    ],
    [
      "more PINGs than can be answered at a time (CVE-2019-9512)",
      (connection) => connection.send(...Array.from({ length: 3_000 }, () => frame(PING, 0, 0, Buffer.alloc(8)))),
    ],
    ["a window that overflows", (connection) => connection.send(frame(WINDOW_UPDATE, 0, 0, number32(0x7fffffff)))],
    ["a WINDOW_UPDATE of 0", (connection) => connection.send(frame(WINDOW_UPDATE, 0, 0, number32(0)))],
    ["a frame that is too large", (connection) => connection.send(frame(PING, 0, 0, Buffer.alloc(20_000)))],
  ])("closes the connection for %s, and serves others", async (_what, flood) => {
    const { gateway, port, connection } = await start();
    flood(connection);
    expect(await connection.goaway()).not.toBe(CODES.NO_ERROR);
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    expect((await ask(h2Session(port), { ":path": "/a/x" })).status).toBe(200);
  });

  it("serves requests between 20000 WINDOW_UPDATE and 5000 PRIORITY frames", async () => {
    const { connection } = await start();
    connection.send(...Array.from({ length: 20_000 }, () => frame(WINDOW_UPDATE, 0, 0, number32(1))));
    connection.send(
      ...Array.from({ length: 5_000 }, (_, i) => frame(PRIORITY, 0, 1 + 2 * i, Buffer.from([0, 0, 0, 0, 1]))),
    );
    connection.headers(11_001, GET);
    await connection.until(({ type, stream }) => type === HEADERS && stream === 11_001);
  });

  it("serves 128 concurrent streams, and closes a connection that opens more", async () => {
    const hold = gate();
    const origin = await backend((_request, response) => void hold.opened.then(() => response.end("ok")));
    const { port } = await running(oneService(origin.port, {}, h2c));
    const connection = await raw(port);
    for (let i = 0; i < 128; i++) connection.headers(1 + 2 * i, GET);
    await eventually(() => origin.seen.length === 128, "128 requests at the upstream");
    hold.open();
    await eventually(
      () => connection.frames.filter(({ type }) => type === HEADERS).length === 128,
      "the HEADERS frames",
    );
    const more = await raw(port);
    for (let i = 0; i < 129; i++) more.headers(1 + 2 * i, POST, 0);
    expect(await more.goaway()).not.toBe(CODES.NO_ERROR);
  });

  it("closes a connection that floods it with header lists too large to answer, and serves others", async () => {
    const { port, connection } = await start();
    const table = Buffer.concat([Buffer.from([0x40]), block([["x", "y".repeat(3_900)]]).subarray(1)]);
    const huge = Buffer.concat([block(GET), Buffer.alloc(30, 0xbe)]);
    connection.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, Buffer.concat([table, huge])));
    let next = 3;
    const some = () => {
      for (let i = 0; i < 10; i++, next += 2) connection.send(frame(HEADERS, END_HEADERS | END_STREAM, next, huge));
      if (!connection.isClosed()) setTimeout(some, 1);
    };
    some();
    await connection.closed();
    expect((await ask(h2Session(port), { ":path": "/a/x" })).status).toBe(200);
  });

  it(
    "resets a stream whose header list is far larger than max_header_bytes, " + "even when one byte encodes 4000",
    async () => {
      const { connection, origin } = await start();
      const indexed = Buffer.concat([
        Buffer.from([0x40]),
        block([["x", "y".repeat(3_900)]]).subarray(1),
        Buffer.alloc(4_000, 0xbe),
      ]);
      connection.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, Buffer.concat([block(GET), indexed])));
      expect(await connection.reset(1)).toBe(CODES.ENHANCE_YOUR_CALM);
      expect(origin.seen).toEqual([]);
    },
  );
});

describe("a client that resets its request", () => {
  it.each([
    ["GET", GET, END_STREAM, CODES.CANCEL],
    ["GET with NO_ERROR", GET, END_STREAM, CODES.NO_ERROR],
    ["HEAD", changed(":method", "HEAD"), END_STREAM, CODES.CANCEL],
    ["POST during its body", POST, 0, CODES.CANCEL],
  ])(
    "cancels the upstream request and the plugin call when the client resets a %s before the response",
    async (_what, fields, flags, code) => {
      let requests = 0;
      const origin = await rawBackend((request, response) => {
        requests++;
        request.on("error", () => {}).resume();
        response.on("error", () => {});
      });
      const lines: string[] = [];
      const { port, gateway } = await running(oneService(origin.port, {}, h2c), {
        accessLog: (text) => lines.push(text),
      });
      const connection = await raw(port);
      connection.headers(1, fields, flags);
      await eventually(() => requests === 1, "a request at the upstream");
      expect(gateway.inFlight).toBe(1);
      connection.send(frame(RST_STREAM, 0, 1, number32(code)));
      await eventually(
        () => origin.connections.open === 0 && gateway.inFlight === 0,
        "the connections to the upstream closing and no request being in flight",
      );
      await gateway.close(0);
      expect(JSON.parse(lines.join(""))).toMatchObject({ status: null });
    },
  );

  it("aborts the upstream request, without a clean end, when the client resets in the middle of its body", async () => {
    let whole = 0;
    let parts = 0;
    const origin = await rawBackend((request, response) => {
      request
        .on("error", () => {})
        .on("end", () => whole++)
        .on("data", () => parts++);
      response.on("error", () => {});
    });
    const { port, gateway } = await running(oneService(origin.port, {}, h2c));
    const connection = await raw(port);
    for (let i = 0; i < 20; i++) {
      const stream = 1 + 2 * i;
      connection.headers(stream, POST, 0);
      connection.send(frame(DATA, 0, stream, Buffer.from("half of it")));
      await eventually(() => parts === i + 1, "the first part of the body");
      connection.send(
        frame(DATA, 0, stream, Buffer.from("and a bit")),
        frame(RST_STREAM, 0, stream, number32(i % 2 === 0 ? CODES.CANCEL : CODES.NO_ERROR)),
      );
      await eventually(
        () => origin.connections.open === 0 && gateway.inFlight === 0,
        "the connections to the upstream closing and no request being in flight",
      );
      parts = i + 1;
    }
    expect(whole).toBe(0);
  });

  it("closes the upstream's connection when the client resets in the middle of a response", async () => {
    const origin = await rawBackend((_request, response) => {
      response.on("error", () => {});
      response.write("begun");
    });
    const { port, gateway } = await running(oneService(origin.port, {}, h2c));
    const connection = await raw(port);
    connection.headers(1, GET);
    await connection.until(({ type }) => type === DATA);
    connection.send(frame(RST_STREAM, 0, 1, number32(CODES.CANCEL)));
    await eventually(
      () => origin.connections.open === 0 && gateway.inFlight === 0,
      "the connections to the upstream closing and no request being in flight",
    );
  });
});

describe("translation between HTTP/2 and HTTP/1.1", () => {
  it("joins split cookies into one line, keeps other duplicates, and passes trailers both ways", async () => {
    const origin = await backend((_request, response) => {
      response.writeHead(
        200,
        [
          ["Set-Cookie", "a=1"],
          ["Set-Cookie", "b=2"],
          ["Trailer", "X-Sum"],
          ["X-Two", "1"],
          ["X-Two", "2"],
        ].flat(),
      );
      response.write("body");
      response.addTrailers({ "X-Sum": "42" });
      response.end();
    });
    const { port } = await running(oneService(origin.port, {}, h2c));
    const stream = h2Session(port).request(
      { ":method": "POST", ":path": "/a/x", cookie: ["a=1", "b=2"], "x-many": ["1", "2"], te: "trailers" },
      { waitForTrailers: true },
    );
    stream.on("wantTrailers", () => stream.sendTrailers({ "x-after": "yes", ":status": undefined }));
    stream.end("sent");
    const got = await replyOn(stream);
    const [seen] = origin.seen;
    expect(got).toMatchObject({
      status: 200,
      body: "body",
      headers: { "set-cookie": ["a=1", "b=2"], "x-two": "1, 2" },
      trailers: { "x-sum": "42" },
    });
    expect(seen!.headers.filter((_, i) => i % 2 === 1 && seen!.headers[i - 1]!.toLowerCase() === "cookie")).toEqual([
      "a=1; b=2",
    ]);
    expect(seen!.headers.filter((name) => name === "x-many")).toHaveLength(2);
    expect([seen!.body.toString(), seen!.trailers]).toEqual(["sent", ["x-after", "yes"]]);
  });

  it("sends 100 and 103 before the reply, and only the first few of 50 early hints", async () => {
    const origin = await rawBackend((request, response) => {
      for (let i = 0; i < 50; i++) response.writeEarlyHints({ link: `</${i}.css>; rel=preload` });
      request.resume().on("end", () => response.end("ok"));
    });
    const { port } = await running(oneService(origin.port, {}, h2c));
    const got = await ask(h2Session(port), { ":method": "POST", ":path": "/a/x", expect: "100-continue" }, "body");
    expect(got.body).toBe("ok");
    expect(got.informed.slice(0, 2)).toEqual([100, 103]);
    expect(got.informed.length).toBeLessThan(20);
  });

  it("answers HEAD with the Content-Length and without a body", async () => {
    const origin = await backend((_request, response) => response.writeHead(200, { "Content-Length": "5" }).end());
    const { port } = await running(oneService(origin.port, {}, h2c));
    const got = await ask(h2Session(port), { ":method": "HEAD", ":path": "/a/x" });
    expect(got).toMatchObject({ status: 200, body: "", headers: { "content-length": "5" } });
  });

  it("does not reset the stream of a GET after its reply is complete", async () => {
    const { port } = await running(oneService((await backend()).port, {}, h2c));
    const connection = await raw(port);
    connection.headers(1, GET);
    await connection.until(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0);
    connection.headers(3, GET);
    await connection.until(({ type, stream, flags }) => type === DATA && stream === 3 && (flags & END_STREAM) !== 0);
    expect(connection.frames.filter(({ type }) => type === RST_STREAM)).toEqual([]);
  });

  it("ends the upload without an error when the reply is complete before the body", async () => {
    const origin = await rawBackend((_request, response) =>
      response.writeHead(413, { Connection: "close" }).end("too much"),
    );
    const { port } = await running(oneService(origin.port, {}, h2c));
    const connection = await raw(port);
    connection.headers(1, POST, 0);
    await connection.until(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0);
    expect(await connection.reset(1)).toBe(CODES.NO_ERROR);
  });

  it("resets the stream with INTERNAL_ERROR, never a clean end, when the upstream breaks off its body", async () => {
    const origin = await byteBackend((socket: Socket) => {
      socket.once("data", () =>
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\npart", () => socket.destroy()),
      );
    });
    const { port } = await running(oneService(origin.port, {}, h2c));
    const connection = await raw(port);
    connection.headers(1, GET);
    expect(await connection.reset(1)).toBe(CODES.INTERNAL_ERROR);
    expect(connection.frames.some(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0)).toBe(false);
  });

  it("answers 500 when a plugin's reply head cannot be sent in HTTP, and sends nothing of it", async () => {
    const plugin: AnyPlugin = {
      name: "spoiler",
      schema: s.object({ value: s.string({}) }),
      create: (config) => () => () => ({
        status: 200,
        headers: ["X-Bad", (config as { value: string }).value],
        body: Buffer.from("x"),
      }),
    };
    for (const value of ["a\r\nb: c", "a\0b\0c", "\u0100"]) {
      const config = oneService(9, { plugins: [{ name: "spoiler", config: { value } }] }, h2c);
      const { port } = await running(config, { plugins: [plugin] });
      const got = await ask(h2Session(port), { ":path": "/a/x" });
      expect(got.status).toBe(500);
      expect(JSON.parse(got.body)).toMatchObject({ code: "internal" });
      expect(got.headers).not.toHaveProperty("x-bad");
    }
  });

  it("applies back-pressure to the upstream when the client does not read", async () => {
    let written = 0;
    const origin = await rawBackend((_request, response) => {
      const piece = Buffer.alloc(64 * 1024);
      const push = () => {
        while (written < 100_000_000) {
          written += piece.length;
          if (!response.write(piece)) return void response.once("drain", push);
        }
        response.end();
      };
      push();
    });
    const clock = manualClock();
    const { port } = await running(oneService(origin.port, {}, h2c), { clock });
    const connection = await raw(port);
    connection.headers(1, GET);
    // No WINDOW_UPDATE is ever sent: when a client that reads steadily would have read the first window, and after a
    // minute more, the stream is reset.
    const passing = setInterval(() => clock.advance(1_000), 1);
    onTestFinished(() => clearInterval(passing));
    expect(await connection.reset(1)).toBe(CODES.CANCEL);
    expect(written).toBeLessThan(60_000_000);
  });
});

describe("a drain of HTTP/2 connections", () => {
  it(
    "a drain of HTTP/2 connections finishes open streams, " +
      "names the last accepted stream in GOAWAY so a racing request can be sent elsewhere, then closes",
    async () => {
      const hold = gate();
      const origin = await backend((_request, response) => void hold.opened.then(() => response.end("finished")));
      const { port, gateway } = await running(oneService(origin.port, {}, h2c));
      const connection = await raw(port);
      connection.headers(1, GET);
      await eventually(() => origin.seen.length === 1, "a request at the upstream");
      const closing = gateway.close(5_000);
      const notice = await connection.until(({ type }) => type === GOAWAY);
      expect([notice.payload.readUInt32BE(0), notice.payload.readUInt32BE(4)]).toEqual([1, CODES.NO_ERROR]);
      connection.headers(3, GET);
      hold.open();
      await connection.until(({ type, stream, flags }) => type === DATA && stream === 1 && (flags & END_STREAM) !== 0);
      await connection.closed();
      expect(await closing).toBe("drained");
      expect(origin.seen).toHaveLength(1);
    },
  );

  it("a drain of HTTP/2 connections closes idle connections at once", async () => {
    const { port, gateway } = await running(oneService((await backend()).port, {}, h2c));
    const session = h2Session(port);
    await ask(session, { ":path": "/a/x" });
    const closed = once(session, "close");
    expect(await gateway.close(5_000)).toBe("drained");
    await closed;
  });
});

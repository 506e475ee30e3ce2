import { once } from "node:events";
import http, { type IncomingMessage } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import https from "node:https";
import net, { type AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import type { GatewayOptions } from "../../lib/index.ts";
import { CA, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Session } from "../support/h2_client.ts";
import { CODES, frame, GOAWAY, HEADERS, number32, PREFACE, SETTINGS } from "../support/h2_raw.ts";
import { closedPort } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";
import {
  backend,
  byteBackend,
  client,
  codeIn,
  get,
  headBackend,
  restartableBackend,
  PROTOCOLS,
  rawBackend,
  speaking,
  statusesIn,
  type Head,
  type Protocol,
} from "./harness.ts";

type Parts = Partial<AnyConfigInput["services"][number]>;

const KIB = 1024;
const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/** A body in which no two stretches are alike. */
const bytes = (length: number) => Buffer.from(Array.from({ length }, (_, i) => (i * 31 + (i >> 8) * 7) & 0xff));
/** No upstream is ejected, so round robin keeps the order of the configuration. */
const calm: Parts = { health: { passive: { max_failures: 0 } } };

/** A gateway that tries these upstreams in this order. */
const inOrder = (
  ports: readonly number[],
  parts: Parts = {},
  options: Partial<GatewayOptions> = {},
  global: AnyConfigInput["global"] = {},
) => running(oneService(ports, { retries: {}, ...calm, ...parts }, global), options);

/** Reads a request to its end, then destroys the connection. */
async function breaking() {
  const requests: { method: string; body: Buffer }[] = [];
  const made = await rawBackend((request) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      requests.push({ method: request.method!, body: Buffer.concat(chunks) });
      request.socket.destroy();
    });
  });
  return { port: made.port, requests };
}

const outcome = ({ status, body }: { status: number; body: Buffer }) => `${status} ${codeIn(body.toString()) ?? body}`;

describe("a retry of a request without a body", () => {
  it.each(["GET", "HEAD", "OPTIONS", "DELETE"])(
    "a retry of a request without a body sends a %s that the first upstream read and did not answer to the next one",
    async (method) => {
      const [first, second] = [await breaking(), await backend()];
      const { port } = await inOrder([first.port, second.port]);
      expect((await ask(port, { method, path: "/a/x?q=1" })).status).toBe(200);
      expect([first.requests.length, second.seen.length]).toEqual([1, 1]);
      expect(second.seen[0]).toMatchObject({ method, url: "/x?q=1" });
    },
  );

  it("a retry of a request without a body applies to requests over HTTP/2", async () => {
    const [first, second] = [await breaking(), await backend()];
    const { port } = await inOrder([first.port, second.port], {}, {}, { h2c: true });
    const session = h2Session(port);
    const [headers] = (await once(session.request({ ":path": "/a/x" }), "response")) as [{ ":status": number }];
    expect(headers[":status"]).toBe(200);
    expect([first.requests.length, second.seen.length]).toEqual([1, 1]);
  });

  it(
    "a retry of a request without a body happens `attempts` times, each on another upstream, " +
      "and then passes the last failure on",
    async () => {
      const all = [await breaking(), await breaking(), await breaking(), await breaking()];
      const { port } = await inOrder(all.map((each) => each.port));
      expect(outcome(await ask(port, { path: "/a/x" }))).toBe("502 upstream_reset");
      expect(all.map(({ requests }) => requests.length)).toEqual([1, 1, 1, 0]);
    },
  );

  it("a retry of a request without a body does not happen when the client has disconnected", async () => {
    const first = await headBackend(() => {});
    const second = await backend();
    const { port, gateway } = await inOrder([first.port, second.port]);
    const connection = await client(port);
    connection.send(get());
    await eventually(() => first.heads.length === 1, "a request at the first upstream");
    connection.socket.destroy();
    await eventually(
      () => gateway.inFlight === 0 && first.sockets.size === 0,
      "no request being in flight and the connections to the first upstream closing",
    );
    expect(second.connections.total).toBe(0);
  });
});

describe("a retry of a PUT that the upstream read and did not answer", () => {
  const body = bytes(60_000);

  it(
    "a retry of a PUT that the upstream read and did not answer sends the same bytes, " +
      "with the Content-Length of the client",
    async () => {
      const [first, second] = [await breaking(), await backend()];
      const { port } = await inOrder([first.port, second.port]);
      expect((await ask(port, { method: "PUT", path: "/a/x", body })).status).toBe(200);
      expect(first.requests[0]!.body.equals(body)).toBe(true);
      expect(second.seen[0]!.body.equals(body)).toBe(true);
      expect(second.seen[0]!.headers.join("\n")).toMatch(/content-length\n60000/i);
    },
  );

  it(
    "a retry of a PUT that the upstream read and did not answer sends a chunked body byte for byte, " +
      "chunked, with its trailers",
    async () => {
      const [first, second] = [await breaking(), await backend()];
      const { port } = await inOrder([first.port, second.port]);
      const connection = await client(port);
      connection.send("PUT /a/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n");
      for (let at = 0; at < body.length; at += 7_000) {
        const piece = body.subarray(at, at + 7_000);
        connection.send(`${piece.length.toString(16)}\r\n`);
        connection.send(piece);
        connection.send("\r\n");
      }
      connection.send("0\r\nX-Sum: 42\r\n\r\n");
      expect(statusesIn(await connection.until("\r\n\r\nok"))).toEqual([200]);
      expect(second.seen[0]!.body.equals(body)).toBe(true);
      expect(second.seen[0]!.trailers).toEqual(["X-Sum", "42"]);
    },
  );

  it(
    "a retry of a PUT that the upstream read and did not answer begins while the client " + "is still sending the body",
    async () => {
      const first = await byteBackend((socket) =>
        socket.on("data", (chunk: Buffer) => chunk.includes("one") && socket.destroy()),
      );
      const second = await backend();
      const { port } = await inOrder([first.port, second.port]);
      const connection = await client(port);
      connection.send("PUT /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\none");
      await eventually(() => second.connections.total === 1, "a connection to the second upstream");
      connection.send("two");
      await connection.until("\r\nok");
      expect(second.seen.map((each) => each.body.toString())).toEqual(["onetwo"]);
    },
  );

  it.each<[title: string, length: number, max: number, status: number]>([
    ["retries a PUT of exactly max_replay_bytes", 64 * KIB, 64 * KIB, 200],
    ["does not retry a PUT one byte longer than max_replay_bytes", 64 * KIB + 1, 64 * KIB, 502],
    ["does not retry a PUT when max_replay_bytes is 0", 1, 0, 502],
  ])("%s", async (_title, length, max, status) => {
    for (const lines of ["Content-Length", "Transfer-Encoding"]) {
      const [first, second] = [await breaking(), await backend()];
      const { port } = await inOrder([first.port, second.port], { retries: { max_replay_bytes: max } });
      const headers = lines === "Content-Length" ? { [lines]: String(length) } : { [lines]: "chunked" };
      expect((await ask(port, { method: "PUT", path: "/a/x", headers, body: bytes(length) })).status).toBe(status);
      expect(first.requests[0]!.body).toHaveLength(length);
      expect(second.seen.map((each) => each.body.length)).toEqual(status === 200 ? [length] : []);
    }
  });
});

describe("a retry of a POST", () => {
  it.each(["", "text"])("never sends a POST twice that the upstream has read (body %j)", async (body) => {
    const [first, second] = [await breaking(), await backend()];
    const { port } = await inOrder([first.port, second.port]);
    expect(outcome(await ask(port, { method: "POST", path: "/a/x", body }))).toBe("502 upstream_reset");
    expect([first.requests.length, second.connections.total]).toEqual([1, 0]);
  });

  it("never sends a POST twice when a kept connection breaks", async () => {
    const first = await headBackend(({ socket, nth }) => void (nth === 0 ? socket.write(ok) : socket.destroy()));
    const second = await backend();
    const { port } = await inOrder([first.port, second.port]);
    // One request for each in turn; the third goes to the first upstream again, on its kept connection.
    for (let i = 0; i < 2; i++) await ask(port, { path: "/a/x" });
    expect(outcome(await ask(port, { method: "POST", path: "/a/x", body: "" }))).toBe("502 upstream_reset");
    expect([first.heads.length, second.seen.length]).toEqual([2, 1]);
  });

  it("never sends a POST twice that exceeds per_try_ms", async () => {
    const clock = manualClock();
    const [first, second] = [await headBackend(() => {}), await backend()];
    const { port } = await inOrder([first.port, second.port], { retries: { per_try_ms: 100 } }, { clock });
    const answer = ask(port, { method: "POST", path: "/a/x", body: "" });
    await eventually(() => first.heads.length === 1, "a request at the first upstream");
    clock.advance(100);
    expect(outcome(await answer)).toBe("504 upstream_timeout");
    expect(second.connections.total).toBe(0);
  });

  it("never sends a POST twice for a listed status", async () => {
    const [first, second] = [
      await backend((_request, response) => void response.writeHead(503).end("no")),
      await backend(),
    ];
    const { port } = await inOrder([first.port, second.port], { retries: { on: [503] } });
    expect(outcome(await ask(port, { method: "POST", path: "/a/x", body: "" }))).toBe("503 no");
    expect(second.connections.total).toBe(0);
  });

  it.each<[title: string, length: number]>([
    ["within max_replay_bytes", 60_000],
    ["beyond max_replay_bytes", 1_000_000],
  ])("sends a POST elsewhere when no connection could be made, with a body %s", async (_title, length) => {
    const second = await backend();
    const { port } = await inOrder([await closedPort(), second.port]);
    const body = bytes(length);
    expect((await ask(port, { method: "POST", path: "/a/x", body })).status).toBe(200);
    expect(second.seen.map((each) => each.body.equals(body))).toEqual([true]);
  });

  it("never sends a POST twice when the upstream breaks its TLS connection after it has the request", async () => {
    const [first, second] = [await brokenTls(), await restartableBackend("https")];
    const { port } = await inOrder([first.port, second.port], speaking("https"));
    expect((await ask(port, { method: "POST", path: "/a/x", body: "text" })).status).toBe(502);
    expect([first.requests, second.requests]).toEqual([1, 0]);
  });
});

describe("retries.methods", () => {
  const failing = () => backend((_request, response) => void response.writeHead(503).end("no"));

  it.each(["", "text"])("sends a POST again that it names, after a reset, with its body %j", async (body) => {
    const [first, second] = [await breaking(), await backend()];
    const { port } = await inOrder([first.port, second.port], { retries: { methods: ["POST"] } });
    expect((await ask(port, { method: "POST", path: "/a/x", body })).status).toBe(200);
    expect(second.seen.map((each) => [each.method, each.body.toString()])).toEqual([["POST", body]]);
  });

  it("sends a POST again that it names, after per_try_ms and after a status", async () => {
    const clock = manualClock();
    const [first, second, third] = [await headBackend(() => {}), await failing(), await backend()];
    const retries = { methods: ["POST"], on: ["timeout" as const, 503], per_try_ms: 100 };
    const { port } = await inOrder([first.port, second.port, third.port], { retries }, { clock });
    const answer = ask(port, { method: "POST", path: "/a/x", body: "" });
    await eventually(() => first.heads.length === 1, "a request at the first upstream");
    clock.advance(100);
    expect((await answer).status).toBe(200);
    expect([second.seen.length, third.seen.length]).toEqual([1, 1]);
  });

  it("takes the default's place: a GET that it does not name is not sent twice", async () => {
    const parts = { retries: { methods: ["POST"], on: ["reset" as const, 503] } };
    const second = await backend();
    const reset = await inOrder([(await breaking()).port, second.port], parts);
    expect(outcome(await ask(reset.port, { path: "/a/x" }))).toBe("502 upstream_reset");
    const refused = await inOrder([(await failing()).port, second.port], parts);
    expect(outcome(await ask(refused.port, { path: "/a/x" }))).toBe("503 no");
    expect(second.connections.total).toBe(0);
  });

  it("says nothing of what was not sent at all", async () => {
    const second = await backend();
    const { port } = await inOrder([await closedPort(), second.port], { retries: { methods: ["POST"] } });
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });

  it("does not send a POST again whose body is longer than max_replay_bytes", async () => {
    const [first, second] = [await breaking(), await backend()];
    const { port } = await inOrder([first.port, second.port], { retries: { methods: ["POST"], max_replay_bytes: 10 } });
    const answer = await ask(port, { method: "POST", path: "/a/x", body: "longer than this" });
    expect([outcome(answer), second.connections.total]).toEqual(["502 upstream_reset", 0]);
  });

  it("has QUERY (RFC 10008) by default", async () => {
    const [first, second] = [await breaking(), await backend()];
    const { port } = await inOrder([first.port, second.port]);
    expect((await ask(port, { method: "QUERY", path: "/a/x", body: "select" })).status).toBe(200);
    expect(second.seen.map((each) => [each.method, each.body.toString()])).toEqual([["QUERY", "select"]]);
  });
});

/** Reads a request over TLS, then answers in plain text. */
async function brokenTls() {
  const secure = await restartableBackend("https");
  const front = await byteBackend((socket) => {
    const behind = net.connect(secure.port, "127.0.0.1");
    behind.on("error", () => {});
    socket.on("close", () => behind.destroy());
    socket.pipe(behind);
    behind.pipe(socket);
    secure.answer = () => void socket.write("lorem ipsum dolor sit amet");
  });
  return {
    port: front.port,
    get requests() {
      return secure.requests;
    },
  };
}

describe("a response that breaks off after it has begun", () => {
  it.each(PROTOCOLS)(
    "a response that breaks off after it has begun is not retried over %s: the client sees it broken",
    async (protocol) => {
      const [first, second] = [await restartableBackend(protocol), await restartableBackend(protocol)];
      let breakOff = () => {};
      first.answer = (request, response) => {
        response.writeHead(200, { "Content-Length": "10" });
        response.write("half");
        breakOff = () => request.socket.destroy();
      };
      const { port } = await inOrder([first.port, second.port], speaking(protocol));
      const begun = await new Promise<IncomingMessage>((resolve, reject) => {
        http.get({ port, path: "/a/x", agent: false }, resolve).on("error", reject);
      });
      breakOff();
      await expect(text(begun)).rejects.toThrow();
      expect([first.requests, second.requests]).toEqual([1, 0]);
    },
  );
});

describe("per_try_ms", () => {
  it.each(PROTOCOLS)(
    "gives up an upstream over %s that answers later, and tries the next without waiting for it",
    async (protocol) => {
      const clock = manualClock();
      const [first, second] = [await restartableBackend(protocol), await restartableBackend(protocol)];
      let closed = false;
      first.answer = (_request, response) => void response.on("close", () => (closed = true));
      const { port } = await inOrder(
        [first.port, second.port],
        { ...speaking(protocol), retries: { per_try_ms: 100 } },
        { clock },
      );
      const answer = ask(port, { path: "/a/x" });
      await eventually(() => first.requests === 1, "a request at the first upstream");
      clock.advance(99);
      await ask(port, { path: "/none" });
      expect(closed).toBe(false);
      clock.advance(1);
      expect(outcome(await answer)).toBe(`200 from ${second.id}`);
      await eventually(() => closed, "the stream closing");
    },
  );

  it("stops counting with the head of the response", async () => {
    const clock = manualClock();
    const first = await headBackend(
      ({ socket }) => void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbe"),
    );
    const { port } = await inOrder([first.port, (await backend()).port], { retries: { per_try_ms: 100 } }, { clock });
    const connection = await client(port);
    connection.send(get());
    await connection.until("be");
    clock.advance(1_000);
    for (const socket of first.sockets) socket.write("gun");
    await connection.until("begun");
  });

  it("includes the wait for a connection that another request holds", async () => {
    const clock = manualClock();
    const [first, second] = [
      await headBackend(({ socket }) => void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbe")),
      await backend(),
    ];
    const { port, gateway } = await inOrder(
      [first.port, second.port],
      { pool: { max_connections: 1 }, retries: { per_try_ms: 100 } },
      { clock },
    );
    const connection = await client(port);
    connection.send(get());
    await connection.until("be");
    await ask(port, { path: "/a/x" });
    const waiting = ask(port, { path: "/a/x" });
    await eventually(() => gateway.inFlight === 2, "two requests in flight");
    clock.advance(100);
    expect((await waiting).status).toBe(200);
    expect(second.seen).toHaveLength(2);
  });
});

describe("total_ms", () => {
  const hangs = () => headBackend(() => {});

  it("limits all tries together, answers 504 and makes no further try", async () => {
    const clock = manualClock();
    const all = [await hangs(), await hangs(), await backend()] as const;
    const { port } = await inOrder(
      all.map((each) => each.port),
      { retries: { per_try_ms: 100 }, timeouts: { total_ms: 150 } },
      { clock },
    );
    const answer = ask(port, { path: "/a/x" });
    await eventually(() => all[0].heads.length === 1, "a request at the first upstream");
    clock.advance(100);
    await eventually(() => all[1].heads.length === 1, "a request at the second upstream");
    clock.advance(50);
    expect(outcome(await answer)).toBe("504 upstream_timeout");
    expect(all[2].connections.total).toBe(0);
  });

  it.each(PROTOCOLS)("breaks off a response over %s in its middle, so the client sees it broken", async (protocol) => {
    const clock = manualClock();
    const upstream = await restartableBackend(protocol);
    let closed = false;
    upstream.answer = (_request, response) => {
      response.on("close", () => (closed = true));
      response.writeHead(200, { "Content-Length": "5" });
      response.write("be");
    };
    const { port } = await inOrder([upstream.port], { ...speaking(protocol), timeouts: { total_ms: 150 } }, { clock });
    const connection = await client(port);
    connection.send(get());
    await connection.until("be");
    clock.advance(149);
    await ask(port, { path: "/none" });
    expect([closed, connection.socket.destroyed]).toEqual([false, false]);
    clock.advance(1);
    expect(statusesIn(await connection.closed())).toEqual([200]);
    await eventually(() => closed, "the stream closing");
  });

  it("limits the wait for a connection", async () => {
    const clock = manualClock();
    const upstream = await hangs();
    const { port, gateway } = await inOrder(
      [upstream.port],
      { pool: { max_connections: 1 }, timeouts: { total_ms: 150, connect_ms: 5_000, response_ms: 5_000 } },
      { clock },
    );
    const answers = [ask(port, { path: "/a/x" }), ask(port, { path: "/a/x" })];
    await eventually(
      () => gateway.inFlight === 2 && upstream.heads.length === 1,
      "two requests in flight and a request at the upstream",
    );
    clock.advance(150);
    expect((await Promise.all(answers)).map(({ status }) => status).sort()).toEqual([503, 504]);
  });

  it.each<Protocol>(["https", "h2", "h2c"])("limits the time to connect over %s", async (protocol) => {
    const clock = manualClock();
    // Accepts the connection and sends nothing: for h2c the connection counts as made, and the response is missing.
    const upstream = await byteBackend(() => {});
    const { port, gateway } = await inOrder(
      [upstream.port],
      { ...speaking(protocol), timeouts: { total_ms: 150, connect_ms: 5_000, response_ms: 5_000 } },
      { clock },
    );
    const answer = ask(port, { path: "/a/x" });
    await eventually(
      () => upstream.sockets.size === 1 && gateway.inFlight === 1,
      "a connection to the upstream and a request in flight",
    );
    clock.advance(150);
    expect(outcome(await answer)).toBe("504 upstream_timeout");
  });
});

describe("listed statuses", () => {
  it.each(PROTOCOLS)(
    "listed statuses are retried elsewhere over %s, and the connection of a short reply is kept",
    async (protocol) => {
      const [first, second] = [await restartableBackend(protocol), await restartableBackend(protocol)];
      first.answer = (_request, response) => void response.writeHead(503, { "Content-Length": "4" }).end("busy");
      const { port } = await inOrder([first.port, second.port], { ...speaking(protocol), retries: { on: [503] } });
      for (let i = 0; i < 4; i++) expect(outcome(await ask(port, { path: "/a/x" }))).toBe(`200 from ${second.id}`);
      expect(second.requests).toBe(4);
    },
  );

  it("listed statuses are passed on whole when no upstream is left", async () => {
    const all = await Promise.all(
      [1, 2].map((nth) =>
        backend((_request, response) => void response.writeHead(503, { "X-Nth": nth }).end(`busy ${nth}`)),
      ),
    );
    const { port } = await inOrder(
      all.map((each) => each.port),
      { retries: { on: [503] } },
    );
    const answer = await ask(port, { path: "/a/x" });
    expect([outcome(answer), answer.headers["x-nth"]]).toEqual(["503 busy 2", "2"]);
  });

  it("listed statuses are retried with the whole body when they arrive before a PUT is complete", async () => {
    const first = await rawBackend((_request, response) => void response.writeHead(503).end("busy"));
    const second = await backend();
    const { port } = await inOrder([first.port, second.port], { retries: { on: [503] } });
    const connection = await client(port);
    connection.send("PUT /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\none");
    await eventually(() => second.connections.total === 1, "a connection to the second upstream");
    connection.send("two");
    await connection.until("\r\nok");
    expect(second.seen.map((each) => each.body.toString())).toEqual(["onetwo"]);
  });
});

describe("a retry to an upstream over HTTP/2", () => {
  it.each(["GET", "POST"])("sends a %s elsewhere when the stream was refused unread", async (method) => {
    const [first, second] = [await restartableBackend("h2c"), await restartableBackend("h2c")];
    first.answer = (_request, response) =>
      (response as unknown as Http2ServerResponse).stream.close(CODES.REFUSED_STREAM);
    second.answer = (request, response) => void request.pipe(response);
    const { port } = await inOrder([first.port, second.port], { protocol: "h2c" });
    const body = method === "GET" ? {} : { body: "text" };
    expect(outcome(await ask(port, { method, path: "/a/x", ...body }))).toBe(method === "GET" ? "200 " : "200 text");
    expect(second.requests).toBe(1);
  });

  it.each(["GET", "POST"])("sends a %s elsewhere when a GOAWAY says it was not processed", async (method) => {
    const first = await goingAway();
    const second = await restartableBackend("h2c");
    const { port } = await inOrder([first.port, second.port], { protocol: "h2c" });
    const body = method === "GET" ? {} : { body: "text" };
    expect(outcome(await ask(port, { method, path: "/a/x", ...body }))).toBe(`200 from ${second.id}`);
  });

  it("sends a GET elsewhere when the connection dies, and never a POST that the upstream may have read", async () => {
    const [first, second] = [await restartableBackend("h2c"), await restartableBackend("h2c")];
    first.answer = (request) => void request.socket.destroy();
    const { port } = await inOrder([first.port, second.port], { protocol: "h2c" });
    expect(outcome(await ask(port, { path: "/a/x" }))).toBe(`200 from ${second.id}`);
    const requests = second.requests;
    const answers = [];
    for (let i = 0; i < 2; i++) answers.push(outcome(await ask(port, { method: "POST", path: "/a/x", body: "text" })));
    expect(answers.sort()).toEqual([`200 from ${second.id}`, "502 upstream_reset"]);
    expect(second.requests).toBe(requests + 1);
  });

  it("costs no request when an idle connection has been closed", async () => {
    const [first, second] = [await restartableBackend("h2c"), await restartableBackend("h2c")];
    const { port } = await inOrder([first.port, second.port], { protocol: "h2c" });
    for (let i = 0; i < 2; i++) await ask(port, { path: "/a/x" });
    await first.kill();
    for (let i = 0; i < 4; i++)
      expect((await ask(port, { method: "POST", path: "/a/x", body: "text" })).status).toBe(200);
  });
});

/** An HTTP/2 server that answers every request with a GOAWAY that excludes it. */
function goingAway() {
  return byteBackend((socket) => {
    socket.write(frame(SETTINGS, 0, 0));
    let received = Buffer.alloc(0);
    const look = (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      for (let at = PREFACE.length; received.length >= at + 9; at += 9 + received.readUIntBE(at, 3)) {
        if (received[at + 3] !== HEADERS) continue;
        socket.removeListener("data", look);
        socket.resume();
        return void socket.write(frame(GOAWAY, 0, 0, Buffer.concat([number32(0), number32(CODES.NO_ERROR)])));
      }
    };
    socket.on("data", look);
  });
}

describe("a retry to an upstream over TLS", () => {
  it.each(["GET", "POST"])("sends a %s elsewhere when the handshake fails", async (method) => {
    const first = await byteBackend((socket) => void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    const second = await restartableBackend("https");
    const { port } = await inOrder([first.port, second.port], speaking("https"));
    expect(outcome(await ask(port, { method, path: "/a/x", body: "" }))).toBe(`200 from ${second.id}`);
  });
});

it(
  "sends a POST elsewhere when the upstream refuses the gateway's client certificate " +
    "after the handshake (TLS 1.3)",
  async () => {
    const first = https.createServer({
      cert: SERVER.cert,
      key: SERVER.key,
      ca: CA.cert,
      requestCert: true,
      minVersion: "TLSv1.3",
    });
    first.listen(0, "127.0.0.1");
    await once(first, "listening");
    onTestFinished(() => void first.close());
    const second = await restartableBackend("https");
    const { port } = await inOrder([(first.address() as AddressInfo).port, second.port], speaking("https"));
    expect(outcome(await ask(port, { method: "POST", path: "/a/x", body: "text" }))).toBe(`200 from ${second.id}`);
  },
);

describe("a retry with Expect: 100-continue", () => {
  const put = "PUT /a/x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";

  it(
    "a retry with Expect: 100-continue asks the next upstream when the first has no " +
      "connection, and sends the body once",
    async () => {
      const second = await backend();
      const { port } = await inOrder([await closedPort(), second.port]);
      const connection = await client(port);
      connection.send(put);
      await connection.until("HTTP/1.1 100 Continue");
      connection.send("body");
      await connection.until("\r\nok");
      expect(statusesIn(connection.text())).toEqual([100, 200]);
      expect(second.seen.map((each) => each.body.toString())).toEqual(["body"]);
    },
  );

  it(
    "a retry with Expect: 100-continue sends the body to the next upstream when the first breaks after it has it, " +
      "without asking the client again",
    async () => {
      const [first, second] = [await breaking(), await backend()];
      const { port } = await inOrder([first.port, second.port]);
      const connection = await client(port);
      connection.send(put);
      await connection.until("HTTP/1.1 100 Continue");
      connection.send("body");
      await connection.until("\r\nok");
      expect([first.requests[0]!.body.toString(), second.seen[0]!.body.toString()]).toEqual(["body", "body"]);
    },
  );

  it(
    "a retry with Expect: 100-continue passes on the refusal of an upstream, " +
      "and does not ask the client for the body",
    async () => {
      const first = await headBackend(
        ({ socket }) => void socket.write("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n"),
      );
      const { port } = await inOrder([first.port, (await backend()).port]);
      const connection = await client(port);
      connection.send(put);
      await connection.until("417");
      expect(statusesIn(connection.text())).toEqual([417]);
    },
  );
});

describe("a retry of a WebSocket", () => {
  const upgradeHeaders = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
  ];
  const yes =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
    "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
  const echo = () =>
    byteBackend((socket) =>
      socket.once("data", () => {
        socket.write(yes);
        socket.pipe(socket);
      }),
    );
  const firsts: [string, () => Promise<number>][] = [
    ["refuses the connection", closedPort],
    [
      "closes it before an answer",
      async () => (await byteBackend((socket) => socket.once("data", () => socket.destroy()))).port,
    ],
  ];

  it.each(firsts)(
    "opens a WebSocket at the second upstream, early bytes included, when the first %s, and total_ms does not end it",
    async (_how, first) => {
      const clock = manualClock();
      const { port } = await inOrder(
        [await first(), (await echo()).port],
        { timeouts: { total_ms: 1_000, idle_ms: 100_000 } },
        { clock },
      );
      const connection = await client(port);
      connection.send(get("/a/x", ...upgradeHeaders) + "early;");
      expect(await connection.until("early;")).toMatch(/^HTTP\/1\.1 101 /);
      clock.advance(2_000);
      connection.send("late;");
      await connection.until("late;");
    },
  );
});

describe("retries in the access log", () => {
  it.each<[title: string, attempts: number]>([
    ["logs the number of tries and the upstream of the last one", 3],
    ["logs one try when nothing went wrong", 1],
  ])("%s", async (_title, attempts) => {
    let lines = "";
    const last = await backend();
    const dead = await Promise.all(Array.from({ length: attempts - 1 }, closedPort));
    const { port, gateway } = await inOrder(
      [...dead, last.port],
      {},
      { accessLog: (text) => void (lines += text) },
      { access_log: { enabled: true } },
    );
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    await gateway.close();
    expect(JSON.parse(lines)).toMatchObject({ status: 200, code: null, attempts, upstream: `127.0.0.1:${last.port}` });
  });

  it("logs the upstream of the last try even when it failed", async () => {
    let lines = "";
    const dead = [await closedPort(), await closedPort()];
    const { port, gateway } = await inOrder(
      dead,
      {},
      { accessLog: (text) => void (lines += text) },
      { access_log: { enabled: true } },
    );
    expect((await ask(port, { path: "/a/x" })).status).toBe(502);
    await gateway.close();
    expect(JSON.parse(lines)).toMatchObject({
      status: 502,
      code: "upstream_connect_failed",
      attempts: 2,
      upstream: `127.0.0.1:${dead[1]}`,
    });
  });
});

describe("the retry budget", () => {
  it("the retry budget keeps retries below a share of the requests when every upstream fails", async () => {
    let tries = 0;
    const dying = () => headBackend(({ socket }: Head) => (tries++, socket.destroy()));
    const all = [await dying(), await dying(), await dying()];
    const { port } = await inOrder(
      all.map((each) => each.port),
      { retries: { budget_ratio: 0.25 } },
      { clock: manualClock() },
    );
    for (let i = 0; i < 80; i++) expect((await ask(port, { path: "/a/x" })).status).toBe(502);
    expect(tries).toBe(80 + 20);
  });
});

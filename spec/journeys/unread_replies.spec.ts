/** Limits the wait for clients that do not read their reply or continue an upload after it. */
import { once } from "node:events";
import http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { discard, withoutHeader, type Reply } from "../../lib/index.ts";
import { behaving, HANDSHAKE } from "../gateway/plugins.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { ACK, CODES, DATA, frame, GET, number32, PING, rawSession, SETTINGS } from "../support/h2_raw.ts";
import { eventually } from "../support/raw_client.ts";
import { backend, client, get, rawBackend } from "./harness.ts";

/** More than the socket buffers of the system hold. */
const CHUNK = Buffer.alloc(64 * 1024);
const CHUNKS = 400;
const endless = () =>
  Readable.from(
    Array.from({ length: CHUNKS }, () => CHUNK),
    { objectMode: false },
  );

/** A gateway whose plugin gives long replies that are already complete. */
async function long(body: () => Reply["body"], timeouts: object = {}) {
  const clock = manualClock();
  const lines: string[] = [];
  const upstream = await backend();
  const plugin = behaving((next) => async (exchange) => {
    const reply = await next(exchange);
    discard(reply);
    return { ...reply, headers: withoutHeader(reply.headers, "content-length"), body: body() };
  });
  const global = { access_log: { enabled: true }, limits: { max_requests_in_flight: 1 } };
  const config = oneService(upstream.port, { plugins: [{ name: "behave" }], timeouts }, global);
  const made = await running(config, {
    clock,
    plugins: [plugin],
    accessLog: (text) => void lines.push(...text.trimEnd().split("\n")),
  });
  /** A client that sends a request and reads nothing; resolves when the gateway waits for it. */
  const stalled = async (request = get()) => {
    const connection = await client(made.port);
    connection.socket.pause();
    connection.send(request);
    await eventually(() => made.gateway.inFlight === 1, "the request");
    // The socket buffers fill at once and may accept a little more later.
    for (let turns = 0; turns < 50; turns++) await new Promise((resolve) => setImmediate(resolve));
    return connection;
  };
  return { ...made, clock, lines, stalled };
}

/** The port of an HTTP/2 upstream without TLS. */
async function h2Backend(answer: (stream: http2.ServerHttp2Stream) => void): Promise<number> {
  const server = http2.createServer();
  const sessions = new Set<http2.ServerHttp2Session>();
  server.on("session", (session) => void sessions.add(session.on("error", () => {})));
  server.on("stream", (stream) => answer(stream.on("error", () => {})));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const BODIES: readonly [string, () => Reply["body"]][] = [
  ["a stream that has ended", endless],
  ["a body in memory", () => Buffer.alloc(CHUNK.length * CHUNKS)],
];

describe.each(BODIES)("an HTTP/1.1 client that reads nothing of %s", (_what, body) => {
  it(
    "an HTTP/1.1 client that reads nothing is disconnected, " + "whatever it sends meanwhile, and the log shows why",
    async () => {
      const { gateway, clock, stalled, lines } = await long(body);
      const connection = await stalled();
      for (let at = 0; at < 50_000; at += 10_000) {
        connection.send("GET /a/later HTTP/1.1\r\n");
        clock.advance(10_000);
      }
      expect(gateway.inFlight).toBe(1);
      for (let minutes = 0; minutes < 30 && gateway.inFlight > 0; minutes++) {
        clock.advance(60_000);
        for (let turns = 0; turns < 5; turns++) await new Promise((resolve) => setImmediate(resolve));
      }
      expect(gateway.inFlight).toBe(0);
      clock.advance(1_000);
      await eventually(() => lines.length > 0, "the access log");
      // The system decides when it takes a last little: on a machine under load in any of these minutes.
      const fault = expect.stringMatching(
        new RegExp(
          String.raw`^the client reads the reply too slowly: its system took (nothing for \d+ s|` +
            String.raw`\d+ bytes in \d+ s, and nearly nothing at the end)$`,
        ),
      ) as string;
      expect(JSON.parse(lines[0]!)).toMatchObject({ status: 200, code: "request_timeout", fault });
    },
  );

  it("an HTTP/1.1 client that reads nothing is disconnected at total_ms", async () => {
    const { gateway, clock, stalled } = await long(body, { total_ms: 5_000 });
    await stalled();
    clock.advance(4_999);
    expect(gateway.inFlight).toBe(1);
    clock.advance(1);
    await eventually(() => gateway.inFlight === 0, "the end of the reply");
  });
});

it("disconnects a client that is refused a WebSocket with a long body and reads nothing of it", async () => {
  const { gateway, clock, stalled } = await long(endless);
  await stalled(HANDSHAKE);
  clock.advance(59_000);
  expect(gateway.inFlight).toBe(1);
  for (let minutes = 0; minutes < 30 && gateway.inFlight > 0; minutes++) {
    clock.advance(60_000);
    for (let turns = 0; turns < 5; turns++) await new Promise((resolve) => setImmediate(resolve));
  }
  expect(gateway.inFlight).toBe(0);
});

it("resets an HTTP/2 stream whose client keeps its window at 0 for a minute, whatever PINGs it sends", async () => {
  const clock = manualClock();
  const upstream = await rawBackend((_request, response) => void response.end(Buffer.alloc(60_000)));
  const config = oneService(upstream.port, {}, { h2c: true, limits: { max_requests_in_flight: 1 } });
  const { port, gateway } = await running(config, { clock });
  const connection = await rawSession(port, { settings: Buffer.concat([Buffer.from([0, 4]), number32(0)]) });
  onTestFinished(() => void connection.socket.destroy());
  await connection.until(({ type, flags }) => type === SETTINGS && (flags & ACK) !== 0);
  connection.headers(1, GET);
  await eventually(() => gateway.stats.total.requestsPerS > 0 || upstream.connections.open === 1, "the upstream");
  await eventually(
    () =>
      gateway.stats.services[0]!.upstreams[0]!.inFlight === 0 && connection.frames.some(({ stream }) => stream === 1),
    "the whole response",
  );
  for (let turns = 0; turns < 20; turns++) await new Promise((resolve) => setImmediate(resolve));
  const payload = Buffer.alloc(8);
  for (let seconds = 0; seconds < 60; seconds += 10) {
    expect(gateway.inFlight).toBe(1);
    payload.writeUInt32BE(seconds);
    connection.send(frame(PING, 0, 0, payload));
    await connection.until((got) => got.type === PING && (got.flags & ACK) !== 0 && got.payload.equals(payload));
    clock.advance(10_000);
  }
  expect(await connection.reset(1)).toBe(CODES.CANCEL);
  expect(connection.frames.some(({ type }) => type === DATA)).toBe(false);
  await eventually(() => gateway.inFlight === 0, "the place");
});

it.each([
  ["http", "wire"],
  ["http", "node"],
  ["h2c", "wire"],
] as const)(
  "does not blame the upstream for a client that reads nothing of a reply for idle_ms (%s, %s)",
  async (protocol, upstream_client) => {
    const whole = Buffer.alloc(CHUNK.length * CHUNKS);
    const port =
      protocol === "http"
        ? (await rawBackend((_request, response) => void response.end(whole))).port
        : await h2Backend((stream) => void stream.end(whole));
    const { port: own, gateway } = await running(
      oneService(port, { protocol, upstream_client, timeouts: { idle_ms: 1_000 } }),
    );
    const connection = await client(own);
    connection.socket.pause();
    connection.send(get("/a/x", "Connection: close"));
    await eventually(() => gateway.inFlight === 1, "the request");
    // Longer only lets more silences pass.
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    let received = 0;
    connection.socket.on("data", (bytes: Buffer) => (received += bytes.length));
    connection.socket.resume();
    await once(connection.socket, "end");
    expect(received).toBeGreaterThan(whole.length);
  },
);

it.each([
  ["http", "wire"],
  ["http", "node"],
  ["h2c", "wire"],
] as const)("ends a response that a plugin leaves unread for idle_ms (%s, %s)", async (protocol, upstream_client) => {
  const whole = Buffer.alloc(CHUNK.length * CHUNKS);
  const port =
    protocol === "http"
      ? (await rawBackend((_request, response) => void response.end(whole))).port
      : await h2Backend((stream) => void stream.end(whole));
  const errors: unknown[] = [];
  const plugin = behaving((next) => async (exchange) => {
    const reply = await next(exchange);
    const body = reply.body as Readable;
    body.once("data", () => body.pause());
    await new Promise<void>((resolve) => body.once("error", (error) => resolve(void errors.push(error.message))));
    return { ...reply, headers: withoutHeader(reply.headers, "content-length"), body: null };
  });
  const parts = { protocol, upstream_client, plugins: [{ name: "behave" }], timeouts: { idle_ms: 1_000 } };
  const made = await running(oneService(port, parts), { plugins: [plugin] });
  const connection = await client(made.port);
  connection.send(get());
  await connection.until("HTTP/1.1 200");
  expect(errors).toEqual(["the reply was not read for 1000 ms"]);
});

describe("an upload that continues after its complete reply", () => {
  async function early(protocol: "http" | "h2c"): Promise<number> {
    if (protocol === "http") {
      const upstream = await rawBackend((request, response) => {
        request.resume();
        response.writeHead(413, { "content-length": 5 }).end("early");
      });
      return upstream.port;
    }
    return h2Backend((stream) => {
      stream.resume().respond({ ":status": 413 });
      stream.end("early");
    });
  }

  it.each([
    ["http", "wire"],
    ["http", "node"],
    ["h2c", "wire"],
  ] as const)(
    "an upload that continues after its complete reply releases its connection to the upstream (%s, %s)",
    async (protocol, upstream_client) => {
      const { port, gateway } = await running(oneService(await early(protocol), { protocol, upstream_client }));
      const connection = await client(port);
      connection.send("POST /a/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
      await connection.until("early");
      // The gateway waits five seconds for the rest of the upload, longer than this test does.
      await eventually(() => gateway.stats.services[0]!.upstreams[0]!.inFlight === 0, "the lease coming back");
      expect(connection.socket.destroyed).toBe(false);
      connection.send("0\r\n\r\n" + get("/none"));
      await connection.until("route_not_found");
    },
  );
});

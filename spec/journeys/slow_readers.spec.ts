/**
 * A client that reads slowly but steadily gets all of its reply; one that reads too little is ended, and its upstream
 * is not to blame.
 */
import { once } from "node:events";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import net, { type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { HANDSHAKE } from "../gateway/plugins.ts";
import { SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Session } from "../support/h2_client.ts";
import {
  ACK,
  DATA,
  END_STREAM,
  frame,
  GET,
  number32,
  rawSession,
  RST_STREAM,
  SETTINGS,
  WINDOW_UPDATE,
} from "../support/h2_raw.ts";
import { eventually } from "../support/raw_client.ts";
import { byteBackend, get, rawBackend } from "./harness.ts";

/** More than the buffers of the system hold. */
const LONG = 9_000_000;
const FILES = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };
const SWITCHED =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
  "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

type Made = Awaited<ReturnType<typeof serving>>;

/** A gateway on a clock of its own before an upstream that sends `bytes`, as a response or over a WebSocket. */
async function serving(bytes: number, { timeouts = {}, limits = {} }: { timeouts?: object; limits?: object } = {}) {
  const clock = manualClock();
  const lines: string[] = [];
  const upstream = await byteBackend((socket) => {
    socket.on("data", (head: Buffer) => {
      socket.write(
        /\r\nupgrade: /i.test(head.toString("latin1"))
          ? SWITCHED
          : `HTTP/1.1 200 OK\r\nContent-Length: ${bytes}\r\n\r\n`,
      );
      for (let at = 0; at < bytes; at += 1_000_000) socket.write(Buffer.alloc(Math.min(1_000_000, bytes - at)));
    });
  });
  const config = (given: object) =>
    oneService(upstream.port, { timeouts }, { access_log: { enabled: true }, h2c: true, limits: given });
  const made = await running(config(limits), {
    clock,
    accessLog: (text) => void lines.push(...text.trimEnd().split("\n")),
  });
  const logged = async () => {
    clock.advance(1_000);
    await eventually(() => lines.length > 0, "the access log");
    return JSON.parse(lines.pop()!) as Record<string, unknown>;
  };
  return { ...made, clock, logged, upstream, limit: (given: object) => made.gateway.reload(config(given)) };
}

async function connected(socket: Socket, event: string, request: string): Promise<Socket> {
  socket.on("error", () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, event);
  socket.write(request);
  return socket;
}

const TRANSPORTS: Readonly<Record<string, (made: Made) => Promise<Duplex>>> = {
  "HTTP/1.1": ({ port }) => connected(net.connect(port, "127.0.0.1"), "connect", get()),
  TLS: async ({ gateway }) => {
    const { port } = await gateway.listen({ port: 0, tls: FILES });
    return connected(tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false }), "secureConnect", get());
  },
  "HTTP/2": async ({ port }) =>
    h2Session(port)
      .request({ ":path": "/a/x", ":authority": "gw.example" })
      .on("error", () => {}),
  WebSocket: ({ port }) => connected(net.connect(port, "127.0.0.1"), "connect", HANDSHAKE),
};

/** Reads until `wanted` bytes have come in all, and no more than Node reads at a time; resolves with the number. */
function reading(stream: Duplex) {
  let got = 0;
  return async (wanted: number): Promise<number> => {
    while (got < wanted) {
      const chunk = stream.read() as Buffer | null;
      if (chunk !== null) got += chunk.length;
      else if (stream.readableEnded || stream.destroyed) break;
      else await somethingOn(stream);
    }
    return got;
  };
}

async function somethingOn(stream: Duplex): Promise<void> {
  const over = new AbortController();
  await Promise.race(
    ["readable", "end", "close"].map((event) => once(stream, event, { signal: over.signal }).catch(() => {})),
  );
  over.abort();
}

const turns = async () => {
  for (let times = 0; times < 10; times++) await new Promise((resolve) => setImmediate(resolve));
};

describe.each(Object.keys(TRANSPORTS))("a client over %s", (transport) => {
  const length = transport === "HTTP/2" ? 1_000_000 : LONG;

  it("that reads 2 KB/s gets all of its reply, and one that stops is ended", async () => {
    const made = await serving(length);
    const { clock, upstream } = made;
    const stream = await TRANSPORTS[transport]!(made);
    const read = reading(stream);
    for (let wanted = 100_000; wanted <= length; wanted += 100_000) {
      expect(await read(wanted)).toBeGreaterThanOrEqual(wanted);
      await turns();
      clock.advance(50_000);
    }

    const stopped = await TRANSPORTS[transport]!(made);
    expect(await reading(stopped)(100_000)).toBeGreaterThanOrEqual(100_000);
    const { size } = upstream.sockets;
    await turns();
    clock.advance(60_000);
    await turns();
    if (transport !== "HTTP/2") expect(upstream.sockets.size).toBe(size);
    // A minute, and the time in which 2 MiB are read, after the system has taken the last.
    for (let minutes = 0; minutes < 30 && upstream.sockets.size === size; minutes++) {
      clock.advance(60_000);
      await turns();
    }
    await eventually(() => upstream.sockets.size < size, "the end at the upstream");
  });
});

it("a client that reads 15 KB/s of forty replies on one HTTP/2 connection gets all of them", async () => {
  const made = await serving(200_000);
  const connection = await rawSession(made.port, {
    settings: Buffer.concat([Buffer.from([0, 4]), number32(1_000_000)]),
  });
  const { socket, frames } = connection;
  onTestFinished(() => void socket.destroy());
  await connection.until(({ type, flags }) => type === SETTINGS && (flags & ACK) !== 0);
  connection.send(frame(WINDOW_UPDATE, 0, 0, number32(100_000_000)));
  const streams = Array.from({ length: 40 }, (_, index) => 2 * index + 1);
  let allowed = 0;
  let got = 0;
  socket.on("data", (bytes: Buffer) => {
    got += bytes.length;
    if (got >= allowed) socket.pause();
  });
  for (const stream of streams) connection.headers(stream, GET);
  const isWhole = (id: number) =>
    frames.some(({ type, stream, flags }) => type === DATA && stream === id && (flags & END_STREAM) !== 0);
  const ended = () => streams.filter(isWhole).length;
  for (let seconds = 0; seconds < 800 && ended() < streams.length; seconds += 10) {
    allowed += 150_000;
    socket.resume();
    await eventually(() => got >= allowed || ended() === streams.length, "the next bytes");
    await turns();
    made.clock.advance(10_000);
  }
  expect(frames.filter(({ type }) => type === RST_STREAM)).toEqual([]);
  expect(ended()).toBe(streams.length);
});

it("says in the log what became of a client that reads nothing", async () => {
  const made = await serving(LONG);
  await TRANSPORTS["HTTP/1.1"]!(made);
  await eventually(() => made.gateway.inFlight === 1, "the request");
  for (let minutes = 0; minutes < 30 && made.gateway.inFlight > 0; minutes++) {
    await turns();
    made.clock.advance(60_000);
  }
  // The system decides when it takes a last little: on a machine under load in any of these minutes.
  const fault = expect.stringMatching(
    new RegExp(
      String.raw`^the client reads the reply too slowly: its system took (nothing for \d+ s|\d+ ` +
        String.raw`bytes in \d+ s, and nearly nothing at the end)$`,
    ),
  ) as string;
  expect(await made.logged()).toMatchObject({ status: 200, code: "request_timeout", fault });
});

describe("min_reply_bytes_per_s", () => {
  const BODY = 600_000;

  /** A client of HTTP/2 that lets `bytesPerS` pass; resolves when it has all or is reset. */
  async function trickling(made: Made, bytesPerS: number) {
    const connection = await rawSession(made.port, { settings: Buffer.concat([Buffer.from([0, 4]), number32(0)]) });
    onTestFinished(() => void connection.socket.destroy());
    await connection.until(({ type, flags }) => type === SETTINGS && (flags & ACK) !== 0);
    connection.headers(1, GET);
    const received = () =>
      connection.frames.filter(({ type }) => type === DATA).reduce((sum, { payload }) => sum + payload.length, 0);
    const isOver = () =>
      connection.frames.some(({ type, flags }) => type === RST_STREAM || (type === DATA && (flags & END_STREAM) !== 0));
    await eventually(() => made.gateway.inFlight === 1, "the request");
    for (let seconds = 0; seconds < (BODY / bytesPerS) * 1.1 && !isOver(); seconds += 10) {
      const opened = Math.min(BODY, received() + bytesPerS * 10);
      connection.send(...[0, 1].map((stream) => frame(WINDOW_UPDATE, 0, stream, number32(bytesPerS * 10))));
      await eventually(() => isOver() || received() >= opened, "what fits into the window");
      await turns();
      made.clock.advance(10_000);
    }
    await eventually(isOver, "the end of the stream");
    return { received: received(), isReset: connection.frames.some(({ type }) => type === RST_STREAM) };
  }

  it("ends a client that reads less on average, and a reload changes it for later requests", async () => {
    const made = await serving(BODY, { limits: { min_reply_bytes_per_s: 5000 } });
    expect(await trickling(made, 3000)).toMatchObject({ isReset: true });
    const fault = expect.stringMatching(
      /^the client reads the reply too slowly: its system took \d+ bytes in \d+ s, less than 5000 a second$/,
    ) as string;
    expect(await made.logged()).toMatchObject({ status: 200, code: "request_timeout", fault });
    expect(await trickling(made, 6000)).toEqual({ received: BODY, isReset: false });
    await made.limit({ min_reply_bytes_per_s: 0 });
    expect(await trickling(made, 3000)).toEqual({ received: BODY, isReset: false });
    await made.limit({});
    expect(await trickling(made, 3000)).toEqual({ received: BODY, isReset: false });
  });

  it("ends a client over HTTP/1.1 sooner that stops where more is asked of it", async () => {
    const made = await serving(LONG, { limits: { min_reply_bytes_per_s: 20_000 } });
    await TRANSPORTS["HTTP/1.1"]!(made);
    await eventually(() => made.gateway.inFlight === 1, "the request");
    for (let minutes = 0; minutes < 3; minutes++) {
      await turns();
      made.clock.advance(60_000);
    }
    await eventually(() => made.gateway.inFlight === 0, "its end");
  });
});

const silence = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe("timeouts.idle_ms", () => {
  it.each([
    ["a reply over HTTP/1.1", "HTTP/1.1", LONG],
    ["a reply over TLS", "TLS", LONG],
    ["a reply over HTTP/2", "HTTP/2", LONG],
    ["a WebSocket", "WebSocket", LONG],
    ["a message over a WebSocket that the system has taken", "WebSocket", 200_000],
  ])("does not end %s while its client is waited for", async (_what, transport, length) => {
    const made = await serving(length, { timeouts: { idle_ms: 300 } });
    const stream = await TRANSPORTS[transport]!(made);
    // Longer only lets more silences pass.
    await silence(1_000);
    expect(made.upstream.sockets.size).toBe(1);
    expect(await reading(stream)(length)).toBeGreaterThanOrEqual(length);
  });

  it("ends a reply whose upstream is silent when its client has read all of it", async () => {
    const lines: string[] = [];
    const upstream = await rawBackend(
      (_request, response) => void response.writeHead(200, { "content-length": LONG }).write(Buffer.alloc(LONG - 1)),
    );
    const config = oneService(upstream.port, { timeouts: { idle_ms: 300 } }, { access_log: { enabled: true } });
    const { port } = await running(config, { accessLog: (text) => void lines.push(...text.trimEnd().split("\n")) });
    const socket = await connected(net.connect(port, "127.0.0.1"), "connect", get());
    await reading(socket)(LONG - 1);
    await eventually(() => lines.length > 0, "the access log");
    expect(JSON.parse(lines[0]!)).toMatchObject({
      status: 200,
      code: "upstream_timeout",
      fault: "no byte either way for 300 ms",
    });
  });
});

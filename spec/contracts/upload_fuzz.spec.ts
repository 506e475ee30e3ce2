/**
 * Uploads over TLS and HTTP/2, in pieces of any size, whole, broken off, reset or held back, to upstreams that answer
 * early, late, twice, in part or not at all: no byte of one reaches another, half an upload is never taken for a whole
 * one, and nothing is left of them. Seeded:
 * `FUZZ_SEED`, `FUZZ_ROUNDS` for more than the few of each run, `FUZZ_CLIENTS=http1,h2c,h2` and
 * `FUZZ_UPSTREAMS=http,https,h2,h2c`.
 */
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import http2 from "node:http2";
import https from "node:https";
import net, { type AddressInfo, type Socket } from "node:net";
import tls from "node:tls";
import { expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { breakOff } from "../../lib/http/body.ts";
import { SERVER } from "../support/certs.ts";
import { running } from "../support/gateway.ts";
import {
  ACK,
  block,
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  frameReader,
  GOAWAY,
  HEADERS,
  number32,
  PING,
  PREFACE,
  RST_STREAM,
  SETTINGS,
  WINDOW_UPDATE,
} from "../support/h2_raw.ts";
import { random, type Random } from "../support/random.ts";
import { eventually } from "../support/raw_client.ts";
import { speaking, type Protocol } from "../journeys/harness.ts";

const ROUNDS = Number(process.env.FUZZ_ROUNDS ?? 2);
const SEED = Number(process.env.FUZZ_SEED ?? 11);
/**
 * Node's own server of HTTP/2, which stands in for such upstreams, does not outlast all that they do here: those are
 * asked for by hand.
 */
const UPSTREAMS = (process.env.FUZZ_UPSTREAMS ?? "http,https").split(",") as Protocol[];
const CLIENTS = (process.env.FUZZ_CLIENTS ?? "http1,h2c,h2").split(",").map((name) => {
  if (name === "http1") return (dice: Random, ledger: Ledger, { secured }: Ports) => overHttp1(dice, ledger, secured);
  return (dice: Random, ledger: Ledger, { plain, secured }: Ports) =>
    overHttp2(dice, ledger, name === "h2c" ? plain : secured, name !== "h2c");
});
interface Ports {
  readonly plain: number;
  readonly secured: number;
}
/** Clients at one time in a round. */
const AT_ONCE = 12;

const PADDED = 8;
const MAX_FRAME_BYTES = 16_384;
/** One of them can be sent again. */
const METHODS = ["POST", "PUT"];
const BEHAVIOURS = [
  "whole",
  "whole",
  "whole",
  "early",
  "early and close",
  "late",
  "half",
  "refuse",
  "reset",
  "echo",
  "pause",
  "never",
] as const;

/** What has been sent of the uploads of one run, and what was wrong with it. */
class Ledger {
  readonly wrong: string[] = [];
  /** Bytes of those that were sent to their end. */
  readonly whole = new Map<number, number>();
  /** What each is, for the report. */
  readonly of = new Map<number, string>();
  answers = 0;
  arrived = 0;
  #next = 100_000;

  id(): number {
    return this.#next++;
  }

  /** `bytes` of the body with this id, from `at`: every eight of them say whose they are. */
  piece(id: number, at: number, bytes: number): Buffer {
    const unit = `<${id}>`;
    return Buffer.from(
      unit.repeat(Math.ceil(bytes / unit.length) + 1).slice(at % unit.length, (at % unit.length) + bytes),
    );
  }

  check(where: string, id: number, at: number, bytes: Buffer): void {
    const expected = this.piece(id, at, bytes.length);
    if (expected.equals(bytes)) return;
    const first = bytes.findIndex((byte, i) => byte !== expected[i]);
    this.wrong.push(
      `${where} ${id} (${this.of.get(id)}) at ${at} + ${first} of ${bytes.length}: ` +
        `${bytes.toString("latin1", Math.max(0, first - 20), first + 60)}`,
    );
  }

  /** The body of an answer to the upload with this id. */
  answered(id: number, body: Buffer): void {
    this.answers++;
    if (body[0] !== "{".charCodeAt(0)) return this.check("answer", id, 0, body);
    if (body.includes('"internal"')) this.wrong.push(`answer ${id}: ${body.toString()}`);
  }
}

/** One upload: where to, and how it ends. */
interface Upload {
  readonly id: number;
  readonly path: string;
  readonly bytes: number;
  readonly end: "whole" | "whole" | "trailers" | "broken" | "held";
}

function upload(dice: Random, ledger: Ledger, to: Protocol, mostBytes: number): Upload {
  const id = ledger.id();
  const bytes = dice.chance(0.5) ? dice.int(0, 3000) : dice.int(0, mostBytes);
  return {
    id,
    bytes,
    path: `/${to}/${id}/${dice.int(0, BEHAVIOURS.length - 1)}/${dice.pick([0, 10, 5000, 100_000])}`,
    end: dice.pick(["whole", "whole", "whole", "trailers", "broken", "held"]),
  };
}

// The upstreams.

function serve(dice: Random, ledger: Ledger) {
  return (request: IncomingMessage, response: ServerResponse) => {
    const [, id, behaviour, bytes] = request.url!.split("/").map(Number) as [number, number, number, number];
    const stream = (request as unknown as { stream?: http2.ServerHttp2Stream }).stream;
    const does = BEHAVIOURS[behaviour]!;
    let received = 0;
    request.on("error", () => {});
    response.on("error", () => {});
    const answer = () => {
      if (response.headersSent || response.destroyed) return;
      response.writeHead(200, dice.chance(0.5) ? { "content-length": String(bytes) } : {});
      response.end(ledger.piece(id, 0, bytes));
    };
    const cut = () => {
      if (stream !== undefined && dice.chance(0.7)) stream.close(dice.pick([0, 2, 7, 8, 11]));
      else if (stream !== undefined) setImmediate(() => stream.session?.destroy());
      else breakOff(request.socket);
    };
    const after = dice.int(0, 20_000);
    if (does === "echo") response.writeHead(200);
    request.on("data", (chunk: Buffer) => {
      ledger.check("upstream", id, received, chunk);
      received += chunk.length;
      ledger.arrived += chunk.length;
      if (does === "echo" && !response.destroyed) response.write(chunk);
      if (does === "reset" && received >= after) cut();
      if (does === "refuse" && received >= after && !response.headersSent)
        response.writeHead(413, { "content-length": "0" }).end();
      if (does === "pause") {
        request.pause();
        setTimeout(() => request.resume(), dice.int(0, 3));
      }
    });
    request.on("end", () => {
      const isCut =
        stream === undefined ? !request.complete : stream.destroyed || stream.closed || stream.rstCode !== 0;
      if (!isCut && ledger.whole.get(id) !== received)
        ledger.wrong.push(
          `upstream ${id}: ${received} bytes as a whole, sent were ${ledger.whole.get(id)}: ${ledger.of.get(id)}`,
        );
      const sum = request.trailers["x-sum"];
      if (sum !== undefined && sum !== String(id)) ledger.wrong.push(`upstream ${id}: the trailer of ${sum}`);
      if (does === "reset") cut();
      else if (does === "echo") response.end();
      else if (does === "late") setTimeout(answer, dice.int(0, 30));
      else if (does !== "never") answer();
    });
    if (does === "early") answer();
    if (does === "early and close") {
      if (stream === undefined) response.setHeader("connection", "close");
      answer();
    }
    if (does === "half") {
      response.writeHead(200, { "content-length": String(bytes + 5000) });
      response.write(ledger.piece(id, 0, Math.max(1, bytes)));
      setTimeout(cut, dice.int(0, 5));
    }
  };
}

async function upstreamOf(protocol: Protocol, dice: Random, ledger: Ledger, sockets: Set<Socket>): Promise<number> {
  const files = { cert: SERVER.cert, key: SERVER.key };
  const listener = serve(dice, ledger);
  const listener2 = listener as unknown as (
    request: http2.Http2ServerRequest,
    response: http2.Http2ServerResponse,
  ) => void;
  const server =
    protocol === "http"
      ? http.createServer(listener)
      : protocol === "https"
        ? https.createServer(files, listener)
        : protocol === "h2c"
          ? http2.createServer(listener2)
          : http2.createSecureServer(files, listener2);
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
  });
  server.on("sessionError", () => {});
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

// The clients.

/** Writes `bytes` in pieces of any size, each of which is a record over TLS. */
class Pieces {
  readonly #dice: Random;
  readonly #socket: Socket;
  readonly #most: number;
  #last = Promise.resolve();

  constructor(dice: Random, socket: Socket) {
    this.#dice = dice;
    this.#socket = socket;
    this.#most = dice.pick([7, 100, 1000, 17_000, 100_000]);
  }

  /** One after another: a frame must not begin in the middle of another one. */
  write(bytes: Buffer): Promise<void> {
    return (this.#last = this.#last.then(() => this.#write(bytes)));
  }

  async #write(bytes: Buffer): Promise<void> {
    const most = Math.max(this.#most, Math.ceil(bytes.length / 40));
    for (let at = 0; at < bytes.length && !this.#socket.destroyed;) {
      const end = Math.min(bytes.length, at + this.#dice.int(1, most));
      const hasRoom = this.#socket.write(bytes.subarray(at, end));
      at = end;
      if (!hasRoom || this.#dice.chance(0.3)) await new Promise(setImmediate);
    }
  }
}

async function connected(port: number, alpn: string | null): Promise<Socket> {
  const socket =
    alpn === null
      ? net.connect(port, "127.0.0.1")
      : tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false, ALPNProtocols: [alpn] });
  socket.on("error", () => {});
  socket.setNoDelay();
  await new Promise<void>((resolve) => socket.once(alpn === null ? "connect" : "secureConnect", resolve));
  return socket;
}

const closing = (socket: Socket) =>
  new Promise<void>((resolve) => (socket.destroyed ? resolve() : void socket.once("close", () => resolve())));

/** One to three uploads on one connection of HTTP/1.1, the next ones perhaps before the answer to the first. */
async function overHttp1(dice: Random, ledger: Ledger, port: number): Promise<void> {
  const socket = await connected(port, "http/1.1");
  const uploads = dice.list(1, 3, () => upload(dice, ledger, dice.pick(UPSTREAMS), 150_000));
  for (const { id, path, bytes, end } of uploads) ledger.of.set(id, `HTTP/1.1 ${path} ${bytes} bytes ${end}`);
  let received = "";
  const closed = closing(socket);
  socket.on("data", (chunk: Buffer) => {
    received += chunk.toString("latin1");
    if (answersIn(received).length === uploads.length) socket.destroy();
  });
  const pieces = new Pieces(dice, socket);
  for (const [nth, { id, path, bytes, end }] of uploads.entries()) {
    const isChunked = end === "trailers" || dice.chance(0.4);
    const isBroken = end === "broken" || end === "held";
    const lines = [
      `${dice.pick(METHODS)} ${path} HTTP/1.1`,
      "Host: h",
      isChunked ? "Transfer-Encoding: chunked" : `Content-Length: ${bytes}`,
    ];
    if (nth === uploads.length - 1) lines.push("Connection: close");
    if (dice.chance(0.1)) lines.push("Expect: 100-continue");
    const sent: Buffer[] = [Buffer.from([...lines, "", ""].join("\r\n"))];
    for (let at = 0; at < bytes;) {
      const size = Math.min(bytes - at, dice.int(1, dice.pick([10, 1000, 100_000])) + Math.ceil(bytes / 50));
      const data = ledger.piece(id, at, size);
      sent.push(...(isChunked ? [Buffer.from(`${size.toString(16)}\r\n`), data, Buffer.from("\r\n")] : [data]));
      at += size;
    }
    if (isChunked) sent.push(Buffer.from(end === "trailers" ? `0\r\nX-Sum: ${id}\r\n\r\n` : "0\r\n\r\n"));
    const all = Buffer.concat(sent);
    if (isBroken && bytes > 0) {
      await pieces.write(all.subarray(0, dice.int(1, all.length - 1)));
      if (end === "held") await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, dice.int(0, 150)))]);
      if (dice.chance(0.3)) socket.end();
      else socket.destroy();
      break;
    }
    ledger.whole.set(id, bytes);
    await pieces.write(all);
    if (dice.chance(0.5))
      await eventually(() => socket.destroyed || answersIn(received).length > nth, `the answer to ${path}`);
  }
  await closed;
  for (const [nth, body] of answersIn(received, true).entries())
    ledger.answered(uploads[nth]!.id, Buffer.from(body, "latin1"));
}

/** The bodies of the answers in what was received; without `cut` of those alone that are whole. */
function answersIn(text: string, cut = false): string[] {
  const bodies: string[] = [];
  for (let at = 0; at < text.length;) {
    const end = text.indexOf("\r\n\r\n", at);
    if (end < 0) break;
    const head = text.slice(at, end).toLowerCase();
    at = end + 4;
    if (/^http\/1\.1 1/.test(head)) continue;
    const length = /\r\ncontent-length: (\d+)/.exec(head);
    if (length !== null) {
      if (!cut && text.length < at + Number(length[1])) break;
      bodies.push(text.slice(at, at + Number(length[1])));
      at += Number(length[1]);
      continue;
    }
    let body = "";
    for (let size = Infinity; size > 0;) {
      const line = text.indexOf("\r\n", at);
      size = line < 0 ? NaN : parseInt(text.slice(at, line), 16);
      if (Number.isNaN(size) || (!cut && text.length < line + size + 4)) return cut ? [...bodies, body] : bodies;
      body += text.slice(line + 2, line + 2 + size);
      at = line + size + 4;
    }
    bodies.push(body);
  }
  return bodies;
}

interface Stream extends Upload {
  readonly nth: number;
  at: number;
  window: number;
  isSent: boolean;
  isOver: boolean;
  isAsked: boolean;
  readonly body: Buffer[];
}

/** Several uploads at once on one connection of HTTP/2. */
async function overHttp2(dice: Random, ledger: Ledger, port: number, isSecure: boolean): Promise<void> {
  const socket = await connected(port, isSecure ? "h2" : null);
  const gives = dice.pick(["at once", "at once", "late", "never"]);
  const streams: Stream[] = dice
    .list(1, 10, () => upload(dice, ledger, dice.pick(UPSTREAMS), 100_000))
    .map((each, i) => ({
      ...each,
      nth: 2 * i + 1,
      at: 0,
      window: 65_535,
      isSent: false,
      isOver: false,
      isAsked: false,
      body: [],
    }));
  for (const { id, path, bytes, end } of streams)
    ledger.of.set(id, `HTTP/2 ${isSecure} ${path} ${bytes} bytes ${end} gives ${gives}`);
  let window = 65_535;
  let wake = () => {};
  let initial = 65_535;
  let isLeaving = false;
  const pieces = new Pieces(dice, socket);
  const send = (...parts: Buffer[]) => pieces.write(Buffer.concat(parts));
  const read = frameReader(({ type, flags, stream: nth, payload }) => {
    const stream = streams.find((each) => each.nth === nth);
    if (type === SETTINGS && (flags & ACK) === 0) {
      for (let i = 0; i < payload.length; i += 6) {
        if (payload.readUInt16BE(i) !== 4) continue;
        for (const each of streams) each.window += payload.readUInt32BE(i + 2) - initial;
        initial = payload.readUInt32BE(i + 2);
      }
      void send(frame(SETTINGS, ACK, 0));
    } else if (type === PING && (flags & ACK) === 0) void send(frame(PING, ACK, 0, payload));
    else if (type === WINDOW_UPDATE && nth === 0) window += payload.readUInt32BE(0);
    else if (type === WINDOW_UPDATE && stream !== undefined) stream.window += payload.readUInt32BE(0);
    else if (type === RST_STREAM && stream !== undefined) stream.isOver = true;
    else if (type === GOAWAY) isLeaving = true;
    else if (type === DATA && stream !== undefined) {
      stream.body.push(payload);
      const give = () =>
        void send(
          frame(WINDOW_UPDATE, 0, 0, number32(payload.length)),
          frame(WINDOW_UPDATE, 0, nth, number32(payload.length)),
        );
      if (payload.length > 0 && gives === "at once") give();
      if (payload.length > 0 && gives === "late") setTimeout(give, dice.int(0, 10));
    }
    if ((type === DATA || type === HEADERS) && (flags & END_STREAM) !== 0 && stream !== undefined) stream.isOver = true;
    wake();
  });
  socket.on("data", read);
  const closed = closing(socket);
  void closed.then(() => wake());
  await send(PREFACE, frame(SETTINGS, 0, 0));
  for (;;) {
    // Streams begin in the order of their numbers (RFC 9113 §5.1.1).
    const first = streams.find((each) => !each.isAsked);
    const open = streams.filter(
      (each) =>
        !each.isSent &&
        !each.isOver &&
        (each.isAsked || each === first) &&
        (!each.isAsked || each.at === each.bytes || Math.min(window, each.window) > 0),
    );
    if (socket.destroyed || isLeaving) break;
    if (open.length === 0) {
      if (streams.every((each) => each.isSent || each.isOver)) break;
      await Promise.race([
        closed,
        new Promise<void>((resolve) => (wake = resolve)),
        new Promise((resolve) => setTimeout(resolve, 100)),
      ]);
      // What is held back is given up, so that a client which reads nothing does not wait for itself.
      if (gives === "never" && dice.chance(0.3)) break;
      continue;
    }
    const frames = dice
      .list(1, 4, () => dice.pick(open))
      .map((each) => next(dice, ledger, each, window, (bytes) => (window -= bytes)));
    await send(...frames);
  }
  const isDone = () =>
    socket.destroyed || streams.every((each) => each.isOver || (each.isSent && each.end === "broken"));
  if (gives === "never" || streams.some(({ end }) => end === "held") || isLeaving)
    await new Promise((resolve) => setTimeout(resolve, dice.int(0, 150)));
  else
    await eventually(
      isDone,
      `the end of ${streams
        .filter((each) => !each.isOver)
        .map(({ id }) => ledger.of.get(id))
        .join(", ")}`,
    );
  if (dice.chance(0.5)) void send(frame(GOAWAY, 0, 0, Buffer.alloc(8)));
  if (dice.chance(0.5)) socket.end();
  else socket.destroy();
  await closed;
  for (const { id, body } of streams) if (body.length > 0) ledger.answered(id, Buffer.concat(body));
}

/** The next frame of a stream. */
function next(dice: Random, ledger: Ledger, stream: Stream, window: number, take: (bytes: number) => void): Buffer {
  const { id, nth, path, bytes, end } = stream;
  if (stream.isSent) return Buffer.alloc(0);
  if (!stream.isAsked) {
    stream.isAsked = true;
    if (bytes === 0) ledger.whole.set(id, 0);
    const length: [string, string][] = dice.chance(0.5) ? [["content-length", String(bytes)]] : [];
    return frame(
      HEADERS,
      END_HEADERS,
      nth,
      block([[":method", dice.pick(METHODS)], [":scheme", "http"], [":authority", "h"], [":path", path], ...length]),
    );
  }
  if (stream.at === bytes || (end === "broken" && dice.chance(0.1)) || (end === "held" && dice.chance(0.1))) {
    stream.isSent = true;
    if (end === "held") return Buffer.alloc(0);
    if (end === "broken") {
      stream.isOver = true;
      return frame(RST_STREAM, 0, nth, number32(dice.pick([0, 2, 5, 8])));
    }
    ledger.whole.set(id, bytes);
    if (end === "trailers") return frame(HEADERS, END_HEADERS | END_STREAM, nth, block([["x-sum", String(id)]]));
    return frame(DATA, END_STREAM, nth);
  }
  const padding = dice.chance(0.3) ? dice.int(0, 255) : -1;
  const size = Math.min(
    MAX_FRAME_BYTES - padding - 1,
    bytes - stream.at,
    window - padding - 1,
    stream.window - padding - 1,
    dice.int(1, dice.pick([10, 1000, 16_000])) + Math.ceil(bytes / 60),
  );
  if (size < 0 || (size === 0 && padding < 0)) return Buffer.alloc(0);
  const data = ledger.piece(id, stream.at, size);
  stream.at += size;
  // With a Content-Length that is all of it, whatever becomes of the stream.
  if (stream.at === bytes) ledger.whole.set(id, bytes);
  stream.window -= size + padding + 1;
  take(size + padding + 1);
  if (padding < 0) return frame(DATA, 0, nth, data);
  return frame(DATA, PADDED, nth, Buffer.concat([Buffer.from([padding]), data, Buffer.alloc(padding)]));
}

it(
  `uploads over TLS and HTTP/2 stay their clients' own, and leave nothing behind, from seed ${SEED}`,
  { timeout: 60_000 + ROUNDS * 5000 },
  async () => {
    const thrown: unknown[] = [];
    const record = (error: unknown) => thrown.push(error);
    process.on("uncaughtExceptionMonitor", record);
    onTestFinished(() => void process.off("uncaughtExceptionMonitor", record));
    const dice = random(SEED);
    const ledger = new Ledger();
    const sockets = new Set<Socket>();
    const services = [];
    for (const protocol of UPSTREAMS) {
      services.push({
        name: protocol,
        base_path: `/${protocol}`,
        ...speaking(protocol),
        upstreams: await Promise.all(
          [1, 2].map(async () => ({ host: "127.0.0.1", port: await upstreamOf(protocol, dice, ledger, sockets) })),
        ),
        pool: { max_connections: 8 },
        timeouts: { connect_ms: 2000, response_ms: 200, idle_ms: 200 },
        health: { passive: { max_failures: 0 } },
        retries: { attempts: 1, budget_ratio: 1, max_replay_bytes: 20_000 },
        routes: [{ path: "/{rest*}" }],
      });
    }
    const { gateway, port } = await running({
      global: { h2c: true, limits: { max_client_share: 1 }, access_log: { enabled: false } },
      services,
    } as AnyConfigInput);
    const secured = (
      await gateway.listen({
        port: 0,
        tls: { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false },
      })
    ).port;
    for (let round = 0; round < ROUNDS; round++) {
      await Promise.all(
        Array.from({ length: AT_ONCE }, (_, i) => CLIENTS[i % CLIENTS.length]!(dice, ledger, { plain: port, secured })),
      );
      expect(thrown).toEqual([]);
      expect(ledger.wrong).toEqual([]);
      const inFlight = () =>
        gateway.health.services.flatMap((each) => each.upstreams.map((upstream) => upstream.inFlight));
      await eventually(() => inFlight().every((count) => count === 0), "every lease being given back");
    }
    if (process.env.FUZZ_ROUNDS !== undefined)
      console.log({
        answers: ledger.answers,
        whole: ledger.whole.size,
        arrived: ledger.arrived,
        memory: process.memoryUsage(),
      });
    expect(ledger.answers).toBeGreaterThan(ROUNDS * AT_ONCE);
    await gateway.close(0);
    // Node does not say of each socket of HTTP/2 that it has closed.
    await eventually(
      () => [...sockets].every(({ remotePort }) => remotePort === undefined),
      "every connection to an upstream being closed",
    );
    expect(thrown).toEqual([]);
  },
);

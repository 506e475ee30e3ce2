import net, { type AddressInfo, type Socket } from "node:net";
import type { ServerHttp2Stream } from "node:http2";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import {
  ANSWER_MS,
  MAX_LINGER_MS,
  MAX_UNREPORTED,
  RESETS,
  SILENCE_MS,
  SURPLUS_HEAD_BYTES,
} from "../../lib/server/h2_limits.ts";
import { H2Sessions } from "../../lib/server/h2_sessions.ts";
import { Drain } from "../../lib/server/http1.ts";
import { connectionWithoutTls, type Unread } from "../../lib/server/inbound.ts";
import { DeadlineTimer } from "../../lib/base/clock.ts";
import { SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import {
  ACK,
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
  PING,
  PRIORITY,
  rawSession,
  RST_STREAM,
  SETTINGS,
  WINDOW_UPDATE,
  type RawOptions,
  type RawSession,
  number32,
} from "../support/h2_raw.ts";
import { defaultLimits } from "../support/limits.ts";
import { eventually } from "../support/raw_client.ts";

async function listening(keepAliveMs = 1_000, secure = false) {
  const clock = manualClock();
  const streams: ServerHttp2Stream[] = [];
  const sockets: Socket[] = [];
  const unreads: Unread[] = [];
  let limits = defaultLimits;
  const sessions = new H2Sessions({
    clock,
    log: silentLog,
    deadlines: new DeadlineTimer(clock),
    drain: new Drain(),
    receiving: () => ({ clock, proxies: null, limits }),
    keepAliveMs,
    connectionOf: connectionWithoutTls,
    unread: (unread) => void unreads.push(unread),
    onStream: (stream) => void streams.push(stream),
  });
  const serve = (socket: Socket) => {
    sockets.push(socket);
    sessions.add(socket.on("error", () => {}));
  };
  const server = secure
    ? tls.createServer({ ...SERVER, ALPNProtocols: ["h2"] }, serve)
    : net.createServer({ allowHalfOpen: true }, serve);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    sessions.destroy();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const connect = async (options?: RawOptions) => {
    const talk = await rawSession(port, { secure, ...options });
    onTestFinished(() => void talk.socket.destroy());
    await talk.until(({ type, flags }) => type === SETTINGS && flags === 1);
    return talk;
  };
  const pass = (ms: number) => {
    for (let passed = 0; passed < ms; passed += 1_000) clock.advance(1_000);
  };
  const setLimits = (next: typeof limits) => (limits = next);
  return { clock, pass, streams, sockets, sessions, unreads, connect, setLimits };
}

it("closes a connection without streams after keepAliveMs with a GOAWAY, and stops its timer", async () => {
  const { clock, sessions, connect } = await listening();
  const talk = await connect();
  clock.advance(999);
  expect(talk.frames.some(({ type }) => type === GOAWAY)).toBe(false);
  clock.advance(1);
  expect(await talk.goaway()).toBe(0);
  await talk.closed();
  await eventually(() => sessions.open === 0 && clock.pending === 0, "the end of the session and no pending timer");
});

it("counts keepAliveMs from the end of the last stream", async () => {
  const { clock, streams, connect } = await listening();
  const talk = await connect();
  talk.headers(1, GET);
  await eventually(() => streams.length === 1, "one stream");
  clock.advance(10_000);
  streams[0]!.respond({ ":status": 200 }, { endStream: true });
  await talk.until(({ type }) => type === HEADERS);
  await eventually(() => streams[0]!.destroyed, "the end of the first stream");
  clock.advance(999);
  expect(talk.frames.some(({ type }) => type === GOAWAY)).toBe(false);
  clock.advance(1_001);
  await talk.closed();
});

it("renew: ends a new connection at once, and a connection with a stream after the stream", async () => {
  const { streams, sessions, connect } = await listening();
  const busy = await connect();
  busy.headers(1, GET);
  await eventually(() => streams.length === 1, "one stream");
  sessions.renew("all");
  expect(await busy.goaway()).toBe(0);
  streams[0]!.respond({ ":status": 204 }, { endStream: true });
  await busy.closed();
  await eventually(() => sessions.open === 0, "the end of the session");
});

it("holds a connection to the limits in force when it was opened", async () => {
  const { connect, setLimits } = await listening();
  const listSize = async () => {
    const talk = await connect();
    const { payload } = await talk.until(({ type, flags }) => type === SETTINGS && flags === 0);
    const at = payload.indexOf(Buffer.from([0, 6]));
    return payload.readUInt32BE(at + 2);
  };
  expect(await listSize()).toBe(defaultLimits.maxHeaderBytes + SURPLUS_HEAD_BYTES);
  setLimits({ ...defaultLimits, maxHeaderBytes: 4096 });
  expect(await listSize()).toBe(4096 + SURPLUS_HEAD_BYTES);
});

it("ends a connection that does not send HTTP/2, without effect on other connections", async () => {
  const { sessions, connect } = await listening();
  const good = await connect();
  const bad = await connect();
  bad.send(frame(HEADERS, 4, 0));
  await bad.closed();
  await eventually(() => sessions.open === 1, "one open session");
  expect(good.isClosed()).toBe(false);
});

describe("a connection without a complete request head", () => {
  it.each<[string, (talk: RawSession) => void]>([
    ["nothing behind its preface", () => {}],
    ["half a head", (talk) => talk.send(frame(HEADERS, END_STREAM, 1, block(GET)))],
    ["less than a frame", (talk) => talk.send(frame(HEADERS, END_STREAM, 1, block(GET)).subarray(0, 12))],
  ])("ends after headersTimeoutMs when the client has sent %s", async (_what, begin) => {
    const { clock, pass, sockets, sessions, connect, setLimits } = await listening(75_000);
    setLimits({ ...defaultLimits, headersTimeoutMs: 3_000 });
    const talk = await connect();
    const before = sockets[0]!.bytesRead;
    begin(talk);
    if (talk.socket.bytesWritten > before)
      await eventually(() => sockets[0]!.bytesRead === talk.socket.bytesWritten, "the sent bytes at the server");
    clock.advance(2_999);
    expect(talk.isClosed()).toBe(false);
    clock.advance(1);
    expect(await talk.goaway()).toBe(CODES.NO_ERROR);
    pass(MAX_LINGER_MS);
    await talk.closed();
    await eventually(() => sessions.open === 0 && clock.pending === 0, "the end of the session and no pending timer");
  });

  it("a connection without a complete request head stays open for keepAliveMs once it has had a request", async () => {
    const { clock, streams, connect, setLimits } = await listening(75_000);
    setLimits({ ...defaultLimits, headersTimeoutMs: 3_000 });
    const talk = await connect();
    talk.headers(1, GET);
    await eventually(() => streams.length === 1, "one stream");
    streams[0]!.respond({ ":status": 200 }, { endStream: true });
    await eventually(() => streams[0]!.destroyed, "the end of the first stream");
    clock.advance(10_000);
    talk.headers(3, GET);
    await eventually(() => streams.length === 2, "two streams");
  });
});

describe("an incomplete request head beside an open stream", () => {
  const HALF = block(GET).subarray(0, 20);

  async function busy(options?: RawOptions) {
    const made = await listening(75_000);
    made.setLimits({ ...defaultLimits, headersTimeoutMs: 3_000 });
    const talk = await made.connect(options);
    talk.headers(1, GET);
    await eventually(() => made.streams.length === 1, "one stream");
    const arrived = () =>
      eventually(() => made.sockets[0]!.bytesRead === talk.socket.bytesWritten, "the sent bytes at the server");
    return { ...made, talk, arrived };
  }
  const isPing = ({ type, flags }: { type: number; flags: number }) => type === PING && flags === 0;

  it(
    "an incomplete request head beside an open stream ends the connection after headersTimeoutMs if it stays " +
      "incomplete, even if bytes of it keep arriving",
    async () => {
      const { clock, pass, streams, sessions, unreads, talk, arrived } = await busy({ acknowledge: false });
      talk.send(frame(HEADERS, END_STREAM, 3, HALF));
      for (let second = 0; second < 3; second++) {
        talk.send(frame(CONTINUATION, 0, 3, Buffer.alloc(1)));
        await arrived();
        pass(1_000);
      }
      expect(talk.isClosed()).toBe(false);
      pass(1_000);
      expect(await talk.goaway()).toBe(CODES.NO_ERROR);
      await talk.closed();
      await eventually(
        () => streams[0]!.destroyed && sessions.open === 0 && clock.pending === 0,
        "the end of the first stream, the end of the session and no pending timer",
      );
      expect(unreads).toMatchObject([{ code: "request_timeout", line: null, httpVersion: "2.0", sent: null }]);
    },
  );

  it(
    "reports a stream with an id of the server as one request that could not be " + "read, and no end of a client",
    async () => {
      const { sessions, unreads, pass, connect } = await listening();
      const [broken, leaving] = [await connect(), await connect()];
      broken.send(frame(HEADERS, END_HEADERS | END_STREAM, 2, block(GET)));
      leaving.socket.resetAndDestroy();
      await eventually(() => unreads.length > 0, "the report");
      pass(MAX_LINGER_MS);
      await eventually(() => sessions.open === 0, "the end of both");
      expect(unreads).toMatchObject([{ code: "bad_request", detail: "Protocol error", isGone: false }]);
    },
  );

  it(
    "an incomplete request head beside an open stream ends the connection if it stays incomplete, " +
      "even if a PING was answered just before it",
    async () => {
      const { pass, streams, talk, arrived } = await busy({ acknowledge: false });
      talk.send(frame(HEADERS, END_STREAM, 3, HALF));
      await arrived();
      pass(1_000);
      const { payload } = await talk.until(isPing);
      const rest = frame(CONTINUATION, END_HEADERS, 3, block(GET).subarray(20));
      talk.send(Buffer.concat([rest, frame(PING, ACK, 0, payload), frame(HEADERS, END_STREAM, 5, HALF)]));
      await eventually(() => streams.length === 2, "two streams");
      pass(3_000);
      expect(talk.frames.some(({ type }) => type === GOAWAY)).toBe(false);
      pass(1_000);
      expect(await talk.goaway()).toBe(CODES.NO_ERROR);
    },
  );

  it(
    "an incomplete request head beside an open stream leads to a reply when it arrives in parts in time, " +
      "and leaves the connection open when it is refused",
    async () => {
      const { pass, streams, talk, arrived } = await busy();
      talk.send(frame(HEADERS, END_STREAM, 3, HALF));
      await arrived();
      talk.send(frame(CONTINUATION, END_HEADERS, 3, block(GET).subarray(20)));
      await eventually(() => streams.length === 2, "two streams");
      talk.headers(5, [...GET, ["Upper-Case", "x"]]);
      expect(await talk.reset(5)).toBe(CODES.PROTOCOL_ERROR);
      pass(1_000);
      await talk.until(isPing);
      await arrived();
      pass(10_000);
      talk.headers(7, GET);
      await eventually(() => streams.length === 3, "three streams");
      expect(talk.frames.some(({ type }) => type === GOAWAY)).toBe(false);
    },
  );
});

describe("many requests that node resets without an event", () => {
  /** A field for HPACK's table, and then a list that names it so often that it is far too large. */
  const FIELD = Buffer.concat([Buffer.from([0x40]), block([["x", "y".repeat(3_900)]]).subarray(1)]);
  const HUGE = Buffer.concat([block(GET), Buffer.alloc(30, 0xbe)]);
  const send = async (talk: RawSession, from: number, count: number) => {
    for (let i = from; i < from + count; i++) {
      talk.send(frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * i, i === 0 ? Buffer.concat([FIELD, HUGE]) : HUGE));
      // In portions: node itself ends a connection on which many have come before it has cleared the first away.
      if (i % 10 === 9 || i === from + count - 1)
        await talk.until(({ type, stream }) => type === RST_STREAM && stream === 1 + 2 * i);
    }
  };

  it("requests that node resets end the connection when their number exceeds the limit", async () => {
    const { clock, pass, sessions, streams, connect } = await listening(75_000);
    const talk = await connect();
    await send(talk, 0, 100);
    expect(streams).toEqual([]);
    clock.advance(1_000);
    expect(await talk.goaway()).toBe(CODES.NO_ERROR);
    pass(MAX_LINGER_MS);
    await talk.closed();
    await eventually(() => sessions.open === 0 && clock.pending === 0, "the end of the session and no pending timer");
  });

  it(
    "requests that node resets leave open streams alone, whatever their number: " +
      "the client may only have skipped stream ids",
    async () => {
      const { clock, streams, connect } = await listening(75_000);
      const talk = await connect();
      talk.headers(1, GET);
      talk.send(...Array.from({ length: 100 }, () => frame(0xfa, 0, 0, Buffer.alloc(1_000))));
      talk.headers(3 + 4 * RESETS.burst, GET);
      await eventually(() => streams.length === 2, "two streams");
      clock.advance(1_000);
      expect(await talk.goaway()).toBe(CODES.NO_ERROR);
      for (const stream of streams) stream.respond({ ":status": 200 }, { endStream: true });
      for (const id of [1, 3 + 4 * RESETS.burst])
        await talk.until(({ type, stream }) => type === HEADERS && stream === id);
      await talk.closed();
    },
  );

  it("requests that node resets leave the connection open when they are few, as do skipped stream ids", async () => {
    const { clock, streams, connect } = await listening(75_000);
    const talk = await connect();
    for (let second = 0; second < 5; second++) {
      await send(talk, second * 10, 10);
      clock.advance(1_000);
    }
    talk.headers(100_001, GET);
    await eventually(() => streams.length === 1, "one stream");
    clock.advance(1_000);
    talk.headers(100_003, GET);
    await eventually(() => streams.length === 2, "two streams");
    expect(talk.frames.some(({ type }) => type === GOAWAY)).toBe(false);
  });

  it(
    "requests that node resets make the client open a new connection once they occupy half the places, " +
      "however slowly; open streams finish",
    async () => {
      const { clock, streams, connect } = await listening(75_000);
      const talk = await connect();
      await send(talk, 0, 10);
      talk.headers(21, GET);
      await eventually(() => streams.length === 1, "one stream");
      for (let sent = 11; sent <= MAX_UNREPORTED; sent += 10) {
        await send(talk, sent, 10);
        clock.advance(10_000);
      }
      expect(await talk.goaway()).toBe(CODES.NO_ERROR);
      streams[0]!.respond({ ":status": 200 }, { endStream: true });
      await talk.until(({ type, stream }) => type === HEADERS && stream === 21);
      await talk.closed();
    },
  );

  it("requests that node resets do not include requests that are served", async () => {
    const { clock, streams, connect } = await listening(75_000);
    const talk = await connect();
    for (let i = 0; i < 700; i++) {
      talk.headers(1 + 2 * i, GET);
      if (i % 100 < 99) continue;
      await eventually(() => streams.length === i + 1, "another stream");
      for (const stream of streams.slice(-100)) stream.respond({ ":status": 200 }, { endStream: true });
      await eventually(() => streams.every(({ destroyed }) => destroyed), "the end of all streams");
    }
    clock.advance(1_000);
    talk.headers(1_401, GET);
    await eventually(() => streams.length === 701, "701 streams");
  });
});

/** From Node 22 on it is seen, and the connection ends at once. */
describe("a connection that nghttp2 has silently abandoned", () => {
  const BREAKS: readonly [string, (talk: RawSession) => void][] = [
    ["DATA on a stream that has ended", (talk) => talk.send(frame(DATA, 0, 1, Buffer.from("x")))],
    ["DATA on a stream that was never begun", (talk) => talk.send(frame(DATA, 0, 5, Buffer.from("x")))],
  ];

  it.each(BREAKS)(
    "a connection that nghttp2 has silently abandoned gets its GOAWAY at once after %s, " +
      "and ends with its streams even if its client never closes",
    async (_what, offend) => {
      const { clock, pass, streams, sockets, sessions, connect } = await listening(75_000);
      const talk = await connect();
      talk.socket.allowHalfOpen = true;
      talk.headers(1, GET);
      await eventually(() => streams.length === 1, "one stream");
      offend(talk);
      expect(await talk.goaway()).not.toBe(CODES.NO_ERROR);
      pass(SILENCE_MS + ANSWER_MS + 1_000);
      await eventually(
        () => streams[0]!.destroyed && sockets[0]!.destroyed && sessions.open === 0 && clock.pending === 0,
        "the end of the first stream, the end of the connection, the end of the session and no pending timer",
      );
    },
  );

  it(
    "a connection that nghttp2 has silently abandoned ends at the second check after a " + "reply that is never sent",
    async () => {
      const { clock, pass, streams, sockets, sessions, connect } = await listening(75_000);
      const talk = await connect();
      talk.socket.allowHalfOpen = true;
      talk.headers(1, GET);
      talk.headers(3, GET);
      await eventually(() => streams.length === 2, "two streams");
      BREAKS[0]![1](talk);
      await talk.goaway();
      // Newer Nodes end the streams by themselves.
      if (!streams[0]!.destroyed) streams[0]!.respond({ ":status": 200 }, { endStream: true });
      pass(2_000);
      await eventually(
        () => streams[1]!.destroyed && sockets[0]!.destroyed && sessions.open === 0 && clock.pending === 0,
        "the end of the second stream, the end of the connection, the end of the session and no pending timer",
      );
    },
  );

  it(
    "a connection that nghttp2 has silently abandoned stays distinct from a connection " + "whose client does not read",
    async () => {
      const { pass, streams, sockets, connect } = await listening(75_000);
      const talk = await connect();
      const wide = Buffer.from([0, 4, 0x7f, 0xff, 0xff, 0xff]);
      talk.send(frame(SETTINGS, 0, 0, wide), frame(WINDOW_UPDATE, 0, 0, number32(0x7ffe0000)));
      talk.headers(1, GET);
      await eventually(() => streams.length === 1, "one stream");
      talk.socket.pause();
      streams[0]!.respond({ ":status": 200 });
      streams[0]!.write(Buffer.alloc(16_000_000));
      await eventually(() => sockets[0]!.bytesWritten > 16_000_000, "16 MB written");
      pass(SILENCE_MS + 5_000);
      expect([streams[0]!.destroyed, sockets[0]!.destroyed]).toEqual([false, false]);
    },
  );

  it("a connection that nghttp2 has silently abandoned ends as an idle connection when it has no stream", async () => {
    const { clock, pass, sockets, sessions, connect } = await listening(20_000);
    const talk = await connect();
    talk.socket.allowHalfOpen = true;
    talk.send(frame(DATA, 0, 1, Buffer.from("x")));
    expect(await talk.goaway()).not.toBe(CODES.NO_ERROR);
    pass(20_000 + MAX_LINGER_MS);
    await eventually(
      () => sockets[0]!.destroyed && sessions.open === 0 && clock.pending === 0,
      "the end of the connection, the end of the session and no pending timer",
    );
  });

  it(
    "a connection that nghttp2 has silently abandoned stays distinct from a silent connection, " +
      "which stays open if it answers a PING",
    async () => {
      const { pass, streams, connect } = await listening(75_000);
      const talk = await connect();
      talk.headers(1, GET);
      await eventually(() => streams.length === 1, "one stream");
      for (let asked = 1; asked <= 3; asked++) {
        pass(SILENCE_MS + 1_000);
        await eventually(
          () => talk.frames.filter(({ type, flags }) => type === PING && flags === 0).length === asked,
          "a PING from the server",
        );
        // Behind the answer to the PING, so that has been read too.
        talk.headers(1 + 2 * asked, GET);
        await eventually(() => streams.length === asked + 1, "another stream");
        pass(ANSWER_MS - 2_000);
      }
      expect([talk.isClosed(), streams[0]!.destroyed]).toEqual([false, false]);
    },
  );
});

/** Frames that nghttp2 processes without reporting them, and from some version on counts for itself. */
describe.each<[string, Buffer, isCounted: boolean]>([
  ["WINDOW_UPDATE for the connection", frame(WINDOW_UPDATE, 0, 0, number32(1)), false],
  ["WINDOW_UPDATE for a stream", frame(WINDOW_UPDATE, 0, 1, number32(1)), false],
  ["PRIORITY", frame(PRIORITY, 0, 3, Buffer.from([0, 0, 0, 0, 15])), true],
  ["unknown", frame(0xfa, 0, 0), true],
])("100,000 %s frames", (_what, each, isCounted) => {
  it(
    "100,000 frames fill no queue on their connection, which is served or ended by nghttp2, " +
      "and delay no other connection",
    async () => {
      const { streams, sockets, connect } = await listening(75_000);
      const [flood, other] = [await connect(), await connect()];
      flood.headers(1, GET);
      await eventually(() => streams.length === 1, "one stream");
      const { session } = streams[0]!;
      const before = session!.state;
      flood.send(Buffer.concat(Array.from({ length: 100_000 }, () => each)));
      other.headers(1, GET);
      await eventually(() => streams.length === 2, "two streams");
      const isOver = () => sockets[0]!.destroyed || sockets[0]!.bytesRead === flood.socket.bytesWritten;
      await eventually(isOver, "all frames being read");
      if (isCounted && sockets[0]!.destroyed) return;
      expect(session!.state).toMatchObject({
        outboundQueueSize: before.outboundQueueSize,
        inflateDynamicTableSize: before.inflateDynamicTableSize,
      });
      flood.headers(5, GET);
      await eventually(() => streams.length === 3, "three streams");
    },
  );
});

it("cuts off a client that never closes its side after a GOAWAY", async () => {
  const { clock, pass, sockets, sessions, connect } = await listening(2_000);
  const talk = await connect();
  talk.socket.allowHalfOpen = true;
  pass(2_000);
  expect(await talk.goaway()).toBe(CODES.NO_ERROR);
  expect(sockets[0]!.destroyed).toBe(false);
  pass(MAX_LINGER_MS);
  await eventually(
    () => sockets[0]!.destroyed && sessions.open === 0 && clock.pending === 0,
    "the end of the connection, the end of the session and no pending timer",
  );
});

it.each([false, true])(
  "ends the session of a client that has vanished while Node waited to write to it (secure: %s)",
  async (secure) => {
    const { pass, streams, sockets, sessions, connect } = await listening(75_000, secure);
    const talk = await connect();
    talk.send(
      frame(SETTINGS, 0, 0, Buffer.from([0, 4, 0x7f, 0xff, 0xff, 0xff])),
      frame(WINDOW_UPDATE, 0, 0, number32(0x7ffe0000)),
    );
    for (const id of [1, 3]) talk.headers(id, GET);
    await eventually(() => streams.length === 2, "two streams");
    talk.socket.pause();
    for (const stream of streams) stream.respond({ ":status": 200 });
    streams[0]!.write(Buffer.alloc(16_000_000));
    await eventually(() => sockets[0]!.bytesWritten > 16_000_000, "16 MB written");
    streams[1]!.write("more to write after that");
    await new Promise(setImmediate);
    talk.socket.destroy();
    type Handle = { getpeername(into: object): number };
    const handle = () => (sockets[0] as unknown as { _handle: Handle | null })._handle;
    await eventually(
      () => handle() === null || handle()!.getpeername({}) !== 0,
      "the system having closed the connection",
    );
    pass(1_000);
    await eventually(
      () => streams.every(({ destroyed }) => destroyed) && sockets[0]!.destroyed && sessions.open === 0,
      "the end of the streams, the connection and the session",
    );
  },
);

import net, { type AddressInfo } from "node:net";
import type { ServerHttp2Stream } from "node:http2";
import { expect, onTestFinished, test } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { createSessions } from "../../lib/server/h2_sessions.ts";
import { manualClock } from "../support/clock.ts";
import { frame, GET, GOAWAY, HEADERS, rawSession, SETTINGS } from "../support/h2_raw.ts";
import { defaultLimits } from "../support/limits.ts";
import { eventually } from "../support/raw_client.ts";

async function listening(keepAliveMs = 1_000) {
  const clock = manualClock();
  const streams: ServerHttp2Stream[] = [];
  let limits = defaultLimits;
  const sessions = createSessions({ clock, log: silentLog, limits: () => limits, keepAliveMs, onStream: (stream) => void streams.push(stream) });
  const server = net.createServer({ allowHalfOpen: true }, (socket) => sessions.take(socket.on("error", () => {})));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    sessions.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const connect = async () => {
    const talk = await rawSession(port);
    onTestFinished(() => void talk.socket.destroy());
    await talk.until(({ type, flags }) => type === SETTINGS && flags === 1);
    return talk;
  };
  return { clock, streams, sessions, connect, setLimits: (next: typeof limits) => (limits = next) };
}

test("a connection without streams is closed after keepAliveMs, with a GOAWAY; its timer goes with it", async () => {
  const { clock, sessions, connect } = await listening();
  const talk = await connect();
  clock.advance(999);
  expect(talk.frames.some(({ type }) => type === GOAWAY)).toBe(false);
  clock.advance(1);
  expect(await talk.goaway()).toBe(0);
  await talk.closed();
  await eventually(() => sessions.open === 0 && clock.pending === 0);
});

test("the time counts from the end of the last stream, and not while there is one", async () => {
  const { clock, streams, connect } = await listening();
  const talk = await connect();
  talk.headers(1, GET);
  await eventually(() => streams.length === 1);
  clock.advance(10_000);
  streams[0]!.respond({ ":status": 200 }, { endStream: true });
  await talk.until(({ type }) => type === HEADERS);
  await eventually(() => streams[0]!.destroyed);
  clock.advance(999);
  expect(talk.frames.some(({ type }) => type === GOAWAY)).toBe(false);
  clock.advance(1_001);
  await talk.closed();
});

test("after drain() a new connection is told to go at once, and one with a stream when that ends", async () => {
  const { streams, sessions, connect } = await listening();
  const busy = await connect();
  busy.headers(1, GET);
  await eventually(() => streams.length === 1);
  sessions.drain();
  expect(await busy.goaway()).toBe(0);
  streams[0]!.respond({ ":status": 204 }, { endStream: true });
  await busy.closed();
  await eventually(() => sessions.open === 0);
});

test("new connections are held to the limits in force when they begin", async () => {
  const { connect, setLimits } = await listening();
  const listSize = async () => {
    const talk = await connect();
    const { payload } = await talk.until(({ type, flags }) => type === SETTINGS && flags === 0);
    const at = payload.indexOf(Buffer.from([0, 6]));
    return payload.readUInt32BE(at + 2);
  };
  expect(await listSize()).toBe(defaultLimits.maxHeaderBytes);
  setLimits({ ...defaultLimits, maxHeaderBytes: 4096 });
  expect(await listSize()).toBe(4096);
});

test("what is no HTTP/2 ends that connection and no other", async () => {
  const { sessions, connect } = await listening();
  const good = await connect();
  const bad = await connect();
  bad.send(frame(HEADERS, 4, 0));
  await bad.closed();
  await eventually(() => sessions.open === 1);
  expect(good.isClosed()).toBe(false);
});

import http2, { type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { resetStream } from "../../lib/http/h2_ends.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { receiveStream } from "../../lib/server/h2_receive.ts";
import { informStream, respondStream } from "../../lib/server/h2_respond.ts";
import { manualClock } from "../support/clock.ts";
import { CODES, DATA, END_STREAM, GET, HEADERS, rawSession, RST_STREAM, type RawSession } from "../support/h2_raw.ts";
import { defaultLimits } from "../support/limits.ts";

/** One GET, answered with `reply` to a client that sends no window update. */
async function answered(reply: Reply, before: (stream: ServerHttp2Stream) => void = () => {}): Promise<RawSession> {
  const server = http2.createServer();
  server.on("session", (session) => session.on("error", () => {}));
  server.on("stream", (stream: ServerHttp2Stream, _headers: object, _flags: number, block: string[]) => {
    stream.on("error", () => {});
    const options = { clock: manualClock(), isTrusted: () => false, limits: defaultLimits };
    const inbound = receiveStream(stream, block, true, options);
    before(stream);
    respondStream(stream, inbound, reply, { idleMs: 60, giveUp: () => resetStream(stream, CODES.INTERNAL_ERROR) });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const talk = await rawSession((server.address() as AddressInfo).port);
  onTestFinished(() => {
    talk.socket.destroy();
    server.close();
  });
  talk.headers(1, GET);
  return talk;
}

const large = Buffer.alloc(70_000);

test.each<[string, Reply]>([
  ["at hand", { status: 200, headers: [], body: large }],
  ["from a stream that has ended", { status: 200, headers: [], body: Readable.from([large]) }],
])("a client that leaves the rest of a body %s unread for idleMs has its stream reset: CANCEL", async (_which, reply) => {
  const talk = await answered(reply);
  expect(await talk.reset(1)).toBe(CODES.CANCEL);
  expect(talk.frames.filter(({ type }) => type === DATA).reduce((sum, { payload }) => sum + payload.length, 0)).toBe(65_535);
});

test("a body at hand is as long as it is, whatever its Content-Length says", async () => {
  const talk = await answered({ status: 200, headers: ["Content-Length", "99"], body: Buffer.from("four") });
  const { payload } = await talk.until(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0);
  expect(payload.toString()).toBe("four");
  expect(talk.frames.some(({ type }) => type === RST_STREAM)).toBe(false);
});

test("a body that broke off before anything was sent is a reply of its own", async () => {
  const body = new Readable({ read() {} }).on("error", () => {});
  body.destroy(new Error("gone"));
  const talk = await answered({ status: 200, headers: [], body });
  const { payload } = await talk.until(({ type }) => type === DATA);
  expect(JSON.parse(payload.toString())).toMatchObject({ status: 502, code: "upstream_reset" });
});

test("a body that breaks off, of a reply without trailers: INTERNAL_ERROR, and no END_STREAM before it", async () => {
  const body = new Readable({ read() {} });
  const talk = await answered({ status: 200, headers: [], body });
  body.push("part");
  await talk.until(({ type }) => type === DATA);
  body.destroy(new Error("gone"));
  expect(await talk.reset(1)).toBe(CODES.INTERNAL_ERROR);
  expect(talk.frames.filter(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0)).toEqual([]);
});

test("informational responses: 101 never, a line break never, sixteen at most, none behind the head", async () => {
  let late: () => void = () => {};
  const talk = await answered({ status: 204, headers: [], body: null }, (stream) => {
    const inform = informStream(stream);
    inform(101, []);
    inform(103, ["Link", "a\r\nb: c"]);
    for (let i = 0; i < 40; i++) inform(103, ["Link", "</a.css>"]);
    late = () => informStream(stream)(103, []);
  });
  await talk.until(({ type, flags }) => type === HEADERS && (flags & END_STREAM) !== 0);
  late();
  expect(talk.frames.filter(({ type }) => type === HEADERS).length).toBe(16);
});

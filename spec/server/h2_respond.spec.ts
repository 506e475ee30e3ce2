import http2, { type ServerHttp2Stream } from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import { PassThrough, Readable } from "node:stream";
import { expect, it, onTestFinished } from "vitest";
import { DeadlineTimer } from "../../lib/base/clock.ts";
import { resetStream } from "../../lib/http/h2_streams.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { connectionOf } from "../../lib/server/client_certificate.ts";
import { receiveStream } from "../../lib/server/h2_receive.ts";
import { informStream, respondStream } from "../../lib/server/h2_respond.ts";
import { manualClock } from "../support/clock.ts";
import {
  ACK,
  CODES,
  DATA,
  END_STREAM,
  frame,
  GET,
  HEADERS,
  number32,
  PING,
  rawSession,
  RST_STREAM,
  WINDOW_UPDATE,
  type RawSession,
} from "../support/h2_raw.ts";
import { eventually } from "../support/raw_client.ts";
import { defaultLimits } from "../support/limits.ts";

/** One GET, answered with `reply` to a client that sends no window update. */
async function answered(
  reply: Reply,
  before: (stream: ServerHttp2Stream) => void = () => {},
  clock = manualClock(),
): Promise<RawSession> {
  const server = http2.createServer();
  server.on("session", (session) => session.on("error", () => {}));
  server.on("stream", (stream: ServerHttp2Stream, _headers: object, _flags: number, block: string[]) => {
    stream.on("error", () => {});
    const options = { clock, proxies: null, limits: defaultLimits };
    const inbound = receiveStream(stream, block, true, connectionOf(stream.session!.socket as Socket), options);
    before(stream);
    respondStream(
      stream,
      inbound,
      reply,
      { clock, watch: new DeadlineTimer(clock), idleMs: 60_000, leastBytesPerS: () => 0 },
      (code) => resetStream(stream, code),
    );
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

const sent = (talk: RawSession) =>
  talk.frames.filter(({ type }) => type === DATA).reduce((sum, { payload }) => sum + payload.length, 0);

function number64(value: number): Buffer {
  return Buffer.concat([Buffer.alloc(4), number32(value)]);
}

it.each<[string, () => Reply]>([
  ["at hand", () => ({ status: 200, headers: [], body: large })],
  ["from a stream that has ended", () => ({ status: 200, headers: [], body: Readable.from([large]) })],
  [
    "from a stream that goes on",
    () => ({
      status: 200,
      headers: [],
      body: new PassThrough({ highWaterMark: 1 }).on("newListener", function (this: PassThrough, name) {
        if (name === "data") this.write(large);
      }),
    }),
  ],
])(
  "resets the stream with CANCEL when a client leaves the rest of a body %s unread for idleMs, even if it sends PINGs",
  async (_which, reply) => {
    const clock = manualClock();
    const talk = await answered(reply(), undefined, clock);
    await talk.until(() => sent(talk) === 65_535);
    await eventually(() => clock.pending > 0, "the deadline");
    for (let at = 0; at < 60_000; at += 10_000) {
      expect(talk.frames.some(({ type }) => type === RST_STREAM)).toBe(false);
      talk.send(frame(PING, 0, 0, number64(at)));
      await talk.until(
        ({ type, flags, payload }) => type === PING && (flags & ACK) !== 0 && payload.equals(number64(at)),
      );
      clock.advance(10_000);
    }
    expect(await talk.reset(1)).toBe(CODES.CANCEL);
    expect(sent(talk)).toBe(65_535);
  },
);

it("does not cut off a client that reads a body slowly", async () => {
  const clock = manualClock();
  const talk = await answered({ status: 200, headers: [], body: Buffer.alloc(200_000) }, undefined, clock);
  for (const all of [65_535, 131_070, 196_605]) {
    await talk.until(() => sent(talk) === all);
    clock.advance(59_000);
    talk.send(frame(WINDOW_UPDATE, 0, 0, number32(65_535)), frame(WINDOW_UPDATE, 0, 1, number32(65_535)));
  }
  await talk.until(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0);
  expect(sent(talk)).toBe(200_000);
});

it.each<[string, string, string[]]>([
  ["longer", "4", ["four"]],
  ["shorter", "12", ["four", "more"]],
])(
  "resets a body that is %s than its Content-Length with INTERNAL_ERROR, without END_STREAM or a surplus byte",
  async (_how, length, parts) => {
    const body = Readable.from(["four", "more"].map((part) => Buffer.from(part)));
    const talk = await answered({ status: 200, headers: ["Content-Length", length], body });
    expect(await talk.reset(1)).toBe(CODES.INTERNAL_ERROR);
    const data = talk.frames.filter(({ type }) => type === DATA);
    expect(parts.join("")).toContain(Buffer.concat(data.map(({ payload }) => payload)).toString());
    expect(data.some(({ flags }) => (flags & END_STREAM) !== 0)).toBe(false);
  },
);

it.each([[204], [205], [304]])("sends a %i without a body, even if a plugin provides a body", async (status) => {
  const body = Readable.from([Buffer.from("four")]);
  const talk = await answered({ status, headers: [], body });
  await talk.until(({ type, flags }) => type === HEADERS && (flags & END_STREAM) !== 0);
  expect(body.destroyed).toBe(true);
});

it("corrects the Content-Length of a body that is a buffer", async () => {
  const talk = await answered({ status: 200, headers: ["Content-Length", "99"], body: Buffer.from("four") });
  const { payload } = await talk.until(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0);
  expect(payload.toString()).toBe("four");
  expect(talk.frames.some(({ type }) => type === RST_STREAM)).toBe(false);
});

it("sends an error reply if the body fails before anything was sent", async () => {
  const body = new Readable({ read() {} }).on("error", () => {});
  body.destroy(new Error("gone"));
  const talk = await answered({ status: 200, headers: [], body });
  const { payload } = await talk.until(({ type }) => type === DATA);
  expect(JSON.parse(payload.toString())).toMatchObject({ status: 502, code: "upstream_reset" });
});

it("resets a reply whose body fails with INTERNAL_ERROR, without END_STREAM before it", async () => {
  const body = new Readable({ read() {} });
  const talk = await answered({ status: 200, headers: [], body });
  body.push("part");
  await talk.until(({ type }) => type === DATA);
  body.destroy(new Error("gone"));
  expect(await talk.reset(1)).toBe(CODES.INTERNAL_ERROR);
  expect(talk.frames.filter(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0)).toEqual([]);
});

it(
  "sends at most sixteen informational responses, no 101, " + "none with a line break, and none after the head",
  async () => {
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
  },
);

/**
 * HTTP/2 upstreams that break the protocol, or fall silent, cost their own requests only: the pool gets every lease and
 * every connection back.
 */
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import {
  block,
  frame,
  frameReader,
  ACK,
  CODES,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  GOAWAY,
  HEADERS,
  number32,
  PING,
  RST_STREAM,
  SETTINGS,
  WINDOW_UPDATE,
} from "../support/h2_raw.ts";
import { runningProgram } from "../support/process.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { byteBackend, codeIn } from "./harness.ts";

const PREFACE_BYTES = 24;
/** ENABLE_CONNECT_PROTOCOL. */
const OPEN_TO_WEBSOCKETS = Buffer.from([0, 8, 0, 0, 0, 1]);
const OK = (stream: number) => frame(HEADERS, END_HEADERS, stream, block([[":status", "200"]]));
const GOOD = (stream: number) => Buffer.concat([OK(stream), frame(DATA, END_STREAM, stream, Buffer.from("good"))]);
const DATA_OF = (stream: number, text: string) => frame(DATA, END_STREAM, stream, Buffer.from(text));
/** More than SETTINGS_MAX_FRAME_SIZE: a connection error (RFC 9113 §4.2). */
const TOO_LONG = (stream: number) => frame(HEADERS, END_HEADERS | END_STREAM, stream, Buffer.alloc(20_000));

/** Answers each request of its nth connection, from 0, with `answer`, and PINGs if it returns "alive". */
async function h2cUpstream(answer: (stream: number, socket: Socket, nth: number) => "alive" | "silent") {
  let made = 0;
  return byteBackend((socket) => {
    const nth = made++;
    let state = "alive";
    socket.write(frame(SETTINGS, 0, 0, OPEN_TO_WEBSOCKETS));
    const read = frameReader(({ type, stream, flags, payload }) => {
      if (state === "alive" && type === SETTINGS && (flags & ACK) === 0) socket.write(frame(SETTINGS, ACK, 0));
      if (state === "alive" && type === PING && (flags & ACK) === 0) socket.write(frame(PING, ACK, 0, payload));
      if (type === HEADERS) state = answer(stream, socket, nth);
    }, PREFACE_BYTES);
    socket.on("data", read);
  });
}

const WEBSOCKET = [
  "GET /a/ws HTTP/1.1",
  "Host: h",
  "Connection: Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Version: 13",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  "",
  "",
].join("\r\n");

describe("an HTTP/2 upstream that breaks the protocol", () => {
  it.each([
    {
      title: "behind the end of a WebSocket",
      before: (stream: number) =>
        Buffer.concat([OK(stream), frame(DATA, 0, stream, Buffer.from("hello")), frame(DATA, END_STREAM, stream)]),
    },
    {
      title: "in the middle of a WebSocket",
      before: (stream: number) => Buffer.concat([OK(stream), frame(DATA, 0, stream, Buffer.from("hello"))]),
    },
  ])(
    "loses its connection when the client leaves, and the next request gets another one: $title",
    async ({ before }) => {
      const upstream = await h2cUpstream((stream, socket, nth) => {
        if (nth > 0) socket.write(GOOD(stream));
        else socket.write(Buffer.concat([before(stream), TOO_LONG(stream)]));
        return nth > 0 ? "alive" : "silent";
      });
      const { gateway, port } = await running(
        oneService(upstream.port, { protocol: "h2c", pool: { max_connections: 1 }, timeouts: { connect_ms: 4000 } }),
      );
      const client = await connect(port);
      client.socket.on("error", () => {});
      client.send(WEBSOCKET);
      await client.until("hello");
      client.socket.destroy();
      const answer = await ask(port, { path: "/a/x" });
      expect(`${answer.status} ${answer.body}`).toBe("200 good");
      await eventually(() => gateway.health.services[0]!.upstreams[0]!.inFlight === 0, "every lease being given back");
      await eventually(() => upstream.sockets.size === 1, "the connection being closed");
    },
  );

  it.each(["099", "000"])("gives the client a 502 upstream_invalid for status %s", async (status) => {
    const upstream = await h2cUpstream((stream, socket) => {
      socket.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, block([[":status", status]])));
      return "alive";
    });
    const { port } = await running(oneService(upstream.port, { protocol: "h2c" }));
    const answer = await ask(port, { path: "/a/x" });
    expect(`${answer.status} ${codeIn(answer.body.toString())}`).toBe("502 upstream_invalid");
  });

  it.each([
    { what: "a body shorter than its Content-Length", behind: (stream: number) => DATA_OF(stream, "abc") },
    { what: "a body longer than its Content-Length", behind: (stream: number) => DATA_OF(stream, "abcdefgh") },
    { what: "no body for its Content-Length", behind: () => Buffer.alloc(0) },
    { what: "a reset", behind: (stream: number) => frame(RST_STREAM, 0, stream, number32(CODES.INTERNAL_ERROR)) },
  ])("gives the client a 502 where the head comes in one packet with $what", async ({ behind }) => {
    const upstream = await h2cUpstream((stream, socket) => {
      const fields = block([
        [":status", "200"],
        ["content-length", "5"],
      ]);
      const rest = behind(stream);
      const flags = rest.length === 0 ? END_HEADERS | END_STREAM : END_HEADERS;
      socket.write(Buffer.concat([frame(HEADERS, flags, stream, fields), rest]));
      return "alive";
    });
    const { port } = await running(oneService(upstream.port, { protocol: "h2c" }));
    expect((await ask(port, { path: "/a/x" })).status).toBe(502);
  });

  it("does not keep the program from ending, when clients have left in the middle of it", async () => {
    const hello = (stream: number, flags: number) =>
      Buffer.concat([OK(stream), frame(DATA, flags, stream, Buffer.from("hello"))]);
    const ways = [
      (stream: number) =>
        Buffer.concat([hello(stream, END_STREAM), frame(HEADERS, END_HEADERS, stream, Buffer.alloc(16_383, 0x37))]),
      (stream: number) => Buffer.concat([hello(stream, END_STREAM), TOO_LONG(stream)]),
      (stream: number) => Buffer.concat([hello(stream, 0), Buffer.alloc(500, 0x9b)]),
      (stream: number) =>
        Buffer.concat([hello(stream, 0), frame(CONTINUATION, END_HEADERS, stream, Buffer.alloc(10, 0x82))]),
      (stream: number) => Buffer.concat([OK(stream), frame(GOAWAY, 0, 0, Buffer.from([0, 0, 0, 0, 0, 0, 0, 11]))]),
      (stream: number) => Buffer.concat([OK(stream), frame(WINDOW_UPDATE, 0, 0, Buffer.alloc(4))]),
    ];
    let asked = 0;
    const upstream = await byteBackend((socket) => {
      socket.write(frame(SETTINGS, 0, 0, OPEN_TO_WEBSOCKETS));
      const read = frameReader(({ type, stream, flags }) => {
        if (type === SETTINGS && (flags & ACK) === 0) socket.write(frame(SETTINGS, ACK, 0));
        // Another PING's answer.
        if (type === PING && (flags & ACK) === 0) socket.write(frame(PING, ACK, 0, Buffer.alloc(8)));
        if (type === HEADERS) socket.write(ways[++asked % ways.length]!(stream));
      }, PREFACE_BYTES);
      socket.on("data", read);
    });
    const { child, port, ended, says } = await runningProgram(oneService(upstream.port, { protocol: "h2c" }), [
      "--shutdown-grace-s",
      "1",
    ]);
    const leave = async (i: number) => {
      const { socket, send } = await connect(port);
      socket.on("error", () => {});
      send(i % 3 === 0 ? "GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n" : `${WEBSOCKET}abc`);
      setTimeout(() => socket.destroy(), 30 * (1 + (i % 7)));
      await new Promise((resolve) => socket.once("close", resolve));
    };
    const lane = async (_: unknown, nth: number) => {
      for (let i = nth; asked < 300; i += 24) await leave(i);
    };
    await Promise.race(Array.from({ length: 24 }, lane));
    child.kill("SIGTERM");
    await says('"stopped"', "stderr");
    expect(await ended).toMatchObject({ code: 0, signal: null });
  });
});

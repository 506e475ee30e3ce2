/**
 * Clients whose bytes are read into the same memory: what one of them sends never becomes a part of another one's
 * request.
 */
import http, { type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { expect, it } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import { turn } from "../support/loopback.ts";
import { ask, eventually, type RawConnection } from "../support/raw_client.ts";
import { byteBackend, client, gate, get, rawBackend } from "./harness.ts";

const FILL = Buffer.alloc(128 * 1024, "Z");

/** Sends the message in pieces of `size` bytes; after each the other client fills the memory of a whole read. */
async function inPieces(message: string, size: number, to: RawConnection, other: RawConnection): Promise<void> {
  for (let at = 0; at < message.length; at += size) {
    to.send(message.slice(at, at + size));
    for (let i = 0; i < 4; i++) await turn();
    other.discard();
    other.send(`POST /a/other HTTP/1.1\r\nHost: h\r\nContent-Length: ${FILL.length}\r\n\r\n`);
    other.send(FILL);
    await other.until("answered");
  }
}

const CHUNKED =
  `POST /a/x HTTP/1.1\r\nHost: h\r\nX-One: first\r\nTransfer-Encoding: ` +
  `chunked\r\n\r\n${"9;x=y\r\nbody part\r\n".repeat(4)}0\r\nX-Trailer: last\r\n\r\n`;
const SIZED = `POST /a/x HTTP/1.1\r\nHost: h\r\nX-One: first\r\nContent-Length: 60\r\n\r\n${"0123456789".repeat(6)}`;
const sized = { one: "first", body: "0123456789".repeat(6), trailer: undefined };

it.each([
  ["a chunked body with trailers", CHUNKED, [{ one: "first", body: "body part".repeat(4), trailer: "last" }]],
  ["a body with a length", SIZED, [sized]],
  ["requests one behind the other", SIZED.repeat(3), [sized, sized, sized]],
])("%s, in pieces between reads of another client, arrives as it was sent", async (_name, message, expected) => {
  for (const size of [7, 61, message.length]) {
    const received: unknown[] = [];
    const { port } = await rawBackend((request, response) => {
      let body = "";
      request.on("data", (chunk: Buffer) => void (body += chunk.toString("latin1")));
      request.on("end", () => {
        if (request.url === "/x")
          received.push({ one: request.headers["x-one"], body, trailer: request.trailers["x-trailer"] });
        response.end("answered");
      });
    });
    const gateway = await running(oneService(port));
    const [to, other] = [await client(gateway.port), await client(gateway.port)];
    await inPieces(message, size, to, other);
    await to.until(new RegExp("answered[^]*".repeat(expected.length)));
    expect(received).toEqual(expected);
  }
});

it("a small body that waits for a plugin is not overwritten by what another client sends meanwhile", async () => {
  const { port } = await rawBackend((request, response) => void request.pipe(response));
  const plugins = [{ name: "fault", config: { delay_ms: 100 } }];
  const gateway = await running(oneService(port, { routes: [{ path: "/x", plugins }, { path: "/other" }] }));
  const [to, other] = [await client(gateway.port), await client(gateway.port)];
  to.send(SIZED);
  for (let i = 0; i < 4; i++) await turn();
  other.send(`POST /a/other HTTP/1.1\r\nHost: h\r\nContent-Length: ${FILL.length}\r\n\r\n`);
  other.send(FILL);
  expect(await to.until("0123456789".repeat(6))).not.toContain("ZZ");
});

it.each([1, 2])(
  "the next request, which arrives in %i reads while the first one waits, " +
    "is not overwritten by what another client sends meanwhile",
  async (reads) => {
    const received: (string | undefined)[] = [];
    const { port } = await rawBackend((request, response) => {
      if (request.url !== "/other") received.push(request.url);
      request.resume().on("end", () => response.end("answered"));
    });
    const plugins = [{ name: "fault", config: { delay_ms: 100 } }];
    const gateway = await running(
      oneService(port, { routes: [{ path: "/x", plugins }, { path: "/next" }, { path: "/other" }] }),
    );
    const [to, other] = [await client(gateway.port), await client(gateway.port)];
    const next = get("/a/next");
    const middle = Math.ceil(next.length / reads);
    for (const piece of [get("/a/x"), next.slice(0, middle), next.slice(middle)]) {
      to.send(piece);
      for (let i = 0; i < 4; i++) await turn();
    }
    other.send(`POST /a/other HTTP/1.1\r\nHost: h\r\nContent-Length: ${FILL.length}\r\n\r\n`);
    other.send(FILL);
    await to.until(/answered[^]*answered/);
    expect(received).toEqual(["/x", "/next"]);
  },
);

const UPGRADE = [
  "Connection: Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  "Sec-WebSocket-Version: 13",
];
const YES =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
  "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

it(
  "a message of a WebSocket that arrives before the upstream has answered is not overwritten by what " +
    "another client sends meanwhile",
  async () => {
    const answering = gate<Socket>();
    let text = "";
    const upstream = await byteBackend((socket) => {
      socket.once("data", (chunk: Buffer) => {
        if (chunk.toString("latin1").startsWith("POST /other"))
          return void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nanswered");
        socket.on("data", (more: Buffer) => void (text += more.toString("latin1")));
        answering.open(socket);
      });
    });
    const gateway = await running(oneService(upstream.port));
    const [to, other] = [await client(gateway.port), await client(gateway.port)];
    to.send(get("/a/x", ...UPGRADE));
    const socket = await answering.opened;
    to.send("0123456789");
    for (let i = 0; i < 20; i++) await turn();
    other.send(`POST /a/other HTTP/1.1\r\nHost: h\r\nContent-Length: ${FILL.length}\r\n\r\n`);
    other.send(FILL);
    await other.until("answered");
    socket.write(YES);
    await eventually(() => text.length >= 10, "what waited");
    expect(text).toBe("0123456789");
  },
);

/** More than the buffers of sockets hold. */
const LARGE = "0123456789".repeat(1_000_000);

it.each([
  ["a large body", `POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: ${LARGE.length}\r\n\r\n`],
  ["a WebSocket, and what follows its request,", `${get("/a/x", ...UPGRADE)}0123456789`],
])("%s that waits for its upstream is not overwritten by what another client sends meanwhile", async (_name, head) => {
  let wholeAt = Infinity;
  let text = "";
  const stalled = gate<Socket>();
  const upstream = await byteBackend((socket) => {
    socket.once("data", (chunk: Buffer) => {
      const first = chunk.toString("latin1");
      if (first.startsWith("POST /other"))
        return void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nanswered");
      const end = first.indexOf("\r\n\r\n") + 4;
      text = first.slice(end);
      wholeAt = LARGE.length + (head.startsWith("GET") ? 10 : 0);
      if (head.startsWith("GET")) socket.write(YES);
      socket.pause();
      socket.on("data", (more: Buffer) => void (text += more.toString("latin1")));
      stalled.open(socket);
    });
  });
  const gateway = await running(oneService(upstream.port));
  const [to, other] = [await client(gateway.port), await client(gateway.port)];
  to.send(head);
  if (head.startsWith("GET")) await to.until("101 Switching");
  to.send(LARGE);
  const socket = await stalled.opened;
  for (let i = 0; i < 200; i++) await turn();
  other.send(`POST /a/other HTTP/1.1\r\nHost: h\r\nContent-Length: ${FILL.length}\r\n\r\n`);
  other.send(FILL);
  await other.until("answered");
  socket.resume();
  await eventually(() => text.length >= wholeAt, "all bytes");
  expect(text.replaceAll("0123456789", "")).toBe("");
});

/** Bytes of every value, another row for each client. */
function pattern(client: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  // Not by `Array.from`, which takes half a second for 4 MB, twenty times.
  for (let i = 0; i < length; i++) bytes[i] = i * 7 + (i >> 8) + client * 31;
  return bytes;
}

/** In pieces of sizes below and above those that are sent in another way. */
const SIZES = [1, 100, 99, 1023, 1024, 100, 1025, 4096, 4097, 100, 16_384, 3, 40_000];
const ROUNDS = 60;

it.each(["chunked", "until its length"])(
  "small and large pieces of replies, %s, reach each client as they were sent, whether it reads or waits",
  async (framing) => {
    const total = SIZES.reduce((sum, size) => sum + size, 0) * ROUNDS;
    const { port } = await rawBackend((request, response) => {
      const bytes = pattern(Number(request.url!.slice(1)), total);
      if (framing !== "chunked") response.setHeader("Content-Length", total);
      const send = async () => {
        let at = 0;
        for (let i = 0; at < total; i++) {
          const isFree = response.write(bytes.subarray(at, (at += SIZES[i % SIZES.length]!)));
          if (isFree) await turn();
          else await new Promise((resolve) => response.once("drain", resolve));
        }
        response.end();
      };
      void send();
    });
    const gateway = await running(oneService(port));
    const slow = await Promise.all(
      [1, 2].map(
        (i) =>
          new Promise<IncomingMessage>((resolve) => void http.get({ port: gateway.port, path: `/a/${i}` }, resolve)),
      ),
    );
    const answers = await Promise.all([3, 4, 5].map((i) => ask(gateway.port, { path: `/a/${i}` })));
    for (const [i, { body }] of answers.entries()) expect(body.equals(pattern(i + 3, total))).toBe(true);
    for (const [i, message] of slow.entries()) {
      const parts: Buffer[] = [];
      for await (const part of message) parts.push(part as Buffer);
      expect(Buffer.concat(parts).equals(pattern(i + 1, total))).toBe(true);
    }
  },
);

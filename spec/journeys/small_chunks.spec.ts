/** A body in chunks of one byte costs no more than any other: one piece of it is forwarded for each read. */
import net from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import { blocksOf, counted } from "../support/growth.ts";
import { block, DATA, END_HEADERS, END_STREAM, frame, GET, HEADERS, PREFACE, SETTINGS } from "../support/h2_raw.ts";
import { codec } from "../support/codec.ts";
import { eventually } from "../support/raw_client.ts";
import { byteBackend, client } from "./harness.ts";

/** More than the blocks of code that are executed for each chunk received: 35, or 11 of a reply in our own codec. */
const BLOCKS = 50;

/** About this many bytes of wire, in chunks of this size. */
const WIRE = 300_000;
const inChunks = (size: number) => {
  const one = `${size.toString(16)}\r\n${"x".repeat(size)}\r\n`;
  return `${one.repeat(WIRE / one.length)}0\r\n\r\n`;
};
const END = "\r\n0\r\n\r\n";

/** An upstream that answers an upload when it is whole, and a GET with a body in chunks of the asked size. */
async function upstreams() {
  const uploads: string[] = [];
  const upstream = await byteBackend((socket) => {
    let received = "";
    socket.on("data", (chunk: Buffer) => {
      received += chunk.toString("latin1");
      if (received.startsWith("POST") ? !received.endsWith(END) : !received.includes("\r\n\r\n")) return;
      const size = Number(/\/(\d+) /.exec(received)?.[1]);
      if (received.startsWith("POST")) {
        uploads.push(received);
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
      } else socket.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${inChunks(size)}`);
      received = "";
    });
  });
  return { port: upstream.port, uploads };
}

const chunksIn = (text: string) => text.split("\r\n").filter((line) => /^[0-9a-f]+$/.test(line)).length;

it.runIf(codec === "wire")(
  "forwards an upload in chunks of one byte as few large chunks, for few steps a chunk",
  async () => {
    const { port, uploads } = await upstreams();
    const fresh = await counted(() => import("../support/gateway.ts"));
    const made = await fresh.running(oneService(port));
    const cost = async (size: number) => {
      const talk = await client(made.port);
      const bytes = Buffer.from(
        `POST /a/${size} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n${inChunks(size)}`,
      );
      return blocksOf(async () => {
        talk.discard();
        talk.send(bytes);
        await talk.until("done");
      });
    };
    expect((await cost(1)) / chunksIn(inChunks(1))).toBeLessThan(BLOCKS);
    const sent = uploads.at(-1)!;
    expect(chunksIn(sent)).toBeLessThan(200);
    expect(sent.length).toBeLessThan(WIRE / 5);
  },
);

it("forwards an upload over HTTP/2 in frames of one byte as few large chunks", async () => {
  const { port, uploads } = await upstreams();
  const made = await running(oneService(port, {}, { h2c: true }));
  const upload: typeof GET = [[":method", "POST"], ...GET.slice(1)];
  const socket = net.connect(made.port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  const frames = Buffer.concat(Array<Buffer>(20_000).fill(frame(DATA, 0, 1, Buffer.from("x"))));
  socket.write(
    Buffer.concat([
      PREFACE,
      frame(SETTINGS, 0, 0),
      frame(HEADERS, END_HEADERS, 1, block(upload)),
      frames,
      frame(DATA, END_STREAM, 1),
    ]),
  );
  await eventually(() => uploads.length === 1);
  expect(chunksIn(uploads[0]!)).toBeLessThan(400);
  expect(uploads[0]!.length).toBeLessThan(25_000);
});

it("forwards a response in chunks of one byte as few large chunks, for few steps a chunk", async () => {
  const { port } = await upstreams();
  const fresh = await counted(() => import("../support/gateway.ts"));
  const made = await fresh.running(oneService(port));
  let received = "";
  const cost = async (size: number) => {
    const talk = await client(made.port);
    return blocksOf(async () => {
      talk.discard();
      talk.send(`GET /a/${size} HTTP/1.1\r\nHost: h\r\n\r\n`);
      received = await talk.until(END);
    });
  };
  expect((await cost(1)) / chunksIn(inChunks(1))).toBeLessThan(BLOCKS);
  expect(chunksIn(received)).toBeLessThan(200);
  expect(received.length).toBeLessThan(WIRE / 5);
});

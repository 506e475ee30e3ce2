/**
 * Text that is written past the stream of its connection arrives as it would by the stream, whatever its reader does.
 */
import { once } from "node:events";
import type { Socket } from "node:net";
import { beforeEach, expect, it } from "vitest";
import { writeText } from "../../lib/base/event_loop.ts";
import { pair, turn } from "../support/loopback.ts";
import { eventually } from "../support/raw_client.ts";

let near: Socket;
let far: Socket;
/** Calls of the stream's own write. */
let byStream: number;

beforeEach(async () => {
  ({ near, far } = await pair({ allowHalfOpen: true }));
  near.setNoDelay(true);
  // From the first write of all Node's class of requests is taken.
  writeText(near, "-");
  await once(far.resume(), "data");
  byStream = 0;
  const write = near._write.bind(near);
  near._write = (chunk, encoding, done) => {
    byStream++;
    write(chunk, encoding, done);
  };
});

function readingAll(): { text: string } {
  const read = { text: "" };
  far.on("data", (chunk: Buffer) => void (read.text += chunk.toString("latin1"))).resume();
  return read;
}

const LARGE = Array.from({ length: 16 }, (_none, i) => String.fromCharCode(0xe0 + i).repeat(1024 * 1024)).join("");

it("text that the system takes at once is not seen by the stream, one byte a character", async () => {
  const read = readingAll();
  writeText(near, "caf\xe9;");
  expect([near.writableLength, byStream]).toEqual([0, 0]);
  near.write("then;");
  writeText(near, "last");
  await eventually(() => read.text.length === 14, "all of it");
  expect(read.text).toBe("caf\xe9;then;last");
});

it(
  "what a reader does not take at once is the stream's: it counts, " + "the rest waits in order behind it, and drains",
  async () => {
    far.pause();
    writeText(near, LARGE);
    expect([near.writableLength, byStream]).toEqual([LARGE.length, 0]);
    expect(near.writableNeedDrain).toBe(true);
    const drained = once(near, "drain");
    writeText(near, "second;");
    near.write("third;");
    const flushed = new Promise((resolve) => near.write("fourth", resolve));
    for (let i = 0; i < 10; i++) await turn();
    expect(near.writableLength).toBe(LARGE.length + 19);
    const read = readingAll();
    await Promise.all([drained, flushed]);
    expect(near.writableLength).toBe(0);
    writeText(near, ";fifth");
    await eventually(() => read.text.length === LARGE.length + 25, "all of it");
    expect(read.text === `${LARGE}second;third;fourth;fifth`).toBe(true);
  },
);

it("two connections whose readers take nothing get each its own text, and so does a third one meanwhile", async () => {
  const others = [await pair(), await pair()] as const;
  const texts = ["1", "2"].map((digit) => digit.repeat(LARGE.length));
  far.pause();
  others[0].far.pause();
  writeText(near, texts[0]!);
  writeText(others[0].near, texts[1]!);
  const third = once(others[1].far, "data") as Promise<[Buffer]>;
  writeText(others[1].near, "third");
  expect((await third)[0].toString()).toBe("third");
  const read = [readingAll(), { text: "" }];
  others[0].far.on("data", (chunk: Buffer) => void (read[1]!.text += chunk.toString("latin1"))).resume();
  await eventually(() => read.every(({ text }) => text.length === LARGE.length), "all of both");
  expect(read.map(({ text }, i) => text === texts[i])).toEqual([true, true]);
});

it(
  "a write that the system took at the second try, so that its queue is empty, " +
    "is not told to another connection as the end of that one's",
  async () => {
    const other = await pair();
    const { _handle: handle } = near as unknown as { readonly _handle: object };
    // The moment cannot be made: between the two tries the reader takes all that was in its way.
    Object.defineProperty(handle, "writeQueueSize", { configurable: true, value: 0 });
    far.pause();
    other.far.pause();
    writeText(near, LARGE);
    Reflect.deleteProperty(handle, "writeQueueSize");
    writeText(other.near, LARGE);
    const read = readingAll();
    await eventually(() => read.text.length === LARGE.length, "the first");
    await eventually(() => near.writableLength === 0, "its end");
    for (let i = 0; i < 4; i++) await turn();
    expect(other.near.writableLength).toBe(LARGE.length);
    let length = 0;
    other.far.on("data", (chunk: Buffer) => void (length += chunk.length)).resume();
    await eventually(() => length === LARGE.length && other.near.writableLength === 0, "the second");
    expect(other.near.destroyed).toBe(false);
  },
);

it("an end behind text that waits comes after all of it", async () => {
  far.pause();
  writeText(near, LARGE);
  near.end("end");
  const read = readingAll();
  await once(far, "end");
  expect(read.text === `${LARGE}end`).toBe(true);
});

it("text behind a corked write, and to a connection that is ended, is left to the stream", async () => {
  const read = readingAll();
  near.cork();
  near.write("one;");
  writeText(near, "two;");
  near.uncork();
  await eventually(() => read.text.length === 8, "both");
  expect(read.text).toBe("one;two;");
  near.end();
  const failed = once(near, "error") as Promise<[NodeJS.ErrnoException]>;
  writeText(near, "late");
  expect((await failed)[0].code).toBe("ERR_STREAM_WRITE_AFTER_END");
});

it.each(["near", "far"])(
  "a connection that its %s side breaks off in the middle closes, and what comes later is an error of the stream",
  async (side) => {
    far.pause();
    near.on("error", () => {});
    writeText(near, LARGE);
    writeText(near, "behind");
    if (side === "near") near.destroy();
    else far.resetAndDestroy();
    await eventually(() => near.closed, "the end");
    expect(near.destroyed).toBe(true);
    writeText(near, "late");
  },
);

it("a reset is reported once, with the system's code", async () => {
  const errors: (string | undefined)[] = [];
  near.on("error", (error: NodeJS.ErrnoException) => void errors.push(error.code));
  far.resetAndDestroy();
  await eventually(() => (writeText(near, "text"), near.closed), "the end");
  writeText(near, "late");
  for (let i = 0; i < 4; i++) await turn();
  expect(errors.filter((code) => code === "EPIPE" || code === "ECONNRESET")).toHaveLength(1);
});

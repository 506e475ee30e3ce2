import { setImmediate as nextRound } from "node:timers/promises";
import { expect, it } from "vitest";
import { withHead, LentBody, lentCopy } from "../../lib/http/lent_body.ts";
import { ownBody } from "../../lib/server/reply_headers.ts";

/** A body of `text` in memory that is overwritten as soon as it is given back. */
function lending(text: string) {
  const memory = Buffer.from(text);
  const seen = { givenBack: 0 };
  const body = new LentBody(memory, () => {
    seen.givenBack++;
    memory.fill("x");
  });
  return { body, memory, seen };
}

it("a lent body gives its sender the original bytes until they are returned", () => {
  const { body, memory, seen } = lending("abc");
  expect(body.byteLength).toBe(3);
  expect(body.bytes).toBe(memory);
  expect(body.lend()).toBe(memory);
  expect(seen.givenBack).toBe(0);
  body.giveBack();
  expect(body.isLent).toBe(true);
  body.giveBack();
  expect(seen.givenBack).toBe(1);
});

it("a lent body cannot be lent again or read, and keeps its memory when the stream is destroyed", async () => {
  const { body, seen } = lending("abc");
  body.lend();
  expect(body.isLent).toBe(true);
  expect(body.bytes).toBeNull();
  expect(body.lend()).toBeNull();
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk as Buffer);
  expect(chunks).toEqual([]);
  body.destroy();
  await nextRound();
  expect(seen.givenBack).toBe(0);
});

it("a lent body gives readers of the stream a copy, and returns its memory", async () => {
  const { body, seen } = lending("abc");
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk as Buffer);
  expect(Buffer.concat(chunks).toString()).toBe("abc");
  expect(seen.givenBack).toBe(1);
});

it("a lent body gives its sender a copy to keep, and returns its memory", () => {
  const { body, seen } = lending("abc");
  expect(body.isLent).toBe(false);
  expect(String(ownBody(body))).toBe("abc");
  expect(body.isLent).toBe(true);
  expect(seen.givenBack).toBe(1);
  expect(body.bytes).toBeNull();
});

it.each<[string, (body: LentBody) => unknown]>([
  ["listens for its bytes", (body) => body.on("data", () => {})],
  ["waits for its end", (body) => body.once("end", () => {})],
  ["waits for somebody to read", (body) => body.on("newListener", () => {})],
  ["can read", (body) => body.on("readable", () => {})],
  ["has read", (body) => body.read()],
  ["has let it flow", (body) => body.resume()],
  ["has paused it", (body) => body.pause()],
  ["pipes it", (body) => body.pipe(process.stderr, { end: false })],
  ["has destroyed it", (body) => body.destroy()],
  ["hears of its errors", (body) => body.on("error", () => {}).on("close", () => {})],
])("a body cannot be lent after a caller %s", async (_who, touch) => {
  const { body } = lending("");
  touch(body);
  expect(body.isLent).toBe(false);
  expect(body.bytes).toBeNull();
  expect(body.lend()).toBeNull();
  expect(body.isLent).toBe(false);
  await nextRound();
});

it("a lent body returns its memory when it is destroyed unread, without an unhandled error", async () => {
  const { body, seen } = lending("abc");
  body.destroy(new Error("given up"));
  await nextRound();
  expect(seen.givenBack).toBe(1);
});

it("a sender that keeps bytes gets a copy of an untouched lent body, and any other body unchanged", () => {
  const { body, seen } = lending("abc");
  expect(String(ownBody(body))).toBe("abc");
  expect(seen.givenBack).toBe(1);
  const read = lending("abc").body.pause();
  expect(ownBody(read)).toBe(read);
  const bytes = Buffer.from("abc");
  expect([ownBody(bytes), ownBody(null)]).toEqual([bytes, null]);
});

/** Longer than what is a part of a larger block. */
const long = (text: string) => Buffer.from(text.repeat(1000));

it("a copy that is lent has its own memory, which another one gets once it is given back", () => {
  const read = long("first");
  const [first, second] = [lentCopy(read), lentCopy(long("other"))];
  const [firstBytes, secondBytes] = [first.lend()!, second.lend()!];
  read.fill("x");
  expect([firstBytes, secondBytes]).toEqual([long("first"), long("other")]);
  expect(secondBytes.buffer).not.toBe(firstBytes.buffer);
  first.giveBack();
  first.giveBack();
  const [third, fourth] = [lentCopy(long("third")).lend()!, lentCopy(long("forth")).lend()!];
  expect(third.buffer).toBe(firstBytes.buffer);
  expect(fourth.buffer).not.toBe(third.buffer);
  expect([secondBytes, third, fourth]).toEqual([long("other"), long("third"), long("forth")]);
});

it("a small copy that is lent stays as it is when it is given back", () => {
  const body = lentCopy(Buffer.alloc(4096, "a"));
  const bytes = body.lend()!;
  body.giveBack();
  for (let i = 0; i < 100; i++) lentCopy(Buffer.alloc(4096, "b"));
  expect(bytes).toEqual(Buffer.alloc(4096, "a"));
});

const HEAD_ROOM = 1024;

it("what was lent is written behind its head from the same memory, whose next body has nothing of it", () => {
  const body = lentCopy(long("first"));
  const bytes = body.lend()!;
  const parts = withHead("a head that is the longer one;", bytes) as Buffer[];
  expect(parts.map(String)).toEqual([`a head that is the longer one;${String(long("first"))}`]);
  expect([parts[0]!.buffer, bytes]).toEqual([bytes.buffer, long("first")]);
  // Sent again over another connection, perhaps with another head.
  expect(withHead("caf\xe9;", bytes).map((part) => (part as Buffer).toString("latin1"))).toEqual([
    `caf\xe9;${String(long("first"))}`,
  ]);
  body.giveBack();
  const next = lentCopy(long("other")).lend()!;
  expect(next.buffer).toBe(bytes.buffer);
  expect(withHead("head;", next).map(String)).toEqual([`head;${String(long("other"))}`]);
});

it.each([
  [HEAD_ROOM, 1],
  [HEAD_ROOM + 1, 2],
  [16_384, 2],
])("a head of %i bytes and a body that was lent are %i parts", (length, parts) => {
  const bytes = lentCopy(long("bytes")).lend()!;
  const all = withHead("h".repeat(length), bytes);
  expect([all.length, all.map(String).join("")]).toEqual([parts, "h".repeat(length) + String(long("bytes"))]);
});

it("a small body and its head are one text", () => {
  const body = Buffer.from(Array.from({ length: 256 }, (_none, i) => i));
  const parts = withHead("caf\xe9;", lentCopy(body).lend()!) as string[];
  expect(parts.map((part) => Buffer.from(part, "latin1"))).toEqual([
    Buffer.concat([Buffer.from("caf\xe9;", "latin1"), body]),
  ]);
});

it("nothing is written into memory in front of bytes that is not theirs", () => {
  const others = Buffer.alloc(8192, "o");
  const bytes = others.subarray(HEAD_ROOM, HEAD_ROOM + 5000);
  expect(withHead("head;", bytes)).toEqual(["head;", bytes]);
  expect(others).toEqual(Buffer.alloc(8192, "o"));
});

it.each([4097, 8192, 8193, 65_536, 65_537])(
  "a copy of %i bytes takes less than twice as much, and room for a head",
  (bytes) => {
    const content = Buffer.alloc(bytes, "a");
    const lent = lentCopy(content).lend()!;
    expect(lent.equals(content)).toBe(true);
    expect(lent.buffer.byteLength).toBeLessThan(2 * bytes + HEAD_ROOM);
  },
);

it.each([
  [65_536, 8],
  [65_000, 8],
  [16_384, 32],
])("of the memory of copies of %i bytes, that of %i is kept", (bytes, most) => {
  const copies = () => Array.from({ length: 40 }, () => lentCopy(Buffer.alloc(bytes)));
  const bodies = copies();
  const blocks = new Set(bodies.map((body) => body.lend()!.buffer));
  expect(blocks.size).toBe(40);
  for (const body of bodies) body.giveBack();
  expect(copies().filter((body) => blocks.has(body.bytes!.buffer))).toHaveLength(most);
});

import { setImmediate as nextRound } from "node:timers/promises";
import { expect, it } from "vitest";
import { LentBody } from "../../lib/http/lent_body.ts";
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

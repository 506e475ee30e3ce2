import { setImmediate as nextRound } from "node:timers/promises";
import { expect, test } from "vitest";
import { LentBody, ownBody } from "../../lib/http/lent_body.ts";

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

test("who sends it has the very bytes, until they are given back", () => {
  const { body, memory, seen } = lending("abc");
  expect(body.byteLength).toBe(3);
  expect(body.isUntouched).toBe(true);
  expect(body.lend()).toBe(memory);
  expect(seen.givenBack).toBe(0);
  body.giveBack();
  expect(body.isLent).toBe(true);
  body.giveBack();
  expect(seen.givenBack).toBe(1);
});

test("what has been lent cannot be lent or read by another, and ending the stream does not give it back", async () => {
  const { body, seen } = lending("abc");
  body.lend();
  expect(body.isLent).toBe(true);
  expect(body.isUntouched).toBe(false);
  expect(() => body.lend()).toThrow("somebody reads");
  expect(() => body.own()).toThrow("somebody reads");
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk as Buffer);
  expect(chunks).toEqual([]);
  body.destroy();
  await nextRound();
  expect(seen.givenBack).toBe(0);
});

test("who reads it as a stream has bytes of his own", async () => {
  const { body, seen } = lending("abc");
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk as Buffer);
  expect(Buffer.concat(chunks).toString()).toBe("abc");
  expect(seen.givenBack).toBe(1);
});

test("who asks for bytes of his own has them, and the memory is free", () => {
  const { body, seen } = lending("abc");
  expect(body.isLent).toBe(false);
  expect(body.own().toString()).toBe("abc");
  expect(body.isLent).toBe(true);
  expect(seen.givenBack).toBe(1);
  expect(body.isUntouched).toBe(false);
});

test.each<[string, (body: LentBody) => unknown]>([
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
])("nothing is lent where somebody %s", async (_who, touch) => {
  const { body } = lending("");
  touch(body);
  expect(body.isLent).toBe(false);
  expect(body.isUntouched).toBe(false);
  expect(() => body.lend()).toThrow("somebody reads");
  await nextRound();
});

test("given up unread, it gives its memory back, and its error is nobody's", async () => {
  const { body, seen } = lending("abc");
  body.destroy(new Error("given up"));
  await nextRound();
  expect(seen.givenBack).toBe(1);
});

test("a body as its sender may keep it: a lent one as bytes of his own, one that somebody reads and any other as they are", () => {
  const { body, seen } = lending("abc");
  expect(String(ownBody(body))).toBe("abc");
  expect(seen.givenBack).toBe(1);
  const read = lending("abc").body.pause();
  expect(ownBody(read)).toBe(read);
  const bytes = Buffer.from("abc");
  expect([ownBody(bytes), ownBody(null)]).toEqual([bytes, null]);
});

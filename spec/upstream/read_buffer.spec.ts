import { expect, it } from "vitest";
import { ReadBuffer } from "../../lib/upstream/read_buffer.ts";

it("all are read into the same memory", () => {
  const readBuffer = new ReadBuffer();
  expect(readBuffer.buffer).toBe(readBuffer.buffer);
});

it("a body keeps its bytes when the next is read, and gives its memory to another when it has been sent", () => {
  const readBuffer = new ReadBuffer();
  const read = (text: string) => readBuffer.buffer.subarray(0, readBuffer.buffer.write(text));
  const [first, second] = [readBuffer.lend(read("first")), readBuffer.lend(read("second"))];
  const [firstBytes, secondBytes] = [first.lend(), second.lend()];
  read("xxxxxxxxx");
  expect([String(firstBytes), String(secondBytes)]).toEqual(["first", "second"]);
  expect(secondBytes.buffer).not.toBe(firstBytes.buffer);
  first.giveBack();
  const third = readBuffer.lend(read("third")).lend();
  expect(third.buffer).toBe(firstBytes.buffer);
  expect([String(secondBytes), String(third)]).toEqual(["second", "third"]);
});

it("no more memory is kept than sixteen bodies need", () => {
  const readBuffer = new ReadBuffer();
  const bodies = Array.from({ length: 20 }, () => readBuffer.lend(Buffer.from("abc")));
  const memory = new Set(bodies.map((body) => body.lend().buffer));
  expect(memory.size).toBe(20);
  for (const body of bodies) body.giveBack();
  const again = Array.from({ length: 20 }, () => readBuffer.lend(Buffer.from("abc")).lend().buffer);
  expect(new Set(again).size).toBe(20);
  expect(again.filter((each) => memory.has(each))).toHaveLength(16);
});

import { setImmediate as nextRound } from "node:timers/promises";
import { expect, it, vi } from "vitest";
import { WriteBatch } from "../../lib/base/event_loop.ts";

function made() {
  const writeBatch = new WriteBatch();
  return { writeBatch, add: (writeNow: () => void) => writeBatch.add({ writeNow }) };
}

it("writes of one round of the event loop are sent together, in order, at its end", async () => {
  const { add } = made();
  const left: string[] = [];
  add(() => void left.push("first"));
  await Promise.resolve();
  process.nextTick(() => add(() => void left.push("third")));
  add(() => void left.push("second"));
  await Promise.resolve();
  expect(left).toEqual([]);
  await nextRound();
  expect(left).toEqual(["first", "second", "third"]);
  add(() => void left.push("a round later"));
  await nextRound();
  expect(left).toHaveLength(4);
});

it("a full batch is sent at once", async () => {
  const { add } = made();
  const left: number[] = [];
  for (let i = 1; i <= 65; i++) add(() => void left.push(i));
  expect(left).toEqual(Array.from({ length: 64 }, (_, i) => 1 + i));
  await nextRound();
  expect(left.slice(64)).toEqual([65]);
});

it("now() sends the batch at once, and it is not sent again", async () => {
  const { writeBatch, add } = made();
  const left: string[] = [];
  add(() => void left.push("first"));
  writeBatch.now();
  expect(left).toEqual(["first"]);
  add(() => void left.push("second"));
  await nextRound();
  await nextRound();
  expect(left).toEqual(["first", "second"]);
});

it("a write that is added while a batch is sent goes into the next batch", async () => {
  const { add } = made();
  const left: string[] = [];
  const addOthers = (count: number) => Array.from({ length: count }, () => add(() => {}));
  add(() => {
    left.push("first");
    add(() => void left.push("made ready by the first"));
    addOthers(62);
    add(() => void left.push("and this"));
  });
  addOthers(62);
  add(() => void left.push("second"));
  expect(left).toEqual(["first", "made ready by the first", "and this", "second"]);
  await nextRound();
  expect(left).toHaveLength(4);
  add(() => {
    left.push("later");
    add(() => void left.push("last"));
  });
  await nextRound();
  await nextRound();
  expect(left.slice(4)).toEqual(["later", "last"]);
});

it("a batch is sent while the tests of an embedder stop time", async () => {
  vi.useFakeTimers();
  try {
    const { add } = made();
    const left: string[] = [];
    add(() => void left.push("first"));
    await nextRound();
    expect(left).toEqual(["first"]);
  } finally {
    vi.useRealTimers();
  }
});

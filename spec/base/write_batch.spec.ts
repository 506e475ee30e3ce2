import { setImmediate as nextRound } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { WriteBatch } from "../../lib/base/write_batch.ts";

test("what is ready leaves together, in its order, when all that came in the same round has been looked at", async () => {
  const writeBatch = new WriteBatch();
  const left: string[] = [];
  writeBatch.add(() => void left.push("first"));
  await Promise.resolve();
  process.nextTick(() => writeBatch.add(() => void left.push("third")));
  writeBatch.add(() => void left.push("second"));
  await Promise.resolve();
  expect(left).toEqual([]);
  await nextRound();
  expect(left).toEqual(["first", "second", "third"]);
  writeBatch.add(() => void left.push("a round later"));
  await nextRound();
  expect(left).toHaveLength(4);
});

test("nobody waits for more than so many others", async () => {
  const writeBatch = new WriteBatch(3);
  const left: number[] = [];
  for (const i of [1, 2, 3, 4]) writeBatch.add(() => void left.push(i));
  expect(left).toEqual([1, 2, 3]);
  await nextRound();
  expect(left).toEqual([1, 2, 3, 4]);
});

test("what is ready leaves at once where that is asked for, and does not leave again", async () => {
  const writeBatch = new WriteBatch();
  const left: string[] = [];
  writeBatch.add(() => void left.push("first"));
  writeBatch.now();
  expect(left).toEqual(["first"]);
  writeBatch.add(() => void left.push("second"));
  await nextRound();
  await nextRound();
  expect(left).toEqual(["first", "second"]);
});

test("what becomes ready while others leave goes with the next ones, and is not lost", async () => {
  const writeBatch = new WriteBatch(2);
  const left: string[] = [];
  writeBatch.add(() => {
    left.push("first");
    writeBatch.add(() => void left.push("made ready by the first"));
    writeBatch.add(() => void left.push("and this"));
  });
  writeBatch.add(() => void left.push("second"));
  expect(left).toEqual(["first", "made ready by the first", "and this", "second"]);
  await nextRound();
  expect(left).toHaveLength(4);
  writeBatch.add(() => {
    left.push("later");
    writeBatch.add(() => void left.push("last"));
  });
  await nextRound();
  await nextRound();
  expect(left.slice(4)).toEqual(["later", "last"]);
});

test("what is ready leaves while a host's tests hold the time", async () => {
  vi.useFakeTimers();
  try {
    const writeBatch = new WriteBatch();
    const left: string[] = [];
    writeBatch.add(() => void left.push("first"));
    await nextRound();
    expect(left).toEqual(["first"]);
  } finally {
    vi.useRealTimers();
  }
});

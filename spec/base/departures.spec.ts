import { setImmediate as nextRound } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { Departures } from "../../lib/base/departures.ts";

test("what is ready leaves together, in its order, when all that came in the same round has been looked at", async () => {
  const departures = new Departures();
  const left: string[] = [];
  departures.add(() => void left.push("first"));
  await Promise.resolve();
  process.nextTick(() => departures.add(() => void left.push("third")));
  departures.add(() => void left.push("second"));
  await Promise.resolve();
  expect(left).toEqual([]);
  await nextRound();
  expect(left).toEqual(["first", "second", "third"]);
  departures.add(() => void left.push("a round later"));
  await nextRound();
  expect(left).toHaveLength(4);
});

test("nobody waits for more than so many others", async () => {
  const departures = new Departures(3);
  const left: number[] = [];
  for (const i of [1, 2, 3, 4]) departures.add(() => void left.push(i));
  expect(left).toEqual([1, 2, 3]);
  await nextRound();
  expect(left).toEqual([1, 2, 3, 4]);
});

test("what is ready leaves at once where that is asked for, and does not leave again", async () => {
  const departures = new Departures();
  const left: string[] = [];
  departures.add(() => void left.push("first"));
  departures.now();
  expect(left).toEqual(["first"]);
  departures.add(() => void left.push("second"));
  await nextRound();
  await nextRound();
  expect(left).toEqual(["first", "second"]);
});

test("what becomes ready while others leave goes with the next ones, and is not lost", async () => {
  const departures = new Departures(2);
  const left: string[] = [];
  departures.add(() => {
    left.push("first");
    departures.add(() => void left.push("made ready by the first"));
    departures.add(() => void left.push("and this"));
  });
  departures.add(() => void left.push("second"));
  expect(left).toEqual(["first", "made ready by the first", "and this", "second"]);
  await nextRound();
  expect(left).toHaveLength(4);
  departures.add(() => {
    left.push("later");
    departures.add(() => void left.push("last"));
  });
  await nextRound();
  await nextRound();
  expect(left.slice(4)).toEqual(["later", "last"]);
});

test("what is ready leaves while a host's tests hold the time", async () => {
  vi.useFakeTimers();
  try {
    const departures = new Departures();
    const left: string[] = [];
    departures.add(() => void left.push("first"));
    await nextRound();
    expect(left).toEqual(["first"]);
  } finally {
    vi.useRealTimers();
  }
});

import { EventEmitter } from "node:events";
import { expect, it } from "vitest";
import { DeadlineTimer, systemClock, type HasDeadline } from "../../lib/base/clock.ts";
import { entry, guardedEmitter } from "../../lib/base/event_loop.ts";
import { WriteBatch } from "../../lib/base/event_loop.ts";
import { manualClock } from "../support/clock.ts";
import { expectEntryFaults } from "../support/entry_faults.ts";
import { eventually } from "../support/raw_client.ts";

const lost = () => {
  throw new Error("lost");
};

it("what a callback throws is reported with the name of the entry, and not thrown on", () => {
  const faults = expectEntryFaults();
  entry("a test", lost)();
  expect(faults).toMatchObject([{ error: new Error("lost"), entry: "a test" }]);
});

it("what a listener throws destroys the emitter, and the event counts as handled", () => {
  const faults = expectEntryFaults();
  const [socket, ended] = [new EventEmitter(), [] as string[]];
  const emitter = guardedEmitter(Object.assign(socket, { destroy: () => void ended.push("destroyed") }));
  emitter.on("data", lost);
  expect(emitter.emit("data", "x")).toBe(true);
  expect([ended, faults.map(({ entry }) => entry)]).toEqual([["destroyed"], ["the event data of a EventEmitter"]]);
  expect(emitter.emit("other")).toBe(false);
});

it("an error event without a listener destroys the emitter and is reported", () => {
  const faults = expectEntryFaults();
  const ended: string[] = [];
  guardedEmitter(Object.assign(new EventEmitter(), { destroy: () => void ended.push("destroyed") })).emit(
    "error",
    new Error("broken"),
  );
  expect([ended, faults.map(({ error }) => error)]).toEqual([["destroyed"], [new Error("broken")]]);
});

it("what a listener of a server throws destroys the connection that the event is about", () => {
  expectEntryFaults();
  const ended: string[] = [];
  guardedEmitter(new EventEmitter())
    .on("connection", lost)
    .emit("connection", { destroy: () => void ended.push("connection") });
  expect(ended).toEqual(["connection"]);
});

it("a timer of the system's clock that throws is reported", async () => {
  const faults = expectEntryFaults();
  systemClock.after(0, lost);
  await eventually(() => faults.length === 1, "the timer has thrown");
  expect(faults[0]!.entry).toBe("a timer");
});

it("a deadline that fails leaves the others, and a write that fails the other writes", () => {
  const faults = expectEntryFaults();
  const clock = manualClock();
  const timer = new DeadlineTimer(clock);
  const met: string[] = [];
  const due = (name: string, dueAt: number, overdue: () => void): HasDeadline => ({
    dueAt,
    index: -1,
    overdue() {
      met.push(name);
      timer.remove(this);
      overdue();
    },
  });
  for (const each of [due("one", 10, lost), due("two", 10, () => {}), due("three", 20, () => {})]) timer.add(each, 0);
  clock.advance(10);
  clock.advance(10);
  const batch = new WriteBatch();
  batch.add({ writeNow: lost });
  batch.add({ writeNow: () => void met.push("written") });
  batch.now();
  expect([met.sort(), faults.length]).toEqual([["one", "three", "two", "written"], 2]);
});

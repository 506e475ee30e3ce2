import { expect, it, onTestFinished } from "vitest";
import { createProcessFigures } from "../../lib/observe/process.ts";
import { manualClock } from "../support/clock.ts";

function figures() {
  const clock = manualClock();
  const made = createProcessFigures(clock);
  onTestFinished(() => made.close());
  const value = (name: string) =>
    [...made.families([]).find((family) => family.name === name)!.samples][0]![1] as number;
  return { clock, made, value };
}

const histograms = () => process.getActiveResourcesInfo().filter((each) => each === "IntervalHistogram").length;

it("does not keep the process alive by measuring the event loop", () => {
  const before = histograms();
  const { made } = figures();
  expect(histograms()).toBe(before);
  for (let i = 0; i < 3; i++) made.families([]);
  expect(histograms()).toBe(before);
});

it("reports a blocked event loop at the next scrape, and not one window later", async () => {
  const { clock, value } = figures();
  expect(value("edge_gateway_event_loop_lag_max_seconds")).toBe(0);
  // The first samples are what lateness is measured against.
  while (value("edge_gateway_event_loop_lag_max_seconds") === 0) {
    const until = performance.now() + 100;
    while (performance.now() < until);
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(value("edge_gateway_event_loop_lag_max_seconds")).toBeGreaterThan(0.02);
  clock.advance(10_000);
  value("edge_gateway_event_loop_lag_max_seconds");
  expect(value("edge_gateway_event_loop_lag_max_seconds")).toBe(0);
});

it("reports the CPU time, memory and open files of this process", () => {
  const { value } = figures();
  expect(value("process_cpu_seconds_total")).toBeGreaterThan(0);
  expect(value("process_resident_memory_bytes")).toBeGreaterThan(10_000_000);
  expect(value("process_heap_used_bytes")).toBeLessThanOrEqual(value("process_heap_bytes"));
  expect(value("process_start_time_seconds") * 1000).toBeLessThan(Date.now());
});

it("sums the heaps of all workers and of the main thread, and takes the lag of the worker that is the latest", () => {
  const { made } = figures();
  const workers = [
    { heapBytes: 5e12, heapUsedBytes: 3e12, externalBytes: 1e12, lag: [0.1, 0.02, 0.3, 0.4] },
    { heapBytes: 7e12, heapUsedBytes: 2e12, externalBytes: 2e12, lag: [0.05, 0.03, 0.2, 0.5] },
  ] as const;
  const value = (name: string) =>
    [...made.families(workers).find((family) => family.name === name)!.samples][0]![1] as number;
  const inUnits = ["heap", "heap_used", "external_memory"].map((name) => value(`process_${name}_bytes`) / 1e12);
  expect(inUnits.map(Math.floor)).toEqual([12, 5, 3]);
  for (const sum of inUnits) expect(sum).toBeGreaterThan(Math.floor(sum));
  expect(["mean", "p50", "p99", "max"].map((name) => value(`edge_gateway_event_loop_lag_${name}_seconds`))).toEqual([
    0.1, 0.03, 0.3, 0.5,
  ]);
});

it("measures one thread: its heap, and the lag of its event loop", async () => {
  const { made } = figures();
  expect(made.thread().lag).toEqual([0, 0, 0, 0]);
  while (made.thread().lag[3] === 0) {
    const until = performance.now() + 100;
    while (performance.now() < until);
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { heapBytes, heapUsedBytes, externalBytes } = made.thread();
  expect(heapUsedBytes).toBeLessThanOrEqual(heapBytes);
  expect(externalBytes).toBeGreaterThan(0);
});

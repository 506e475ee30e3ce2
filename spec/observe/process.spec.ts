import { expect, it, onTestFinished } from "vitest";
import { createProcessFigures } from "../../lib/observe/process.ts";
import { manualClock } from "../support/clock.ts";

function figures() {
  const clock = manualClock();
  const made = createProcessFigures(clock);
  onTestFinished(() => made.close());
  const value = (name: string) => [...made.families().find((family) => family.name === name)!.samples][0]![1] as number;
  return { clock, made, value };
}

const histograms = () => process.getActiveResourcesInfo().filter((each) => each === "IntervalHistogram").length;

it("does not keep the process alive by measuring the event loop", () => {
  const before = histograms();
  const { made } = figures();
  expect(histograms()).toBe(before);
  for (let i = 0; i < 3; i++) made.families();
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

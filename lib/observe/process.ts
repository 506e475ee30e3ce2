/**
 * Metrics of the process: CPU time, memory, open files, and the delay of the event loop.
 */
import { readdirSync } from "node:fs";
import { monitorEventLoopDelay, type IntervalHistogram } from "node:perf_hooks";
import type { Clock } from "../base/clock.ts";
import type { Family } from "./exposition.ts";

export type ProcessFigures = ReturnType<typeof createProcessFigures>;

/** What each thread of a process has of its own. */
export interface ThreadFigures {
  readonly heapBytes: number;
  readonly heapUsedBytes: number;
  readonly externalBytes: number;
  /** How late the event loop came round, in seconds: on average, the median, in 99 of 100 turns, at worst. */
  readonly lag: readonly [mean: number, p50: number, p99: number, max: number];
}

/** Between two measurements of the event loop, in milliseconds. */
const RESOLUTION_MS = 20;
/** With several scrapers, each gets the figures of at least this time; only the first scrape gets less. */
const LEAST_WINDOW_MS = 10_000;

/** Measures the event loop from the first scrape on. */
export function createProcessFigures(clock: Clock) {
  // Made at the first scrape: even while disabled, it counts as an active resource of the process.
  let delay: IntervalHistogram | null = null;
  let since: number | null = null;
  let isClosed = false;

  function lag(): ThreadFigures["lag"] {
    const now = clock.now();
    const watched = (delay ??= monitorEventLoopDelay({ resolution: RESOLUTION_MS }));
    const late = (ns: number) => (watched.count === 0 ? 0 : Math.max(0, ns / 1e9 - RESOLUTION_MS / 1000));
    const measured = [
      late(watched.mean),
      late(watched.percentile(50)),
      late(watched.percentile(99)),
      late(watched.max),
    ] as const;
    if (since === null && !isClosed) watched.enable();
    if (since === null || now - since >= LEAST_WINDOW_MS) {
      watched.reset();
      since = now;
    }
    return measured;
  }

  function memory() {
    const { rss, heapTotal, heapUsed, external } = process.memoryUsage();
    return { rss, heapBytes: heapTotal, heapUsedBytes: heapUsed, externalBytes: external };
  }

  return {
    /** `workers`: figures of the worker threads that serve; empty: this thread serves. */
    families(workers: readonly ThreadFigures[]): readonly Family[] {
      const { user, system } = process.cpuUsage();
      const { rss, ...own } = memory();
      const files = openFiles();
      const summed = (what: "heapBytes" | "heapUsedBytes" | "externalBytes") =>
        workers.reduce((sum, worker) => sum + worker[what], own[what]);
      const lags = workers.length === 0 ? [lag()] : workers.map((worker) => worker.lag);
      const worst = (which: number) => Math.max(...lags.map((each) => each[which]!));
      return [
        gauge(
          "process_cpu_seconds_total",
          "Processor time used, the system's for it included.",
          (user + system) / 1e6,
          "counter",
        ),
        gauge(
          "process_start_time_seconds",
          "When the process began, in seconds since 1970.",
          Math.round(performance.timeOrigin) / 1000,
        ),
        gauge("process_resident_memory_bytes", "Memory that the process occupies.", rss),
        gauge(
          "process_heap_bytes",
          "Size of the JavaScript heap; with workers, of all their heaps.",
          summed("heapBytes"),
        ),
        gauge("process_heap_used_bytes", "Part of the JavaScript heap that is in use.", summed("heapUsedBytes")),
        gauge("process_external_memory_bytes", "Memory outside the heap, mostly buffers.", summed("externalBytes")),
        ...(files === null ? [] : [gauge("process_open_fds", "Files and sockets that are open.", files)]),
        gauge(
          "edge_gateway_event_loop_lag_mean_seconds",
          "How late the event loop came round on average; with workers, in the latest of them.",
          worst(0),
        ),
        gauge("edge_gateway_event_loop_lag_p50_seconds", "Median of how late the event loop came round.", worst(1)),
        gauge(
          "edge_gateway_event_loop_lag_p99_seconds",
          "How late the event loop came round in 99 of 100 turns.",
          worst(2),
        ),
        gauge("edge_gateway_event_loop_lag_max_seconds", "How late the event loop came round at worst.", worst(3)),
      ];
    },
    /** Of this thread alone. */
    thread(): ThreadFigures {
      const { rss: _, ...own } = memory();
      return { ...own, lag: lag() };
    },
    /** Stops measuring. */
    close(): void {
      isClosed = true;
      delay?.disable();
    },
  };
}

export function gauge(name: string, help: string, value: number, type: "gauge" | "counter" = "gauge"): Family {
  return { name, help, type, samples: [[[], value]] };
}

/** Null where the system has no /proc. */
function openFiles(): number | null {
  try {
    return readdirSync("/proc/self/fd").length - 1; // without the one of this listing
  } catch {
    return null;
  }
}

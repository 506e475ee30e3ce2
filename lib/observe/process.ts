/**
 * Figures of the process itself: time, memory, open files, and how late the event loop is. What the gateway does is `metrics.ts`.
 */
import { readdirSync } from "node:fs";
import { monitorEventLoopDelay, type IntervalHistogram } from "node:perf_hooks";
import type { Clock } from "../base/clock.ts";
import type { Family } from "./exposition.ts";

export interface ProcessFigures {
  families(): readonly Family[];
  /** Measures no more. */
  close(): void;
}

/** Between two looks at the event loop, in milliseconds. */
const RESOLUTION_MS = 20;
/** Several may ask in turn: each gets the figures of this long at least, but for the first. */
const LEAST_WINDOW_MS = 10_000;

/** The event loop is watched from the first question on: who never asks pays nothing. */
export function createProcessFigures(clock: Clock): ProcessFigures {
  // Made when it is asked for: node counts it among what keeps a process busy, enabled or not.
  let delay: IntervalHistogram | null = null;
  let since: number | null = null;
  let isClosed = false;

  function lag(): readonly Family[] {
    const now = clock.now();
    const watched = (delay ??= monitorEventLoopDelay({ resolution: RESOLUTION_MS }));
    const late = (ns: number) => (watched.count === 0 ? 0 : Math.max(0, ns / 1e9 - RESOLUTION_MS / 1000));
    const families = [
      gauge("edge_gateway_event_loop_lag_mean_seconds", "How late the event loop came round on average.", late(watched.mean)),
      gauge("edge_gateway_event_loop_lag_p50_seconds", "Median of how late the event loop came round.", late(watched.percentile(50))),
      gauge("edge_gateway_event_loop_lag_p99_seconds", "How late the event loop came round in 99 of 100 turns.", late(watched.percentile(99))),
      gauge("edge_gateway_event_loop_lag_max_seconds", "How late the event loop came round at worst.", late(watched.max)),
    ];
    if (since === null && !isClosed) watched.enable();
    if (since === null || now - since >= LEAST_WINDOW_MS) {
      watched.reset();
      since = now;
    }
    return families;
  }

  return {
    families() {
      const { user, system } = process.cpuUsage();
      const { rss, heapTotal, heapUsed, external } = process.memoryUsage();
      const files = openFiles();
      return [
        { ...gauge("process_cpu_seconds_total", "Processor time used, the system's for it included.", (user + system) / 1e6), type: "counter" },
        gauge("process_start_time_seconds", "When the process began, in seconds since 1970.", Math.round(performance.timeOrigin) / 1000),
        gauge("process_resident_memory_bytes", "Memory that the process occupies.", rss),
        gauge("process_heap_bytes", "Size of the JavaScript heap.", heapTotal),
        gauge("process_heap_used_bytes", "Part of the JavaScript heap that is in use.", heapUsed),
        gauge("process_external_memory_bytes", "Memory outside the heap that objects hold, buffers above all.", external),
        ...(files === null ? [] : [gauge("process_open_fds", "Files and sockets that are open.", files)]),
        ...lag(),
      ];
    },
    close() {
      isClosed = true;
      delay?.disable();
    },
  };
}

export function gauge(name: string, help: string, value: number): Family & { readonly type: "gauge" } {
  return { name, help, type: "gauge", samples: [[[], value]] } as Family & { readonly type: "gauge" };
}

/** Null where the system does not tell. */
function openFiles(): number | null {
  try {
    return readdirSync("/proc/self/fd").length - 1; // the listing's own
  } catch {
    return null;
  }
}

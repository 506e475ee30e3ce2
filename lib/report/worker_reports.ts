/**
 * Reports of workers: what each has counted since its last one. The main thread adds it to its own counts, which are
 * then those of all workers, also of those that have ended.
 */
import { addMetrics, takeMetrics, type MetricsReport } from "../observe/metrics_report.ts";
import { createProcessFigures, type ProcessFigures, type ThreadFigures } from "../observe/process.ts";
import type { TailBatch, TailReader } from "../observe/tail.ts";
import type { CountersReport } from "../store/counters.ts";
import type { ReportExtent } from "../gateway/bundle.ts";
import type { GatewayInternals } from "../gateway/internals.ts";
import type { PluginFaults } from "../gateway/status.ts";
import { addEvictions, takeCaches, type AllCacheFigures } from "./cache_figures.ts";
import type { Metrics } from "../observe/metrics_plan.ts";

export interface WorkerReport {
  readonly metrics: MetricsReport;
  readonly countersErrors: readonly (readonly [reason: string, count: number])[];
  /** Of upstreams that have requests or connections. */
  readonly loads: readonly {
    readonly service: string;
    readonly id: string;
    readonly load: number;
    readonly open: number;
  }[];
  readonly caches: AllCacheFigures;
  /** Connections of clients. */
  readonly refused: number;
  readonly spans: Readonly<Spans>;
  /** By the key of the plugin instance. */
  readonly faults: readonly (readonly [key: string, faults: PluginFaults])[];
  /** Of the counters that gateways share; null: there are none. */
  readonly counters: CountersReport | null;
  /** Null where it was not asked for. */
  readonly thread: ThreadFigures | null;
}

interface Spans {
  exported: number;
  dropped: number;
}

type Internals = Omit<GatewayInternals, "reports"> & { readonly metrics: Metrics };

/** What a worker has at this moment, by its last report. */
interface Present {
  readonly caches: AllCacheFigures;
  readonly counters: CountersReport | null;
  readonly thread: ThreadFigures | null;
  /** Subtract what it has from the sums over all workers. */
  readonly release: (() => void)[];
}

/** The worst first. */
const COUNTERS_STATES: readonly CountersReport["state"][] = ["down", "connecting", "up"];

/** What workers have reported; null: there are none, or nobody can ask for it. */
export function workerReportsOf({ reports }: GatewayInternals): WorkerReports | null {
  return reports as WorkerReports | null;
}

/** See `GatewayInternals.reports`. */
export function workerReports(internals: Internals): WorkerReports {
  return new WorkerReports(internals);
}

export class WorkerReports {
  /** Spans of traces: in the main thread those of all workers, in a worker those that it has reported. */
  readonly spans: Spans = { exported: 0, dropped: 0 };
  /** In the main thread: from now on these read the live tail, and `receive` gets what workers have for them. */
  tail: ((readers: readonly TailReader[], receive: (batches: readonly TailBatch[]) => void) => void) | null = null;
  readonly #internals: Internals;
  /** In the main thread, by the numbers of the workers. */
  readonly #present = new Map<number, Present>();

  /** Of this thread. */
  readonly #process: ProcessFigures;

  constructor(internals: Internals) {
    this.#internals = internals;
    this.#process = createProcessFigures(internals.clock);
  }

  close(): void {
    this.#process.close();
  }

  /** In a worker: a report, which has everything that the last one did not have. */
  take(extent: ReportExtent): WorkerReport {
    const { metrics, runtime, configuration, listener, spans } = this.#internals;
    const { exported, dropped } = spans ?? this.spans;
    const report: WorkerReport = {
      metrics: takeMetrics(metrics),
      countersErrors: [...runtime.countersErrors],
      loads: runtime.upstreamSets
        .flatMap(({ service, peers }) => peers.map(({ id, load, pool: { open } }) => ({ service, id, load, open })))
        .filter(({ load, open }) => load > 0 || open > 0),
      caches: takeCaches(runtime),
      refused: listener.connections.refused,
      spans: { exported: exported - this.spans.exported, dropped: dropped - this.spans.dropped },
      faults: [...configuration.pluginFaults],
      counters: runtime.shared?.report ?? null,
      thread: extent === "all" ? this.#process.thread() : null,
    };
    for (const [reason] of runtime.countersErrors) runtime.countersErrors.set(reason, 0);
    Object.assign(this.spans, { exported, dropped });
    listener.connections.refused = 0;
    configuration.pluginFaults.clear();
    return report;
  }

  /** In the main thread: adds the report of the worker with this number. */
  add(
    worker: number,
    { metrics, countersErrors, loads, caches, refused, spans, faults, counters, thread }: WorkerReport,
  ): void {
    const { runtime, configuration, listener } = this.#internals;
    const present: Present = {
      caches,
      counters,
      thread: thread ?? this.#present.get(worker)?.thread ?? null,
      release: [],
    };
    this.forget(worker);
    this.#present.set(worker, present);
    const hold = (value: number, add: (value: number) => void) => {
      if (value === 0) return;
      add(value);
      present.release.push(() => add(-value));
    };
    addMetrics(this.#internals.metrics, metrics, (meter, inFlight) =>
      hold(inFlight, (value) => (meter.inFlight += value)),
    );
    for (const [reason, count] of countersErrors)
      runtime.countersErrors.set(reason, (runtime.countersErrors.get(reason) ?? 0) + count);
    for (const { service, id, load, open } of loads) {
      const ofWorkers = runtime.peer(service, id)?.ofWorkers ?? { load: 0, open: 0 };
      hold(load, (value) => (ofWorkers.load += value));
      hold(open, (value) => (ofWorkers.open += value));
    }
    addEvictions(runtime, caches);
    listener.connections.refused += refused;
    this.spans.exported += spans.exported;
    this.spans.dropped += spans.dropped;
    for (const [key, { count, ...instance }] of faults) {
      // A request may outlive the configuration under which it arrived.
      if (!configuration.snapshot.instances.has(key)) continue;
      configuration.pluginFaults.set(key, {
        ...instance,
        count: count + (configuration.pluginFaults.get(key)?.count ?? 0),
      });
    }
  }

  /** In the main thread: the worker with this number has ended. What it has counted stays. */
  forget(worker: number): void {
    for (const release of this.#present.get(worker)?.release ?? []) release();
    this.#present.delete(worker);
  }

  /**
   * In the main thread: of the counters that gateways share, at the worker for which they are in the worst state; null
   * before the first report.
   */
  get counters(): CountersReport | null {
    const reports = Array.from(this.#present.values(), ({ counters }) => counters);
    for (const state of COUNTERS_STATES) {
      const found = reports.find((report) => report?.state === state);
      if (found != null) return found;
    }
    return null;
  }

  /** In the main thread: what the caches of the workers hold. */
  get caches(): AllCacheFigures {
    return Array.from(this.#present.values(), ({ caches }) => caches).flat();
  }

  /** In the main thread: the figures of the workers. */
  get threads(): readonly ThreadFigures[] {
    return Array.from(this.#present.values(), ({ thread }) => thread).filter((thread) => thread !== null);
  }

  /** The same, in the order of their numbers. */
  get threadsByWorker(): readonly (readonly [worker: number, figures: ThreadFigures])[] {
    return Array.from(this.#present)
      .flatMap(([worker, { thread }]) => (thread === null ? [] : [[worker, thread] as const]))
      .sort(([a], [b]) => a - b);
  }
}

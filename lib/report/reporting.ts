/**
 * Statistics and metrics of a gateway.
 */
import type { Readable } from "node:stream";
import { exposition, expositionStream, type Family } from "../observe/exposition.ts";
import { createProcessFigures, type ProcessFigures } from "../observe/process.ts";
import { Stats, type GatewayStats, type ServiceStats, type StatsExtent } from "../observe/stats.ts";
import type { ServicePlan } from "../observe/metrics_plan.ts";
import { families } from "./families.ts";
import type { FigureHistory } from "./figure_history.ts";
import type { ReportSource } from "./reports.ts";
import { workerReportsOf } from "./worker_reports.ts";

export class Reporting {
  readonly #source: ReportSource;
  readonly #stats: Stats;
  /** Null: nobody has asked for metrics. */
  #process: ProcessFigures | null = null;
  #isClosed = false;
  /** Null: no request has come, and nobody has asked for it. */
  history: FigureHistory | null = null;
  /** Sends metrics; null: they are not sent. */
  exporter: { readonly lost: number; close(): Promise<void> } | null = null;
  /** Makes it, once what it needs has been loaded; null: nobody can ask for it. */
  openHistory: (() => Promise<FigureHistory>) | null = null;

  constructor(source: ReportSource) {
    const { clock, metrics, configuration } = source;
    this.#source = source;
    this.#stats = new Stats(clock, metrics, () => configuration.followers?.collect("counts") ?? null);
    this.#stats.onStep = (at) => {
      // Whoever asks for it gets the error.
      if (this.history === null && metrics.total.requests > 0) this.openHistory?.().catch(() => {});
      this.history?.step(at);
    };
  }

  /** From now on statistics have a history. */
  start(): void {
    this.#stats.start();
  }

  stats(extent: StatsExtent): GatewayStats {
    return this.#stats.read(extent, this.#inFlight);
  }

  services(
    extent: Exclude<StatsExtent, "total">,
    plans: Iterable<readonly [string, ServicePlan]>,
  ): readonly ServiceStats[] {
    return this.#stats.services(extent, this.#inFlight, plans);
  }

  get #inFlight(): Parameters<Stats["read"]>[1] {
    const { requests, runtime } = this.#source;
    return { total: requests.inFlight, upstream: (service, id) => runtime.peer(service, id)?.inFlight ?? 0 };
  }

  metrics(): string {
    return exposition(this.families());
  }

  metricsStream(): Readable {
    return expositionStream(this.families());
  }

  /** Metrics that are sent are sent once more before. */
  async close(): Promise<void> {
    await this.exporter?.close();
    this.#isClosed = true;
    this.#process?.close();
    this.#stats.close();
  }

  families(): readonly Family[] {
    this.#process ??= createProcessFigures(this.#source.clock);
    if (this.#isClosed) this.#process.close();
    return [
      ...families(this.#source, this.exporter),
      ...this.#process.families(workerReportsOf(this.#source)?.threads ?? []),
    ];
  }
}

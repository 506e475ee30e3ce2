/**
 * Reports on a gateway for whoever asks: its status, statistics and metrics. A part: nobody asks a gateway without an admin interface and
 * probes, unless a program embeds it.
 */
import type { Readable } from "node:stream";
import { exposition, expositionStream, type Family } from "../observe/exposition.ts";
import { createProcessFigures, type ProcessFigures } from "../observe/process.ts";
import { Stats, type GatewayStats, type StatsExtent } from "../observe/stats.ts";
import { families } from "./families.ts";
import { statsOf, statusOf, type Listening, type ReportSource } from "./reports.ts";
import type { GatewayStatus } from "../gateway/status.ts";

export class Reporting {
  readonly #source: ReportSource;
  readonly #stats: Stats;
  readonly #process: ProcessFigures;

  constructor(source: ReportSource) {
    const { clock, metrics, configuration } = source;
    this.#source = source;
    this.#stats = new Stats(clock, metrics, () => configuration.followers?.collect("counts") ?? null);
    this.#process = createProcessFigures(clock);
  }

  /** From now on statistics have a history. */
  start(): void {
    this.#stats.start();
  }

  status(listening: Listening): GatewayStatus {
    return statusOf(this.#source, listening);
  }

  stats(extent: StatsExtent): GatewayStats {
    return statsOf(this.#stats, extent, this.#source);
  }

  metrics({ https }: Listening): string {
    return exposition(this.#families(https));
  }

  metricsStream({ https }: Listening): Readable {
    return expositionStream(this.#families(https));
  }

  close(): void {
    this.#process.close();
    this.#stats.close();
  }

  #families(https: Listening["https"]): readonly Family[] {
    return [...families(this.#source, https?.certificate ?? null), ...this.#process.families(this.#source.reports?.threads ?? [])];
  }
}

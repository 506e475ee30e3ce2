/**
 * Counts the requests of a plugin instance, the time they take, and the results that the plugin itself reports.
 */
import type { PluginTime } from "../http/exchange.ts";

/** Each result is a time series; further ones are counted as "other". */
const MAX_RESULTS = 32;

export class PluginMeter implements PluginTime {
  requests = 0;
  ms = 0;
  /** By name; null while empty: most plugins report none. */
  results: Map<string, number> | null = null;

  tally(result: string, count = 1): void {
    const results = (this.results ??= new Map<string, number>());
    const name = results.has(result) || results.size < MAX_RESULTS ? result : "other";
    results.set(name, (results.get(name) ?? 0) + count);
  }

  get isUsed(): boolean {
    return this.requests > 0 || this.ms > 0 || this.results !== null;
  }

  /** Moves all counts into a report: it has what was counted since the last one. */
  take(): PluginReport {
    const { requests, ms, results } = this;
    this.requests = this.ms = 0;
    this.results = null;
    return { requests, ms, results };
  }

  /** Adds the counts of a report. */
  add({ requests, ms, results }: PluginReport): void {
    this.requests += requests;
    this.ms += ms;
    for (const [result, count] of results ?? []) this.tally(result, count);
  }
}

export type PluginReport = Pick<PluginMeter, "requests" | "ms" | "results">;

export interface PluginPlace {
  readonly name: string;
  readonly level: string;
  readonly service: string | null;
  readonly route: string | null;
  /** `id` or, without one, its place among its kind ("1", "2", …). */
  readonly id: string;
}

/** Names and values in turn. */
export function pluginLabels({ name, level, service, route, id }: PluginPlace): readonly string[] {
  return ["plugin", name, "level", level, "service", service ?? "", "route", route ?? "", "id", id];
}

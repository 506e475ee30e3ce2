/**
 * Opens the tracing of requests.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { TracingSettings } from "../config/settings_types.ts";
import { tracingProblem } from "../config/tracing.ts";
import { OtlpExporter, type OtlpOptions } from "../observe/otlp.ts";
import { createSampler } from "../observe/sampling.ts";
import { Tracer } from "../observe/trace.ts";

export { ServerDurations } from "../observe/server_durations.ts";
export { readLogsExport, readMetricsExport, readTracing } from "../config/tracing.ts";

interface Tools extends Pick<OtlpOptions, "proxy"> {
  readonly clock: Clock;
  readonly log: Log;
  readonly secretParameters: ReadonlySet<string>;
}

/** Throws a `TypeError` for settings that cannot be used. */
export function openTracing(
  settings: TracingSettings,
  { clock, log, secretParameters, ...ways }: Tools,
): { readonly spans: OtlpExporter; readonly tracer: Tracer } {
  const problem = tracingProblem(settings);
  if (problem !== undefined) throw new TypeError(problem);
  const { sampler = "parentbased_always_on", ratio = 1 } = settings;
  const spans = new OtlpExporter({ settings, clock, log, ...ways });
  return {
    spans,
    tracer: new Tracer({ clock, sampler: createSampler(sampler, ratio), sink: spans, secretParameters }),
  };
}

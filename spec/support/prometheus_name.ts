import type { ReadMetric } from "./otlp_metrics.ts";

/** Of the units that the gateway sends. */
const UNITS = new Map([
  ["s", "seconds"],
  ["By", "bytes"],
  ["1", ""],
  ["", ""],
]);

/**
 * The name that Prometheus and collectors give a metric by default: Prometheus's otlptranslator, strategy
 * `UnderscoreEscapingWithSuffixes`, in which a gauge of the unit "1" is a ratio.
 */
export function prometheusName({ name, unit, kind }: Pick<ReadMetric, "name" | "unit" | "kind">): string {
  const tokens = name.split(/[^a-zA-Z0-9:]+/).filter((token) => token !== "");
  const suffix = UNITS.get(unit);
  if (suffix === undefined) throw new Error(`another unit: ${unit}`);
  const added = [
    ...(suffix === "" || tokens.includes(suffix) ? [] : [suffix]),
    ...(kind === "sum" ? ["total"] : []),
    ...(kind === "gauge" && unit === "1" ? ["ratio"] : []),
  ];
  return [...tokens.filter((token) => token !== added.at(-1)), ...added].join("_");
}

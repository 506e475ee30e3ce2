/**
 * Chooses the format of metrics by the Accept header (RFC 9110 §12.5.1). What is written in it is `observe/exposition.ts`.
 */
import type { MetricsFormat } from "../observe/exposition.ts";

/** OpenMetrics where it is asked for by name, and not less than the other; who accepts neither gets Prometheus' own all the same. */
export function metricsFormat(accept: string | undefined): MetricsFormat {
  let open = 0;
  /** How much each way of naming the other format is wanted, the most exact one counting. */
  const plain: (number | undefined)[] = [];
  for (const range of (accept ?? "").split(",")) {
    const [type, ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const value = (name: string) => parameters.find((parameter) => parameter.startsWith(`${name}=`))?.slice(name.length + 1).replace(/^"(.*)"$/, "$1");
    const version = value("version");
    const quality = value("q") ?? "1";
    const wanted = /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.test(quality) ? Number(quality) : 0;
    if (type === "application/openmetrics-text" && (version ?? "1.0.0") === "1.0.0") open = Math.max(open, wanted);
    else if (type === "text/plain" && (version ?? "0.0.4") === "0.0.4") plain[0] = Math.max(plain[0] ?? 0, wanted);
    else if (type === "text/*") plain[1] = wanted;
    else if (type === "*/*") plain[2] = wanted;
  }
  return open > 0 && open >= (plain[0] ?? plain[1] ?? plain[2] ?? 0) ? "openmetrics" : "prometheus";
}

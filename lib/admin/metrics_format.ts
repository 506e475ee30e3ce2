/**
 * Chooses the format of metrics by the Accept header (RFC 9110 §12.5.1).
 */
import { tokens, type HeaderList } from "../http/headers.ts";
import type { MetricsFormat } from "../observe/exposition.ts";

/** OpenMetrics where it is accepted by name and not less than the Prometheus text format, which every other client gets. */
export function metricsFormat(headers: HeaderList): MetricsFormat {
  let open = 0;
  /** The quality of the text format by how it was named; the most specific name counts. */
  const plain: { exact?: number; type?: number; any?: number } = {};
  for (const range of tokens(headers, "accept")) {
    const [type, ...parameters] = range.split(";").map((part) => part.trim());
    const value = (name: string) => parameters.find((parameter) => parameter.startsWith(`${name}=`))?.slice(name.length + 1).replace(/^"(.*)"$/, "$1");
    const version = value("version");
    const quality = value("q") ?? "1";
    const wanted = /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.test(quality) ? Number(quality) : 0;
    if (type === "application/openmetrics-text" && (version ?? "1.0.0") === "1.0.0") open = Math.max(open, wanted);
    else if (type === "text/plain" && (version ?? "0.0.4") === "0.0.4") plain.exact = Math.max(plain.exact ?? 0, wanted);
    else if (type === "text/*") plain.type = wanted;
    else if (type === "*/*") plain.any = wanted;
  }
  return open > 0 && open >= (plain.exact ?? plain.type ?? plain.any ?? 0) ? "openmetrics" : "prometheus";
}

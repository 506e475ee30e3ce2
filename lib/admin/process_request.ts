/**
 * Answers `GET /gateway/process`, figures of the process and its threads, and `GET /gateway/plugin-figures`, what plugins, caches and circuit
 * breakers have counted since the start: of what the metrics have, by names, as JSON.
 */
import { Gateway } from "../embed/gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { compressed } from "../http/content_coding.ts";
import type { Reply } from "../http/reply.ts";
import type { Labels } from "../observe/exposition.ts";
import type { ThreadFigures } from "../observe/process.ts";
import type { Inbound } from "../server/inbound.ts";
import { json } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

type Options = Pick<InterfaceOptions, "gateway" | "refresh">;
type Families = ReadonlyMap<string, Iterable<readonly [labels: Labels, value: unknown]>>;

async function familiesOf({ gateway, refresh }: Options): Promise<Families> {
  await GatewayCore.partsOf(gateway as Gateway).runtime.parts.loadPart("exposition");
  await refresh("all");
  return new Map(Gateway.reportingOf(gateway as Gateway).families().map(({ name, samples }) => [name, samples]));
}

export async function processRequest({ headers }: Inbound, options: Options): Promise<Reply> {
  const families = await familiesOf(options);
  const value = (name: string) => [...(families.get(name) ?? [])][0]?.[1] as number | undefined;
  const { reports, runtime, listener, requests } = GatewayCore.partsOf(options.gateway as Gateway);
  const lag = ["mean", "p50", "p99", "max"].map((name) => value(`edge_gateway_event_loop_lag_${name}_seconds`)!) as unknown as ThreadFigures["lag"];
  const [heapBytes, heapUsedBytes, externalBytes] = ["heap", "heap_used", "external_memory"].map((name) => value(`process_${name}_bytes`)!) as [number, number, number];
  const alone = { worker: null, heapBytes, heapUsedBytes, externalBytes, lag, connections: listener.connections.open, inFlight: requests.inFlight };
  const ofWorker = (place: number, figures: ThreadFigures) => ({ worker: place, ...figures, connections: runtime.connections!.of(place), inFlight: runtime.inFlight!.of(place) });
  const threads = reports === null ? [alone] : reports.threadsByPlace.map(([place, figures]) => ofWorker(place, figures));
  const view = {
    rss_bytes: value("process_resident_memory_bytes"),
    cpu_s: value("process_cpu_seconds_total"),
    open_files: value("process_open_fds") ?? null,
    connections: alone.connections,
    in_flight: alone.inFlight,
    threads: threads.map((thread) => ({
      worker: thread.worker,
      heap_bytes: thread.heapBytes,
      heap_used_bytes: thread.heapUsedBytes,
      external_bytes: thread.externalBytes,
      lag_ms: Object.fromEntries(["mean", "p50", "p99", "max"].map((name, i) => [name, Math.round(thread.lag[i]! * 1e5) / 100])),
      connections: thread.connections,
      in_flight: thread.inFlight,
    })),
  };
  return compressed(json(200, view), headers);
}

export async function pluginFiguresRequest({ headers }: Inbound, options: Options): Promise<Reply> {
  const families = await familiesOf(options);
  const plugins = collected(families, [
    ["requests", "edge_gateway_plugin_requests_total"],
    ["answered", "edge_gateway_plugin_answers_total"],
    ["seconds", "edge_gateway_plugin_seconds_total"],
    ["results", "edge_gateway_plugin_results_total", "by name"],
    ["callers", "edge_gateway_rate_limit_callers"],
  ], () => ({ requests: 0, answered: 0, seconds: 0, results: {}, callers: null }));
  const routes = collected(families, [
    ["cache", "edge_gateway_cache_requests_total", "by name"],
    ["refusals", "edge_gateway_plugin_refusals_total", "by name"],
  ], () => ({ cache: {}, refusals: {} }));
  const caches = collected(families, [
    ["bytes", "edge_gateway_cache_bytes"],
    ["max_bytes", "edge_gateway_cache_max_bytes"],
    ["entries", "edge_gateway_cache_entries"],
    ["evictions", "edge_gateway_cache_evictions_total"],
  ], () => ({}));
  const { upstreamSets } = GatewayCore.partsOf(options.gateway as Gateway).runtime;
  const circuits = upstreamSets.flatMap(({ service, breaker }) => (breaker === null ? [] : [{ service, state: breaker.report.state, ...breaker.counts }]));
  return compressed(json(200, { plugins, routes, caches, circuits }), headers);
}

/** One object for each set of labels. "by name": the values of a family are by its last label, without the zeros. */
function collected(families: Families, members: readonly (readonly [member: string, family: string, by?: "by name"])[], empty: () => object): readonly object[] {
  const all = new Map<string, Record<string, unknown>>();
  for (const [member, family, by] of members) {
    for (const [labels, value] of families.get(family) ?? []) {
      if (by !== undefined && value === 0) continue;
      const place = by === undefined ? labels : labels.slice(0, -2);
      const key = JSON.stringify(place);
      let entry = all.get(key);
      if (entry === undefined) all.set(key, (entry = { ...placeOf(place), ...empty() }));
      if (by === undefined) entry[member] = value;
      else Object.defineProperty(entry[member] as object, labels.at(-1)!, { value, enumerable: true });
    }
  }
  return [...all.values()];
}

function placeOf(labels: Labels): Record<string, unknown> {
  const place: Record<string, unknown> = {};
  for (let i = 0; i < labels.length; i += 2) place[labels[i]!] = labels[i + 1]! === "" ? null : labels[i + 1]!;
  return place;
}

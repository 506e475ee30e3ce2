/**
 * Answers `GET /gateway/process`, figures of the process and its threads, and `GET /gateway/plugin-figures`, what
 * plugins, caches and circuit breakers have counted since the start: of what the metrics have, by names, as JSON.
 */
import { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { compressed } from "../http/content_coding.ts";
import type { Reply } from "../http/reply.ts";
import type { Labels } from "../observe/exposition.ts";
import { increase, type RouteMeter } from "../observe/metrics.ts";
import type { PluginMeter } from "../observe/metrics_plan.ts";
import type { ThreadFigures } from "../observe/process.ts";
import { cachesOf, type AllCacheFigures } from "../report/cache_figures.ts";
import { instanceLabels, limitersOf, allRoutes } from "../report/families.ts";
import type { Inbound } from "../server/inbound.ts";
import { eachInSlices, largeAnswer } from "./large_answers.ts";
import { json } from "./replies.ts";
import { view as snakeView, type InterfaceOptions } from "./views.ts";
import { configSourceOf } from "../report/reports.ts";
import { workerReportsOf } from "../report/worker_reports.ts";

type Options = Pick<InterfaceOptions, "gateway" | "refresh">;

export async function processRequest({ headers }: Inbound, options: Options): Promise<Reply> {
  await options.refresh("all");
  const families = new Map(
    ReportedGateway.reportingOf(options.gateway as ReportedGateway)
      .families()
      .map(({ name, samples }) => [name, samples]),
  );
  const value = (name: string) => [...(families.get(name) ?? [])][0]?.[1] as number | undefined;
  const internals = GatewayCore.internalsOf(options.gateway as ReportedGateway);
  const { runtime, listener, requests } = internals;
  const reports = workerReportsOf(internals);
  const lag = ["mean", "p50", "p99", "max"].map((name) =>
    value(`edge_gateway_event_loop_lag_${name}_seconds`)!,
  ) as unknown as ThreadFigures["lag"];
  const [heapBytes, heapUsedBytes, externalBytes] = ["heap", "heap_used", "external_memory"].map((name) =>
    value(`process_${name}_bytes`)!,
  ) as [number, number, number];
  const alone = {
    worker: null,
    heapBytes,
    heapUsedBytes,
    externalBytes,
    lag,
    connections: listener.connections.open,
    inFlight: requests.inFlight,
  };
  const ofWorker = (place: number, figures: ThreadFigures) => ({
    worker: place,
    ...figures,
    connections: runtime.connections!.of(place),
    inFlight: runtime.inFlight!.of(place),
  });
  const threads =
    reports === null ? [alone] : reports.threadsByWorker.map(([place, figures]) => ofWorker(place, figures));
  const view = {
    rss_bytes: value("process_resident_memory_bytes"),
    cpu_s: value("process_cpu_seconds_total"),
    open_files: value("process_open_fds") ?? null,
    connections: alone.connections,
    in_flight: alone.inFlight,
    source: snakeView(configSourceOf(internals.configuration)),
    threads: threads.map((thread) => ({
      worker: thread.worker,
      heap_bytes: thread.heapBytes,
      heap_used_bytes: thread.heapUsedBytes,
      external_bytes: thread.externalBytes,
      lag_ms: Object.fromEntries(
        ["mean", "p50", "p99", "max"].map((name, i) => [name, Math.round(thread.lag[i]! * 1e5) / 100]),
      ),
      connections: thread.connections,
      in_flight: thread.inFlight,
    })),
  };
  return compressed(json(200, view), headers);
}

export async function pluginFiguresRequest({ headers }: Inbound, { gateway, refresh }: Options): Promise<Reply> {
  await refresh("counts");
  return largeAnswer(gateway, "plugin-figures", headers, async (slice) => {
    const internals = GatewayCore.internalsOf(gateway as ReportedGateway);
    const source = { ...internals, metrics: internals.metrics! };
    const callers = new Map<string, number>();
    await eachInSlices(limitersOf(source), slice, ([key, table]) => {
      increase(callers, JSON.stringify(instanceLabels(key)), table.callers);
      return null;
    });
    const circuits = internals.runtime.upstreamSets.flatMap(({ service, breaker }) =>
      breaker === null ? [] : [{ service, state: breaker.report.state, ...breaker.counts }],
    );
    return {
      plugins: await eachInSlices(source.metrics.plugins, slice, (each) => pluginView(each, callers)),
      routes: await eachInSlices(allRoutes(source.metrics), slice, routeView),
      caches: await eachInSlices(cachesOf(internals.runtime, workerReportsOf(internals)?.caches), slice, cacheView),
      circuits,
    };
  });
}

/** Null: it has had no request. */
function pluginView(
  [labels, { requests, answered, ms, results }]: readonly [labels: string, meter: PluginMeter],
  callers: ReadonlyMap<string, number>,
) {
  if (requests === 0 && results === null) return null;
  return {
    ...placeOf(JSON.parse(labels) as Labels),
    requests,
    answered,
    seconds: ms / 1000,
    results: results === null ? {} : Object.fromEntries(results),
    callers: callers.get(labels) ?? null,
  };
}

/** Null: neither a cache nor a refusal has had one of its requests. */
function routeView([labels, { cached, refusals }]: readonly [Labels, RouteMeter]) {
  const [, service, , route] = labels;
  return cached === null && refusals === null
    ? null
    : {
        service: service || null,
        route: route || null,
        cache: Object.fromEntries(cached ?? []),
        refusals: Object.fromEntries(refusals ?? []),
      };
}

function cacheView([key, { bytes, maxBytes, entries, evictions }]: AllCacheFigures[number]) {
  return { ...placeOf(instanceLabels(key)), bytes, max_bytes: maxBytes, entries, evictions };
}

/** See `pluginLabels`. */
function placeOf(labels: Labels) {
  return {
    plugin: labels[1]!,
    level: labels[3]!,
    service: labels[5]! || null,
    route: labels[7]! || null,
    id: labels[9]!,
  };
}

/**
 * Every family of metrics that the gateway tells of itself, from what it has counted and how it is at this moment.
 * Counting is `observe/metrics.ts`, the text `observe/exposition.ts`.
 */
import type { Family, Histogram, Labels } from "../observe/exposition.ts";
import { pluginLabels, type Metrics, type RouteMeter } from "../observe/metrics.ts";
import { gauge } from "../observe/process.ts";
import type { Recent } from "../observe/recent.ts";
import type { BreakerState } from "../upstream/breaker.ts";
import type { UpstreamSet } from "../upstream/upstream_set.ts";
import type { Snapshot } from "./snapshot.ts";

export interface MetricsSource {
  readonly status: {
    readonly version: string;
    readonly inFlight: number;
    readonly loadedAt: number;
    readonly lastReload: { readonly outcome: "taken" | "refused" } | null;
  };
  readonly metrics: Metrics;
  /** Of clients. */
  readonly connections: { readonly open: number; readonly refused: number };
  /** What rate limits remember, by the key of the plugin instance. */
  readonly limiters: readonly (readonly [key: string, table: { readonly callers: number; readonly shared: number }])[];
  /** Null: requests are not traced. */
  readonly spans: { readonly exported: number; readonly dropped: number } | null;
  readonly fleets: readonly UpstreamSet[];
  readonly files: Snapshot["shownCertificates"];
  /** Of listeners, for all names that `files` does not have: its end in milliseconds since 1970; null: there is no HTTPS. */
  readonly own: { readonly notAfter: number } | null;
}

type Samples<T> = Iterable<readonly [labels: Labels, value: T]>;

/** Samples are made when they are asked for, one by one: with many routes all of them take a while. */
export function families({ status, metrics, connections, limiters, spans, fleets, files, own }: MetricsSource): readonly Family[] {
  const routes = () => routesOf(metrics);
  const services = [...metrics.services];
  const peers = fleets.flatMap((fleet) => fleet.peers.map((peer) => [["service", fleet.service, "upstream", peer.id], peer] as const));
  const { version, inFlight, lastReload, loadedAt } = status;
  const certificates = files.flatMap(({ path, hosts, notAfter }) => hosts.map((host) => [["file", path, "host", host], notAfter / 1000] as [Labels, number]));
  if (own !== null) certificates.push([["file", "", "host", ""], own.notAfter / 1000]);
  const help = HELP;
  return [
    { name: "edge_gateway_http_requests_total", type: "counter", help: help.requests, samples: requestsOf(routes()) },
    { name: "edge_gateway_http_request_duration_seconds", type: "histogram", help: help.durations, samples: timedOf(routes()) },
    gauge("edge_gateway_http_requests_in_flight", "Requests that are being answered, and open WebSockets.", inFlight),
    { name: "edge_gateway_http_received_bytes_total", type: "counter", help: help.received, samples: receivedOf(routes()) },
    { name: "edge_gateway_http_sent_bytes_total", type: "counter", help: help.sent, samples: sentOf(routes()) },
    gauge("edge_gateway_client_connections", "Connections of clients that are open.", connections.open),
    { name: "edge_gateway_client_connections_refused_total", type: "counter", help: help.refused, samples: [[[], connections.refused]] },
    { name: "edge_gateway_cache_requests_total", type: "counter", help: help.cached, samples: cachedOf(routes()) },
    { name: "edge_gateway_plugin_requests_total", type: "counter", help: "Requests that a plugin got.", samples: pluginsOf(metrics, "requests") },
    { name: "edge_gateway_plugin_seconds_total", type: "counter", help: help.plugins, samples: pluginsOf(metrics, "seconds") },
    { name: "edge_gateway_rate_limit_callers", type: "gauge", help: help.callers, samples: limitersOf(limiters, "callers") },
    { name: "edge_gateway_rate_limit_shared_total", type: "counter", help: help.shared, samples: limitersOf(limiters, "shared") },
    { name: "edge_gateway_rate_limited_total", type: "counter", help: "Requests refused by rate_limit.", samples: limitedOf(routes()) },
    { name: "edge_gateway_plugin_refusals_total", type: "counter", help: help.refusals, samples: refusalsOf(routes()) },
    { name: "edge_gateway_upstream_duration_seconds", type: "histogram", help: help.tries, samples: timedOf(triesOf(metrics)) },
    { name: "edge_gateway_retries_total", type: "counter", help: "Tries beyond the first one of a request.", samples: services.map(([service, { meter }]) => [["service", service], meter.retries] as const) },
    { name: "edge_gateway_circuit_state", type: "gauge", help: help.circuits, samples: circuitsOf(fleets) },
    { name: "edge_gateway_upstream_healthy", type: "gauge", help: help.healthy, samples: peers.map(([labels, { health }]) => [labels, health.usable ? 1 : 0] as const) },
    { name: "edge_gateway_upstream_connections", type: "gauge", help: "Open connections, idle ones included.", samples: peers.map(([labels, { pool }]) => [labels, pool.open] as const) },
    gauge("edge_gateway_config_last_reload_successful", help.reloaded, lastReload?.outcome === "refused" ? 0 : 1),
    gauge("edge_gateway_config_last_reload_success_timestamp_seconds", help.loadedAt, loadedAt / 1000),
    { name: "edge_gateway_tls_certificate_expiry_timestamp_seconds", type: "gauge", help: help.certificates, samples: certificates },
    ...(spans === null ? [] : spanFamilies(spans)),
    { name: "edge_gateway_build_info", type: "gauge", help: "What runs.", samples: [[["version", version, "node_version", process.version], 1]] },
  ];
}

function spanFamilies({ exported, dropped }: NonNullable<MetricsSource["spans"]>): readonly Family[] {
  return [
    { name: "edge_gateway_trace_spans_exported_total", type: "counter", help: "Spans of traces that the collector has taken.", samples: [[[], exported]] },
    { name: "edge_gateway_trace_spans_dropped_total", type: "counter", help: "Spans of traces that were lost.", samples: [[[], dropped]] },
  ];
}

const HELP = {
  requests: "Requests that are over. code is the status; none: the client was gone before there was one.",
  durations: "From the head of the request to the end of the reply, without WebSockets.",
  received: "Bytes of request bodies, and of what clients sent through WebSockets.",
  sent: "Bytes of bodies that were sent to clients, and through WebSockets.",
  refused: "Connections that were not taken for a limit.",
  cached: "Requests that response_cache saw, by what it did.",
  plugins: "Time from when a plugin got a request until it handed it on or answered it.",
  callers: "Callers that a rate limit remembers.",
  shared: "Decisions of a rate limit for callers that share one allowance, because its table is full.",
  circuits: "1 for the state that a circuit breaker is in, 0 for the others.",
  refusals: "Requests that a plugin refused, by the code of its error.",
  tries: "From the beginning of a try to the head of the upstream's response, or to its failure.",
  healthy: "Whether the upstream is thought to be well: 0 when checks fail or it has been ejected.",
  reloaded: "Whether the last reload was taken; 1 before the first.",
  loadedAt: "When the configuration in force was taken, in seconds since 1970.",
  certificates: "When a certificate that clients are shown ends, in seconds since 1970; without file and host: that of all other names.",
};

/** All routes, and last what had none. */
function* routesOf({ services, unrouted }: Metrics): Samples<RouteMeter> {
  for (const [service, { routes }] of services) for (const [name, meter] of routes) yield [["service", service, "route", name], meter];
  yield [["service", "", "route", ""], unrouted];
}

function* triesOf({ services }: Metrics): Samples<{ readonly recent: Recent }> {
  for (const [service, { meter }] of services) for (const [upstream, recent] of meter.upstreams) yield [["service", service, "upstream", upstream], { recent }];
}

/** Most routes of a large configuration are quiet, and a histogram is long. */
function* timedOf(all: Samples<{ readonly recent: Recent }>): Samples<Histogram> {
  for (const [labels, { recent: { counts, sumMs } }] of all) if (counts !== null) yield [labels, { counts, sumMs }];
}

function* requestsOf(routes: Samples<RouteMeter>): Samples<number> {
  for (const [labels, meter] of routes) for (const [method, code, count] of meter.requests()) yield [[...labels, "method", method, "code", code], count];
}

function* refusalsOf(routes: Samples<RouteMeter>): Samples<number> {
  for (const [labels, meter] of routes) for (const [code, count] of meter.refusals ?? []) yield [[...labels, "code", code], count];
}

function* limitedOf(routes: Samples<RouteMeter>): Samples<number> {
  for (const [labels, { rateLimited }] of routes) if (labels[3] !== "") yield [labels, rateLimited];
}

function* receivedOf(routes: Samples<RouteMeter>): Samples<number> {
  for (const [labels, { receivedBytes }] of routes) if (receivedBytes > 0) yield [labels, receivedBytes];
}

function* sentOf(routes: Samples<RouteMeter>): Samples<number> {
  for (const [labels, { sentBytes }] of routes) if (sentBytes > 0) yield [labels, sentBytes];
}

function* cachedOf(routes: Samples<RouteMeter>): Samples<number> {
  for (const [labels, { cached }] of routes) if (cached !== null) for (const [result, count] of cached) yield [[...labels, "result", result], count];
}

function* pluginsOf(metrics: Metrics, what: "requests" | "seconds"): Samples<number> {
  for (const [labels, { requests, ms }] of metrics.plugins()) if (requests > 0) yield [labels, what === "requests" ? requests : ms / 1000];
}

/** Several instances may bear the same labels: they are counted together. */
function limitersOf(limiters: MetricsSource["limiters"], what: "callers" | "shared"): Samples<number> {
  const sums = new Map<string, [Labels, number]>();
  for (const [key, table] of limiters) {
    const labels = limiterLabels(key);
    const name = JSON.stringify(labels);
    sums.set(name, [labels, (sums.get(name)?.[1] ?? 0) + table[what]]);
  }
  return sums.values();
}

function* circuitsOf(fleets: readonly UpstreamSet[]): Samples<number> {
  for (const { service, circuit } of fleets) {
    if (circuit !== null) for (const state of BREAKER_STATES) yield [["service", service, "state", state], state === circuit ? 1 : 0];
  }
}

const BREAKER_STATES: readonly BreakerState[] = ["closed", "open", "half_open"];

/** The key of a plugin instance is its `scope.key`. */
function limiterLabels(key: string): Labels {
  const [level, service, route, name, id] = JSON.parse(key) as [string, string | null, string | null, string, string | number];
  return pluginLabels({ name, level, service, route, id: typeof id === "number" ? String(id + 1) : id });
}

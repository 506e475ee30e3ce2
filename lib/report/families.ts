/**
 * The families of metrics that a gateway exposes, from what it has counted and from its state at this moment.
 */
import { version } from "../base/version.ts";
import type { Family, Histogram, Labels } from "../observe/exposition.ts";
import type { Recent, RouteMeter } from "../observe/metrics.ts";
import { pluginLabels, type Metrics, type PluginMeter } from "../observe/metrics_plan.ts";
import { gauge } from "../observe/process.ts";
import type { AcmeState } from "../server/issued_certificates.ts";
import type { BreakerState } from "../upstream/contracts.ts";
import { OTHERS, type Peer, type UpstreamSet } from "../upstream/upstream_set.ts";
import { servingOf, usableOf } from "../upstream/usable.ts";
import { cachesOf } from "./cache_figures.ts";
import type { DisplayedConfig } from "../gateway/displayed_config.ts";
import { keyEnds } from "./key_ends.ts";
import { acmeOf, configSourceOf, countersOf, type ReportSource } from "./reports.ts";
import { workerReportsOf } from "./worker_reports.ts";

type Samples<T> = Iterable<readonly [labels: Labels, value: T]>;
/** What plugin instances have, by their keys. */
type Instances<What extends string> = Iterable<readonly [key: string, figures: Readonly<Record<What, number>>]>;

/** Samples are made one by one when they are read: they may be many. */
export function families(source: ReportSource, exporter: { readonly lost: number } | null = null): readonly Family[] {
  return [
    ...ofRequests(source),
    ...ofPlugins(source),
    ...ofCounters(source),
    ...ofRefusals(source),
    ...ofUpstreams(source),
    ...ofWorkers(source),
    ...ofConfiguration(source),
    ...ofSpans(source),
    ...ofExports(source, exporter),
    gauges("edge_gateway_build_info", "What runs.", [[["version", version, "node_version", process.version], 1]]),
  ];
}

function ofRequests(source: ReportSource): Family[] {
  const { metrics, requests, listener, runtime } = source;
  const caches = cachesOf(runtime, workerReportsOf(source)?.caches);
  return [
    counters(
      "edge_gateway_http_requests_total",
      "Requests that are over. code is the status; none: the client disconnected before there was one.",
      requestsOf(metrics),
    ),
    times(
      "edge_gateway_http_request_duration_seconds",
      "From the head of the request to the end of the reply, without WebSockets.",
      allRoutes(metrics),
    ),
    gauge(
      "edge_gateway_http_requests_in_flight",
      "Requests that are being answered, and open WebSockets.",
      requests.inFlight,
    ),
    counters(
      "edge_gateway_http_received_bytes_total",
      "Bytes of request bodies, and of what clients sent through WebSockets.",
      aboveZero(allRoutes(metrics), ({ receivedBytes }) => receivedBytes),
    ),
    counters(
      "edge_gateway_http_sent_bytes_total",
      "Bytes of bodies that were sent to clients, and through WebSockets.",
      aboveZero(allRoutes(metrics), ({ sentBytes }) => sentBytes),
    ),
    gauge("edge_gateway_client_connections", "Connections of clients that are open.", listener.connections.open),
    counters("edge_gateway_client_connections_refused_total", "Connections that a limit refused.", [
      [[], listener.connections.refused],
    ]),
    counters(
      "edge_gateway_tls_handshakes_total",
      "TLS handshakes that have finished; group is empty where it is not known.",
      labelled(metrics.handshakes),
    ),
    counters(
      "edge_gateway_tls_handshakes_refused_total",
      "TLS handshakes that failed, and why.",
      labelled(metrics.refusedHandshakes),
    ),
    counters(
      "edge_gateway_cache_requests_total",
      "Requests that response_cache saw, by what it did.",
      counted(allRoutes(metrics), "result", ({ cached }) => cached),
    ),
    gauges("edge_gateway_cache_bytes", "Memory that a cache uses.", summed(caches, "bytes")),
    gauges(
      "edge_gateway_cache_max_bytes",
      "Memory that a cache may use: max_bytes, with workers of all of them.",
      summed(caches, "maxBytes"),
    ),
    gauges("edge_gateway_cache_entries", "Replies that a cache has stored.", summed(caches, "entries")),
    counters(
      "edge_gateway_cache_evictions_total",
      "Stored replies that a cache dropped for want of room.",
      summed(caches, "evictions"),
    ),
  ];
}

function ofPlugins({ metrics }: ReportSource): Family[] {
  return [
    counters(
      "edge_gateway_plugin_requests_total",
      "Requests that a plugin got.",
      usedPlugins(metrics, (meter) => meter.requests),
    ),
    counters(
      "edge_gateway_plugin_answers_total",
      "Requests that a plugin answered itself: refusals, redirects, replies from a cache.",
      usedPlugins(metrics, (meter) => meter.answered),
    ),
    counters(
      "edge_gateway_plugin_seconds_total",
      "Time from when a plugin got a request until it passed it on or answered it.",
      usedPlugins(metrics, (meter) => meter.ms / 1000),
    ),
    counters(
      "edge_gateway_plugin_results_total",
      "What a plugin reports of its work; of mirror: its copies.",
      counted(
        pluginsOf(metrics, ({ results }) => results !== null),
        "result",
        ({ results }) => results,
      ),
    ),
    counters(
      "edge_gateway_plugin_faults_total",
      "Faults of plugins: in a request, or in a timer, a promise or a listener of their module.",
      Array.from(metrics.pluginFaults, ([plugin, count]) => [["plugin", plugin], count]),
    ),
  ];
}

function ofCounters(source: ReportSource): Family[] {
  const { runtime } = source;
  const shared = countersOf(source);
  return [
    gauges(
      "edge_gateway_rate_limit_callers",
      "Callers that a rate limit remembers.",
      summed(limitersOf(source), "callers"),
    ),
    counters(
      "edge_gateway_rate_limit_shared_total",
      "Decisions of a rate limit for callers that share one allowance, because its table is full.",
      summed(limitersOf(source), "shared"),
    ),
    gauges(
      "edge_gateway_counters_up",
      "Whether every server of global.counters that is needed answers.",
      shared === null ? [] : [[[], shared.state === "up" ? 1 : 0]],
    ),
    counters(
      "edge_gateway_counters_errors_total",
      "Decisions of rate limits that global.counters did not make, but on_error.",
      Array.from(runtime.countersErrors, ([reason, count]) => [["reason", reason], count]),
    ),
    counters(
      "edge_gateway_state_errors_total",
      "Writes to STATE_DIR that have failed.",
      runtime.state === null ? [] : [[[], runtime.state.failures]],
    ),
  ];
}

function ofRefusals({ metrics }: ReportSource): Family[] {
  return [
    counters("edge_gateway_rate_limited_total", "Requests refused by rate_limit.", limitedOf(metrics)),
    counters(
      "edge_gateway_plugin_refusals_total",
      "Requests that a plugin refused, by the code of its error.",
      counted(allRoutes(metrics), "code", ({ refusals }) => refusals),
    ),
  ];
}

function ofUpstreams({ metrics, runtime: { upstreamSets } }: ReportSource): Family[] {
  const circuits = upstreamSets.map(
    ({ service, breaker }) => [["service", service], breaker?.report.state ?? null] as const,
  );
  return [
    times(
      "edge_gateway_upstream_duration_seconds",
      "From the beginning of a try to the head of the upstream's response, or to its failure.",
      triesOf(metrics),
    ),
    counters(
      "edge_gateway_retries_total",
      "Tries beyond the first one of a request.",
      Array.from(metrics.services, ([service, { meter }]) => [["service", service], meter.retries]),
    ),
    gauges(
      "edge_gateway_circuit_state",
      "1 for the state of a circuit breaker, 0 for the other states.",
      counted(circuits, "state", statesOf),
    ),
    gauges(
      "edge_gateway_upstream_healthy",
      "Whether the upstream is healthy: 0 when its checks fail or it has been ejected.",
      peersOf(upstreamSets, ({ health }) => (health.usable ? 1 : 0)),
    ),
    gauges(
      "edge_gateway_upstream_backup",
      "Of each backup: 1 while it gets the requests of its service, 0 while it waits.",
      backupsOf(upstreamSets),
    ),
    gauges(
      "edge_gateway_upstream_connections",
      "Open connections, idle ones included.",
      peersOf(upstreamSets, ({ pool, ofWorkers }) => pool.open + ofWorkers.open),
    ),
  ];
}

function ofWorkers({ configuration: { followers } }: ReportSource): Family[] {
  if (followers === null) return [];
  return [
    gauge("edge_gateway_workers", "Threads that serve requests.", followers.serving),
    gauge(
      "edge_gateway_worker_restarts_total",
      "Workers that were replaced because they ended or gave no sign of life.",
      followers.restarts,
      "counter",
    ),
  ];
}

function ofConfiguration({ configuration, clock, listening: { https } }: ReportSource): Family[] {
  const { snapshot, lastReload, loadedAt, validity } = configuration;
  const end = validity?.endOf(snapshot.config) ?? null;
  const { next: nextKey } = keyEnds(snapshot.shown as unknown as DisplayedConfig, snapshot.callers, clock.wall());
  const certificates: [Labels, number][] = snapshot.shownCertificates.flatMap(({ path, hosts, notAfter }) =>
    hosts.map((host): [Labels, number] => [["file", path, "host", host], notAfter / 1000]),
  );
  const acme = acmeOf(snapshot);
  for (const { host, notAfter } of acme?.hosts ?? [])
    if (notAfter !== null) certificates.push([["file", "", "host", host], notAfter / 1000]);
  const own = https?.certificate ?? null;
  if (own !== null) certificates.push([["file", "", "host", ""], own.notAfter / 1000]);
  return [
    gauge(
      "edge_gateway_config_last_reload_successful",
      "Whether the last reload succeeded; 1 before the first.",
      lastReload?.outcome === "refused" ? 0 : 1,
    ),
    gauge(
      "edge_gateway_config_last_reload_success_timestamp_seconds",
      "When the configuration in force was loaded, in seconds since 1970.",
      loadedAt / 1000,
    ),
    ...ofSource(configuration, clock),
    gauges(
      "edge_gateway_config_expiry_timestamp_seconds",
      "When the signed configuration in force ends, in seconds since 1970; no sample: it does not end.",
      end === null ? [] : [[[], end / 1000]],
    ),
    gauges(
      "edge_gateway_key_expiry_timestamp_seconds",
      "When the next API key ends, in seconds since 1970; no sample: none does.",
      nextKey === null ? [] : [[[], nextKey / 1000]],
    ),
    gauges(
      "edge_gateway_tls_certificate_expiry_timestamp_seconds",
      "When a certificate of the gateway expires, in seconds since 1970; without file and host: " +
        "the one for all other names.",
      certificates,
    ),
    gauges(
      "edge_gateway_tls_crl_expiry_timestamp_seconds",
      "When a list of revoked certificates expires, in seconds since 1970.",
      endsOf(snapshot.revocationLists),
    ),
    ...ofAcme(acme),
  ];
}

/** No samples: the configuration does not have `global.acme`. */
function ofAcme(acme: AcmeState | null): Family[] {
  const ofState = (read: (state: AcmeState) => number): [Labels, number][] => (acme === null ? [] : [[[], read(acme)]]);
  const outcomes = acme === null ? [] : Object.entries(acme.orders);
  return [
    counters(
      "edge_gateway_acme_orders_total",
      "Orders of certificates, by their outcome.",
      outcomes.map(([outcome, count]) => [["outcome", outcome], count]),
    ),
    gauges(
      "edge_gateway_acme_hosts_without_certificate",
      "Hosts of global.acme that have no certificate yet.",
      ofState(({ hosts }) => hosts.filter(({ notAfter }) => notAfter === null).length),
    ),
    gauges(
      "edge_gateway_acme_last_attempt_successful",
      "Whether the last attempt to order or renew a certificate succeeded; 1 before the first.",
      ofState(({ error }) => (error === null ? 1 : 0)),
    ),
    gauges(
      "edge_gateway_acme_fleet_holder",
      "Whether this gateway orders certificates for its fleet; no sample: it orders for itself alone.",
      acme === null || acme.fleet === null ? [] : [[[], acme.fleet.isHolder ? 1 : 0]],
    ),
  ];
}

/** Of counts by their labels as JSON. */
function* labelled(counts: ReadonlyMap<string, number>): Samples<number> {
  for (const [labels, count] of counts) yield [JSON.parse(labels) as Labels, count];
}

/** Without samples where the configuration is in a file. */
function ofSource(configuration: ReportSource["configuration"], clock: ReportSource["clock"]): Family[] {
  const from = configSourceOf(configuration);
  const copy = from?.copy ?? null;
  return [
    gauges(
      "edge_gateway_config_source_up",
      "Whether the source of the configuration has answered the last question; no sample: it is in a file.",
      from === null ? [] : [[[], from.up ? 1 : 0]],
    ),
    gauges(
      "edge_gateway_config_copy_age_seconds",
      "How long ago the copy of the configuration in force was kept; no sample: what is in force is no copy.",
      copy === null ? [] : [[[], Math.max(0, clock.wall() - copy.keptAt) / 1000]],
    ),
  ];
}

/** Several services may name the same file. */
function endsOf(lists: ReportSource["configuration"]["snapshot"]["revocationLists"]): Samples<number> {
  const ends = new Map<string, [Labels, number]>();
  for (const { path, issuer, notAfter } of lists)
    ends.set(JSON.stringify([path, issuer]), [["file", path, "issuer", issuer ?? ""], notAfter / 1000]);
  return [...ends.values()];
}

function ofSpans(source: ReportSource): Family[] {
  const { spans } = source;
  const reports = workerReportsOf(source);
  if (spans === null) return [];
  return [
    counters("edge_gateway_trace_spans_exported_total", "Spans of traces that the collector has accepted.", [
      [[], spans.exported + (reports?.spans.exported ?? 0)],
    ]),
    counters("edge_gateway_trace_spans_dropped_total", "Spans of traces that were lost.", [
      [[], spans.dropped + (reports?.spans.dropped ?? 0)],
    ]),
  ];
}

function ofExports(source: ReportSource, exporter: { readonly lost: number } | null): Family[] {
  const { spans, accessLog } = source;
  const traces = spans && spans.dropped + (workerReportsOf(source)?.spans.dropped ?? 0);
  const samples = Object.entries({
    traces,
    metrics: exporter && exporter.lost,
    logs: accessLog.copy && accessLog.copy.lost,
  }).flatMap(([signal, lost]): (readonly [Labels, number])[] => (lost === null ? [] : [[["signal", signal], lost]]));
  if (samples.length === 0) return [];
  return [
    counters(
      "edge_gateway_otlp_lost_total",
      "Spans, data points and log lines that a collector did not accept.",
      samples,
    ),
  ];
}

function counters(name: string, help: string, samples: Samples<number>): Family {
  return { name, type: "counter", help, samples };
}

function gauges(name: string, help: string, samples: Samples<number>): Family {
  return { name, type: "gauge", help, samples };
}

function times(name: string, help: string, of: Samples<{ readonly recent: Recent }>): Family {
  return { name, type: "histogram", help, samples: timed(of) };
}

/** All routes, and last the requests without a route. */
export function* allRoutes({ services, unrouted }: Metrics): Samples<RouteMeter> {
  for (const [service, { routes }] of services)
    for (const [name, meter] of routes) yield [["service", service, "route", name], meter];
  yield [["service", "", "route", ""], unrouted];
}

function* triesOf({ services }: Metrics): Samples<{ readonly recent: Recent }> {
  for (const [service, { meter, upstreams }] of services) {
    for (const [id, recent] of meter.upstreams)
      yield [upstreamLabels(service, { id, group: upstreams.get(id) ?? null }), { recent }];
  }
}

/** Most routes of a large configuration have no requests, and a histogram is long. */
function* timed(all: Samples<{ readonly recent: Recent }>): Samples<Histogram> {
  for (const [labels, { recent }] of all) {
    const { counts, sumMs } = recent;
    if (counts !== null) yield [labels, { counts, sumMs }];
  }
}

function* aboveZero<T>(all: Samples<T>, read: (meter: T) => number): Samples<number> {
  for (const [labels, meter] of all) if (read(meter) > 0) yield [labels, read(meter)];
}

function* requestsOf(metrics: Metrics): Samples<number> {
  for (const [labels, meter] of allRoutes(metrics)) {
    for (const [method, code, count] of meter.requests()) yield [[...labels, "method", method, "code", code], count];
  }
}

/** Of what is counted by names, each of which is a label. */
function* counted<T>(
  all: Samples<T>,
  label: string,
  read: (counts: T) => Iterable<readonly [name: string, count: number]> | null,
): Samples<number> {
  for (const [labels, counts] of all)
    for (const [name, count] of read(counts) ?? []) yield [[...labels, label, name], count];
}

function* limitedOf(metrics: Metrics): Samples<number> {
  for (const [labels, meter] of allRoutes(metrics)) if (meter !== metrics.unrouted) yield [labels, meter.rateLimited];
}

/** Those that have what a family shows: of thousands without it no labels are read. */
function* pluginsOf({ plugins }: Metrics, isShown: (meter: PluginMeter) => boolean): Samples<PluginMeter> {
  for (const [labels, meter] of plugins) if (isShown(meter)) yield [JSON.parse(labels) as Labels, meter];
}

function* usedPlugins(metrics: Metrics, read: (meter: PluginMeter) => number): Samples<number> {
  for (const [labels, meter] of pluginsOf(metrics, ({ requests }) => requests > 0)) yield [labels, read(meter)];
}

function* peersOf(upstreamSets: readonly UpstreamSet[], read: (peer: Peer) => number): Samples<number> {
  for (const { service, peers } of upstreamSets) yield* ofPeers(service, peers, read);
}

function* backupsOf(upstreamSets: readonly UpstreamSet[]): Samples<number> {
  for (const { service, peers } of upstreamSets) {
    const backups = peers.filter(({ isBackup }) => isBackup);
    const serving = new Set(backups.length === 0 ? [] : servingOf(usableOf(peers)));
    yield* ofPeers(service, backups, (peer) => (serving.has(peer) ? 1 : 0));
  }
}

/** Endpoints without a name of their own are one sample, the sum of theirs. */
function* ofPeers(service: string, peers: readonly Peer[], read: (peer: Peer) => number): Samples<number> {
  let others: number | null = null;
  for (const peer of peers) {
    if (peer.label === peer.id) yield [upstreamLabels(service, peer), read(peer)];
    else others = (others ?? 0) + read(peer);
  }
  if (others !== null) yield [upstreamLabels(service, { id: OTHERS, group: null }), others];
}

function upstreamLabels(
  service: string,
  { id, group }: { readonly id: string; readonly group: string | null },
): Labels {
  return ["service", service, "upstream", id, ...(group === null ? [] : ["group", group])];
}

function statesOf(circuit: BreakerState | null) {
  return (
    circuit && (["closed", "open", "half_open"] as const).map((state) => [state, state === circuit ? 1 : 0] as const)
  );
}

/** Of the configuration in force. */
export function* limitersOf({
  configuration: {
    snapshot: { instances },
  },
  runtime,
}: ReportSource): Instances<"callers" | "shared"> {
  for (const table of runtime.limits?.tables() ?? [])
    if (instances.has(table[0]) || instances.has(withoutGroup(table[0]))) yield table;
}

/** Several instances may have the same labels: they are counted together. */
function* summed<What extends string>(instances: Instances<What>, what: What): Samples<number> {
  const sums = new Map<string, [Labels, number]>();
  for (const [key, figures] of instances) {
    const labels = instanceLabels(key);
    const name = JSON.stringify(labels);
    sums.set(name, [labels, (sums.get(name)?.[1] ?? 0) + figures[what]]);
  }
  yield* sums.values();
}

/** The key of a group's limits has the group behind what their instance's has, see `GroupLimits`. */
function withoutGroup(key: string): string {
  return key.replace(/,"(?:[^"\\]|\\.)*"\]$/, "]");
}

/** The key of a plugin instance is its `scope.key`. */
export function instanceLabels(key: string): Labels {
  const [level, service, route, name, id] = JSON.parse(key) as [
    string,
    string | null,
    string | null,
    string,
    string | number,
  ];
  return pluginLabels({ name, level, service, route, id: typeof id === "number" ? String(id + 1) : id });
}

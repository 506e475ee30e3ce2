/**
 * The JSON of the admin interface: the ProxyConfig, the admin configuration object, and the gateway's status, health and statistics.
 */
import type { Readable } from "node:stream";
import { MASK } from "../config/schema_core.ts";
import type { Figures, GatewayStats, Point, StatsExtent, StatusCounts, TryFigures } from "../observe/stats.ts";
import type { Explanation, Question, RunningPlugin } from "../proof/explain.ts";
import type { GatewayHealth, GatewayStatus, LastReload, LastTests } from "../gateway/gateway.ts";
import type { DryRun } from "../proof/dry_run.ts";
import type { Warning } from "../gateway/status.ts";
import type { UpstreamReport } from "../upstream/upstream_report.ts";

/** The data and actions that the admin interface needs from the rest of the program. */
export interface AdminSource {
  /** The configuration as written, with defaults filled in and references to secrets unresolved; secrets written in it may be masked. */
  proxyConfig(secrets: Secrets): ProxyConfig;
  settings(): AdminSettings;
  /** Whether the gateway serves: false before the first snapshot, once its stop is announced, and while draining. */
  ready(): boolean;
  /** Brings status, health, stats and metrics up to date; null: they are. "counts": without figures of the process. */
  refresh(extent: "counts" | "all"): Promise<void> | null;
  status(): GatewayStatus;
  health(): GatewayHealth;
  stats(extent: StatsExtent): GatewayStats;
  /** The last run of the configuration's tests; null before the first one. */
  tests(): LastTests | null;
  explain(question: Question, secrets: Secrets): Promise<Explanation>;
  /** The enabled plugins of a route in the order in which they run, secrets masked; null: there is no such route. */
  routePlugins(service: string, route: string): Promise<readonly RunningPlugin[] | null>;
  /** In Prometheus' text format. */
  metrics(): Promise<Readable>;
  /** Reloads like a change of the file does, and returns the outcome. */
  reload(): Promise<LastReload>;
  /** Tries a reload without doing it. `text` is a whole configuration; null: the file, read again. */
  dryRun(text: Buffer | null): Promise<DryRun>;
}

/** Whether secrets that are written in the configuration itself are shown. */
export type Secrets = "shown" | "masked";

export interface ProxyConfig {
  readonly services: readonly unknown[];
  /** The global plugins. */
  readonly plugins: readonly unknown[];
  /** The complete `global` object, limits included. */
  readonly global: { readonly name: string; readonly plugins: readonly unknown[] };
}

/** The admin configuration object; "" if a setting is not set. */
export interface AdminSettings {
  readonly ServerCertPath: string;
  readonly ServerKeyPath: string;
  readonly CACertPath: string;
  readonly AdminUser: string;
  readonly AdminPassword: string;
  readonly ConfigFilePath: string;
}

/** Each member by name: other members of the source are not shown. */
export function gatewayView({ services, plugins, global }: ProxyConfig): ProxyConfig {
  return { services, plugins, global };
}

export function warningView({ code, path, message, example, remedy, service, route }: Warning) {
  return { code, path, message, example, remedy, service, route };
}

/** Times in the format of RFC 3339. */
export function statusView(status: GatewayStatus) {
  const { version, state, ready, uptimeMs, inFlight, digest, loadedAt, counts, lastReload, lastChange, counters, workers, tests } = status;
  return {
    version,
    state,
    ready,
    uptime_s: Math.floor(uptimeMs / 1000),
    in_flight: inFlight,
    digest,
    loaded_at: moment(loadedAt),
    counts,
    last_reload: lastReload === null ? null : { ...lastReload, at: moment(lastReload.at) },
    last_change: lastChange === null ? null : { ...lastChange, at: moment(lastChange.at) },
    counters: counters === null ? null : countersView(counters),
    workers: workers === null ? null : { configured: workers.configured, serving: workers.serving, restarts: workers.restarts },
    tests,
    plugin_faults: status.pluginFaults,
    certificates: status.certificates.map(({ where, path, names, commonName, notAfter }) => {
      return { where, path, names, common_name: commonName, not_after: moment(notAfter) };
    }),
    warnings: status.warnings.map(warningView),
  };
}

/** As `edge-gateway test --json`, with the time of the run and the digest of the configuration that was tested. */
export function testsView(last: LastTests | null) {
  if (last === null) return { at: null, digest: null, passed: 0, failed: 0, tests: [] };
  const { at, digest, report } = last;
  const tests = report.tests.map(({ name, passed, expected, found, differences, differing }) => ({ name, passed, expected, found, differences, differing }));
  return { at: moment(at), digest, passed: report.passed, failed: report.failed, tests };
}

function countersView({ store, state, onError, since, servers }: NonNullable<GatewayStatus["counters"]>) {
  return { store, state, on_error: onError, since: moment(since), servers: servers.map(({ address, state, reason }) => ({ address, state, reason })) };
}

export function healthView({ services }: GatewayHealth) {
  return {
    services: services.map(({ name, circuitBreaker, upstreams }) => ({
      name,
      circuit_breaker: circuitBreaker === null ? null : { state: circuitBreaker.state, since: moment(circuitBreaker.since) },
      upstreams: upstreams.map(upstreamView),
    })),
  };
}

function upstreamView({ id, host, port, weight, group, state, usable, since, until, reason, inFlight }: UpstreamReport) {
  return { id, host, port, weight, group, state, usable, since: moment(since), until: moment(until), reason, in_flight: inFlight };
}

/** Without the history, as in the event "stats". */
export function statsView({ at, windowS, total, unrouted, services, point }: GatewayStats) {
  return {
    at: moment(at),
    window_s: windowS,
    total: figuresView(total),
    unrouted: figuresView(unrouted),
    services: services.map(({ name, total, routes, upstreams, groups }) => ({
      name,
      total: figuresView(total),
      routes: routes.map((route) => ({ name: route.name, ...figuresView(route) })),
      upstreams: upstreams.map((upstream) => ({ id: upstream.id, ...tryFiguresView(upstream) })),
      groups: groups.map((group) => ({ group: group.group, ...tryFiguresView(group) })),
    })),
    point: pointView(point),
  };
}

export function statsWithHistoryView(stats: GatewayStats) {
  return { ...statsView(stats), step_s: stats.stepS, history: stats.history.map(pointView) };
}

function figuresView({ limitedPerS, statusesPerS, ...figures }: Figures) {
  const statuses: StatusCounts = Object.fromEntries(Object.entries(statusesPerS).map(([name, rate]) => [name, rounded(rate)]));
  return { ...tryFiguresView(figures), limited_per_s: rounded(limitedPerS), statuses_per_s: statuses };
}

function tryFiguresView({ requestsPerS, errorsPerS, p50Ms, p95Ms, p99Ms, inFlight }: TryFigures) {
  return {
    requests_per_s: rounded(requestsPerS),
    errors_per_s: rounded(errorsPerS),
    p50_ms: p50Ms,
    p95_ms: p95Ms,
    p99_ms: p99Ms,
    in_flight: inFlight,
  };
}

function pointView({ at, requests, errors, limited, statuses, p50Ms, p95Ms, p99Ms }: Point) {
  return { at: moment(at), requests, errors, limited, statuses, p50_ms: p50Ms, p95_ms: p95Ms, p99_ms: p99Ms };
}

/** Rounded to four decimals. */
function rounded(value: number): number {
  return Math.round(value * 1e4) / 1e4;
}

export function explanationView({ hashOn, sticky, upstreams, ...explanation }: Explanation) {
  return { ...explanation, hash_on: hashOn, sticky, upstreams: upstreams.map(({ share, ...upstream }) => ({ ...upstreamView(upstream), share })) };
}

/** The JSON text of a status or a health without the fields that always change. No name can look like one of them: inside a JSON string every `"` follows a `\`. */
export function steady(text: string): string {
  return text.replace(CHANGING, "");
}

const CHANGING = /"(?:in_flight|uptime_s)":\d+/g;

function moment<T extends number | null>(ms: T): T extends null ? null : string {
  return (ms === null ? null : new Date(ms).toISOString()) as T extends null ? null : string;
}

/** Exactly six keys; the password as configured, which may be a hash, or masked. */
export function configView(settings: AdminSettings, secrets: Secrets): AdminSettings {
  const { ServerCertPath, ServerKeyPath, CACertPath, AdminUser, AdminPassword, ConfigFilePath } = settings;
  const password = secrets === "masked" ? MASK : AdminPassword;
  return { ServerCertPath, ServerKeyPath, CACertPath, AdminUser, AdminPassword: password, ConfigFilePath };
}

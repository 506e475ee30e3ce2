/**
 * What the admin interface shows of the gateway: the ProxyConfig, the admin configuration object, its status, health and figures.
 * Where they come from is an `AdminSource`, which the assembly provides.
 */
import type { Readable } from "node:stream";
import { MASK } from "../config/references.ts";
import type { Figures, GatewayStats, Point, StatsExtent, TryFigures } from "../observe/stats.ts";
import type { Explanation, Question } from "../gateway/explain.ts";
import type { GatewayHealth, GatewayStatus, LastReload } from "../gateway/gateway.ts";
import type { UpstreamReport } from "../upstream/upstream_set.ts";

/** What the admin interface asks the rest of the program; may change between requests. */
export interface AdminSource {
  /** The configuration as written, defaults filled in, references to secrets unresolved, and perhaps a mask in place of literal ones. */
  proxyConfig(secrets: Secrets): ProxyConfig;
  settings(): AdminSettings;
  /** Whether the gateway serves: false before the first snapshot, from the announcement of its end on, and while draining. */
  ready(): boolean;
  status(): GatewayStatus;
  health(): GatewayHealth;
  stats(extent: StatsExtent): GatewayStats;
  explain(question: Question, secrets: Secrets): Explanation;
  metrics(): Readable;
  /** Reloads as a change of the file does, and tells what became of it. */
  reload(): Promise<LastReload>;
}

/** Whether secrets that stand in the configuration themselves are shown. */
export type Secrets = "shown" | "masked";

export interface ProxyConfig {
  readonly services: readonly unknown[];
  /** The global plugins. */
  readonly plugins: readonly unknown[];
  /** All of it: `name`, `plugins`, limits, and whatever else there is. */
  readonly global: { readonly name: string; readonly plugins: readonly unknown[] };
}

/** The admin configuration object; "" for what is not set. */
export interface AdminSettings {
  readonly ServerCertPath: string;
  readonly ServerKeyPath: string;
  readonly CACertPath: string;
  readonly AdminUser: string;
  readonly AdminPassword: string;
  readonly ConfigFilePath: string;
}

/** Named part by part: whatever else a source may hold is not shown. */
export function gatewayView({ services, plugins, global }: ProxyConfig): ProxyConfig {
  return { services, plugins, global };
}

/** In the snake_case of JSON; moments as RFC 3339 writes them. */
export function statusView(status: GatewayStatus) {
  const { version, state, ready, uptimeMs, inFlight, digest, loadedAt, counts, lastReload, lastChange, pluginFaults } = status;
  const { certificates, warnings } = status;
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
    plugin_faults: pluginFaults,
    certificates: certificates.map(({ where, path, names, commonName, notAfter }) => ({ where, path, names, common_name: commonName, not_after: moment(notAfter) })),
    warnings: warnings.map(({ code, message, service, route }) => ({ code, message, service, route })),
  };
}

export function healthView({ services }: GatewayHealth) {
  return {
    services: services.map(({ name, circuitBreaker, upstreams }) => ({
      name,
      circuit_breaker: circuitBreaker === null ? null : { state: circuitBreaker.state, since: momentOrNull(circuitBreaker.since) },
      upstreams: upstreams.map(upstreamView),
    })),
  };
}

function upstreamView({ id, host, port, weight, state, usable, since, until, reason, inFlight }: UpstreamReport) {
  return { id, host, port, weight, state, usable, since: momentOrNull(since), until: momentOrNull(until), reason, in_flight: inFlight };
}

/** The event "stats": without the history. */
export function statsView({ at, windowS, total, services, point }: GatewayStats) {
  return {
    at: moment(at),
    window_s: windowS,
    total: figuresView(total),
    services: services.map(({ name, routes, upstreams }) => ({
      name,
      routes: routes.map((route) => ({ name: route.name, ...figuresView(route) })),
      upstreams: upstreams.map((upstream) => ({ id: upstream.id, ...tryFiguresView(upstream) })),
    })),
    point: pointView(point),
  };
}

export function statsWithHistoryView(stats: GatewayStats) {
  return { ...statsView(stats), step_s: stats.stepS, history: stats.history.map(pointView) };
}

function figuresView({ limitedPerS, ...figures }: Figures) {
  return { ...tryFiguresView(figures), limited_per_s: rounded(limitedPerS) };
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

function pointView({ at, requests, errors, limited, p50Ms, p95Ms, p99Ms }: Point) {
  return { at: moment(at), requests, errors, limited, p50_ms: p50Ms, p95_ms: p95Ms, p99_ms: p99Ms };
}

/** 1/60 has no end, and nobody reads it. */
function rounded(value: number): number {
  return Math.round(value * 1e4) / 1e4;
}

export function explanationView({ upstreams, ...explanation }: Explanation) {
  return { ...explanation, upstreams: upstreams.map(({ share, ...upstream }) => ({ ...upstreamView(upstream), share })) };
}

function momentOrNull(ms: number | null): string | null {
  return ms === null ? null : moment(ms);
}

function moment(ms: number): string {
  return new Date(ms).toISOString();
}

/** Exactly the six keys. The password as configured (a hash, where a hash was), or masked. */
export function configView(settings: AdminSettings, secrets: Secrets): AdminSettings {
  const { ServerCertPath, ServerKeyPath, CACertPath, AdminUser, AdminPassword, ConfigFilePath } = settings;
  const password = secrets === "masked" ? MASK : AdminPassword;
  return { ServerCertPath, ServerKeyPath, CACertPath, AdminUser, AdminPassword: password, ConfigFilePath };
}

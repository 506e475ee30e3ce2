/**
 * What the admin interface shows of the gateway: the ProxyConfig, the admin configuration object, its status.
 * Where they come from is an `AdminSource`, which the assembly provides.
 */
import type { MetricsFormat } from "../observe/exposition.ts";
import type { GatewayHealth, GatewayStatus, LastReload } from "../gateway/gateway.ts";

/** What the admin interface asks the rest of the program; may change between requests. */
export interface AdminSource {
  /** The configuration as written, defaults filled in, references to secrets unresolved. */
  proxyConfig(): ProxyConfig;
  settings(): AdminSettings;
  /** Whether the gateway serves: false before the first snapshot, from the announcement of its end on, and while draining. */
  ready(): boolean;
  status(): GatewayStatus;
  health(): GatewayHealth;
  metrics(format: MetricsFormat): string;
  /** Reloads as a change of the file does, and tells what became of it. */
  reload(): Promise<LastReload>;
}

export interface ProxyConfig {
  readonly services: readonly unknown[];
  /** The global plugins. */
  readonly plugins: readonly unknown[];
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

/** Named field by field: whatever else a source may hold is not shown. */
export function gatewayView({ services, plugins, global }: ProxyConfig): ProxyConfig {
  return { services, plugins, global: { name: global.name, plugins: global.plugins } };
}

/** In the snake_case of JSON; moments as RFC 3339 writes them. */
export function statusView(status: GatewayStatus): object {
  const { version, state, ready, uptimeMs, inFlight, digest, loadedAt, counts, lastReload, lastChange, pluginFaults } = status;
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
  };
}

export function healthView({ services }: GatewayHealth): object {
  return {
    services: services.map(({ name, circuitBreaker, upstreams }) => ({
      name,
      circuit_breaker: circuitBreaker === null ? null : { state: circuitBreaker.state, since: momentOrNull(circuitBreaker.since) },
      upstreams: upstreams.map(({ id, host, port, weight, state, usable, since, until, reason, inFlight }) => ({
        id,
        host,
        port,
        weight,
        state,
        usable,
        since: momentOrNull(since),
        until: momentOrNull(until),
        reason,
        in_flight: inFlight,
      })),
    })),
  };
}

function momentOrNull(ms: number | null): string | null {
  return ms === null ? null : moment(ms);
}

function moment(ms: number): string {
  return new Date(ms).toISOString();
}

/** Exactly the six keys. The password as configured (a hash, where a hash was), or masked. */
export function configView(settings: AdminSettings, secrets: "shown" | "masked"): AdminSettings {
  const { ServerCertPath, ServerKeyPath, CACertPath, AdminUser, AdminPassword, ConfigFilePath } = settings;
  const password = secrets === "masked" ? "********" : AdminPassword;
  return { ServerCertPath, ServerKeyPath, CACertPath, AdminUser, AdminPassword: password, ConfigFilePath };
}

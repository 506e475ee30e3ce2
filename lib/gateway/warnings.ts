/**
 * Writes the warnings for operators: each states the problem and the remedy. They change only when their cause does, so that two lists
 * can be compared.
 */
import type { UpstreamSetReport } from "../upstream/upstream_set.ts";
import type { DisplayedConfig, DisplayedPlugin } from "./displayed_config.ts";
import { describePlace } from "./plugin_instances.ts";
import type { GatewayStatus, ShownCertificate, Warning } from "./status.ts";

export interface WarningsSource extends Pick<GatewayStatus, "lastReload" | "digest" | "certificates" | "pluginFaults"> {
  readonly upstreamSets: readonly UpstreamSetReport[];
  readonly shown: DisplayedConfig;
  /** The gateway's own listeners; null: it has none, and the host program has its own. */
  readonly listeners: { readonly https: boolean; readonly asksForCertificates: boolean } | null;
  /** The kinds of plugins that decide who may send requests. */
  readonly guards: ReadonlySet<string>;
  /** Milliseconds since 1970. */
  readonly wall: number;
}

const MOST_WARNINGS = 100;

export function warningsOf(source: WarningsSource): readonly Warning[] {
  const ofServices = source.upstreamSets.flatMap((upstreamSet) => [...ofService(upstreamSet)]);
  const warnings = [...ofReload(source), ...ofCertificates(source), ...ofIdle(source), ...ofLimits(source), ...ofServices, ...ofPlugins(source)];
  if (warnings.length <= MOST_WARNINGS) return warnings;
  const more = warnings.length - MOST_WARNINGS;
  return [...warnings.slice(0, MOST_WARNINGS), warning("more", `There are ${more} more warnings like these; GET /gateway/health lists every upstream.`)];
}

function* ofReload({ lastReload, digest }: WarningsSource): Iterable<Warning> {
  if (lastReload?.outcome !== "refused") return;
  const { issues } = lastReload;
  const others = issues.length > 1 ? `, and ${issues.length - 1} more` : "";
  const why = `${issues[0]}${others}`;
  yield warning("reload_refused", `The last reload was refused (${why}): set it right and reload. Configuration ${digest} stays in force.`);
}

const DAY_MS = 86_400_000;
const SOON_MS = 14 * DAY_MS;

function* ofCertificates({ certificates, wall }: WarningsSource): Iterable<Warning> {
  for (const certificate of certificates) {
    const { notAfter } = certificate;
    const which = nameOf(certificate);
    const date = new Date(notAfter).toISOString().slice(0, 10);
    const remedy = "renew it; a new file is taken as it is written.";
    if (wall > notAfter) yield warning("certificate_expired", `${which} expired on ${date}, and clients refuse it: ${remedy}`);
    else if (notAfter - wall < SOON_MS) yield warning("certificate_expires", `${which} expires on ${date}: ${remedy}`);
  }
}

function nameOf({ where, path, names, commonName }: ShownCertificate): string {
  const first = names.length === 0 ? (commonName ?? "") : names.slice(0, 3).join(", ") + (names.length > 3 ? ", …" : "");
  return `The certificate ${path === null ? `of ${where}` : `${path} (${where})`}${first === "" ? "" : ` for ${first}`}`;
}

/** Settings that the listeners make useless are no errors: the same file may be used on other machines. */
function* ofIdle({ listeners, shown: { global, services } }: WarningsSource): Iterable<Warning> {
  if (listeners === null) return;
  if (!listeners.https && global.certificates.length > 0) {
    yield warning("certificates_unused", "global.certificates are not used: HTTPS is off without SERVER_CERT_PATH and SERVER_KEY_PATH");
  }
  if (listeners.asksForCertificates) return;
  const asks = ({ plugins }: { readonly plugins: readonly DisplayedPlugin[] }) => plugins.some(({ name, enabled }) => name === "mtls" && enabled);
  if (asks(global) || services.some((service) => asks(service) || service.routes.some(asks))) {
    yield warning("mtls_idle", "the plugin mtls refuses every request: clients are asked for a certificate only with CA_CERT_PATH, on HTTPS");
  }
}

/** Limits by a header before every guard: a client that changes the header with each request has no limit, and fills the table. */
function* ofLimits({ shown: { global, services }, guards }: WarningsSource): Iterable<Warning> {
  const outer = openLimits(global.plugins, guards, false);
  for (const header of outer.headers) yield openLimit(header, null, null);
  for (const service of services) {
    const inner = openLimits(service.plugins, guards, outer.isGuarded);
    for (const header of inner.headers) yield openLimit(header, service.name, null);
    for (const route of service.routes) {
      const { headers } = openLimits(route.plugins, guards, inner.isGuarded);
      for (const header of headers) yield openLimit(header, service.name, route.name);
    }
  }
}

/** The headers by which the limits of one level count without a guard before them, and whether the next level has a guard before it. */
function openLimits(plugins: readonly DisplayedPlugin[], guards: ReadonlySet<string>, guardedBefore: boolean) {
  const headers: string[] = [];
  let isGuarded = guardedBefore;
  for (const { name, enabled, config } of plugins) {
    if (!enabled) continue;
    isGuarded ||= guards.has(name);
    const by = name === "rate_limit" && !isGuarded ? String(config["limit_by"]) : "";
    if (by.startsWith("header:")) headers.push(by.slice("header:".length));
  }
  return { headers, isGuarded };
}

function openLimit(header: string, service: string | null, route: string | null): Warning {
  const place = describePlace({ service, route });
  const danger = `counts callers by the header ${header}, which any client can change with each request: no guard runs before it`;
  const remedy = "move it behind key_auth or another guard, add a limit by client_ip, or have a proxy in front set the header";
  return warning("limit_by_any_header", `A rate_limit of ${place} ${danger}. To bound what one client can do, ${remedy}.`, service, route);
}

function* ofService({ name, circuitBreaker, upstreams }: UpstreamSetReport): Iterable<Warning> {
  if (!upstreams.some(({ usable }) => usable)) {
    const message = `Service "${name}" has no upstream that can be used, and its requests get 503: bring one back, or give one a weight above 0.`;
    yield warning("no_upstream", message, name);
  }
  if (circuitBreaker?.state === "open") {
    const message = `The circuit of service "${name}" is open, and its requests get 503 until it tries again: see why its upstreams fail.`;
    yield warning("circuit_open", message, name);
  }
  for (const { id, host, port, state, reason } of upstreams) {
    const which = `Upstream "${id}" (${host}:${port}) of service "${name}"`;
    const why = reason === null ? "" : ` (${reason})`;
    if (state === "unhealthy") yield warning("upstream_down", `${which} is down: its checks fail${why}. It comes back by itself once they pass.`, name);
    if (state === "ejected") yield warning("upstream_ejected", `${which} is ejected for a while because it failed requests${why}: check the upstream.`, name);
  }
}

function* ofPlugins({ pluginFaults }: WarningsSource): Iterable<Warning> {
  for (const { plugin, id, service, route, count } of pluginFaults) {
    const times = count === 1 ? "a request" : `${count} requests`;
    const which = `Plugin ${plugin}${id === null ? "" : ` "${id}"`} of ${describePlace({ service, route })}`;
    yield warning("plugin_faults", `${which} was at fault for ${times} that got a 500: the log says why.`, service, route);
  }
}

function warning(code: Warning["code"], message: string, service: string | null = null, route: string | null = null): Warning {
  return { code, message, service, route };
}

/**
 * `edge-gateway audit --evidence`: what of the requirements of four catalogues one configuration with these settings meets.
 * docs/compliance.md has the same rows; a spec compares them and looks for every file that they name.
 */
import { isLoopback } from "../base/url_destination.ts";
import type { Config, PluginInstance } from "../config/model.ts";
import type { Settings } from "../config/settings.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { REQUIREMENTS, type EvidenceRule } from "./evidence_table.ts";

export type Status = "met" | "partly" | "not_met" | "not_applicable";

export interface EvidenceEntry {
  readonly requirement: string;
  readonly status: Status;
  readonly setting: string;
  readonly proof: readonly string[];
}

interface Judged {
  readonly settings: Settings;
  readonly config: Config;
  readonly kinds: readonly Pick<AnyPlugin, "name" | "guards">[];
}

export function evidenceOf(judged: Judged): { readonly entries: readonly EvidenceEntry[] } {
  const verdicts = verdictsOf(judged);
  return { entries: REQUIREMENTS.map(({ requirement, rule, setting, proof }) => ({ requirement, status: verdicts[rule], setting, proof })) };
}

/** One verdict for each rule of the table. Rules about routes: all of them, some, none. */
function verdictsOf({ settings, config: { global, services }, kinds }: Judged): Readonly<Record<EvidenceRule, Status>> {
  const { serverCertPath, httpPort, caCertPath, configKeyPath, admin, probe, metricsToken, stateDir, audit } = settings;
  const hasTls = serverCertPath !== null;
  const isTlsAlone = hasTls && (httpPort === null || global.httpsRedirect !== undefined);
  const guards = new Set(kinds.filter((kind) => kind.guards === true).map(({ name }) => name));
  const routes = services.flatMap((service) => service.routes.map((route) => active([...global.plugins, ...service.plugins, ...route.plugins])));
  const routesWith = (...names: readonly string[]) => share(routes.map((plugins) => plugins.some(({ name }) => names.includes(name))));
  const asksOthers = routes.flat().some(({ name }) => AUTH_SERVERS.includes(name));
  const encrypted = services.map(({ protocol, tls }) => (protocol === "https" || protocol === "h2") && tls?.verify !== false);
  const isEveryRequestLogged = global.accessLog.sample === 1 && global.accessLog.exclude.length === 0;
  const log: Status = !global.accessLog.enabled ? "not_met" : isEveryRequestLogged ? "met" : "partly";
  return {
    always: "met",
    never: "not_met",
    elsewhere: "not_applicable",
    partial: "partly",
    tls_everywhere: both(isTlsAlone ? "met" : hasTls ? "partly" : "not_met", share(encrypted)),
    guards: share(routes.map((plugins) => plugins.some(({ name }) => guards.has(name)))),
    client_certificates: caCertPath === null ? "not_applicable" : hasTls ? "met" : "not_met",
    auth_servers: asksOthers ? "met" : "not_applicable",
    rate_limits: routesWith("rate_limit", "quota"),
    validation: routesWith("request_validation"),
    sizes: routesWith("request_size_limit", "request_validation") === "met" ? "met" : "partly",
    breakers: share(services.map(({ circuitBreaker }) => circuitBreaker !== undefined)),
    blocking: routesWith("acl", "bot_protection"),
    log,
    // Logins and configurations alone, without the refusals, are a part.
    security_log: log === "met" || audit?.refusals ? "met" : audit === null ? log : "partly",
    metrics: admin === null && probe === null ? "not_met" : "met",
    metrics_and_log: both(global.accessLog.enabled ? "met" : "not_met", admin === null && probe === null ? "not_met" : "met"),
    changes_logged: audit !== null ? "met" : admin === null || !admin.write ? "not_applicable" : admin.auditLogPath === null ? "partly" : "met",
    admin: admin === null ? "not_applicable" : admin.tls || isLoopback(admin.host) ? "met" : "not_met",
    admin_session: admin === null ? "not_applicable" : admin.sessionTtlS <= 600 ? "met" : "not_met",
    masking: admin === null ? "not_applicable" : admin.redactSecrets ? "met" : "partly",
    signed: configKeyPath === null ? "not_met" : stateDir === null ? "partly" : "met",
    least_ports: probe !== null && metricsToken === null && !isLoopback(probe.host) ? "partly" : "met",
  };
}

/** Kinds that ask a server who the caller is. */
const AUTH_SERVERS: readonly string[] = ["forward_auth", "introspection", "jwt", "oidc"];

function active(plugins: readonly PluginInstance[]): readonly PluginInstance[] {
  return plugins.filter(({ enabled }) => enabled);
}

function share(each: readonly boolean[]): Status {
  if (each.length === 0) return "not_applicable";
  return each.every(Boolean) ? "met" : each.some(Boolean) ? "partly" : "not_met";
}

function both(one: Status, other: Status): Status {
  if (other === "not_applicable" || one === other) return one;
  return one === "not_applicable" ? other : "partly";
}

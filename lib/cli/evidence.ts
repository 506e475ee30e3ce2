/**
 * `edge-gateway audit --evidence`: what of the requirements of four catalogues one configuration with these settings
 * meets.
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
  readonly kinds: readonly Pick<AnyPlugin, "name" | "guards" | "identifies" | "dials">[];
}

export function evidenceOf(judged: Judged): { readonly entries: readonly EvidenceEntry[] } {
  const verdicts = verdictsOf(judged);
  return {
    entries: REQUIREMENTS.map(({ requirement, rule, setting, proof }) => ({
      requirement,
      status: verdicts[rule],
      setting,
      proof,
    })),
  };
}

/** One verdict for each rule of the table. Rules about routes: all of them, some, none. */
function verdictsOf({ settings, config: { global, services }, kinds }: Judged): Readonly<Record<EvidenceRule, Status>> {
  const {
    serverCertPath,
    httpPort,
    caCertPath,
    clientAuth,
    configKeyPath,
    admin,
    probe,
    manager,
    metricsToken,
    stateDir,
    audit,
    tracing,
  } = settings;
  const hasTls = serverCertPath !== null;
  const isTlsAlone = hasTls && (httpPort === null || global.httpsRedirect !== undefined);
  const byName = new Map(kinds.map((kind) => [kind.name, kind]));
  const routes = services.flatMap((service) =>
    service.routes.map((route) => active([...global.plugins, ...service.plugins, ...route.plugins])),
  );
  const routesWith = (isIt: (plugin: PluginInstance) => boolean) => share(routes.map((plugins) => plugins.some(isIt)));
  const named = (...names: readonly string[]) => routesWith(({ name }) => names.includes(name));
  const all = new Set(routes.flat());
  const asksOthers = [...all].some(({ name }) => AUTH_SERVERS.includes(name));
  const asked = [...all].flatMap(({ name, config }) => byName.get(name)?.dials?.urls(config) ?? []);
  const counters = [global.counters?.url ?? []].flat();
  const encrypted = [
    ...services.map(({ protocol, tls }) => (protocol === "https" || protocol === "h2") && tls?.verify !== false),
    ...[...asked, ...(tracing === null ? [] : [tracing.url])].map((url) => /^(?:https|rediss):/i.test(url)),
    ...counters.map(({ secure }) => secure),
  ];
  const validated = named("request_validation");
  // What only counts is no limit.
  const limited = routesWith(
    ({ name, config }) =>
      name === "quota" || (name === "rate_limit" && (config as { readonly mode?: string }).mode !== "shadow"),
  );
  const consoles = [admin, manager].filter((each) => each !== null).map(({ tls, host }) => tls || isLoopback(host));
  const isEveryRequestLogged = global.accessLog.sample === 1 && global.accessLog.exclude.length === 0;
  const log: Status = !global.accessLog.enabled ? "not_met" : isEveryRequestLogged ? "met" : "partly";
  return {
    always: "met",
    never: "not_met",
    elsewhere: "not_applicable",
    partial: "partly",
    tls_everywhere: both(isTlsAlone ? "met" : hasTls ? "partly" : "not_met", share(encrypted)),
    guards: routesWith(({ name }) => byName.get(name)?.guards === true),
    credentials: routesWith(({ name }) => byName.get(name)?.identifies === true || name === "forward_auth"),
    client_certificates:
      caCertPath === null ? "not_applicable" : !hasTls ? "not_met" : clientAuth === "require" ? "met" : named("mtls"),
    auth_servers: asksOthers ? "met" : "not_applicable",
    rate_limits: limited,
    validation: validated,
    requests_alone: validated === "met" ? "partly" : validated,
    sizes: named("request_size_limit", "request_validation") === "met" ? "met" : "partly",
    breakers: share(services.map(({ circuitBreaker }) => circuitBreaker !== undefined)),
    blocking: named("acl", "bot_protection"),
    log,
    // Logins and configurations alone, without the refusals, are a part.
    security_log: log === "met" || audit?.refusals ? "met" : audit === null ? log : "partly",
    metrics: admin === null && probe === null ? "not_met" : "met",
    metrics_and_log: both(
      global.accessLog.enabled ? "met" : "not_met",
      admin === null && probe === null ? "not_met" : "met",
    ),
    changes_logged: audit !== null ? "met" : admin === null || !admin.write ? "not_applicable" : "partly",
    admin: share(consoles),
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

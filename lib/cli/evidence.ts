/**
 * `edge-gateway audit --evidence`: what of the requirements of four catalogues one configuration with these settings
 * meets, and by which fact of theirs.
 * docs/compliance.md has the same rows; a spec compares them and looks for every file that they name.
 */
import { isLoopback } from "../base/url_destination.ts";
import type { Config, PluginInstance } from "../config/model.ts";
import type { Settings } from "../config/settings_types.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { REQUIREMENTS, type EvidenceRule } from "./evidence_table.ts";

export type Status = "met" | "partly" | "not_met" | "not_applicable";

interface Verdict {
  readonly status: Status;
  /** What of this configuration and these settings decides: "2 of 2 routes: acl, key_auth". */
  readonly fact: string;
}

export interface EvidenceEntry extends Verdict {
  readonly requirement: string;
  readonly setting: string;
  readonly proof: readonly string[];
}

interface Judged {
  readonly settings: Settings;
  readonly hasHttps: boolean;
  readonly config: Config;
  readonly kinds: readonly Pick<AnyPlugin, "name" | "guards" | "identifies" | "dials">[];
}

export function evidenceOf(judged: Judged): { readonly entries: readonly EvidenceEntry[] } {
  const verdicts = verdictsOf(judged);
  return {
    entries: REQUIREMENTS.map(({ requirement, rule, setting, proof }) => ({
      requirement,
      ...verdicts[rule],
      setting,
      proof,
    })),
  };
}

/** One verdict for each rule of the table. Rules about routes: all of them, some, none. */
function verdictsOf(judged: Judged): Readonly<Record<EvidenceRule, Verdict>> {
  const { global, services } = judged.config;
  // The plugins that each route runs.
  const routes = services.flatMap((service) =>
    service.routes.map((route) =>
      [...global.plugins, ...service.plugins, ...route.plugins].filter(({ enabled }) => enabled),
    ),
  );
  return {
    always: verdict("met", "the program does so, whatever the configuration says"),
    never: verdict("not_met", "the program does not do so, whatever the configuration says"),
    elsewhere: verdict("not_applicable", "what is around the gateway decides"),
    partial: verdict("partly", "the program does a part, whatever the configuration says"),
    ...ofRoutes(judged, routes),
    ...ofTls(judged, routes),
    ...ofRecords(judged),
    ...ofOperators(judged),
  };
}

type Routes = readonly (readonly PluginInstance[])[];

function ofRoutes({ config: { services }, kinds }: Judged, routes: Routes) {
  const byName = new Map(kinds.map((kind) => [kind.name, kind]));
  const validated = named(routes, "request_validation");
  const sized = named(routes, "request_size_limit", "request_validation");
  const asking = routes
    .flat()
    .filter(({ name, config }) => AUTH_SERVERS.includes(name) && urlsOf(kinds, name, config).length > 0);
  const servers = [...new Set(asking.map(({ name }) => name))].sort().join(", ");
  return {
    guards: routesWith(routes, (plugin) => byName.get(plugin.name)?.guards === true && !failsOpen(plugin)),
    credentials: routesWith(
      routes,
      (plugin) =>
        (byName.get(plugin.name)?.identifies === true || plugin.name === "forward_auth") && !failsOpen(plugin),
    ),
    auth_servers:
      servers === ""
        ? verdict("not_applicable", "no plugin of a route asks a server who the caller is")
        : verdict("met", `servers are asked by ${servers}`),
    // What only counts is no limit.
    rate_limits: routesWith(
      routes,
      ({ name, config }) =>
        name === "quota" || (name === "rate_limit" && (config as { readonly mode?: string }).mode !== "shadow"),
    ),
    validation: validated,
    requests_alone: verdict(validated.status === "met" ? "partly" : validated.status, validated.fact),
    sizes: verdict(sized.status === "met" ? "met" : "partly", `global.limits; ${sized.fact}`),
    breakers: share(
      "services with circuit_breaker",
      services.map(({ circuitBreaker }) => circuitBreaker !== undefined),
    ),
    blocking: named(routes, "acl", "bot_protection"),
  };
}

function ofTls({ settings, hasHttps, config: { global, services }, kinds }: Judged, routes: Routes) {
  const { httpPort, tracing, metricsExport, logsExport } = settings;
  const exports = [tracing, metricsExport, logsExport].flatMap((to) => to?.url ?? []);
  const isRedirected = httpPort !== null && global.httpsRedirect !== undefined;
  const http = isRedirected ? "redirected" : onOff(httpPort !== null);
  const own = verdict(
    tlsStatus(hasHttps, httpPort === null || isRedirected),
    `HTTPS is ${onOff(hasHttps)}, HTTP is ${http}`,
  );
  const urls = [...new Set(routes.flat())].flatMap(({ name, config }) => urlsOf(kinds, name, config));
  const encrypted = [
    ...services.map(({ protocol, tls }) => (protocol === "https" || protocol === "h2") && tls?.verify !== false),
    ...[...urls, ...exports].map((url) => /^(?:https|rediss):/i.test(url)),
    ...[global.counters?.url ?? []].flat().map(({ secure }) => secure),
  ];
  return {
    tls_everywhere: both(own, share("services and servers are asked over TLS", encrypted)),
    client_certificates: certificatesOf(settings, own, routes),
  };
}

function tlsStatus(hasTls: boolean, isAlone: boolean): Status {
  if (!hasTls) return "not_met";
  return isAlone ? "met" : "partly";
}

/** `own`: the verdict on the listeners. Where HTTP is on, clients get past CLIENT_AUTH. */
function certificatesOf({ caCertPath, clientAuth }: Settings, own: Verdict, routes: Routes): Verdict {
  if (caCertPath === null) return verdict("not_applicable", "CA_CERT_PATH is not set");
  if (own.status === "not_met") return own;
  return clientAuth === "require" ? verdict(own.status, `CLIENT_AUTH is require; ${own.fact}`) : named(routes, "mtls");
}

/** Kinds that ask a server who the caller is. */
const AUTH_SERVERS: readonly string[] = ["forward_auth", "introspection", "jwt", "oidc"];

function ofRecords({ settings: { admin, audit, probe }, config }: Judged) {
  const { enabled, sample, exclude } = config.global.accessLog;
  const isComplete = sample === 1 && exclude.length === 0;
  const log = verdict(
    tlsStatus(enabled, isComplete),
    enabled ? `global.access_log is on, ${isComplete ? "with" : "without"} every request` : "global.access_log is off",
  );
  const has = [...(admin === null ? [] : ["ADMIN_USER"]), ...(probe === null ? [] : ["PROBE_PORT"])].join(" and ");
  const metrics = verdict(has === "" ? "not_met" : "met", `metrics by ${has === "" ? "nothing" : has}`);
  return {
    log,
    // Logins and configurations alone, without the refusals, are a part.
    security_log: securityLog(log, audit),
    metrics,
    metrics_and_log: both(verdict(enabled ? "met" : "not_met", log.fact), metrics),
    changes_logged: changesLogged(admin, audit),
  };
}

function securityLog(log: Verdict, audit: Settings["audit"]): Verdict {
  if (log.status === "met" || audit === null) return log;
  return verdict(audit.refusals ? "met" : "partly", `AUDIT_LOG ${audit.refusals ? "with" : "without"} AUDIT_REFUSALS`);
}

function changesLogged(admin: Settings["admin"], audit: Settings["audit"]): Verdict {
  if (audit !== null) return verdict("met", "AUDIT_LOG is set");
  if (admin === null || !admin.write) return verdict("not_applicable", "the admin interface changes nothing");
  return verdict("partly", "changes are in the program log alone");
}

function ofOperators({ settings }: Judged) {
  const { admin, manager, probe, metricsToken, configKeyPath, stateDir } = settings;
  const consoles = [admin, manager].filter((each) => each !== null).map(({ tls, host }) => tls || isLoopback(host));
  const isOpen = probe !== null && metricsToken === null && !isLoopback(probe.host);
  const off = verdict("not_applicable", "the admin interface is off");
  return {
    admin: share("listeners of operators have TLS or a loopback address", consoles),
    admin_session:
      admin === null
        ? off
        : verdict(admin.sessionTtlS <= 600 ? "met" : "not_met", `ADMIN_SESSION_TTL_S is ${admin.sessionTtlS}`),
    masking:
      admin === null
        ? off
        : verdict(admin.redactSecrets ? "met" : "partly", `ADMIN_REDACT_SECRETS is ${admin.redactSecrets}`),
    signed:
      configKeyPath === null
        ? verdict("not_met", "CONFIG_PUBLIC_KEY is not set")
        : verdict(
            stateDir === null ? "partly" : "met",
            `CONFIG_PUBLIC_KEY ${stateDir === null ? "alone" : "and STATE_DIR"}`,
          ),
    least_ports: verdict(
      isOpen ? "partly" : "met",
      isOpen ? "other machines read metrics without METRICS_TOKEN" : "no port is open that the settings do not name",
    ),
  };
}

/** The routes with such a plugin, with the kinds that they have. */
function routesWith(routes: Routes, isIt: (plugin: PluginInstance) => boolean): Verdict {
  const { status, fact } = share(
    "routes",
    routes.map((plugins) => plugins.some(isIt)),
  );
  const kinds = [...new Set(routes.flatMap((plugins) => plugins.filter(isIt).map(({ name }) => name)))].sort();
  return verdict(status, kinds.length === 0 ? fact : `${fact}: ${kinds.join(", ")}`);
}

function named(routes: Routes, ...names: readonly string[]): Verdict {
  return routesWith(routes, ({ name }) => names.includes(name));
}

/** It admits requests that it could not check. */
function failsOpen({ config }: PluginInstance): boolean {
  return (config as { readonly onError?: string }).onError === "allow";
}

function urlsOf(kinds: Judged["kinds"], kind: string, config: unknown): readonly string[] {
  return kinds.find(({ name }) => name === kind)?.dials?.urls(config) ?? [];
}

function verdict(status: Status, fact: string): Verdict {
  return { status, fact };
}

function onOff(isOn: boolean): string {
  return isOn ? "on" : "off";
}

/** "2 of 3 routes" */
function share(what: string, each: readonly boolean[]): Verdict {
  const count = each.filter(Boolean).length;
  const fact = `${count} of ${each.length} ${what}`;
  if (each.length === 0) return verdict("not_applicable", fact);
  if (count === 0) return verdict("not_met", fact);
  return verdict(count === each.length ? "met" : "partly", fact);
}

function both(one: Verdict, other: Verdict): Verdict {
  const fact = `${one.fact}; ${other.fact}`;
  if (other.status === "not_applicable" || one.status === other.status) return verdict(one.status, fact);
  return verdict(one.status === "not_applicable" ? other.status : "partly", fact);
}

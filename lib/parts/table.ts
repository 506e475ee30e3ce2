/**
 * The table of parts: how each is loaded, and what names it. Whatever starts a gateway brings it, and nothing below
 * knows it but by its type.
 *
 * What a configuration does not name, and nobody asks for, is not loaded. The commands of the program have a table of
 * their own, `cli/commands.ts`.
 */
import { isIP } from "node:net";
import { textsOf, valuesAt, type JsonNode } from "../config/json.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { Strategy } from "../upstream/balance.ts";
import { KIND_PLACES, type Naming } from "../gateway/parts.ts";
import { canHaveWarnings } from "./can_have_warnings.ts";

/** The built-in plugin kinds by their names, in the order in which messages list them. */
export const KINDS = {
  key_auth: async () => (await import("../plugins/key_auth.ts")).keyAuth,
  rate_limit: async () => (await import("../plugins/rate_limit.ts")).rateLimit,
  mtls: async () => (await import("../plugins/mtls.ts")).mtls,
  jwt: async () => (await import("../plugins/jwt.ts")).jwt,
  introspection: async () => (await import("../plugins/introspection.ts")).introspection,
  oidc: async () => (await import("../plugins/oidc.ts")).oidc,
  identity_token: async () => (await import("../plugins/identity_token.ts")).identityToken,
  forward_auth: async () => (await import("../plugins/forward_auth.ts")).forwardAuth,
  http_log: async () => (await import("../plugins/http_log.ts")).httpLog,
  basic_auth: async () => (await import("../plugins/basic_auth.ts")).basicAuth,
  acl: async () => (await import("../plugins/acl.ts")).acl,
  bot_protection: async () => (await import("../plugins/bot_protection.ts")).botProtection,
  cors: async () => (await import("../plugins/cors.ts")).cors,
  request_size_limit: async () => (await import("../plugins/request_size_limit.ts")).requestSizeLimit,
  request_termination: async () => (await import("../plugins/request_termination.ts")).requestTermination,
  request_headers: async () => (await import("../plugins/request_headers.ts")).requestHeaders,
  response_headers: async () => (await import("../plugins/response_headers.ts")).responseHeaders,
  redirect: async () => (await import("../plugins/redirect.ts")).redirect,
  compress: async () => (await import("../plugins/compress.ts")).compress,
  response_cache: async () => (await import("../plugins/cache/response_cache.ts")).responseCache,
  request_validation: async () => (await import("../plugins/request_validation.ts")).requestValidation,
  mirror: async () => (await import("../plugins/mirror.ts")).mirror,
  fault: async () => (await import("../plugins/fault.ts")).fault,
  concurrency: async () => (await import("../plugins/concurrency.ts")).concurrency,
  quota: async () => (await import("../plugins/quota.ts")).quota,
  authorize: async () => (await import("../plugins/authorize.ts")).authorize,
} satisfies Readonly<Record<string, () => Promise<AnyPlugin>>>;

function namedByKinds(...kinds: (keyof typeof KINDS)[]): string[] {
  return kinds.flatMap((kind) => KIND_PLACES.map((place) => `${place}=${kind}`));
}

const COST_PLACES = KIND_PLACES.map((place) => place.replace("name", "config.cost"));
/** What names plugins that ask other servers. */
const ASKING = [
  ...namedByKinds("jwt", "introspection", "oidc", "forward_auth", "http_log", "mirror"),
  "global.plugin_modules[]",
];

function namedByStrategies(...strategies: Strategy[]): string[] {
  return strategies.map((strategy) => `services[].load_balancing_strategy=${strategy}`);
}

/** The exports of several modules as those of one. */
async function all<M extends readonly object[]>(
  ...modules: { readonly [I in keyof M]: Promise<M[I]> }
): Promise<Joined<M>> {
  return Object.assign({}, ...(await Promise.all(modules)));
}

type Joined<M> = M extends readonly [infer One, ...infer Others] ? One & Joined<Others> : unknown;

/** A host that is no address, such as a reference whose value nobody has read yet. */
function hasNames(document: JsonNode): boolean {
  return valuesAt(document, "services[].upstreams[].host").some(
    (host) => host.kind === "string" && isIP(host.value) === 0,
  );
}

/** The only upstream of a service is used whatever it answers, unless its service says something else. */
function hasHealth(document: JsonNode): boolean {
  const upstreams = valuesAt(document, "services[].upstreams");
  return (
    valuesAt(document, "services[].health").length > 0 ||
    upstreams.some((list) => list.kind === "array" && list.items.length > 1)
  );
}

/**
 * What a snapshot is compiled with, besides plugin kinds. `named`: the places of a configuration that name the part,
 * see `valuesAt`, or a rule; without it, settings or a reload do. A part that brings fields has their schemas in
 * `fields`.
 */
export const PARTS = {
  /** Connections and requests to upstreams over HTTP/2. */
  http2: {
    named: ["services[].protocol=h2", "services[].protocol=h2c"],
    load: () => all(import("../upstream/sessions.ts"), import("../upstream/http2_request.ts")),
  },
  hash: {
    named: [
      ...["hash_on", "hash_balance_factor", "split[].hash_on"].map((field) => `services[].${field}`),
      ...namedByStrategies("hash", "ip_hash"),
    ],
    load: () => import("../upstream/hash.ts"),
  },
  /** The choice among several upstreams, or of the only one where that is checked. */
  choice: {
    named: (document) => hasHealth(document) || valuesAt(document, "services[].split").length > 0,
    load: () => all(import("../upstream/balance.ts"), import("../upstream/choice.ts")),
  },
  breaker: { named: ["services[].circuit_breaker"], load: () => import("../upstream/breaker.ts") },
  /** TLS to upstreams and to shared counters. */
  upstreamTls: {
    named: ["services[].protocol=https", "services[].protocol=h2"],
    load: () => import("../upstream/tls.ts"),
  },
  names: { named: hasNames, load: () => import("../upstream/addresses.ts") },
  /** Which of several upstreams are healthy. */
  health: { named: hasHealth, load: () => import("../upstream/health.ts") },
  healthChecks: {
    named: ["services[].health.enabled"],
    load: () => all(import("../gateway/active_checks.ts"), import("../upstream/health_checks.ts")),
  },
  /** What workers report of the health of upstreams. */
  sharedHealth: { load: () => import("../upstream/shared_health.ts") },
  /** How they share the counts of rate limits, and the memory of plugins. */
  sharedCallers: { load: () => all(import("../gateway/plugin_memory.ts"), import("../store/shared_callers.ts")) },
  conditions: { named: ["services[].routes[].match"], load: () => import("../route/conditions.ts") },
  upstreamPath: {
    named: ["services[].upstream_path", "services[].routes[].upstream_path"],
    load: () => import("../route/upstream_path.ts"),
  },
  retries: { named: ["services[].retries"], load: () => import("../upstream/retries.ts") },
  nodeParser: { named: ["services[].upstream_client=node"], load: () => import("../upstream/node_response_parser.ts") },
  split: { named: ["services[].split"], load: () => import("../upstream/split.ts") },
  sticky: { named: ["services[].sticky"], load: () => import("../upstream/sticky.ts") },
  httpsRedirect: { named: ["global.https_redirect"], load: () => import("../gateway/https_redirect.ts") },
  /** Certificates of hosts, and the refusal of requests that came by the connection of another host. */
  misdirected: { named: ["global.certificates[]"], load: () => import("../gateway/host_certificates.ts") },
  /** What trusted proxies say about requests. */
  trustedProxies: {
    named: ["global.trusted_proxies"],
    load: () => all(import("../config/address_range.ts"), import("../server/trusted_proxies.ts")),
  },
  /** The fields of certificates and TLS. */
  tls: { named: ["global.certificates[]", "services[].tls"], load: () => import("../config/tls_fields.ts") },
  /** Who may send requests. */
  callers: {
    named: ["callers", "caller_files", ...KIND_PLACES.map((place) => place.replace(".name", ".config.callers"))],
    load: () => all(import("../config/callers.ts"), import("../plugins/callers.ts")),
  },
  /** The tests of a configuration, which `ON_DEMAND.tests` runs. */
  tests: { named: ["tests", "test_files"], load: () => import("../config/read_tests.ts") },
  /** What `${` stands for. */
  references: {
    named: (document) => textsOf([document]).some((text) => text.includes("${")),
    load: () => import("../config/references.ts"),
  },
  /** Rate counters in the memory of the program. */
  counters: {
    named: [...namedByKinds("rate_limit", "quota"), "global.counters", "global.plugin_modules[]"],
    load: () => import("../store/memory.ts"),
  },
  heldCounts: {
    named: [...namedByKinds("concurrency"), "global.plugin_modules[]"],
    load: () => import("../store/held_counts.ts"),
  },
  /** Costs that replies state. */
  costs: { named: COST_PLACES, load: () => import("../plugins/costs.ts") },
  beforeRoutes: {
    named: ["global.plugins[].name=cors", "global.plugin_modules[]"],
    load: () => import("../gateway/before_routes.ts"),
  },
  shadow: {
    named: KIND_PLACES.map((place) => place.replace("name", "config.mode=shadow")),
    load: () => import("../plugins/shadow.ts"),
  },
  limiters: { named: [...namedByKinds("quota"), ...COST_PLACES], load: () => import("../gateway/limiters.ts") },
  groupLimits: {
    named: KIND_PLACES.map((place) => place.replace("name", "config.limits_by_group")),
    load: () => import("../plugins/group_limits.ts"),
  },
  /** What all plugins need. */
  plugins: {
    named: KIND_PLACES.map((place) => place.replace(".name", "")),
    load: () => import("../gateway/plugin_instances.ts"),
  },
  /** Plugin modules: their fields, and their evaluation. */
  modules: {
    named: ["global.plugin_modules[]"],
    load: () => all(import("../config/plugin_modules.ts"), import("../gateway/module_loader.ts")),
  },
  /** Kinds that are not ours: of modules, and of programs that embed a gateway. */
  foreignKinds: { named: ["global.plugin_modules[]"], load: () => import("../plugins/foreign_kind.ts") },
  /** How plugins verify passwords. */
  passwords: {
    named: [...namedByKinds("basic_auth"), "global.plugin_modules[]"],
    load: () => import("../base/password.ts"),
  },
  /** How plugins ask other servers. */
  client: { named: ASKING, load: () => import("../client/client.ts") },
  /** Which servers they ask. */
  dials: { named: ASKING, load: () => import("../gateway/plugin_destinations.ts") },
  /** Counters that gateways share. */
  redis: {
    named: ["global.counters"],
    load: () => all(import("../gateway/shared_counters.ts"), import("../config/counters.ts")),
  },
  /** The prover, and what else finds warnings about a configuration. */
  warnings: {
    named: canHaveWarnings,
    load: () => all(import("../config/accepted_warnings.ts"), import("../proof/config_warnings.ts")),
  },
  /** HTTP/2 for clients. */
  http2Server: { named: ["global.h2c"], load: () => import("../server/http2.ts") },
  /** HTTP/1.1 for clients by Node's server. */
  nodeHttp1: { named: ["global.http1=node"], load: () => import("../server/http1_node.ts") },
  tlsServer: { load: () => all(import("../server/tls.ts"), import("../report/https_facts.ts")) },
  /** The status; also what of the configuration causes a warning at the start because of the settings. */
  reporting: {
    named: ["expires_at", "global.certificates[]", ...namedByKinds("mtls", "quota")],
    load: () => all(import("../report/reports.ts"), import("../embed/gateway.ts")),
  },
  /**
   * What is counted of requests, and statistics and metrics of it. Only settings name it: all requests since the start
   * are counted, or none.
   */
  metrics: { load: () => all(import("../observe/metrics_plan.ts"), import("../report/reporting.ts")) },
  /** The text of metrics. Settings that let somebody ask for it name it, and the first who asks has it loaded. */
  exposition: {
    load: () =>
      all(import("../observe/exposition.ts"), import("../observe/process.ts"), import("../report/families.ts")),
  },
  /** The format of the access log that is not JSON. */
  combinedLog: { named: ["global.access_log.format=combined"], load: () => import("../observe/combined_line.ts") },
  logFile: { named: ["global.access_log.file"], load: () => import("../observe/log_file.ts") },
  /** Which requests get no line in it. */
  logFilter: {
    named: ["global.access_log.sample", "global.access_log.exclude"],
    load: () => import("../observe/line_filter.ts"),
  },
  decisions: { named: ["global.decisions"], load: () => import("../config/decisions.ts") },
  serverTiming: { named: ["global.server_timing"], load: () => import("../observe/server_timing.ts") },
  /** What threads of one program share, and memory for what plugins remember. */
  shared: {
    named: [
      ...namedByKinds("jwt", "basic_auth", "introspection", "oidc", "request_validation", "identity_token"),
      "global.counters",
      "global.plugin_modules[]",
    ],
    load: () =>
      all(
        import("../base/shared_counts.ts"),
        import("../base/shared_memory.ts"),
        import("../server/shared_connections.ts"),
      ),
  },
  /** What a program that embeds a gateway calls, and ours never does. */
  embedding: { load: () => all(import("../embed/inject.ts"), import("../embed/mounted.ts")) },
  /** What of a configuration this build does not have. */
  lacking: { load: () => import("../gateway/lacking.ts") },
  /**
   * What replaces the configuration in force; the first reload has it loaded, and a start whose configuration names
   * files.
   */
  reloads: { load: () => import("../gateway/reloads.ts") },
  changes: { load: () => import("../proof/config_diff.ts") },
  workerReports: { load: () => import("../report/worker_reports.ts") },
  tracing: { load: () => import("../gateway/tracing.ts") },
  signatures: { load: () => all(import("../config/signed.ts"), import("../gateway/validity.ts")) },
  /** Without a signature they are checked for their form only. */
  validity: { named: ["serial", "expires_at"], load: () => import("../config/validity_fields.ts") },
  /** For dry runs, and for those who ask why a request got what it got. */
  recentRequests: { load: () => all(import("../gateway/recent_requests.ts"), import("../observe/decisions.ts")) },
  gatewayAudit: { load: () => import("../gateway/gateway_audit.ts") },
  /** What a worker has of the audit log. */
  auditEvents: { load: () => import("../observe/audit_events.ts") },
  /** What threads give up of Node's permission model. */
  rights: { load: () => import("../base/rights.ts") },
  adminCookie: { load: () => import("../operator/admin_cookie.ts") },
} satisfies Readonly<Record<string, { readonly named?: Naming; readonly load: () => Promise<object> }>>;

/** What can wait until it is asked for. */
export const ON_DEMAND = {
  tests: () => all(import("../gateway/config_tests.ts"), import("../proof/run_tests.ts")),
  explain: () => import("../proof/explain.ts"),
  dryRuns: () => import("../proof/dry_runs.ts"),
  dryRun: () => import("../proof/dry_run.ts"),
  tail: () => import("../observe/tail.ts"),
  /** For the administrator, who takes upstreams out of traffic. */
  takenOut: () => import("../upstream/taken_out.ts"),
  decisions: () => import("../observe/decision_reader.ts"),
};

/** What a gateway of the whole program can load. */
export const TABLE = { kinds: KINDS, parts: PARTS, onDemand: ON_DEMAND };

/**
 * How each feature and each plugin kind is loaded. Whatever starts a gateway brings this table, and nothing below knows
 * it. The commands of the program have a table of their own, `cli/commands.ts`.
 */
import { fieldsIn, type FeatureTable } from "../gateway/loaded_features.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";

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
  json_body: async () => (await import("../plugins/json_body/json_body.ts")).jsonBody,
  mirror: async () => (await import("../plugins/mirror.ts")).mirror,
  fault: async () => (await import("../plugins/fault.ts")).fault,
  concurrency: async () => (await import("../plugins/concurrency.ts")).concurrency,
  quota: async () => (await import("../plugins/quota.ts")).quota,
  authorize: async () => (await import("../plugins/authorize.ts")).authorize,
  mcp: async () => (await import("../plugins/mcp/mcp.ts")).mcp,
} satisfies Readonly<Record<string, () => Promise<AnyPlugin>>>;

/** The exports of several modules as those of one, with the fields of all of them. */
async function all<M extends readonly object[]>(
  ...modules: { readonly [I in keyof M]: Promise<M[I]> }
): Promise<Joined<M>> {
  const loaded = (await Promise.all(modules)) as readonly object[];
  return Object.assign({}, ...loaded, { fields: fieldsIn(loaded) }) as Joined<M>;
}

type Joined<M> = M extends readonly [infer One, ...infer Others] ? One & Joined<Others> : unknown;

export const FEATURES: FeatureTable["features"] = {
  balancing: () => import("../gateway/balancing.ts"),
  outbound: () =>
    all(
      import("../upstream/tls.ts"),
      import("../gateway/revocation_lists.ts"),
      import("../upstream/addresses.ts"),
      import("../upstream/service_records.ts"),
      import("../base/egress_proxy.ts"),
      import("../upstream/proxy_dial.ts"),
      import("../config/tls_fields.ts"),
      import("../config/egress_proxy.ts"),
    ),
  http2: () => all(import("../upstream/http2_request.ts"), import("../server/http2.ts")),
  nodeHttp1: () => all(import("../upstream/node_response_parser.ts"), import("../server/http1_node.ts")),
  serverTls: () =>
    all(
      import("../server/tls.ts"),
      import("../gateway/host_certificates.ts"),
      import("../gateway/revocation_lists.ts"),
      import("../config/tls_fields.ts"),
      import("../config/acme.ts"),
      import("../report/https_facts.ts"),
    ),
  routing: () =>
    all(
      import("../route/conditions.ts"),
      import("../route/upstream_path.ts"),
      import("../config/route_timeouts.ts"),
      import("../server/trusted_proxies.ts"),
      import("../server/proxy_header.ts"),
      import("../gateway/https_redirect.ts"),
      import("../gateway/own_errors.ts"),
    ),
  plugins: () => import("../gateway/plugin_instances.ts"),
  callers: () =>
    all(
      import("../config/callers.ts"),
      import("../plugins/callers.ts"),
      import("../plugins/costs.ts"),
      import("../plugins/group_limits.ts"),
      import("../plugins/shadow.ts"),
    ),
  sharedCounters: () => all(import("../gateway/shared_counters.ts"), import("../config/counters.ts")),
  workers: () =>
    all(
      import("../upstream/shared_health.ts"),
      import("../server/shared_connections.ts"),
      import("../store/shared_callers.ts"),
      import("../base/shared_counts.ts"),
      import("../report/worker_reports.ts"),
    ),
  reporting: () =>
    all(
      import("../observe/metrics_plan.ts"),
      import("../observe/decisions.ts"),
      import("../gateway/recent_requests.ts"),
      import("../operator/admin_cookie.ts"),
    ),
  logs: () =>
    all(
      import("../observe/combined_line.ts"),
      import("../observe/log_file.ts"),
      import("../observe/line_filter.ts"),
      import("../observe/server_timing.ts"),
    ),
  tracing: () => import("../gateway/tracing.ts"),
  proof: () =>
    all(
      import("../config/read_tests.ts"),
      import("../config/accepted_warnings.ts"),
      import("../proof/config_warnings.ts"),
    ),
  sources: () =>
    all(
      import("../config/references.ts"),
      import("../config/plugin_modules.ts"),
      import("../config/signed.ts"),
      import("../gateway/module_loader.ts"),
      import("../gateway/validity.ts"),
    ),
};

/** What can wait until it is asked for. */
export const ON_DEMAND = {
  tests: () => import("../proof/config_tests.ts"),
  explain: () => import("../proof/explain.ts"),
  dryRuns: () => import("../proof/dry_runs.ts"),
  dryRun: () => import("../proof/dry_run.ts"),
  tail: () => import("../observe/tail.ts"),
  /** For the administrator, who takes upstreams out of traffic. */
  takenOut: () => import("../gateway/taken_out.ts"),
  purge: () => import("../plugins/cache/purge.ts"),
  decisions: () => import("../observe/decision_reader.ts"),
  /** What a worker has of the audit log. */
  workerAudit: () => all(import("../gateway/gateway_audit.ts"), import("../observe/audit_events.ts")),
} satisfies FeatureTable["onDemand"];

/** What a gateway of the whole program can load. */
export const TABLE: FeatureTable = {
  kinds: KINDS,
  features: FEATURES,
  foreignKinds: () => import("../plugins/foreign_kind.ts"),
  onDemand: ON_DEMAND,
};

/**
 * All parts of the program at once, for programs that embed the gateway: `createGateway` waits for nothing.
 */
import * as countersFields from "../config/counters.ts";
import * as acceptedWarnings from "../config/accepted_warnings.ts";
import * as addressRanges from "../config/address_range.ts";
import * as passwords from "../base/password.ts";
import * as moduleFields from "../config/plugin_modules.ts";
import * as callerFields from "../config/callers.ts";
import * as references from "../config/references.ts";
import * as tests from "../config/read_tests.ts";
import * as signatures from "../config/signed.ts";
import * as validityFields from "../config/validity_fields.ts";
import * as sharedCounts from "../base/shared_counts.ts";
import * as sharedMemory from "../base/shared_memory.ts";
import * as sharedConnections from "../server/shared_connections.ts";
import * as gateway from "../embed/gateway.ts";
import * as inject from "../embed/inject.ts";
import * as mounted from "../embed/mounted.ts";
import * as tls from "../config/tls_fields.ts";
import * as client from "../client/client.ts";
import * as rights from "../base/rights.ts";
import * as adminCookie from "../operator/admin_cookie.ts";
import * as combinedLog from "../observe/combined_line.ts";
import * as logFilter from "../observe/line_filter.ts";
import * as logFile from "../observe/log_file.ts";
import * as exposition from "../observe/exposition.ts";
import * as process from "../observe/process.ts";
import * as metrics from "../observe/metrics_plan.ts";
import * as serverTiming from "../observe/server_timing.ts";
import * as callers from "../plugins/callers.ts";
import * as costs from "../plugins/costs.ts";
import * as groupLimits from "../plugins/group_limits.ts";
import * as beforeRoutes from "../gateway/before_routes.ts";
import * as shadow from "../plugins/shadow.ts";
import * as foreignKinds from "../plugins/foreign_kind.ts";
import { builtinPlugins } from "../plugins/builtin.ts";
import * as conditions from "../route/conditions.ts";
import * as upstreamPath from "../route/upstream_path.ts";
import * as heldCounts from "../store/held_counts.ts";
import * as memory from "../store/memory.ts";
import * as sharedCallers from "../store/shared_callers.ts";
import * as http2Server from "../server/http2.ts";
import * as nodeHttp1 from "../server/http1_node.ts";
import * as tlsServer from "../server/tls.ts";
import * as names from "../upstream/addresses.ts";
import * as health from "../upstream/health.ts";
import * as upstreamTls from "../upstream/tls.ts";
import * as trustedProxies from "../server/trusted_proxies.ts";
import * as breaker from "../upstream/breaker.ts";
import * as balance from "../upstream/balance.ts";
import * as choice from "../upstream/choice.ts";
import * as hash from "../upstream/hash.ts";
import * as healthChecks from "../upstream/health_checks.ts";
import * as http2Request from "../upstream/http2_request.ts";
import * as retries from "../upstream/retries.ts";
import * as nodeParser from "../upstream/node_response_parser.ts";
import * as sessions from "../upstream/sessions.ts";
import * as sharedHealth from "../upstream/shared_health.ts";
import * as split from "../upstream/split.ts";
import * as sticky from "../upstream/sticky.ts";
import * as httpsFacts from "../report/https_facts.ts";
import * as changes from "../proof/config_diff.ts";
import * as decisions from "../config/decisions.ts";
import * as auditEvents from "../observe/audit_events.ts";
import * as gatewayAudit from "../gateway/gateway_audit.ts";
import * as recentRequests from "../gateway/recent_requests.ts";
import * as decisionRing from "../observe/decisions.ts";
import * as activeChecks from "../gateway/active_checks.ts";
import * as httpsRedirect from "../gateway/https_redirect.ts";
import * as hostCertificates from "../gateway/host_certificates.ts";
import * as moduleLoader from "../gateway/module_loader.ts";
import * as dials from "../gateway/plugin_destinations.ts";
import * as pluginMemory from "../gateway/plugin_memory.ts";
import * as pluginInstances from "../gateway/plugin_instances.ts";
import * as limiters from "../gateway/limiters.ts";
import * as lacking from "../gateway/lacking.ts";
import * as reloads from "../gateway/reloads.ts";
import * as tracing from "../gateway/tracing.ts";
import * as validity from "../gateway/validity.ts";
import * as sharedCounters from "../gateway/shared_counters.ts";
import { fieldsOfParts, type LoadedParts, type Parts } from "../gateway/parts.ts";
import * as warnings from "../proof/config_warnings.ts";
import * as families from "../report/families.ts";
import * as reporting from "../report/reporting.ts";
import * as reports from "../report/reports.ts";
import * as workerReports from "../report/worker_reports.ts";
import { freshModules } from "./load.ts";

const ALL: LoadedParts = {
  kinds: builtinPlugins,
  http2: { ...sessions, ...http2Request },
  hash,
  choice: { ...balance, ...choice },
  breaker,
  nodeParser,
  retries,
  upstreamTls,
  names,
  health,
  healthChecks: { ...activeChecks, ...healthChecks },
  sharedHealth,
  callers: { ...callerFields, ...callers },
  sharedCallers: { ...pluginMemory, ...sharedCallers },
  conditions,
  upstreamPath,
  split,
  sticky,
  httpsRedirect,
  misdirected: hostCertificates,
  trustedProxies: { ...addressRanges, ...trustedProxies },
  tls,
  tests,
  counters: memory,
  heldCounts,
  costs,
  groupLimits,
  limiters,
  beforeRoutes,
  shadow,
  client,
  dials,
  modules: { ...moduleFields, ...moduleLoader },
  passwords,
  redis: { ...sharedCounters, ...countersFields },
  plugins: pluginInstances,
  http2Server,
  nodeHttp1,
  tlsServer: { ...tlsServer, ...httpsFacts },
  reporting: { ...reports, ...gateway },
  combinedLog,
  logFile,
  logFilter,
  serverTiming,
  metrics: { ...metrics, ...reporting },
  exposition: { ...exposition, ...families, ...process },
  shared: { ...sharedCounts, ...sharedMemory, ...sharedConnections },
  embedding: { ...inject, ...mounted },
  foreignKinds,
  lacking,
  reloads,
  changes,
  workerReports,
  tracing,
  rights,
  adminCookie,
  decisions,
  recentRequests: { ...recentRequests, ...decisionRing },
  gatewayAudit,
  auditEvents,
  signatures: { ...signatures, ...validity },
  validity: validityFields,
  references,
  warnings: { ...acceptedWarnings, ...warnings },
};

/** What all parts add to the schema of a configuration. */
export const ALL_FIELDS = fieldsOfParts(Object.values(ALL));

/** `modules`, with all parts. */
export function withAllParts(modules = freshModules()): Parts {
  modules.add(ALL);
  return modules;
}

/**
 * All features at once, for programs that embed the gateway: `createGateway` waits for nothing.
 */
import * as egressProxy from "../base/egress_proxy.ts";
import * as sharedCounts from "../base/shared_counts.ts";
import * as acceptedWarnings from "../config/accepted_warnings.ts";
import * as acmeFields from "../config/acme.ts";
import * as callerFields from "../config/callers.ts";
import * as countersFields from "../config/counters.ts";
import * as egressFields from "../config/egress_proxy.ts";
import * as moduleFields from "../config/plugin_modules.ts";
import * as tests from "../config/read_tests.ts";
import * as references from "../config/references.ts";
import * as routeTimeouts from "../config/route_timeouts.ts";
import * as signatures from "../config/signed.ts";
import * as tlsFields from "../config/tls_fields.ts";
import * as balancing from "../gateway/balancing.ts";
import type { Features } from "../gateway/features.ts";
import * as hostCertificates from "../gateway/host_certificates.ts";
import * as httpsRedirect from "../gateway/https_redirect.ts";
import { fieldsIn, type LoadedFeatures } from "../gateway/loaded_features.ts";
import * as moduleLoader from "../gateway/module_loader.ts";
import * as ownErrors from "../gateway/own_errors.ts";
import * as plugins from "../gateway/plugin_instances.ts";
import * as recentRequests from "../gateway/recent_requests.ts";
import * as revocationLists from "../gateway/revocation_lists.ts";
import * as sharedCounters from "../gateway/shared_counters.ts";
import * as tracing from "../gateway/tracing.ts";
import * as validity from "../gateway/validity.ts";
import * as combinedLog from "../observe/combined_line.ts";
import * as decisions from "../observe/decisions.ts";
import * as logFilter from "../observe/line_filter.ts";
import * as logFile from "../observe/log_file.ts";
import * as metrics from "../observe/metrics_plan.ts";
import * as serverTiming from "../observe/server_timing.ts";
import * as adminCookie from "../operator/admin_cookie.ts";
import { builtinPlugins } from "../plugins/builtin.ts";
import * as callers from "../plugins/callers.ts";
import * as costs from "../plugins/costs.ts";
import * as foreignKinds from "../plugins/foreign_kind.ts";
import * as groupLimits from "../plugins/group_limits.ts";
import * as shadow from "../plugins/shadow.ts";
import * as warnings from "../proof/config_warnings.ts";
import * as httpsFacts from "../report/https_facts.ts";
import * as workerReports from "../report/worker_reports.ts";
import * as conditions from "../route/conditions.ts";
import * as upstreamPath from "../route/upstream_path.ts";
import * as nodeHttp1 from "../server/http1_node.ts";
import * as http2Server from "../server/http2.ts";
import * as sharedConnections from "../server/shared_connections.ts";
import * as proxyHeader from "../server/proxy_header.ts";
import * as trustedProxies from "../server/trusted_proxies.ts";
import * as serverTls from "../server/tls.ts";
import * as sharedCallers from "../store/shared_callers.ts";
import * as names from "../upstream/addresses.ts";
import * as http2Request from "../upstream/http2_request.ts";
import * as nodeParser from "../upstream/node_response_parser.ts";
import * as serviceRecords from "../upstream/service_records.ts";
import * as sharedHealth from "../upstream/shared_health.ts";
import * as proxyDial from "../upstream/proxy_dial.ts";
import * as upstreamTls from "../upstream/tls.ts";
import { freshFeatures } from "./load.ts";

const ALL: Features = {
  balancing,
  outbound: all(upstreamTls, revocationLists, names, serviceRecords, egressProxy, proxyDial, tlsFields, egressFields),
  http2: all(http2Request, http2Server),
  nodeHttp1: all(nodeParser, nodeHttp1),
  serverTls: all(serverTls, hostCertificates, revocationLists, tlsFields, acmeFields, httpsFacts),
  routing: all(conditions, upstreamPath, routeTimeouts, trustedProxies, proxyHeader, httpsRedirect, ownErrors),
  plugins,
  callers: all(callerFields, callers, costs, groupLimits, shadow),
  sharedCounters: all(sharedCounters, countersFields),
  workers: all(sharedHealth, sharedConnections, sharedCallers, sharedCounts, workerReports),
  reporting: all(metrics, decisions, recentRequests, adminCookie),
  logs: all(combinedLog, logFile, logFilter, serverTiming),
  tracing,
  proof: all(tests, acceptedWarnings, warnings),
  sources: all(references, moduleFields, signatures, moduleLoader, validity),
};

function all<M extends readonly object[]>(...modules: M): Joined<M> {
  return Object.assign({}, ...modules, { fields: fieldsIn(modules) }) as Joined<M>;
}

type Joined<M> = M extends readonly [infer One, ...infer Others] ? One & Joined<Others> : unknown;

/** What all features add to the schema of a configuration. */
export const ALL_FIELDS = fieldsIn(Object.values(ALL));

/** `modules`, with all features. */
export function withAllFeatures(modules = freshFeatures()): LoadedFeatures {
  modules.add(ALL, builtinPlugins, foreignKinds);
  return modules;
}

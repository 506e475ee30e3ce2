/**
 * The fields of the configuration that features bring, by name: types only, so that no program loads it.
 */
import type { ACCEPTED_WARNING } from "./accepted_warnings.ts";
import type { ACME } from "./acme.ts";
import type { CALLER_FILES, CALLERS } from "./callers.ts";
import type { CIRCUIT_BREAKER } from "./circuit_breaker.ts";
import type { CONDITIONS } from "./conditions.ts";
import type { COST } from "./cost.ts";
import type { COUNTERS } from "./counters.ts";
import type { EGRESS_PROXY } from "./egress_proxy.ts";
import type { QUOTAS_BY_GROUP, RATE_LIMITS_BY_GROUP } from "./group_limits.ts";
import type { HASH_BALANCE_FACTOR, HASH_ON } from "./hash_on.ts";
import type { HEALTH } from "./health.ts";
import type { HTTPS_REDIRECT } from "./https_redirect.ts";
import type { LOG_FILE, UNLOGGED_PATH } from "./log_fields.ts";
import type { fieldsOf } from "./feature_fields.ts";
import type { ERRORS_FIELD } from "./own_errors.ts";
import type { UPSTREAM_PROXY_PROTOCOL } from "./proxy_protocol.ts";
import type { RETRIES } from "./retries.ts";
import type { ROUTE_TIMEOUTS } from "./route_timeouts.ts";
import type { PLUGIN_MODULE } from "./plugin_modules.ts";
import type { UPSTREAM_REQUEST_HEADERS } from "./sent_headers.ts";
import type { SPLIT } from "./split.ts";
import type { UPSTREAM_SRV } from "./srv.ts";
import type { STICKY } from "./sticky.ts";
import type { TEST_FILES, TESTS } from "./tests.ts";
import type { CERTIFICATE, SERVER_TLS, UPSTREAM_TLS } from "./tls_fields.ts";
import type { ROUTE_PATH, SERVICE_PATH } from "./upstream_path.ts";

/** See `fieldsOf`. */
export type FeatureField = ReturnType<typeof fieldsOf<FeatureSchemas>>;

export interface FeatureSchemas {
  readonly https_redirect: typeof HTTPS_REDIRECT;
  readonly counters: typeof COUNTERS;
  readonly egress_proxy: typeof EGRESS_PROXY;
  /** Of `rate_limit` and `quota`. */
  readonly cost: typeof COST;
  /** Of `rate_limit`. */
  readonly limits_by_group: typeof RATE_LIMITS_BY_GROUP;
  /** The same of `quota`. */
  readonly quotas_by_group: typeof QUOTAS_BY_GROUP;
  /** An item of `accept_warnings`. */
  readonly accepted_warning: typeof ACCEPTED_WARNING;
  /** An item of `plugin_modules`. */
  readonly plugin_module: typeof PLUGIN_MODULE;
  /** An item of `certificates`. */
  readonly certificate: typeof CERTIFICATE;
  readonly acme: typeof ACME;
  /** `global.tls` */
  readonly server_tls: typeof SERVER_TLS;
  /** Of services. */
  readonly tls: typeof UPSTREAM_TLS;
  /** Of services. */
  readonly proxy_protocol: typeof UPSTREAM_PROXY_PROTOCOL;
  readonly health: typeof HEALTH;
  readonly log_file: typeof LOG_FILE;
  /** An item of `exclude`. */
  readonly unlogged_path: typeof UNLOGGED_PATH;
  readonly circuit_breaker: typeof CIRCUIT_BREAKER;
  readonly retries: typeof RETRIES;
  readonly hash_on: typeof HASH_ON;
  readonly hash_balance_factor: typeof HASH_BALANCE_FACTOR;
  readonly match: typeof CONDITIONS;
  readonly upstream_path: typeof SERVICE_PATH;
  readonly route_upstream_path: typeof ROUTE_PATH;
  readonly route_timeouts: typeof ROUTE_TIMEOUTS;
  /** Of `global` and of services. */
  readonly errors: typeof ERRORS_FIELD;
  readonly split: typeof SPLIT;
  /** Of upstreams. */
  readonly upstream_srv: typeof UPSTREAM_SRV;
  readonly upstream_request_headers: typeof UPSTREAM_REQUEST_HEADERS;
  readonly sticky: typeof STICKY;
  readonly callers: typeof CALLERS;
  readonly caller_files: typeof CALLER_FILES;
  readonly tests: typeof TESTS;
  readonly test_files: typeof TEST_FILES;
}

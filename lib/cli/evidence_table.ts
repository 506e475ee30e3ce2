/**
 * The requirements that docs/compliance.md maps, as data: the id in its catalogue, the rule of `evidence.ts` that
 * judges it, what it is set by, and where the proof is.
 */

/** `always`, `never`, `elsewhere`, `partial`: whatever the configuration says. */
export type EvidenceRule =
  | "always"
  | "never"
  | "elsewhere"
  | "partial"
  | "tls_everywhere"
  | "guards"
  | "credentials"
  | "requests_alone"
  | "client_certificates"
  | "auth_servers"
  | "rate_limits"
  | "validation"
  | "sizes"
  | "breakers"
  | "blocking"
  | "log"
  | "security_log"
  | "metrics"
  | "metrics_and_log"
  | "changes_logged"
  | "admin"
  | "admin_session"
  | "masking"
  | "signed"
  | "least_ports";

export interface Requirement {
  readonly requirement: string;
  readonly rule: EvidenceRule;
  /** Settings, fields, plugin kinds, commands and files, separated by commas. */
  readonly setting: string;
  readonly proof: readonly string[];
}

function row(requirement: string, rule: EvidenceRule, setting: string, ...proof: readonly string[]): Requirement {
  return { requirement, rule, setting, proof };
}

/** Of one catalogue, whose name is in front of the ids. */
function of(catalogue: string, ...rows: readonly Requirement[]): Requirement[] {
  return rows.map((each) => ({ ...each, requirement: `${catalogue} ${each.requirement}` }));
}

export const REQUIREMENTS: readonly Requirement[] = [
  ...of(
    "NIST SP 800-228",
    row("REC-API-1", "partial", "edge-gateway validate", "spec/cli/config_file.spec.ts", "docs/configuration.md"),
    row(
      "REC-API-3",
      "requests_alone",
      "request_validation",
      "spec/plugins/request_validation.spec.ts",
      "docs/plugins/request_validation.md",
    ),
    row("REC-API-4", "partial", "edge-gateway audit", "spec/cli/audit.spec.ts", "docs/audit.md"),
    row("REC-API-8", "metrics", "PROBE_PORT, ADMIN_USER", "spec/admin/metrics.spec.ts", "docs/observability.md"),
    row(
      "REC-API-9",
      "tls_everywhere",
      "SERVER_CERT_PATH, global.certificates, HTTP_PORT, service.protocol",
      "spec/journeys/tls.spec.ts",
      "spec/client/client.spec.ts",
      "docs/tls.md",
    ),
    row(
      "REC-API-10",
      "always",
      "global.limits",
      "spec/journeys/overload.spec.ts",
      "spec/journeys/h2.spec.ts",
      "docs/limits.md",
    ),
    row(
      "REC-API-11",
      "credentials",
      "key_auth, basic_auth, jwt, introspection, oidc, mtls, forward_auth",
      "spec/plugins/key_auth.spec.ts",
      "spec/journeys/guards_fail_closed.spec.ts",
      "docs/plugins/README.md",
    ),
    row(
      "REC-API-12",
      "guards",
      "key_auth, acl, authorize, forward_auth",
      "spec/journeys/authorize.spec.ts",
      "spec/journeys/guarded_routes.spec.ts",
      "docs/plugins/acl.md",
    ),
    row(
      "REC-API-13",
      "validation",
      "request_validation",
      "spec/plugins/request_validation.spec.ts",
      "docs/plugins/request_validation.md",
    ),
    row(
      "REC-API-14",
      "sizes",
      "request_size_limit, global.limits",
      "spec/journeys/limits.spec.ts",
      "spec/plugins/request_size_limit.spec.ts",
      "docs/limits.md",
    ),
    row(
      "REC-API-15",
      "rate_limits",
      "rate_limit, quota",
      "spec/plugins/rate_limit.spec.ts",
      "spec/plugins/quota.spec.ts",
      "docs/plugins/rate_limit.md",
    ),
    row(
      "REC-API-16",
      "breakers",
      "service.circuit_breaker",
      "spec/journeys/circuit_breaker.spec.ts",
      "docs/health-and-resilience.md",
    ),
    row(
      "REC-API-17",
      "blocking",
      "acl, bot_protection",
      "spec/plugins/acl.spec.ts",
      "spec/plugins/bot_protection.spec.ts",
      "docs/plugins/acl.md",
    ),
    row(
      "REC-API-18",
      "metrics_and_log",
      "PROBE_PORT, ADMIN_USER, global.access_log",
      "spec/admin/metrics.spec.ts",
      "spec/journeys/access_log.spec.ts",
      "docs/observability.md",
    ),
    row("REC-API-19", "validation", "request_validation", "spec/json_schema", "docs/plugins/request_validation.md"),
    row(
      "REC-API-20",
      "never",
      "authorize, response_headers",
      "spec/plugins/authorize.spec.ts",
      "docs/plugins/authorize.md",
    ),
    row("REC-API-21", "log", "global.access_log", "spec/observe/access_line.spec.ts", "docs/observability.md"),
    row("REC-API-22", "never", "http_log, mirror", "spec/plugins/mirror.spec.ts", "docs/plugins/mirror.md"),
    row("REC-API-23", "always", "edge-gateway explain", "spec/journeys/errors.spec.ts", "docs/troubleshooting.md"),
    row(
      "REC-API-24",
      "rate_limits",
      "rate_limit, quota",
      "spec/plugins/rate_limit.spec.ts",
      "docs/plugins/rate_limit.md",
    ),
    row("REC-API-25", "masking", "ADMIN_REDACT_SECRETS", "spec/config/secrets.spec.ts", "docs/configuration.md"),
    row(
      "REC-API-26",
      "partial",
      "request_termination, acl",
      "spec/plugins/request_termination.spec.ts",
      "docs/plugins/request_termination.md",
    ),
  ),
  row("OSPS-BR-02.01", "always", "edge-gateway --version", "spec/build/version.spec.ts", "docs/releases.md"),
  row(
    "OSPS-BR-04.01",
    "always",
    "CHANGELOG.md",
    "spec/build/version.spec.ts",
    "spec/peers/compare.spec.ts",
    "docs/upgrading.md",
  ),
  row("OSPS-BR-05.01", "always", "package-lock.json", "spec/peers/release.spec.ts", "docs/releases.md"),
  row(
    "OSPS-BR-06.01",
    "partial",
    "edge-gateway verify",
    "spec/cli/verify.spec.ts",
    "spec/peers/release.spec.ts",
    "docs/releases.md",
  ),
  row("OSPS-QA-01.01", "never", "SECURITY.md", "docs/releases.md"),
  row("OSPS-QA-02.01", "always", "package.json", "spec/architecture.spec.ts", "docs/releases.md"),
  row(
    "OSPS-QA-02.02",
    "always",
    "edge-gateway build",
    "spec/peers/release.spec.ts",
    "spec/peers/build.spec.ts",
    "docs/releases.md",
  ),
  row("OSPS-QA-05.01", "always", "edge-gateway build", "spec/peers/release.spec.ts", "docs/releases.md"),
  row("OSPS-SA-01.01", "always", "ARCHITECTURE.md", "spec/architecture.spec.ts", "docs/threat-model.md"),
  row(
    "OSPS-SA-02.01",
    "always",
    "edge-gateway help",
    "spec/documents.spec.ts",
    "docs/admin-api.md",
    "docs/embedding.md",
  ),
  row("OSPS-SA-03.02", "always", "edge-gateway test", "spec/documents.spec.ts", "docs/threat-model.md"),
  row("OSPS-VM-01.01", "always", "SECURITY.md", "spec/documents.spec.ts", "docs/security.md"),
  row("OSPS-VM-02.01", "partial", "SECURITY.md", "docs/security.md"),
  row("OSPS-VM-03.01", "partial", "SECURITY.md", "docs/security.md"),
  row("OSPS-VM-04.02", "partial", "edge-gateway verify", "spec/build/vex.spec.ts", "docs/releases.md"),
  ...of(
    "CRA Annex I Part I",
    row("(2)(a)", "partial", "edge-gateway --version", "spec/build/vex.spec.ts", "docs/releases.md"),
    row("(2)(b)", "partial", "ADMIN_USER, ADMIN_USERS_FILE, MANAGER", "spec/cli/start.spec.ts", "docs/settings.md"),
    row("(2)(c)", "never", "SECURITY.md", "docs/upgrading.md"),
    row(
      "(2)(d)",
      "guards",
      "key_auth, basic_auth, jwt, mtls",
      "spec/journeys/guarded_routes.spec.ts",
      "docs/plugins/README.md",
    ),
    row(
      "(2)(e)",
      "tls_everywhere",
      "SERVER_CERT_PATH, global.certificates, HTTP_PORT, service.protocol",
      "spec/journeys/tls.spec.ts",
      "docs/tls.md",
    ),
    row(
      "(2)(f)",
      "signed",
      "CONFIG_PUBLIC_KEY, STATE_DIR",
      "spec/journeys/signed_configuration.spec.ts",
      "spec/cli/state_dir.spec.ts",
      "docs/security.md",
    ),
    row("(2)(g)", "always", "global.access_log", "spec/observe/access_line.spec.ts", "docs/observability.md"),
    row(
      "(2)(h)",
      "always",
      "global.limits, SHUTDOWN_GRACE_S",
      "spec/journeys/overload.spec.ts",
      "spec/journeys/life.spec.ts",
      "docs/limits.md",
    ),
    row(
      "(2)(i)",
      "breakers",
      "service.circuit_breaker",
      "spec/journeys/circuit_breaker.spec.ts",
      "spec/journeys/retries.spec.ts",
      "docs/health-and-resilience.md",
    ),
    row("(2)(j)", "always", "edge-gateway audit, edge-gateway build", "spec/peers/audit.spec.ts", "docs/audit.md"),
    row(
      "(2)(k)",
      "partial",
      "edge-gateway audit, SEAL",
      "spec/peers/systemd.spec.ts",
      "spec/peers/audit.spec.ts",
      "docs/deployment.md",
    ),
    row(
      "(2)(l)",
      "security_log",
      "global.access_log, AUDIT_LOG, AUDIT_REFUSALS",
      "spec/journeys/access_log.spec.ts",
      "spec/cli/audit_log.spec.ts",
      "docs/audit-log.md",
    ),
    row("(2)(m)", "partial", "edge-gateway audit", "spec/peers/audit.spec.ts", "docs/audit.md"),
  ),
  ...of(
    "CRA Annex I Part II",
    row("(1)", "always", "edge-gateway build", "spec/peers/release.spec.ts", "docs/releases.md"),
    row("(2)", "partial", "SECURITY.md", "docs/upgrading.md"),
    row(
      "(3)",
      "always",
      "edge-gateway test",
      "spec/journeys/hostile.spec.ts",
      "spec/server/http1_fuzz.spec.ts",
      "docs/threat-model.md",
    ),
    row("(4)", "always", "CHANGELOG.md", "docs/upgrading.md"),
    row("(5)", "always", "SECURITY.md", "docs/security.md"),
    row("(6)", "partial", "SECURITY.md", "docs/security.md"),
    row("(7)", "partial", "edge-gateway verify", "spec/cli/verify.spec.ts", "docs/releases.md"),
    row("(8)", "always", "LICENSE", "docs/upgrading.md"),
  ),
  row(
    "SRG-NET-000018-ALG-000017",
    "guards",
    "acl, authorize",
    "spec/journeys/guarded_routes.spec.ts",
    "spec/journeys/authorize.spec.ts",
    "docs/plugins/acl.md",
  ),
  row(
    "SRG-NET-000019-ALG-000018",
    "blocking",
    "acl, bot_protection",
    "spec/plugins/acl.spec.ts",
    "spec/journeys/hostile.spec.ts",
    "docs/plugins/acl.md",
  ),
  row("SRG-NET-000019-ALG-000021", "elsewhere", "edge-gateway audit", "docs/security.md"),
  row(
    "SRG-NET-000077-ALG-000046",
    "log",
    "global.access_log, global.trusted_proxies",
    "spec/observe/access_line.spec.ts",
    "docs/observability.md",
  ),
  row(
    "SRG-NET-000098-ALG-000056",
    "partial",
    "global.access_log",
    "spec/journeys/access_log.spec.ts",
    "docs/observability.md",
  ),
  row(
    "SRG-NET-000131-ALG-000085",
    "least_ports",
    "PROBE_PORT, METRICS_TOKEN, edge-gateway build",
    "spec/cli/loaded_modules.spec.ts",
    "spec/peers/build.spec.ts",
    "docs/audit.md",
  ),
  row(
    "SRG-NET-000138-ALG-000089",
    "auth_servers",
    "forward_auth, introspection, jwt, oidc",
    "spec/base/egress.spec.ts",
    "docs/audit.md",
  ),
  row(
    "SRG-NET-000213-ALG-000107",
    "admin_session",
    "ADMIN_SESSION_TTL_S",
    "spec/admin/login.spec.ts",
    "docs/admin-api.md",
  ),
  row("SRG-NET-000289-ALG-000110", "never", "mirror", "docs/plugins/mirror.md"),
  row(
    "SRG-NET-000344-ALG-000098",
    "auth_servers",
    "introspection, jwt, oidc",
    "spec/plugins/introspection.spec.ts",
    "docs/plugins/introspection.md",
  ),
  row(
    "SRG-NET-000390-ALG-000139",
    "metrics_and_log",
    "PROBE_PORT, ADMIN_USER, global.access_log",
    "spec/admin/metrics.spec.ts",
    "docs/observability.md",
  ),
  row("SRG-NET-000512-ALG-000062", "elsewhere", "edge-gateway audit", "docs/deployment.md"),
  row(
    "SRG-NET-000512-ALG-000066",
    "always",
    "global.http1",
    "spec/journeys/hostile.spec.ts",
    "spec/server/http1_fuzz.spec.ts",
    "spec/journeys/upstream_faults.spec.ts",
    "docs/http2-and-websockets.md",
  ),
  row(
    "SRG-NET-000513-ALG-000026",
    "security_log",
    "global.access_log, AUDIT_LOG, AUDIT_REFUSALS",
    "spec/journeys/access_log.spec.ts",
    "spec/cli/audit_log.spec.ts",
    "docs/audit-log.md",
  ),
  row(
    "SRG-NET-ALG: management",
    "admin",
    "ADMIN_TLS, ADMIN_HOST, MANAGER_TLS, MANAGER_HOST",
    "spec/cli/tls_files.spec.ts",
    "spec/cli/manager.spec.ts",
    "docs/admin-api.md",
  ),
  row(
    "SRG-NET-ALG: changes",
    "changes_logged",
    "AUDIT_LOG, ADMIN_WRITE",
    "spec/cli/audit_log.spec.ts",
    "spec/admin/source.spec.ts",
    "docs/audit-log.md",
  ),
  row(
    "SRG-NET-ALG: certificates of clients",
    "client_certificates",
    "CA_CERT_PATH, CLIENT_AUTH, mtls, global.tls",
    "spec/journeys/mtls.spec.ts",
    "spec/journeys/revocation.spec.ts",
    "docs/tls.md",
  ),
  row("SRG-NET-ALG: FIPS-validated cryptography", "never", "edge-gateway audit", "docs/releases.md"),
];

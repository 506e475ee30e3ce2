/**
 * The runtime settings of a gateway, read from its flags and the environment, and checked together.
 */
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { readFleetKey } from "./acme_fleet_key.ts";
import { asksForExport, asksForTraces, SETTINGS, type MANAGER_TABLE } from "./settings_table.ts";
import { sourceIn, sourceProblems } from "./source_settings.ts";
import { certificateRules, messagesOf, portProblems, type Rule } from "./settings_rules.ts";
import type { AdminSettings, ManagerSettings, Settings, SettingsRead } from "./settings_types.ts";
import { readValues, startOf } from "./start_settings.ts";
import type { Environment, Flags, Host, ReadOf, Setting, ValuesOf } from "./start_settings.ts";
import type { readLogsExport, readMetricsExport, readTracing } from "./tracing.ts";

type Values = ValuesOf<typeof SETTINGS>;
export type ManagerValues = ValuesOf<typeof MANAGER_TABLE>;
type Read = ReadOf<typeof SETTINGS>;

interface GatewayHost extends Host {
  /** Needed where `asksForTraces`. */
  readonly readTracing?: typeof readTracing;
  /** Needed where `asksForExport`, each of its signal. */
  readonly readMetricsExport?: typeof readMetricsExport;
  readonly readLogsExport?: typeof readLogsExport;
}

/** For a gateway. */
export function readSettings(flags: Flags, environment: Environment, host: GatewayHost = {}): SettingsRead<Settings> {
  const issues = [...(host.issues ?? [])];
  const values = readValues(SETTINGS, flags, environment, issues);
  const password = adminPassword(values, host, issues);
  const viewerPassword = secret(
    VIEWER_PASSWORD,
    values.adminViewerPassword,
    values.adminViewerPasswordFile,
    host,
    issues,
  );
  const metricsToken = secret(METRICS_TOKEN, values.metricsToken, values.metricsTokenFile, host, issues);
  const acmeFleetKey = readFleetKey(values, host, issues);
  issues.push(...problemsTogether(values, password), ...sourceProblems(values));
  // Whoever reads that file would miss the changes.
  if (environment["ADMIN_AUDIT_LOG"])
    issues.push("ADMIN_AUDIT_LOG is gone: set AUDIT_LOG, a file that has the same events, and logins, in a chain");
  const tracing = asksForTraces(environment) ? host.readTracing!(environment, issues, host.readFile) : null;
  const metricsExport = asksForExport("METRICS", environment)
    ? host.readMetricsExport!(environment, issues, host.readFile)
    : null;
  const logsExport = asksForExport("LOGS", environment)
    ? host.readLogsExport!(environment, issues, host.readFile)
    : null;
  if (issues.length > 0) return { ok: false, issues };
  const secrets = { password, viewerPassword, metricsToken, acmeFleetKey };
  const settings = settingsOf(values as Values, secrets, { tracing, metricsExport, logsExport }, host);
  // Without a certificate the configuration decides whether HTTPS_PORT is opened.
  const clashes = portProblems(settings, settings.serverCertPath !== null);
  return clashes.length > 0 ? { ok: false, issues: clashes } : { ok: true, settings };
}

interface Secrets {
  readonly password: string | null;
  readonly viewerPassword: string | null;
  readonly metricsToken: string | null;
  readonly acmeFleetKey: Buffer | null;
}

function settingsOf(
  values: Values,
  { password, viewerPassword, metricsToken, acmeFleetKey }: Secrets,
  exports: Pick<Settings, "tracing" | "metricsExport" | "logsExport">,
  host: Host,
): Settings {
  const {
    serverCertPath,
    serverKeyPath,
    caCertPath,
    clientAuth,
    persistence,
    workers,
    stateDir,
    seal,
    adminUser: user,
    adminHosts,
    probePort: port,
    probeHost,
  } = values;
  const source = sourceIn(values);
  return {
    ...startOf(values, host),
    ...(source !== null && { configPath: source.url.name }),
    source,
    serverCertPath,
    serverKeyPath,
    caCertPath,
    persistence,
    workers,
    stateDir,
    acmeFleetKey,
    seal,
    audit:
      values.auditLogPath === null
        ? null
        : { logPath: values.auditLogPath, refusals: values.auditRefusals, fail: values.auditFail },
    needHttps: serverCertPath !== null || caCertPath !== null || values.httpPort === "off",
    clientAuth: caCertPath === null ? "none" : (clientAuth ?? "request"),
    admin: user === null && values.adminUsersPath === null ? null : adminOf(values, password, viewerPassword),
    probe: port === null ? null : { host: probeHost, port, hosts: [...(adminHosts ?? []), probeHost] },
    metricsToken,
    manager: values.manager ? managerOf(values) : null,
    ...exports,
  };
}

function adminOf(values: Values, password: string | null, viewerPassword: string | null): AdminSettings {
  const { adminUser: user, adminViewerUser: viewer } = values;
  return {
    user,
    password,
    usersPath: values.adminUsersPath,
    viewer: viewer === null || viewerPassword === null ? null : { user: viewer, password: viewerPassword },
    write: values.adminWrite,
    host: values.adminHost,
    port: values.adminPort,
    tls: values.adminTls,
    jwtSecret: values.adminJwtSecret,
    sessionTtlS: values.adminSessionTtlS,
    cookie: values.adminCookieName,
    redactSecrets: values.adminRedactSecrets,
    corsOrigins: values.adminCorsOrigins ?? [],
    hosts: [...(values.adminHosts ?? []), values.adminHost],
  };
}

export function managerOf(values: ManagerValues): ManagerSettings {
  return {
    port: values.managerPort,
    host: values.managerHost,
    tls: values.managerTls,
    backendUrl: values.managerBackendUrl,
    backendCaPath: values.managerBackendCaPath,
    basePath: values.managerBasePath,
    traceUrl: values.managerTraceUrl,
    hosts: [...(values.adminHosts ?? []), values.managerHost],
  };
}

const ADMIN_PASSWORD: SecretRow = ["ADMIN_PASSWORD", SETTINGS.adminPassword];
const VIEWER_PASSWORD: SecretRow = ["ADMIN_VIEWER_PASSWORD", SETTINGS.adminViewerPassword];
const METRICS_TOKEN: SecretRow = ["METRICS_TOKEN", SETTINGS.metricsToken];
type SecretRow = readonly [variable: string, row: Setting<string | null>];

export function adminPassword(
  { adminPassword, adminPasswordFile }: Pick<Read, "adminPassword" | "adminPasswordFile">,
  host: Host,
  issues: string[],
): string | null {
  return secret(ADMIN_PASSWORD, adminPassword, adminPasswordFile, host, issues);
}

/**
 * The secret itself, from its variable (`given`) or its file; null when there is none, or when that has been reported.
 */
function secret(
  [variable, row]: SecretRow,
  given: string | null,
  file: string | null,
  host: Host,
  issues: string[],
): string | null {
  if (file === null) return given;
  if (given !== null) {
    issues.push(`${variable} and ${variable}_FILE are both set: set one of them`);
    return given;
  }
  try {
    const text = String((host.readFile ?? readRegularFile)(file)).replace(/\r?\n$/, "");
    const value = text === "" ? null : row.parse(text);
    if (value !== null) return value;
    issues.push(`${variable}_FILE: ${file} ${text === "" ? "is empty" : `does not contain ${row.expects}`}`);
  } catch (error) {
    issues.push(`${variable}_FILE: cannot read ${file}: ${whyUnreadable(error)}`);
  }
  return null;
}

/** Conflicts between settings that are valid by themselves. */
function problemsTogether(values: Read, password: string | null): string[] {
  const { serverCertPath: cert, serverKeyPath: key, caCertPath: ca, adminUser: user, manager } = values;
  const isProtected = password !== null || values.adminPasswordFile !== null;
  const hasToken = values.metricsToken !== null || values.metricsTokenFile !== null;
  const hasUsers = values.adminUsersPath !== null;
  const hasAdmin = hasUsers || (user !== null && isProtected);
  const noAdmin =
    "set ADMIN_USER and ADMIN_PASSWORD, or name the admin interface of another gateway with MANAGER_BACKEND_API_URL";
  const rules: Rule[] = [
    ...certificateRules(values),
    [values.clientAuth !== null && ca === null, "CLIENT_AUTH needs CA_CERT_PATH, which verifies client certificates"],
    [values.adminTls === true && cert === null && key === null, `ADMIN_TLS ${OWN_CERTIFICATE}`],
    [
      hasToken && user === null && !hasUsers && values.probePort === null,
      "METRICS_TOKEN opens nothing: set PROBE_PORT, or ADMIN_USER and ADMIN_PASSWORD",
    ],
    [
      user?.includes(":") === true,
      "ADMIN_USER: expected a name without a colon, which ends the name in Basic credentials (RFC 7617 §2)",
    ],
    [user !== null && !isProtected, `ADMIN_USER is set without ADMIN_PASSWORD or ADMIN_PASSWORD_FILE: ${BOTH_OR_NONE}`],
    [user === null && isProtected, `an admin password is set without ADMIN_USER: ${BOTH_OR_NONE}`],
    ...viewerRules(values),
    [
      values.adminWrite === true && user === null && !hasUsers,
      "ADMIN_WRITE needs an admin interface: set ADMIN_USER and ADMIN_PASSWORD",
    ],
    [
      values.auditLogPath === null && values.auditRefusals === true,
      "AUDIT_REFUSALS needs AUDIT_LOG, the file for them",
    ],
    [
      values.auditLogPath === null && values.auditFail === "closed",
      "AUDIT_FAIL needs AUDIT_LOG, the file that it is about",
    ],
    ...(manager === true ? managerRules(values) : []),
    [
      manager === true && values.managerBackendUrl === null && !hasAdmin,
      `MANAGER needs an admin interface to talk to: ${noAdmin}`,
    ],
  ];
  return messagesOf(rules);
}

function viewerRules({
  adminUser,
  adminUsersPath,
  adminViewerUser: viewer,
  adminViewerPassword: password,
  adminViewerPasswordFile: file,
}: Read): Rule[] {
  const isProtected = password !== null || file !== null;
  return [
    [
      viewer?.includes(":") === true,
      "ADMIN_VIEWER_USER: expected a name without a colon, which ends the name in Basic credentials (RFC 7617 §2)",
    ],
    [viewer !== null && !isProtected, "ADMIN_VIEWER_USER needs ADMIN_VIEWER_PASSWORD or ADMIN_VIEWER_PASSWORD_FILE"],
    [viewer === null && isProtected, "a password of a viewer is set without ADMIN_VIEWER_USER"],
    [
      viewer !== null && adminUser === null && adminUsersPath === null,
      "ADMIN_VIEWER_USER needs an admin interface: set ADMIN_USER and ADMIN_PASSWORD",
    ],
    // The forms of one character (Unicode composition) are one name, as in a login.
    [
      viewer !== null && viewer.normalize("NFC") === adminUser?.normalize("NFC"),
      "ADMIN_VIEWER_USER is the name of the administrator: give the viewer another one",
    ],
  ];
}

const OWN_CERTIFICATE = "needs SERVER_CERT_PATH and SERVER_KEY_PATH: global.certificates are for traffic alone";
const BOTH_OR_NONE = "set both, or none to leave the admin interface off";

export function managerRules(values: ReadOf<typeof MANAGER_TABLE>): Rule[] {
  const { managerTls, managerBackendUrl: url, managerBackendCaPath: ca, serverCertPath, serverKeyPath } = values;
  return [
    [managerTls === true && serverCertPath === null && serverKeyPath === null, `MANAGER_TLS ${OWN_CERTIFICATE}`],
    [
      ca !== null && url?.startsWith("https:") !== true,
      "MANAGER_BACKEND_CA_PATH needs a MANAGER_BACKEND_API_URL that starts with https://",
    ],
  ];
}

/**
 * The runtime settings of each command, read from its flags and the environment, and checked together.
 */
import { isHashed } from "../base/password.ts";
import { readRegularFile } from "../base/regular_file.ts";
import { whyUnreadable, withoutFinalNewline } from "./references.ts";
import { CLIENT_SETTINGS, SETTINGS, unknownFlags } from "./settings_table.ts";
import { certificateRules, logFormatOf, messagesOf, portProblems, portsOf, readValues, rulesOfStart, startOf, WITHOUT_TLS } from "./start_settings.ts";
import type { Environment, Flags, Host, ReadOf, Rule, Setting, SettingsRead, ValuesOf } from "./start_settings.ts";
import { readTracing } from "./tracing.ts";

/** All flags of the commands that ask a running gateway. */
export const CLIENT_TABLE = {
  ...CLIENT_SETTINGS,
  ...some("adminUser", "adminPassword", "adminPasswordFile", "adminHost", "adminPort", "adminTls"),
};

/** The settings that `healthcheck` needs to find the gateway of this machine. */
export const HEALTHCHECK_TABLE = some("probePort", "probeHost", "adminUser", "adminPort", "adminHost", "adminTls");

/** The settings of a management UI without a gateway. */
export const MANAGER_TABLE = {
  ...some("managerPort", "managerHost", "managerTls", "managerBackendUrl", "managerBackendCaPath", "adminHosts"),
  ...some("serverCertPath", "serverKeyPath", "logLevel", "logFormat"),
};

function some<K extends keyof typeof SETTINGS>(...names: readonly K[]): Pick<typeof SETTINGS, K> {
  return Object.fromEntries(names.map((name) => [name, SETTINGS[name]])) as Pick<typeof SETTINGS, K>;
}

type Values = ValuesOf<typeof SETTINGS>;
type ManagerValues = ValuesOf<typeof MANAGER_TABLE>;
type Read = ReadOf<typeof SETTINGS>;

export type Settings = ReturnType<typeof settingsOf>;
export type ManagerSettings = ReturnType<typeof managerOf>;
export type LoneManagerSettings = ReturnType<typeof loneManagerOf>;

/** For a gateway. Flags that are not settings are errors. */
export function readSettings(flags: Flags, environment: Environment, host: Host = {}): SettingsRead<Settings> {
  const issues = unknownFlags(flags, SETTINGS);
  const values = readValues(SETTINGS, flags, environment, issues);
  const password = adminPassword(values, host, issues);
  const metricsToken = secret(METRICS_TOKEN, values.metricsToken, values.metricsTokenFile, host, issues);
  issues.push(...problemsTogether(values, password));
  const tracing = readTracing(environment, issues, host.readFile);
  if (issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: settingsOf(values as Values, { password, metricsToken }, tracing, host) };
}

/** For `healthcheck`: the URL of the gateway on this machine, without a path. The probe port is preferred to the admin interface. */
export function readHealthcheckSettings(flags: Flags, environment: Environment): SettingsRead<{ readonly url: string }> {
  const issues = unknownFlags(flags, HEALTHCHECK_TABLE);
  const { probePort, probeHost, adminUser, adminPort, adminHost, adminTls } = readValues(HEALTHCHECK_TABLE, flags, environment, issues);
  if (issues.length > 0) return { ok: false, issues };
  const [name, host, port] = probePort === null ? ["ADMIN_PORT", adminHost, adminPort] : ["PROBE_PORT", probeHost, probePort];
  if (probePort === null && adminUser === null) issues.push("there is nothing to ask: set PROBE_PORT, as for the gateway itself");
  else if (port === 0) issues.push(`${name} is 0, any free port: set it to the port in use`);
  else if (probePort === null && adminTls === true) issues.push("the admin interface uses HTTPS, and its certificate need not name this machine: set PROBE_PORT");
  if (issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: { url: `http://${authority(near(host!), port!)}` } };
}

/** For commands that ask a running gateway: other settings in the environment are ignored, wrong ones too. */
export function readClientSettings(flags: Flags, environment: Environment, host: Host = {}): SettingsRead<ReturnType<typeof clientOf>> {
  const issues = unknownFlags(flags, CLIENT_TABLE);
  const values = readValues(CLIENT_TABLE, flags, environment, issues);
  if (values.adminUrl === null && values.adminPort === 0) issues.push("ADMIN_PORT is 0, any free port: name the port in use with --admin-url");
  // If the gateway's own environment contains a hash, give the password with the flag.
  const isNamed = flags[SETTINGS.adminPasswordFile.flag!] !== undefined;
  const password = adminPassword(isNamed ? { ...values, adminPassword: null } : values, host, issues);
  const user = values.adminUser;
  if (issues.length === 0) {
    if (user === null) issues.push("ADMIN_USER is not set: it names the user who logs in to the admin interface");
    if (password === null) issues.push("neither ADMIN_PASSWORD nor ADMIN_PASSWORD_FILE is set: the admin password must be in one of them");
    else if (isHashed(password)) {
      issues.push("the admin password is a hash, which cannot log in: set the password itself in ADMIN_PASSWORD or --admin-password-file");
    }
  }
  if (user === null || password === null || issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: clientOf(values as ValuesOf<typeof CLIENT_TABLE>, user, password) };
}

/** For a management UI without a gateway: other settings in the environment are ignored, wrong ones too. */
export function readManagerSettings(flags: Flags, environment: Environment, host: Host = {}): SettingsRead<LoneManagerSettings> {
  const issues = unknownFlags(flags, MANAGER_TABLE);
  const read = readValues(MANAGER_TABLE, flags, environment, issues);
  const values = { ...read, managerBackendUrl: read.managerBackendUrl ?? "http://127.0.0.1:8081" };
  issues.push(...messagesOf([...certificateRules(values), ...managerRules(values)]));
  if (issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: loneManagerOf(values as ManagerValues, values.managerBackendUrl, host) };
}

interface Secrets {
  readonly password: string | null;
  readonly metricsToken: string | null;
}

function settingsOf(values: Values, { password, metricsToken }: Secrets, tracing: ReturnType<typeof readTracing>, host: Host) {
  const { adminUser: user, adminHosts, probePort: port, probeHost } = values;
  return {
    ...startOf(values, host),
    /** Null when the admin interface is off. */
    admin: user === null || password === null ? null : adminOf(values, user, password),
    /** Null when there is no listener for probes. `hosts`: names, besides localhost, by which its /metrics may be asked without a token. */
    probe: port === null ? null : { host: probeHost, port, hosts: [...(adminHosts ?? []), probeHost] },
    /** Null: metrics have no token of their own. */
    metricsToken,
    /** Null when the management UI is off. */
    manager: values.manager ? managerOf(values) : null,
    /** Null: requests are not traced. */
    tracing,
  };
}

function adminOf(values: Values, user: string, password: string) {
  return {
    user,
    /** Plain, or a hash made by `edge-gateway hash-password`. */
    password,
    host: values.adminHost,
    port: values.adminPort,
    tls: values.adminTls,
    /** Null: a random key for this process. */
    jwtSecret: values.adminJwtSecret,
    sessionTtlS: values.adminSessionTtlS,
    cookie: values.adminCookieName,
    redactSecrets: values.adminRedactSecrets,
    corsOrigins: values.adminCorsOrigins ?? [],
    /** Host names, besides localhost, that are accepted over plain HTTP. */
    hosts: [...(values.adminHosts ?? []), values.adminHost],
  };
}

function managerOf(values: ManagerValues) {
  return {
    port: values.managerPort,
    host: values.managerHost,
    tls: values.managerTls,
    /** Address of the admin interface, perhaps with a path, without a final slash. Null: the one of this process. */
    backendUrl: values.managerBackendUrl,
    /** Null: Node's own list of authorities. */
    backendCaPath: values.managerBackendCaPath,
    /** Host names, besides localhost, that are accepted over plain HTTP. */
    hosts: [...(values.adminHosts ?? []), values.managerHost],
  };
}

function loneManagerOf(values: ManagerValues, backendUrl: string, host: Host) {
  const { serverCertPath, serverKeyPath, logLevel } = values;
  return { manager: { ...managerOf(values), backendUrl }, serverCertPath, serverKeyPath, logLevel, logFormat: logFormatOf(values, host) };
}

/** `url` is the admin interface, by default of a gateway with these settings on the same machine: "http://127.0.0.1:8081". */
function clientOf(values: ValuesOf<typeof CLIENT_TABLE>, user: string, password: string) {
  const { adminUrl, adminHost, adminPort, adminTls, adminCaPath: caPath } = values;
  const url = adminUrl ?? `${adminTls ? "https" : "http"}://${authority(near(adminHost), adminPort)}`;
  return { url, user, password, caPath };
}

/** Where a client on this machine reaches a listener on this host. */
function near(host: string): string {
  return host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
}

function authority(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

const ADMIN_PASSWORD: SecretRow = ["ADMIN_PASSWORD", SETTINGS.adminPassword];
const METRICS_TOKEN: SecretRow = ["METRICS_TOKEN", SETTINGS.metricsToken];
type SecretRow = readonly [variable: string, row: Setting<string | null>];

function adminPassword({ adminPassword, adminPasswordFile }: Pick<Read, "adminPassword" | "adminPasswordFile">, host: Host, issues: string[]): string | null {
  return secret(ADMIN_PASSWORD, adminPassword, adminPasswordFile, host, issues);
}

/** The secret itself, from its variable (`given`) or its file; null when there is none, or when that has been reported. */
function secret([variable, row]: SecretRow, given: string | null, file: string | null, host: Host, issues: string[]): string | null {
  if (file === null) return given;
  if (given !== null) {
    issues.push(`${variable} and ${variable}_FILE are both set: set one of them`);
    return given;
  }
  try {
    const text = withoutFinalNewline(String((host.readFile ?? readRegularFile)(file)));
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
  const { serverCertPath: cert, serverKeyPath: key, adminUser: user, manager } = values;
  const isProtected = password !== null || values.adminPasswordFile !== null;
  const hasToken = values.metricsToken !== null || values.metricsTokenFile !== null;
  const hasAdmin = user !== null && isProtected;
  const noAdmin = "set ADMIN_USER and ADMIN_PASSWORD, or name the admin interface of another gateway with MANAGER_BACKEND_API_URL";
  const rules: Rule[] = [
    ...rulesOfStart(values),
    [values.adminTls === true && cert === null && key === null, `ADMIN_TLS needs ${WITHOUT_TLS}`],
    [hasToken && user === null && values.probePort === null, "METRICS_TOKEN opens nothing: set PROBE_PORT, or ADMIN_USER and ADMIN_PASSWORD"],
    [user?.includes(":") === true, "ADMIN_USER: expected a name without a colon, which ends the name in Basic credentials (RFC 7617 §2)"],
    [user !== null && !isProtected, `ADMIN_USER is set without ADMIN_PASSWORD or ADMIN_PASSWORD_FILE: ${BOTH_OR_NONE}`],
    [user === null && isProtected, `an admin password is set without ADMIN_USER: ${BOTH_OR_NONE}`],
    ...(manager === true ? managerRules(values) : []),
    [manager === true && values.managerBackendUrl === null && !hasAdmin, `MANAGER needs an admin interface to talk to: ${noAdmin}`],
  ];
  const ports = [
    ...portsOf(values),
    ["ADMIN_PORT", user === null ? null : values.adminPort],
    ["PROBE_PORT", values.probePort],
    ["MANAGER_PORT", manager === true ? values.managerPort : null],
  ] as const;
  return [...messagesOf(rules), ...portProblems(ports)];
}

const BOTH_OR_NONE = "set both, or none to leave the admin interface off";

function managerRules(values: ReadOf<typeof MANAGER_TABLE>): Rule[] {
  const { managerTls, managerBackendUrl: url, managerBackendCaPath: ca, serverCertPath, serverKeyPath } = values;
  return [
    [managerTls === true && serverCertPath === null && serverKeyPath === null, `MANAGER_TLS needs ${WITHOUT_TLS}`],
    [ca !== null && url?.startsWith("https:") !== true, "MANAGER_BACKEND_CA_PATH needs a MANAGER_BACKEND_API_URL that starts with https://"],
  ];
}

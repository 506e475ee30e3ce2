/**
 * The runtime settings of a gateway, read from flags and the environment by `settings_table.ts` and checked together.
 */
import type { LogFormat } from "../base/log.ts";
import { readRegularFile } from "../base/regular_file.ts";
import { whyUnreadable, withoutFinalNewline } from "./references.ts";
import { asksForTraces, readValues, SETTINGS, unknownFlags } from "./settings_table.ts";
import type { Environment, Flags, MANAGER_TABLE, ReadOf, Setting, ValuesOf } from "./settings_table.ts";
import type { readTracing } from "./tracing.ts";

export interface Host {
  /** Reads ADMIN_PASSWORD_FILE, METRICS_TOKEN_FILE and OTEL_EXPORTER_OTLP_CERTIFICATE; default: the file system. */
  readonly readFile?: (path: string) => Buffer | string;
  /** Whether standard error is a terminal. Default false. */
  readonly terminal?: boolean;
  /** Needed where the environment asks for traces, see `asksForTraces`. */
  readonly readTracing?: typeof readTracing;
}

/** The settings, or all errors, one sentence each. */
export type SettingsRead<T> = { readonly ok: true; readonly settings: T } | { readonly ok: false; readonly issues: readonly string[] };

type Values = ValuesOf<typeof SETTINGS>;
export type ManagerValues = ValuesOf<typeof MANAGER_TABLE>;
type Read = ReadOf<typeof SETTINGS>;

export type Settings = ReturnType<typeof settingsOf>;
export type ManagerSettings = ReturnType<typeof managerOf>;

/** For a gateway. Flags that are not settings are errors. */
export function readSettings(flags: Flags, environment: Environment, host: Host = {}): SettingsRead<Settings> {
  const issues = unknownFlags(flags, SETTINGS);
  const values = readValues(SETTINGS, flags, environment, issues);
  const password = adminPassword(values, host, issues);
  const metricsToken = secret(METRICS_TOKEN, values.metricsToken, values.metricsTokenFile, host, issues);
  issues.push(...problemsTogether(values, password));
  const tracing = asksForTraces(environment) ? host.readTracing!(environment, issues, host.readFile) : null;
  if (issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: settingsOf(values as Values, { password, metricsToken }, tracing, host) };
}

interface Secrets {
  readonly password: string | null;
  readonly metricsToken: string | null;
}

function settingsOf(values: Values, { password, metricsToken }: Secrets, tracing: ReturnType<typeof readTracing>, host: Host) {
  const { adminUser: user, caCertPath, clientAuth } = values;
  return {
    configPath: values.configPath,
    /** Null: the configuration needs no signature. */
    configKeyPath: values.configKey,
    tests: values.noTests ? ("skip" as const) : ("run" as const),
    serverCertPath: values.serverCertPath,
    serverKeyPath: values.serverKeyPath,
    caCertPath,
    /** Whether HTTPS clients are asked for a certificate, and whether a client without one is refused. */
    clientAuth: caCertPath === null ? ("none" as const) : (clientAuth ?? ("request" as const)),
    persistence: values.persistence,
    /** 0 means any free port, for the other ports too. */
    httpPort: values.httpPort,
    httpsPort: values.httpsPort,
    adminPort: values.adminPort,
    listenHosts: values.listenHosts,
    /** Null when the admin interface is off. */
    admin: user === null || password === null ? null : adminOf(values, user, password),
    /** Null when there is no listener for probes. `hosts`: names, besides localhost, by which its /metrics may be asked without a token. */
    probe: values.probePort === null ? null : { host: values.probeHost, port: values.probePort, hosts: [...(values.adminHosts ?? []), values.probeHost] },
    /** Null: metrics have no token of their own. */
    metricsToken,
    /** Null when the management UI is off. */
    manager: values.manager ? managerOf(values) : null,
    shutdownGraceS: values.shutdownGraceS,
    preStopDelayS: values.preStopDelayS,
    workers: values.workers,
    logLevel: values.logLevel,
    logFormat: logFormat(values, host),
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

export function managerOf(values: ManagerValues) {
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

export function logFormat(values: ManagerValues, host: Host): LogFormat {
  return values.logFormat ?? (host.terminal === true ? "text" : "json");
}

const ADMIN_PASSWORD: SecretRow = ["ADMIN_PASSWORD", SETTINGS.adminPassword];
const METRICS_TOKEN: SecretRow = ["METRICS_TOKEN", SETTINGS.metricsToken];
type SecretRow = readonly [variable: string, row: Setting<string | null>];

export function adminPassword({ adminPassword, adminPasswordFile }: Pick<Read, "adminPassword" | "adminPasswordFile">, host: Host, issues: string[]): string | null {
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

/** Whether the rule is violated, and the message. */
type Rule = readonly [isBroken: boolean, message: string];

export const messagesOf = (rules: readonly Rule[]) => rules.flatMap(([isBroken, message]) => (isBroken ? message : []));

/** Conflicts between settings that are valid by themselves. */
function problemsTogether(values: Read, password: string | null): string[] {
  const { serverCertPath: cert, serverKeyPath: key, caCertPath: ca, adminUser: user, manager } = values;
  const isProtected = password !== null || values.adminPasswordFile !== null;
  const hasToken = values.metricsToken !== null || values.metricsTokenFile !== null;
  const hasAdmin = user !== null && isProtected;
  const noAdmin = "set ADMIN_USER and ADMIN_PASSWORD, or name the admin interface of another gateway with MANAGER_BACKEND_API_URL";
  const rules: Rule[] = [
    ...certificateRules(values),
    [ca !== null && cert === null && key === null, `CA_CERT_PATH needs ${WITHOUT_TLS}`],
    [values.adminTls === true && cert === null && key === null, `ADMIN_TLS needs ${WITHOUT_TLS}`],
    [values.clientAuth !== null && ca === null, "CLIENT_AUTH needs CA_CERT_PATH, which verifies client certificates"],
    [hasToken && user === null && values.probePort === null, "METRICS_TOKEN opens nothing: set PROBE_PORT, or ADMIN_USER and ADMIN_PASSWORD"],
    [user?.includes(":") === true, "ADMIN_USER: expected a name without a colon, which ends the name in Basic credentials (RFC 7617 §2)"],
    [user !== null && !isProtected, `ADMIN_USER is set without ADMIN_PASSWORD or ADMIN_PASSWORD_FILE: ${BOTH_OR_NONE}`],
    [user === null && isProtected, `an admin password is set without ADMIN_USER: ${BOTH_OR_NONE}`],
    ...(manager === true ? managerRules(values) : []),
    [manager === true && values.managerBackendUrl === null && !hasAdmin, `MANAGER needs an admin interface to talk to: ${noAdmin}`],
  ];
  const ports = [
    ["HTTP_PORT", values.httpPort],
    ["HTTPS_PORT", cert === null || key === null ? null : values.httpsPort],
    ["ADMIN_PORT", user === null ? null : values.adminPort],
    ["PROBE_PORT", values.probePort],
    ["MANAGER_PORT", manager === true ? values.managerPort : null],
  ] as const;
  ports.forEach(([name, port], i) => {
    const other = ports.slice(0, i).find(([, earlier]) => earlier === port);
    if (other !== undefined && port !== 0 && port !== null) rules.push([true, `${name}: port ${port} is already used by ${other[0]}`]);
  });
  return messagesOf(rules);
}

const BOTH_OR_NONE = "set both, or none to leave the admin interface off";
const WITHOUT_TLS = "SERVER_CERT_PATH and SERVER_KEY_PATH: without them there is no HTTPS";

export function certificateRules({ serverCertPath: cert, serverKeyPath: key }: Pick<Read, "serverCertPath" | "serverKeyPath">): Rule[] {
  return [
    [cert !== null && key === null, "SERVER_CERT_PATH needs SERVER_KEY_PATH"],
    [key !== null && cert === null, "SERVER_KEY_PATH needs SERVER_CERT_PATH"],
  ];
}

export function managerRules(values: ReadOf<typeof MANAGER_TABLE>): Rule[] {
  const { managerTls, managerBackendUrl: url, managerBackendCaPath: ca, serverCertPath, serverKeyPath } = values;
  return [
    [managerTls === true && serverCertPath === null && serverKeyPath === null, `MANAGER_TLS needs ${WITHOUT_TLS}`],
    [ca !== null && url?.startsWith("https:") !== true, "MANAGER_BACKEND_CA_PATH needs a MANAGER_BACKEND_API_URL that starts with https://"],
  ];
}

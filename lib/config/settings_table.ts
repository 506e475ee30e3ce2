/**
 * The table of all runtime settings: those of a plain start (`start_settings.ts`), of HTTPS, of signatures, and of the
 * interfaces beside a gateway.
 */
import { TOKEN } from "../base/http_grammar.ts";
import {
  BOOLEAN,
  oneOfWords,
  FILE,
  HOST_NAME,
  HOSTS,
  wholeNumber,
  list,
  optionalSetting,
  PORT,
  setting,
  START_SETTINGS,
} from "./start_settings.ts";
import type { Environment, Parser } from "./start_settings.ts";

const TEXT: Parser<string> = { value: "TEXT", expects: "a text", parse: (text) => text };
const ORIGINS = list({
  value: "ORIGIN,…",
  expects: "origins such as https://ui.example.com, separated by commas",
  parse: origin,
});
const ORIGIN: Parser<string> = {
  value: "URL",
  expects: "a URL such as https://gateway.example.com:8081, without a path",
  parse: origin,
};
const BASE_URL: Parser<string> = {
  value: "URL",
  expects:
    "an http or https URL such as https://gateway.example.com:8081, perhaps with a path, " +
    "without user, query and fragment",
  parse: baseUrl,
};
const TRACE_URL: Parser<string> = {
  value: "URL",
  expects:
    "an http or https URL with {trace_id} in its path, query or fragment, " +
    "such as https://traces.example.com/trace/{trace_id}, without user and white space",
  parse: (text) =>
    /^https?:\/\/[\w.:[\]-]+[/?#][!-~]*$/i.test(text) && text.includes("{trace_id}") && URL.canParse(text)
      ? text
      : null,
};
/** With a slash at both ends, whether one was written at the end or not. */
const BASE_PATH: Parser<string> = {
  value: "PATH",
  expects: "a path such as /edge/, of letters, digits, “.”, “_”, “~” and “-” between slashes",
  parse: basePath,
};
const SECRET32: Parser<string> = {
  value: "SECRET",
  expects: "at least 32 bytes",
  parse: (text) => (Buffer.byteLength(text) >= 32 ? text : null),
};
const COOKIE_NAME: Parser<string> = {
  value: "NAME",
  expects: "the name of a cookie: at most 64 letters, digits or ! # $ % & ' * + - . ^ _ ` | ~",
  parse: (text) => (text.length <= 64 && TOKEN.test(text) ? text : null),
};
/** What RFC 6750 §2.1 lets a bearer token consist of. */
const BEARER: Parser<string> = {
  value: "TOKEN",
  expects: "at least 16 letters, digits or - . _ ~ + / and = at the end (openssl rand -hex 32 prints such a token)",
  parse: (text) => (text.length >= 16 && /^[\w.~+/-]+=*$/.test(text) ? text : null),
};
const DBLESS = {
  ...oneOfWords("dbless"),
  expects: "dbless (this build keeps its configuration in the file only: there is no database)",
};
const MAX_WORKERS = 64;
const WORKERS: Parser<number | "auto"> = {
  value: "N|auto",
  expects: `an integer 1–${MAX_WORKERS}, or auto`,
  parse: (text) => (text === "auto" ? text : wholeNumber("N", 1, MAX_WORKERS).parse(text)),
};

const {
  configPath,
  configKey,
  noTests,
  httpPort,
  httpsPort,
  listenHosts,
  shutdownGraceS,
  preStopDelayS,
  logLevel,
  logFormat,
} = START_SETTINGS;

/** How a configuration is asked for whose CONFIG_FILE_PATH is a URL. */
export const SOURCE_SETTINGS = {
  sourcePollS: setting(
    "CONFIG_POLL_S",
    wholeNumber("SECONDS", 1, 86_400),
    "10",
    "With a URL as the configuration: time between two questions for it.",
  ),
  sourceTokenPath: optionalSetting("CONFIG_TOKEN_FILE", FILE, "File with a bearer token for its HTTP server."),
  sourceCaPath: optionalSetting("CONFIG_CA_PATH", FILE, "CA certificate (PEM) that verifies its server."),
  sourceCertPath: optionalSetting("CONFIG_CERT_PATH", FILE, "Client certificate (PEM) that its server gets."),
  sourceKeyPath: optionalSetting("CONFIG_KEY_PATH", FILE, "Private key of the client certificate (PEM)."),
  etcdUser: optionalSetting("ETCD_USER", { ...TEXT, value: "NAME" }, "User of etcd."),
  etcdPasswordPath: optionalSetting("ETCD_PASSWORD_FILE", FILE, "File with the password of this user."),
  sourceReadOnly: setting(
    "CONFIG_READ_ONLY",
    BOOLEAN,
    "false",
    "Write nothing to etcd, where other gateways are told what this one runs.",
  ),
};

/** All that a command needs in order to ask for such a configuration. */
export const SOURCE_TABLE = { configPath, configKey, ...SOURCE_SETTINGS };

const { sourceCaPath, sourceCertPath, sourceKeyPath, etcdUser, etcdPasswordPath } = SOURCE_SETTINGS;
/** For commands that ask etcd for what is not a configuration, or write to it. */
export const ETCD_TABLE = { sourceCaPath, sourceCertPath, sourceKeyPath, etcdUser, etcdPasswordPath };

/** Every setting, in the order in which help and README list them. */
export const SETTINGS = {
  ...SOURCE_TABLE,
  noTests,
  httpPort,
  httpsPort,
  listenHosts,
  serverCertPath: optionalSetting("SERVER_CERT_PATH", FILE, "Server certificate chain (PEM)."),
  serverKeyPath: optionalSetting("SERVER_KEY_PATH", FILE, "Private key of the server certificate (PEM)."),
  caCertPath: optionalSetting(
    "CA_CERT_PATH",
    FILE,
    "CA certificate (PEM) against which client certificates are verified.",
  ),
  clientAuth: optionalSetting(
    "CLIENT_AUTH",
    oneOfWords("request", "require"),
    "With a CA: request asks for client certificates (the default), require insists.",
  ),
  persistence: setting("PERSISTENCE_CONFIG", DBLESS, "dbless", "Persistence mode: the file is the configuration."),
  adminUser: optionalSetting(
    "ADMIN_USER",
    { ...TEXT, value: "NAME" },
    "Admin user; the admin interface is off without user and password.",
  ),
  adminPassword: optionalSetting(
    "ADMIN_PASSWORD",
    { ...TEXT, value: "PASSWORD" },
    "Admin password, or its hash.",
    null,
  ),
  adminPasswordFile: optionalSetting(
    "ADMIN_PASSWORD_FILE",
    FILE,
    "File with the admin password, instead of ADMIN_PASSWORD.",
  ),
  adminPort: setting("ADMIN_PORT", PORT, "8081", "Port of the admin interface."),
  adminHost: setting("ADMIN_HOST", HOST_NAME, "127.0.0.1", "Address of the admin interface."),
  adminTls: setting(
    "ADMIN_TLS",
    BOOLEAN,
    "false",
    "Serve the admin interface over HTTPS, with the server certificate.",
  ),
  adminJwtSecret: optionalSetting(
    "ADMIN_JWT_SECRET",
    SECRET32,
    "Key of admin sessions, at least 32 bytes; random by default.",
    null,
  ),
  adminSessionTtlS: setting(
    "ADMIN_SESSION_TTL_S",
    wholeNumber("SECONDS", 1, 31_536_000),
    "3600",
    "Length of an admin session.",
  ),
  adminCookieName: setting("ADMIN_COOKIE_NAME", COOKIE_NAME, "token", "Name of the cookie of admin sessions."),
  adminRedactSecrets: setting(
    "ADMIN_REDACT_SECRETS",
    BOOLEAN,
    "false",
    "Mask passwords and other secrets that the admin interface shows.",
  ),
  adminCorsOrigins: optionalSetting(
    "ADMIN_CORS_ORIGIN",
    ORIGINS,
    "Web origins that may use the admin interface; none by default.",
  ),
  adminHosts: optionalSetting(
    "ADMIN_HOSTS",
    HOSTS,
    "Host names, beside localhost, for admin interface and UI over plain HTTP.",
  ),
  adminWrite: setting(
    "ADMIN_WRITE",
    BOOLEAN,
    "false",
    "Let administrators change the configuration file, and operators take upstreams out.",
  ),
  adminViewerUser: optionalSetting(
    "ADMIN_VIEWER_USER",
    { ...TEXT, value: "NAME" },
    "User who may read the admin interface, with secrets masked.",
  ),
  adminViewerPassword: optionalSetting(
    "ADMIN_VIEWER_PASSWORD",
    { ...TEXT, value: "PASSWORD" },
    "Password of this user, or its hash.",
    null,
  ),
  adminViewerPasswordFile: optionalSetting(
    "ADMIN_VIEWER_PASSWORD_FILE",
    FILE,
    "File with this password, instead of ADMIN_VIEWER_PASSWORD.",
  ),
  adminUsersPath: optionalSetting(
    "ADMIN_USERS_FILE",
    FILE,
    "File with users of the admin interface, hashes of their passwords, and their roles (JSON).",
  ),
  probePort: optionalSetting(
    "PROBE_PORT",
    PORT,
    "Port for /healthz, /readyz, /metrics and /jwks.json without a login; off by default.",
  ),
  probeHost: setting("PROBE_HOST", HOST_NAME, "127.0.0.1", "Address of PROBE_PORT."),
  metricsToken: optionalSetting(
    "METRICS_TOKEN",
    BEARER,
    "Bearer token that opens /metrics alone, and that PROBE_PORT then requires for it.",
    null,
  ),
  metricsTokenFile: optionalSetting("METRICS_TOKEN_FILE", FILE, "File with this token, instead of METRICS_TOKEN."),
  manager: setting(
    "MANAGER",
    BOOLEAN,
    "false",
    "Start the management UI in the same process; it needs the admin interface.",
  ),
  managerPort: setting("MANAGER_PORT", PORT, "5173", "Port of the management UI."),
  managerHost: setting("MANAGER_HOST", HOST_NAME, "127.0.0.1", "Address of the management UI."),
  managerTls: setting(
    "MANAGER_TLS",
    BOOLEAN,
    "false",
    "Serve the management UI over HTTPS, with the server certificate.",
  ),
  managerBackendUrl: optionalSetting(
    "MANAGER_BACKEND_API_URL",
    BASE_URL,
    "Admin interface behind the UI; by default on this machine.",
  ),
  managerBackendCaPath: optionalSetting(
    "MANAGER_BACKEND_CA_PATH",
    FILE,
    "CA certificate (PEM) that verifies it, instead of Node's own list.",
  ),
  managerBasePath: setting(
    "MANAGER_BASE_PATH",
    BASE_PATH,
    "/",
    "Path below which the management UI is served, for a proxy in front that keeps the path.",
  ),
  managerTraceUrl: optionalSetting(
    "MANAGER_TRACE_URL",
    TRACE_URL,
    "Page of a trace, to which trace ids in the UI link: {trace_id} stands for the id.",
  ),
  stateDir: optionalSetting(
    "STATE_DIR",
    { ...FILE, expects: "the path of a folder" },
    "Folder of this gateway alone for what outlives it: counts of quotas, the serial of signed configurations, " +
      "upstreams that are taken out.",
  ),
  acmeFleetKeyPath: optionalSetting(
    "ACME_FLEET_KEY_FILE",
    FILE,
    "File with 32 random bytes, in hex or base64: the key with which gateways whose configuration is in etcd share " +
      "the certificates that one of them orders.",
  ),
  auditLogPath: optionalSetting(
    "AUDIT_LOG",
    FILE,
    "File that gets what happens to the gateway as a chain of lines; verify-log checks it.",
  ),
  auditRefusals: setting("AUDIT_REFUSALS", BOOLEAN, "false", "Also the requests that are refused with 401 and 403."),
  auditFail: setting(
    "AUDIT_FAIL",
    oneOfWords("open", "closed"),
    "open",
    "While it cannot be written: open serves on, closed answers requests with 503.",
  ),
  seal: setting(
    "SEAL",
    BOOLEAN,
    "false",
    "Give up, before the first port is open, every right of Node's permission model that no reload needs.",
  ),
  shutdownGraceS,
  preStopDelayS,
  workers: setting("WORKERS", WORKERS, "1", "Number of threads that serve requests; auto: one for each core."),
  logLevel,
  logFormat,
};

/**
 * Where a command finds the admin interface of a running gateway, besides the settings that it shares with the gateway.
 */
export const CLIENT_SETTINGS = {
  adminUrl: optionalSetting(
    "ADMIN_URL",
    ORIGIN,
    "Where the admin interface is; default: where ADMIN_HOST, ADMIN_PORT and ADMIN_TLS say.",
  ),
  adminCaPath: optionalSetting(
    "ADMIN_CA_PATH",
    FILE,
    "CA certificate (PEM) that verifies its certificate, instead of Node's own list.",
    "ca",
  ),
};

/** All flags of the commands that ask a running gateway. */
export const CLIENT_TABLE = {
  ...CLIENT_SETTINGS,
  ...some("adminUser", "adminPassword", "adminPasswordFile", "adminHost", "adminPort", "adminTls"),
};

/** The settings that `healthcheck` needs to find the gateway of this machine. */
export const HEALTHCHECK_TABLE = some(
  "probePort",
  "probeHost",
  "adminUser",
  "adminUsersPath",
  "adminPort",
  "adminHost",
  "adminTls",
);

/** The settings of a management UI without a gateway. */
export const MANAGER_TABLE = {
  ...some(
    "managerPort",
    "managerHost",
    "managerTls",
    "managerBackendUrl",
    "managerBackendCaPath",
    "managerBasePath",
    "managerTraceUrl",
    "adminHosts",
  ),
  ...some("serverCertPath", "serverKeyPath", "logLevel", "logFormat"),
};

function some<K extends keyof typeof SETTINGS>(...names: readonly K[]): Pick<typeof SETTINGS, K> {
  return Object.fromEntries(names.map((name) => [name, SETTINGS[name]])) as Pick<typeof SETTINGS, K>;
}

/**
 * Whether OpenTelemetry's variables name an endpoint for traces that is in use: then `readTracing` reads the rest of
 * them.
 */
export function asksForTraces(environment: Environment): boolean {
  const text = (name: string) => environment[name]?.trim() ?? "";
  const isOff = text("OTEL_TRACES_EXPORTER") === "none" || text("OTEL_SDK_DISABLED").toLowerCase() === "true";
  return !isOff && text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") + text("OTEL_EXPORTER_OTLP_ENDPOINT") !== "";
}

/** The same for metrics and for logs, which are off unless their exporter is named. */
export function asksForExport(signal: "METRICS" | "LOGS", environment: Environment): boolean {
  const exporter = environment[`OTEL_${signal}_EXPORTER`]?.trim() ?? "";
  return exporter !== "" && exporter !== "none" && environment["OTEL_SDK_DISABLED"]?.trim().toLowerCase() !== "true";
}

/** Whether a flag is true or false, and may be written without its value. */
export function isSwitch(flag: string): boolean {
  return Object.values(SETTINGS).some((row) => row.flag === flag && row.value === BOOLEAN.value);
}

function baseUrl(text: string): string | null {
  const url = URL.canParse(text) && /^https?:\/\/[^?#\s]*$/i.test(text) ? new URL(text) : null;
  return url === null || url.username !== "" || url.password !== ""
    ? null
    : url.origin + url.pathname.replace(/\/+$/, "");
}

function basePath(text: string): string | null {
  if (!/^\/(?:[\w.~-]+\/)*(?:[\w.~-]+)?$/.test(text) || /\/\.\.?(?:\/|$)/.test(text)) return null;
  return text.endsWith("/") ? text : `${text}/`;
}

function origin(text: string): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && /^https?:$/.test(url.protocol) && (text === url.origin || text === `${url.origin}/`)
    ? url.origin
    : null;
}

/**
 * The table of all runtime settings: variable, flag, default, type and help; and reads flags and environment by it.
 */
import { TOKEN } from "../base/http_grammar.ts";
import { LOG_FORMATS, LOG_LEVELS } from "../base/log.ts";
import { suggest } from "../base/suggest.ts";
import { hostProblem } from "./fields.ts";
import { isContent } from "./references.ts";

/** One row of the table. */
export interface Setting<T> {
  readonly variable: string;
  /** Without the dashes; null for secrets, which other users could read in the process list. */
  readonly flag: string | null;
  /** The placeholder for the value in help: "PORT". */
  readonly value: string;
  /** The default, parsed like a given value; null if there is none. */
  readonly fallback: string | null;
  readonly help: string;
  /** Null if the text is invalid. */
  readonly parse: (text: string) => T | null;
  /** Completes "expected …". */
  readonly expects: string;
}

export type SettingsTable = Readonly<Record<string, Setting<unknown>>>;
/** Null: not set and without a default. */
export type ValuesOf<R> = { readonly [K in keyof R]: R[K] extends Setting<infer T> ? T : never };
/** The values before all checks: null also means an invalid value, which has been reported. */
export type ReadOf<R> = { readonly [K in keyof R]: ValuesOf<R>[K] | null };

/** Keys have no dashes; `true` is a flag without a value. */
export type Flags = Readonly<Record<string, string | true | undefined>>;
export type Environment = Readonly<Record<string, string | undefined>>;

type Parser<T> = Pick<Setting<T>, "parse" | "expects" | "value">;

const TEXT: Parser<string> = { value: "TEXT", expects: "a text", parse: (text) => text };
const FILE: Parser<string> = { value: "PATH", expects: "the path of a file", parse: (text) => (isContent(text) ? null : text) };
const PORT = integer("PORT", 0, 65_535);
const BOOLEAN: Parser<boolean> = {
  value: "true|false",
  expects: "true or false",
  parse: (text) => (text === "true" || text === "1" ? true : text === "false" || text === "0" ? false : null),
};
const HOST: Parser<string> = {
  value: "HOST",
  expects: "a host name or IP address",
  parse: (text) => (hostProblem(text) === undefined ? text : null),
};
const HOSTS = list({ ...HOST, value: "HOST,…", expects: "host names or IP addresses, separated by commas" });
const ORIGINS = list({ value: "ORIGIN,…", expects: "origins such as https://ui.example.com, separated by commas", parse: origin });
const ORIGIN: Parser<string> = { value: "URL", expects: "a URL such as https://gateway.example.com:8081, without a path", parse: origin };
const BASE_URL: Parser<string> = {
  value: "URL",
  expects: "an http or https URL such as https://gateway.example.com:8081, perhaps with a path, without user, query and fragment",
  parse: baseUrl,
};
const DBLESS = { ...choice("dbless"), expects: "dbless (this build keeps its configuration in the file only: there is no database)" };
const MOST_WORKERS = 64;
const WORKERS: Parser<number | "auto"> = {
  value: "N|auto",
  expects: `an integer 1–${MOST_WORKERS}, or auto`,
  parse: (text) => (text === "auto" ? text : integer("N", 1, MOST_WORKERS).parse(text)),
};
const CLIENT_AUTH = choice("request", "require");
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

/** Every setting, in the order in which help and README list them. */
export const SETTINGS = {
  configPath: setting("CONFIG_FILE_PATH", FILE, "gw.json", "Configuration file.", "config"),
  configKey: optional("CONFIG_PUBLIC_KEY", FILE, "Public keys (PEM), one of which must have signed the configuration.", "config-key"),
  noTests: setting("NO_TESTS", BOOLEAN, "false", "Run no tests of the configuration, neither at the start nor before reloads."),
  httpPort: setting("HTTP_PORT", PORT, "8008", "Port for plain HTTP traffic; 0 is any free port."),
  httpsPort: setting("HTTPS_PORT", PORT, "8443", "Port for HTTPS traffic; used when there is a server certificate."),
  listenHosts: setting("LISTEN_HOST", HOSTS, "0.0.0.0,::", "Addresses on which traffic is accepted."),
  serverCertPath: optional("SERVER_CERT_PATH", FILE, "Server certificate chain (PEM)."),
  serverKeyPath: optional("SERVER_KEY_PATH", FILE, "Private key of the server certificate (PEM)."),
  caCertPath: optional("CA_CERT_PATH", FILE, "CA certificate (PEM) against which client certificates are verified."),
  clientAuth: optional("CLIENT_AUTH", CLIENT_AUTH, "With a CA: request asks for client certificates (the default), require insists."),
  persistence: setting("PERSISTENCE_CONFIG", DBLESS, "dbless", "Persistence mode: the file is the configuration."),
  adminUser: optional("ADMIN_USER", { ...TEXT, value: "NAME" }, "Admin user; the admin interface is off without user and password."),
  adminPassword: optional("ADMIN_PASSWORD", { ...TEXT, value: "PASSWORD" }, "Admin password, or its hash.", null),
  adminPasswordFile: optional("ADMIN_PASSWORD_FILE", FILE, "File with the admin password, instead of ADMIN_PASSWORD."),
  adminPort: setting("ADMIN_PORT", PORT, "8081", "Port of the admin interface."),
  adminHost: setting("ADMIN_HOST", HOST, "127.0.0.1", "Address of the admin interface."),
  adminTls: setting("ADMIN_TLS", BOOLEAN, "false", "Serve the admin interface over HTTPS, with the server certificate."),
  adminJwtSecret: optional("ADMIN_JWT_SECRET", SECRET32, "Key of admin sessions, at least 32 bytes; random by default.", null),
  adminSessionTtlS: setting("ADMIN_SESSION_TTL_S", integer("SECONDS", 1, 31_536_000), "3600", "Length of an admin session."),
  adminCookieName: setting("ADMIN_COOKIE_NAME", COOKIE_NAME, "token", "Name of the cookie of admin sessions."),
  adminRedactSecrets: setting("ADMIN_REDACT_SECRETS", BOOLEAN, "false", "Mask passwords and other secrets that the admin interface shows."),
  adminCorsOrigins: optional("ADMIN_CORS_ORIGIN", ORIGINS, "Web origins that may use the admin interface; none by default."),
  adminHosts: optional("ADMIN_HOSTS", HOSTS, "Host names, beside localhost, for admin interface and UI over plain HTTP."),
  probePort: optional("PROBE_PORT", PORT, "Port for /healthz, /readyz and /metrics without a login; off by default."),
  probeHost: setting("PROBE_HOST", HOST, "127.0.0.1", "Address of PROBE_PORT."),
  metricsToken: optional("METRICS_TOKEN", BEARER, "Bearer token that opens /metrics alone, and that PROBE_PORT then requires for it.", null),
  metricsTokenFile: optional("METRICS_TOKEN_FILE", FILE, "File with this token, instead of METRICS_TOKEN."),
  manager: setting("MANAGER", BOOLEAN, "false", "Start the management UI in the same process; it needs the admin interface."),
  managerPort: setting("MANAGER_PORT", PORT, "5173", "Port of the management UI."),
  managerHost: setting("MANAGER_HOST", HOST, "127.0.0.1", "Address of the management UI."),
  managerTls: setting("MANAGER_TLS", BOOLEAN, "false", "Serve the management UI over HTTPS, with the server certificate."),
  managerBackendUrl: optional("MANAGER_BACKEND_API_URL", BASE_URL, "Admin interface behind the UI; by default on this machine."),
  managerBackendCaPath: optional("MANAGER_BACKEND_CA_PATH", FILE, "CA certificate (PEM) that verifies it, instead of Node's own list."),
  shutdownGraceS: setting("SHUTDOWN_GRACE_S", integer("SECONDS", 0, 86_400), "30", "Time for requests in flight to finish on SIGTERM."),
  preStopDelayS: setting("PRE_STOP_DELAY_S", integer("SECONDS", 0, 3600), "0", "Time to serve on after SIGTERM, with /readyz at 503."),
  workers: setting("WORKERS", WORKERS, "1", "Number of threads that serve requests; auto: one for each core."),
  logLevel: setting("LOG_LEVEL", choice(...LOG_LEVELS), "info", "Lowest severity that is logged."),
  logFormat: optional("LOG_FORMAT", choice(...LOG_FORMATS), "text on a terminal, json elsewhere."),
};

/** Where a command finds the admin interface of a running gateway, besides the settings that it shares with the gateway. */
export const CLIENT_SETTINGS = {
  adminUrl: optional("ADMIN_URL", ORIGIN, "Where the admin interface is; default: where ADMIN_HOST, ADMIN_PORT and ADMIN_TLS say."),
  adminCaPath: optional("ADMIN_CA_PATH", FILE, "CA certificate (PEM) that verifies its certificate, instead of Node's own list.", "ca"),
};

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

/** The values of some settings: flags win over the environment, the environment over defaults. Appends one sentence per mistake to `issues`. */
export function readValues<R extends SettingsTable>(rows: R, flags: Flags, environment: Environment, issues: string[]): ReadOf<R> {
  const read = Object.entries(rows).map(([name, row]) => [name, readValue(row, flags, environment, issues)]);
  return Object.fromEntries(read) as ReadOf<R>;
}

function readValue(row: Setting<unknown>, flags: Flags, environment: Environment, issues: string[]): unknown {
  const flag = row.flag === null ? undefined : flags[row.flag];
  // An empty variable counts as unset: shells and compose files pass unset variables on as empty ones.
  const given = flag ?? (environment[row.variable] || undefined);
  const source = flag === undefined ? row.variable : `--${row.flag}`;
  const text = given === true && row.value === BOOLEAN.value ? "true" : given;
  if (text === undefined) return row.fallback === null ? null : row.parse(row.fallback);
  const value = text === true || text === "" ? null : row.parse(text);
  if (text === true || text === "") issues.push(`${source} needs a value: ${row.expects}`);
  else if (value === null && row.flag === null) issues.push(`${source}: expected ${row.expects}`); // it is a secret
  else if (value === null) issues.push(`${source}: expected ${row.expects}, found ${JSON.stringify(shown(text))}`);
  return value;
}

/** Masks secrets: the password in "https://user:password@host", a private key given instead of its file name. */
function shown(text: string): string {
  return isContent(text) ? "(the content of a file)" : text.replace(/^([a-z]+:\/*)?.*@/is, "$1…@");
}

/** Errors for flags that a command with these settings, and with these other flags, does not have. */
export function unknownFlags(flags: Flags, rows: SettingsTable, others: readonly string[] = []): string[] {
  const known = [...Object.values(rows).flatMap((row) => row.flag ?? []), ...others];
  const unknown = Object.keys(flags).filter((flag) => flags[flag] !== undefined && !known.includes(flag));
  return unknown.map((flag) => {
    const other = Object.values(SETTINGS).find((row) => kebab(row.variable) === flag || row.flag === flag);
    if (other?.flag === null) return `--${flag} is not a flag, since other users could read it: set the variable ${other.variable}`;
    if (other !== undefined) return `--${flag} is not a flag of this command: it is for starting a gateway`;
    const nearest = suggest(flag, known);
    return `--${flag} is not a known flag${nearest === undefined ? "" : `; did you mean --${nearest}?`}`;
  });
}

/** Whether OpenTelemetry's variables name an endpoint for traces that is in use: then `readTracing` reads the rest of them. */
export function asksForTraces(environment: Environment): boolean {
  const text = (name: string) => environment[name]?.trim() ?? "";
  const isOff = text("OTEL_TRACES_EXPORTER") === "none" || text("OTEL_SDK_DISABLED").toLowerCase() === "true";
  return !isOff && text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") + text("OTEL_EXPORTER_OTLP_ENDPOINT") !== "";
}

/** Whether a flag is true or false, and may be written without its value. */
export function isSwitch(flag: string): boolean {
  return Object.values(SETTINGS).some((row) => row.flag === flag && row.value === BOOLEAN.value);
}

function setting<T>(variable: string, parser: Parser<T>, fallback: string, help: string, flag = kebab(variable)): Setting<T> {
  return { variable, flag, fallback, help, ...parser };
}

/** A setting without a default. */
function optional<T>(variable: string, parser: Parser<T>, help: string, flag: string | null = kebab(variable)): Setting<T | null> {
  return { variable, flag, fallback: null, help, ...parser };
}

function kebab(variable: string): string {
  return variable.toLowerCase().replaceAll("_", "-");
}

function integer(value: string, min: number, max: number): Parser<number> {
  const parse = (text: string) => (/^\d{1,9}$/.test(text) && Number(text) >= min && Number(text) <= max ? Number(text) : null);
  return { value, expects: `an integer ${min}–${max}`, parse };
}

function choice<const T extends readonly string[]>(...words: T): Parser<T[number]> {
  const parse = (text: string) => words.find((word): word is T[number] => word === text) ?? null;
  return { value: words.join("|"), expects: `one of ${words.join(", ")}`, parse };
}

function list<T>(item: Parser<T>): Parser<readonly T[]> {
  const parse = (text: string) => {
    const items = text.split(",").map((part) => item.parse(part.trim()));
    return items.includes(null) ? null : [...new Set(items as T[])];
  };
  return { ...item, parse };
}

function baseUrl(text: string): string | null {
  const url = URL.canParse(text) && /^https?:\/\/[^?#\s]*$/i.test(text) ? new URL(text) : null;
  return url === null || url.username !== "" || url.password !== "" ? null : url.origin + url.pathname.replace(/\/+$/, "");
}

function origin(text: string): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && /^https?:$/.test(url.protocol) && (text === url.origin || text === `${url.origin}/`) ? url.origin : null;
}

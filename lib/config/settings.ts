/**
 * Runtime settings: flags win over the environment, the environment over defaults; everything that is wrong is said at once.
 * One table lists them all. Opening what they name (ports, certificates, the configuration) is left to others.
 */
import { readFileSync } from "node:fs";
import { isHashed } from "../base/password.ts";
import { suggest } from "../base/suggest.ts";
import { LOG_FORMATS, LOG_LEVELS } from "../base/log.ts";
import { hostProblem } from "./model.ts";
import { isContent, whyUnreadable, withoutFinalNewline } from "./references.ts";
import { readTracing, type TracingSettings } from "./tracing.ts";

export interface Settings {
  readonly configPath: string;
  readonly serverCertPath: string | null;
  readonly serverKeyPath: string | null;
  readonly caCertPath: string | null;
  /** Whether HTTPS clients are asked for a certificate, and whether one without is turned away. */
  readonly clientAuth: "none" | "request" | "require";
  readonly persistence: "dbless";
  /** 0 means any free port. */
  readonly httpPort: number;
  readonly httpsPort: number;
  readonly adminPort: number;
  readonly listenHosts: readonly string[];
  /** Null when the admin interface is off. */
  readonly admin: AdminSettings | null;
  /** Null when the management UI is off. */
  readonly manager: ManagerSettings | null;
  readonly shutdownGraceS: number;
  /** How long a gateway that is told to end still takes requests, in seconds. */
  readonly preStopDelayS: number;
  readonly workers: 1;
  readonly logLevel: (typeof LOG_LEVELS)[number];
  readonly logFormat: (typeof LOG_FORMATS)[number];
  /** By OpenTelemetry's own variables; null: requests are not traced. */
  readonly tracing: TracingSettings | null;
}

export interface AdminSettings {
  readonly user: string;
  /** Plain, or a hash made by `edge-gateway hash-password`. */
  readonly password: string;
  readonly host: string;
  readonly tls: boolean;
  /** Null: a key of this process alone. */
  readonly jwtSecret: string | null;
  readonly sessionTtlS: number;
  readonly redactSecrets: boolean;
  readonly corsOrigins: readonly string[];
  /** Names other than localhost under which it may be asked over plain HTTP. */
  readonly hosts: readonly string[];
}

export interface ManagerSettings {
  /** 0 means any free port. */
  readonly port: number;
  readonly host: string;
  readonly tls: boolean;
  /** Address of the admin interface, perhaps with a path, without a slash at its end. Null: that of this process. */
  readonly backendUrl: string | null;
  /** Null: Node's own list of authorities. */
  readonly backendCaPath: string | null;
  /** As those of the admin interface. */
  readonly hosts: readonly string[];
}

/** What a management UI by itself needs. */
export interface LoneManagerSettings extends Pick<Settings, "serverCertPath" | "serverKeyPath" | "logLevel" | "logFormat"> {
  readonly manager: ManagerSettings & { readonly backendUrl: string };
}

/** One row of the table. */
export interface Setting<T> {
  readonly variable: string;
  /** Without the dashes; null for secrets, which every user of the machine could read in the list of processes. */
  readonly flag: string | null;
  /** What stands in help for the value: "PORT". */
  readonly value: string;
  /** Read like a value that was given; null when there is none. */
  readonly fallback: string | null;
  readonly help: string;
  /** Null when the text is wrong. */
  readonly parse: (text: string) => T | null;
  /** Completes "expected …". */
  readonly expects: string;
}

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
  expects: "an http or https URL such as https://gateway.example.com:8081, with a path where there is one, without user, query and fragment",
  parse: baseUrl,
};
const DBLESS: Parser<"dbless"> = {
  value: "dbless",
  expects: "dbless (this build keeps its configuration in the file only: there is no database to persist to)",
  parse: (text) => (text === "dbless" ? text : null),
};
const ONE: Parser<1> = {
  value: "1",
  expects: "1 (this version runs in one process)",
  parse: (text) => (text === "1" ? 1 : null),
};
const SECRET32: Parser<string> = {
  value: "SECRET",
  expects: "at least 32 bytes",
  parse: (text) => (Buffer.byteLength(text) >= 32 ? text : null),
};

/** Every setting, in the order in which help and README list them. */
export const SETTINGS = {
  configPath: { ...setting("CONFIG_FILE_PATH", FILE, "gw.json", "Configuration file."), flag: "config" },
  httpPort: setting("HTTP_PORT", PORT, "8008", "Port for plain HTTP traffic; 0 is any free port."),
  httpsPort: setting("HTTPS_PORT", PORT, "8443", "Port for HTTPS traffic; used when there is a server certificate."),
  listenHosts: setting("LISTEN_HOST", HOSTS, "0.0.0.0,::", "Addresses on which traffic is accepted."),
  serverCertPath: setting("SERVER_CERT_PATH", FILE, null, "Server certificate chain (PEM)."),
  serverKeyPath: setting("SERVER_KEY_PATH", FILE, null, "Private key of the server certificate (PEM)."),
  caCertPath: setting("CA_CERT_PATH", FILE, null, "CA certificate (PEM) against which client certificates are verified."),
  clientAuth: setting(
    "CLIENT_AUTH",
    choice("request", "require"),
    null,
    "With a CA certificate: request asks clients for a certificate (the default), require turns those without away.",
  ),
  persistence: setting("PERSISTENCE_CONFIG", DBLESS, "dbless", "Persistence mode: the file is the configuration."),
  adminUser: setting("ADMIN_USER", { ...TEXT, value: "NAME" }, null, "Admin user; the admin interface is off without user and password."),
  adminPassword: secret("ADMIN_PASSWORD", { ...TEXT, value: "PASSWORD" }, "Admin password, or its hash."),
  adminPasswordFile: setting("ADMIN_PASSWORD_FILE", FILE, null, "File that holds the admin password, instead of ADMIN_PASSWORD."),
  adminPort: setting("ADMIN_PORT", PORT, "8081", "Port of the admin interface."),
  adminHost: setting("ADMIN_HOST", HOST, "127.0.0.1", "Address of the admin interface."),
  adminTls: setting("ADMIN_TLS", BOOLEAN, "false", "Serve the admin interface over HTTPS, with the server certificate."),
  adminJwtSecret: secret("ADMIN_JWT_SECRET", SECRET32, "Key of admin sessions, at least 32 bytes; random at each start by default."),
  adminSessionTtlS: setting("ADMIN_SESSION_TTL_S", integer("SECONDS", 1, 31_536_000), "3600", "Length of an admin session."),
  adminRedactSecrets: setting("ADMIN_REDACT_SECRETS", BOOLEAN, "false", "Mask the admin password and every secret of the configuration that the admin interface would show."),
  adminCorsOrigins: setting("ADMIN_CORS_ORIGIN", ORIGINS, null, "Web origins that may use the admin interface; none by default."),
  adminHosts: setting("ADMIN_HOSTS", HOSTS, null, "Names under which admin interface and management UI are asked over plain HTTP, beside localhost."),
  manager: setting("MANAGER", BOOLEAN, "false", "Start the management UI in the same process; it needs the admin interface."),
  managerPort: setting("MANAGER_PORT", PORT, "5173", "Port of the management UI."),
  managerHost: setting("MANAGER_HOST", HOST, "127.0.0.1", "Address of the management UI."),
  managerTls: setting("MANAGER_TLS", BOOLEAN, "false", "Serve the management UI over HTTPS, with the server certificate."),
  managerBackendUrl: setting(
    "MANAGER_BACKEND_API_URL",
    BASE_URL,
    null,
    "Admin interface that the management UI talks to: by default that of the same process, for the command manager http://127.0.0.1:8081.",
  ),
  managerBackendCaPath: setting("MANAGER_BACKEND_CA_PATH", FILE, null, "CA certificate (PEM) by which it is verified, in place of Node's own list."),
  shutdownGraceS: setting("SHUTDOWN_GRACE_S", integer("SECONDS", 0, 86_400), "30", "Time for requests in flight to finish on SIGTERM."),
  preStopDelayS: setting(
    "PRE_STOP_DELAY_S",
    integer("SECONDS", 0, 3600),
    "0",
    "Time between SIGTERM, when /readyz turns to 503, and the end of accepting.",
  ),
  workers: setting("WORKERS", ONE, "1", "Number of processes."),
  logLevel: setting("LOG_LEVEL", choice(...LOG_LEVELS), "info", "Least severity that is logged."),
  logFormat: setting("LOG_FORMAT", choice(...LOG_FORMATS), null, "text on a terminal, json elsewhere."),
};

/** How a command finds a running gateway's admin interface, beside the settings that it shares with the gateway. */
export const CLIENT_SETTINGS = {
  adminUrl: setting("ADMIN_URL", ORIGIN, null, "Where the admin interface is; without it, where ADMIN_HOST, ADMIN_PORT and ADMIN_TLS say."),
  adminCaPath: {
    ...setting("ADMIN_CA_PATH", FILE, null, "CA certificate (PEM) by which its HTTPS certificate is verified, in place of Node's own list."),
    flag: "ca",
  },
};

/** All of these commands' flags. */
export const CLIENT_ROWS = {
  ...CLIENT_SETTINGS,
  adminUser: SETTINGS.adminUser,
  adminPassword: SETTINGS.adminPassword,
  adminPasswordFile: SETTINGS.adminPasswordFile,
  adminHost: SETTINGS.adminHost,
  adminPort: SETTINGS.adminPort,
  adminTls: SETTINGS.adminTls,
};

/** What a management UI by itself goes by. */
export const MANAGER_ROWS = {
  managerPort: SETTINGS.managerPort,
  managerHost: SETTINGS.managerHost,
  managerTls: SETTINGS.managerTls,
  managerBackendUrl: SETTINGS.managerBackendUrl,
  managerBackendCaPath: SETTINGS.managerBackendCaPath,
  adminHosts: SETTINGS.adminHosts,
  serverCertPath: SETTINGS.serverCertPath,
  serverKeyPath: SETTINGS.serverKeyPath,
  logLevel: SETTINGS.logLevel,
  logFormat: SETTINGS.logFormat,
};

/** Whether a flag is one of true or false, which may stand without its value. */
export function isSwitch(flag: string): boolean {
  return Object.values(SETTINGS).some((row) => row.flag === flag && row.value === BOOLEAN.value);
}

export interface ClientSettings {
  /** "http://127.0.0.1:8081" */
  readonly url: string;
  readonly user: string;
  /** Plain. */
  readonly password: string;
  /** Null: Node's own list of authorities. */
  readonly caPath: string | null;
}

type Values = { readonly [K in keyof typeof SETTINGS]: (typeof SETTINGS)[K] extends Setting<infer T> ? T | null : never };

export interface Host {
  /** Reads ADMIN_PASSWORD_FILE and OTEL_EXPORTER_OTLP_CERTIFICATE; default: the file system. */
  readonly readFile?: (path: string) => Buffer | string;
  /** Whether standard error is a terminal. Default false. */
  readonly terminal?: boolean;
}

/** `flags` are named without dashes; `true` stands for a flag without a value. Flags that are no settings are errors. */
export function readSettings(
  flags: Readonly<Record<string, string | true | undefined>>,
  environment: Readonly<Record<string, string | undefined>>,
  host: Host = {},
): { readonly ok: true; readonly settings: Settings } | { readonly ok: false; readonly issues: readonly string[] } {
  const issues: string[] = unknownFlags(flags, SETTINGS);
  const values = Object.fromEntries(
    Object.entries(SETTINGS).map(([name, row]) => [name, readValue<unknown>(row, flags, environment, issues)]),
  ) as unknown as Values;
  const password = adminPassword(values, host, issues);
  checkTogether(values, password, issues);
  const tracing = readTracing(environment, issues, host.readFile);
  if (issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: { ...assemble(values as Present, password, host.terminal === true), tracing } };
}

/** As `readSettings`, for commands that ask a running gateway: other settings may stand in the environment, and mean nothing here. */
export function readClientSettings(
  flags: Readonly<Record<string, string | true | undefined>>,
  environment: Readonly<Record<string, string | undefined>>,
  host: Host = {},
): { readonly ok: true; readonly settings: ClientSettings } | { readonly ok: false; readonly issues: readonly string[] } {
  const { adminUser, adminPassword: plain, adminPasswordFile, adminHost, adminPort, adminTls } = SETTINGS;
  const issues: string[] = unknownFlags(flags, CLIENT_ROWS);
  const read = <T>(row: Setting<T>) => readValue(row, flags, environment, issues);
  const url = read(CLIENT_SETTINGS.adminUrl) ?? adminOrigin(read(adminHost), read(adminPort), read(adminTls), issues);
  const caPath = read(CLIENT_SETTINGS.adminCaPath);
  const user = read(adminUser);
  // Where the gateway's own environment holds a hash, the flag is the way to name the password.
  const given = flags[adminPasswordFile.flag!] === undefined ? read(plain) : null;
  const password = adminPassword({ adminPassword: given, adminPasswordFile: read(adminPasswordFile) }, host, issues);
  if (issues.length === 0) {
    if (user === null) issues.push("ADMIN_USER is not set: it names who logs in to the admin interface");
    if (password === null) issues.push("neither ADMIN_PASSWORD nor ADMIN_PASSWORD_FILE is set: one of them has to hold the admin password");
    else if (isHashed(password)) {
      const remedy = "give the password itself, in ADMIN_PASSWORD or by --admin-password-file";
      issues.push(`the admin password that is set is a hash, with which nobody can log in: ${remedy}`);
    }
  }
  if (user === null || password === null || issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: { url, user, password, caPath } };
}

/** As `readSettings`, for a management UI without a gateway: only its own settings count, and those of the server certificate and the log. */
export function readManagerSettings(
  flags: Readonly<Record<string, string | true | undefined>>,
  environment: Readonly<Record<string, string | undefined>>,
  host: Host = {},
): { readonly ok: true; readonly settings: LoneManagerSettings } | { readonly ok: false; readonly issues: readonly string[] } {
  const issues: string[] = unknownFlags(flags, MANAGER_ROWS, "is for starting a gateway; the management UI by itself has no use for it");
  const read = Object.fromEntries(
    Object.entries(MANAGER_ROWS).map(([name, row]) => [name, readValue<unknown>(row, flags, environment, issues)]),
  ) as unknown as { readonly [K in keyof typeof MANAGER_ROWS]: Values[K] };
  const values = { ...read, managerBackendUrl: read.managerBackendUrl ?? "http://127.0.0.1:8081" };
  checkCertificate(values, issues);
  checkManager(values, issues);
  if (issues.length > 0) return { ok: false, issues };
  return {
    ok: true,
    settings: {
      manager: { ...managerOf(values as Present), backendUrl: values.managerBackendUrl },
      serverCertPath: values.serverCertPath,
      serverKeyPath: values.serverKeyPath,
      logLevel: values.logLevel!,
      logFormat: values.logFormat ?? (host.terminal === true ? "text" : "json"),
    },
  };
}

/** Where the gateway of these settings has its admin interface, seen from the same machine. */
function adminOrigin(host: string | null, port: number | null, tls: boolean | null, issues: string[]): string {
  if (port === 0) issues.push("ADMIN_PORT is 0, any free port: say with --admin-url which one it has become");
  const near = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : (host ?? "");
  return `${tls === true ? "https" : "http"}://${near.includes(":") ? `[${near}]` : near}:${port}`;
}

/** Rows with a default have a value once nothing has been reported. */
type Optional =
  | "serverCertPath" | "serverKeyPath" | "caCertPath" | "clientAuth" | "logFormat"
  | "adminUser" | "adminPassword" | "adminPasswordFile" | "adminJwtSecret" | "adminCorsOrigins" | "adminHosts" | "managerBackendUrl" | "managerBackendCaPath";
type Present = { readonly [K in keyof Values]: K extends Optional ? Values[K] : NonNullable<Values[K]> };

function assemble(values: Present, password: string | null, terminal: boolean): Omit<Settings, "tracing"> {
  const { adminUser: user, caCertPath } = values;
  return {
    configPath: values.configPath,
    serverCertPath: values.serverCertPath,
    serverKeyPath: values.serverKeyPath,
    caCertPath,
    clientAuth: caCertPath === null ? "none" : (values.clientAuth ?? "request"),
    persistence: values.persistence,
    httpPort: values.httpPort,
    httpsPort: values.httpsPort,
    adminPort: values.adminPort,
    listenHosts: values.listenHosts,
    admin: user === null || password === null ? null : {
      user,
      password,
      host: values.adminHost,
      tls: values.adminTls,
      jwtSecret: values.adminJwtSecret,
      sessionTtlS: values.adminSessionTtlS,
      redactSecrets: values.adminRedactSecrets,
      corsOrigins: values.adminCorsOrigins ?? [],
      hosts: [...(values.adminHosts ?? []), values.adminHost],
    },
    manager: values.manager ? managerOf(values) : null,
    shutdownGraceS: values.shutdownGraceS,
    preStopDelayS: values.preStopDelayS,
    workers: values.workers,
    logLevel: values.logLevel,
    logFormat: values.logFormat ?? (terminal ? "text" : "json"),
  };
}

function managerOf(
  values: Pick<Present, "managerPort" | "managerHost" | "managerTls" | "managerBackendUrl" | "managerBackendCaPath" | "adminHosts">,
): ManagerSettings {
  return {
    port: values.managerPort,
    host: values.managerHost,
    tls: values.managerTls,
    backendUrl: values.managerBackendUrl,
    backendCaPath: values.managerBackendCaPath,
    hosts: [...(values.adminHosts ?? []), values.managerHost],
  };
}

/** The password itself, whichever way it came; null when there is none, or when that has been reported. */
function adminPassword(values: Pick<Values, "adminPassword" | "adminPasswordFile">, host: Host, issues: string[]): string | null {
  const { adminPassword: given, adminPasswordFile: file } = values;
  if (file === null) return given;
  if (given !== null) {
    issues.push("ADMIN_PASSWORD and ADMIN_PASSWORD_FILE are both set: set one of them");
    return given;
  }
  try {
    const password = withoutFinalNewline(String((host.readFile ?? readFileSync)(file)));
    if (password !== "") return password;
    issues.push(`ADMIN_PASSWORD_FILE: ${file} is empty`);
  } catch (error) {
    issues.push(`ADMIN_PASSWORD_FILE: cannot read ${file}: ${whyUnreadable(error)}`);
  }
  return null;
}

/** What no setting can say by itself. */
function checkTogether(values: Values, password: string | null, issues: string[]): void {
  const { serverCertPath, serverKeyPath, caCertPath, adminUser, adminPasswordFile } = values;
  checkCertificate(values, issues);
  const tls = serverCertPath !== null && serverKeyPath !== null;
  if (serverCertPath === null && serverKeyPath === null) {
    if (caCertPath !== null) issues.push(`CA_CERT_PATH needs ${WITHOUT_TLS}`);
    if (values.adminTls === true) issues.push(`ADMIN_TLS needs ${WITHOUT_TLS}`);
  }
  if (values.clientAuth !== null && caCertPath === null) {
    issues.push("CLIENT_AUTH needs CA_CERT_PATH, against which certificates are verified");
  }
  if (adminUser?.includes(":")) issues.push("ADMIN_USER: expected a name without a colon, where Basic credentials divide (RFC 7617 §2)");
  if (adminUser !== null && password === null && adminPasswordFile === null) {
    issues.push("ADMIN_USER is set without ADMIN_PASSWORD or ADMIN_PASSWORD_FILE: set both, or none to leave the admin interface off");
  }
  if (adminUser === null && (password !== null || adminPasswordFile !== null)) {
    issues.push("an admin password is set without ADMIN_USER: set both, or none to leave the admin interface off");
  }
  if (values.manager === true) {
    checkManager(values, issues);
    if (values.managerBackendUrl === null && (adminUser === null || (password === null && adminPasswordFile === null))) {
      const elsewhere = "or name the admin interface of another gateway with MANAGER_BACKEND_API_URL";
      issues.push(`MANAGER needs an admin interface to talk to: set ADMIN_USER and ADMIN_PASSWORD, ${elsewhere}`);
    }
  }
  const ports: [string, number | null][] = [["HTTP_PORT", values.httpPort]];
  if (tls) ports.push(["HTTPS_PORT", values.httpsPort]);
  if (adminUser !== null) ports.push(["ADMIN_PORT", values.adminPort]);
  if (values.manager === true) ports.push(["MANAGER_PORT", values.managerPort]);
  ports.forEach(([name, port], i) => {
    const taken = ports.slice(0, i).find(([, other]) => other === port);
    if (taken !== undefined && port !== 0 && port !== null) issues.push(`${name}: port ${port} is already that of ${taken[0]}`);
  });
}

function checkCertificate({ serverCertPath, serverKeyPath }: Pick<Values, "serverCertPath" | "serverKeyPath">, issues: string[]): void {
  if (serverCertPath !== null && serverKeyPath === null) issues.push("SERVER_CERT_PATH needs SERVER_KEY_PATH beside it");
  if (serverKeyPath !== null && serverCertPath === null) issues.push("SERVER_KEY_PATH needs SERVER_CERT_PATH beside it");
}

const WITHOUT_TLS = "SERVER_CERT_PATH and SERVER_KEY_PATH: without them there is no HTTPS";

function checkManager(
  values: Pick<Values, "managerTls" | "managerBackendUrl" | "managerBackendCaPath" | "serverCertPath" | "serverKeyPath">,
  issues: string[],
): void {
  const { managerBackendUrl: url, managerBackendCaPath: ca } = values;
  if (values.managerTls === true && values.serverCertPath === null && values.serverKeyPath === null) issues.push(`MANAGER_TLS needs ${WITHOUT_TLS}`);
  if (ca !== null && url?.startsWith("https:") !== true) {
    issues.push("MANAGER_BACKEND_CA_PATH verifies the certificate of MANAGER_BACKEND_API_URL, which is no https address");
  }
}

/** The value of one row; null when there is none, or when it is wrong, which is reported under the name it was given by. */
function readValue<T>(
  row: Setting<T>,
  flags: Readonly<Record<string, string | true | undefined>>,
  environment: Readonly<Record<string, string | undefined>>,
  issues: string[],
): T | null {
  const flag = row.flag === null ? undefined : flags[row.flag];
  // An empty variable counts as unset: that is what shells and compose files make of one nobody gave.
  const given = flag ?? (environment[row.variable] || undefined);
  const source = flag === undefined ? row.variable : `--${row.flag}`;
  const text = given === true && row.value === BOOLEAN.value ? "true" : given;
  if (text === true || text === "") {
    issues.push(`${source} needs a value: ${row.expects}`);
    return null;
  }
  if (text === undefined) return row.fallback === null ? null : row.parse(row.fallback);
  const value = row.parse(text);
  if (value === null) issues.push(`${source}: expected ${row.expects}${row.flag === null ? "" : `, found ${JSON.stringify(withoutCredentials(text))}`}`);
  return value;
}

/** "https://user:password@host" is refused for what must not be told on, and so is a private key in the place of its file's name. */
function withoutCredentials(text: string): string {
  return isContent(text) ? "(what a file holds)" : text.replace(/^([a-z]+:\/*)?.*@/is, "$1…@");
}

function unknownFlags(
  flags: Readonly<Record<string, string | true | undefined>>,
  rows: Readonly<Record<string, Setting<unknown>>>,
  ofGateway = "is for starting a gateway; one that runs keeps what it was started with",
): string[] {
  const known = Object.values(rows).flatMap((row) => row.flag ?? []);
  const unknown = Object.keys(flags).filter((flag) => flags[flag] !== undefined && !known.includes(flag));
  return unknown.map((flag) => {
    const secretRow = Object.values(SETTINGS).find((row) => row.flag === null && kebab(row.variable) === flag);
    if (secretRow !== undefined) {
      return `--${flag} is no flag, as others could read it: set the environment variable ${secretRow.variable}`;
    }
    if (Object.values(SETTINGS).some((row) => row.flag === flag)) return `--${flag} ${ofGateway}`;
    const nearest = suggest(flag, known);
    return `--${flag} is not a known flag${nearest === undefined ? "" : `; did you mean --${nearest}?`}`;
  });
}

function setting<T>(variable: string, parser: Parser<T>, fallback: string | null, help: string): Setting<T> {
  return { variable, flag: kebab(variable), fallback, help, ...parser };
}

function secret<T>(variable: string, parser: Parser<T>, help: string): Setting<T> {
  return { variable, flag: null, fallback: null, help, ...parser };
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
  return { value: item.value, expects: item.expects, parse };
}

function baseUrl(text: string): string | null {
  const url = URL.canParse(text) && !/[?#\s]/.test(text) ? new URL(text) : null;
  if (url === null || !/^https?:\/\//i.test(text) || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "") return null;
  return url.origin + url.pathname.replace(/\/+$/, "");
}

function origin(text: string): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && /^https?:$/.test(url.protocol) && (text === url.origin || text === `${url.origin}/`) ? url.origin : null;
}

/**
 * The settings of every start: variable, flag, default, type and help of each, and how they are read from flags and environment. All others
 * are in `settings_table.ts`.
 */
import { LOG_FORMATS, LOG_LEVELS, type LogFormat } from "../base/log.ts";
import { isContent } from "../base/regular_file.ts";
import { hostProblem } from "./fields.ts";

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

export type Parser<T> = Pick<Setting<T>, "parse" | "expects" | "value">;

export const FILE: Parser<string> = { value: "PATH", expects: "the path of a file", parse: (text) => (isContent(text) ? null : text) };
export const PORT = integer("PORT", 0, 65_535);
const PORT_OR_OFF: Parser<number | "off"> = {
  value: "PORT|off",
  expects: `${PORT.expects}, or off`,
  parse: (text) => (text === "off" ? text : PORT.parse(text)),
};
export const BOOLEAN: Parser<boolean> = {
  value: "true|false",
  expects: "true or false",
  parse: (text) => (text === "true" || text === "1" ? true : text === "false" || text === "0" ? false : null),
};
export const HOST_NAME: Parser<string> = {
  value: "HOST",
  expects: "a host name or IP address",
  parse: (text) => (hostProblem(text) === undefined ? text : null),
};
export const HOSTS = list({ ...HOST_NAME, value: "HOST,…", expects: "host names or IP addresses, separated by commas" });
const DBLESS = { ...choice("dbless"), expects: "dbless (this build keeps its configuration in the file only: there is no database)" };
const MOST_WORKERS = 64;
const WORKERS: Parser<number | "auto"> = {
  value: "N|auto",
  expects: `an integer 1–${MOST_WORKERS}, or auto`,
  parse: (text) => (text === "auto" ? text : integer("N", 1, MOST_WORKERS).parse(text)),
};
const CLIENT_AUTH = choice("request", "require");

/** In the order of the whole table. */
export const START_SETTINGS = {
  configPath: setting("CONFIG_FILE_PATH", FILE, "gw.json", "Configuration file.", "config"),
  configKey: optionalSetting("CONFIG_PUBLIC_KEY", FILE, "Public keys (PEM), one of which must have signed the configuration.", "config-key"),
  noTests: setting("NO_TESTS", BOOLEAN, "false", "Run no tests of the configuration, neither at the start nor before reloads."),
  httpPort: setting("HTTP_PORT", PORT_OR_OFF, "8008", "Port for plain HTTP traffic; 0 is any free port, off opens none."),
  httpsPort: setting("HTTPS_PORT", PORT, "8443", "Port for HTTPS traffic; used when there is a server certificate."),
  listenHosts: setting("LISTEN_HOST", HOSTS, "0.0.0.0,::", "Addresses on which traffic is accepted."),
  serverCertPath: optionalSetting("SERVER_CERT_PATH", FILE, "Server certificate chain (PEM)."),
  serverKeyPath: optionalSetting("SERVER_KEY_PATH", FILE, "Private key of the server certificate (PEM)."),
  caCertPath: optionalSetting("CA_CERT_PATH", FILE, "CA certificate (PEM) against which client certificates are verified."),
  clientAuth: optionalSetting("CLIENT_AUTH", CLIENT_AUTH, "With a CA: request asks for client certificates (the default), require insists."),
  persistence: setting("PERSISTENCE_CONFIG", DBLESS, "dbless", "Persistence mode: the file is the configuration."),
  shutdownGraceS: setting("SHUTDOWN_GRACE_S", integer("SECONDS", 0, 86_400), "30", "Time for requests in flight to finish on SIGTERM."),
  preStopDelayS: setting("PRE_STOP_DELAY_S", integer("SECONDS", 0, 3600), "0", "Time to serve on after SIGTERM, with /readyz at 503."),
  workers: setting("WORKERS", WORKERS, "1", "Number of threads that serve requests; auto: one for each core."),
  logLevel: setting("LOG_LEVEL", choice(...LOG_LEVELS), "info", "Lowest severity that is logged."),
  logFormat: optionalSetting("LOG_FORMAT", choice(...LOG_FORMATS), "text on a terminal, json elsewhere."),
};

/** The settings, or all errors, one sentence each. */
export type SettingsRead<T> = { readonly ok: true; readonly settings: T } | { readonly ok: false; readonly issues: readonly string[] };

export interface Host {
  /** Reads ADMIN_PASSWORD_FILE, METRICS_TOKEN_FILE and OTEL_EXPORTER_OTLP_CERTIFICATE; default: the file system. */
  readonly readFile?: (path: string) => Buffer | string;
  /** Whether standard error is a terminal. Default false. */
  readonly terminal?: boolean;
  /** Errors that have been found already, such as unknown flags. Default: none. */
  readonly issues?: readonly string[];
}

/** Their flags that are not true or false, which a command may follow: `--no-tests validate`. */
const FLAGS: ReadonlySet<string> = new Set(Object.values(START_SETTINGS).flatMap(({ flag, value }) => (value === BOOLEAN.value ? [] : (flag ?? []))));
/** The beginnings of the variables of all other settings. */
const FURTHER = /^(?:ADMIN_|PROBE_|METRICS_|MANAGER)/;

/** Whether these flags, and the variables that are set, need no other settings than those of this file. */
export function areOfStart(flags: Flags, environment: Environment = {}): boolean {
  const isNamed = Object.keys(environment).some((name) => FURTHER.test(name) && environment[name] !== "");
  return Object.keys(flags).every((flag) => FLAGS.has(flag)) && !isNamed && !asksForTraces(environment);
}

/** Whether OpenTelemetry's variables name an endpoint for traces that is in use: then `readTracing` reads the rest of them. */
export function asksForTraces(environment: Environment): boolean {
  const text = (name: string) => environment[name]?.trim() ?? "";
  const isOff = text("OTEL_TRACES_EXPORTER") === "none" || text("OTEL_SDK_DISABLED").toLowerCase() === "true";
  return !isOff && text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") + text("OTEL_EXPORTER_OTLP_ENDPOINT") !== "";
}

/** The settings of a gateway with nothing beside it: the same as `readSettings` gives where `areOfStart`. */
export function readStartSettings(flags: Flags, environment: Environment, host: Host = {}) {
  const issues: string[] = [];
  const values = readValues(START_SETTINGS, flags, environment, issues);
  issues.push(...messagesOf(rulesOfStart(values)), ...portProblems(portsOf(values)));
  if (issues.length > 0) return { ok: false as const, issues };
  const further = { admin: null, probe: null, metricsToken: null, manager: null, tracing: null };
  return { ok: true as const, settings: { ...startOf(values as ValuesOf<typeof START_SETTINGS>, host), ...further } };
}

/** `values` may have more than these. */
export function startOf(values: ValuesOf<typeof START_SETTINGS>, host: Host) {
  const { configPath, configKey, serverCertPath, serverKeyPath, caCertPath, clientAuth, persistence, httpPort, httpsPort } = values;
  const { listenHosts, shutdownGraceS, preStopDelayS, workers, logLevel } = values;
  return {
    ...{ configPath, serverCertPath, serverKeyPath, caCertPath, persistence, listenHosts, shutdownGraceS, preStopDelayS, workers, logLevel },
    /** 0 means any free port, for the ports of other listeners too. */
    httpsPort,
    /** Null: there is no plain listener. */
    httpPort: httpPort === "off" ? null : httpPort,
    /** Null: the configuration needs no signature. */
    configKeyPath: configKey,
    tests: values.noTests ? ("skip" as const) : ("run" as const),
    /** Whether HTTPS clients are asked for a certificate, and whether a client without one is refused. */
    clientAuth: caCertPath === null ? ("none" as const) : (clientAuth ?? ("request" as const)),
    logFormat: logFormatOf(values, host),
  };
}

export function logFormatOf({ logFormat }: { readonly logFormat: LogFormat | null }, host: Host): LogFormat {
  return logFormat ?? (host.terminal === true ? "text" : "json");
}

/** Whether the rule is violated, and the message. */
export type Rule = readonly [isBroken: boolean, message: string];

export const messagesOf = (rules: readonly Rule[]) => rules.flatMap(([isBroken, message]) => (isBroken ? message : []));

export const WITHOUT_TLS = "SERVER_CERT_PATH and SERVER_KEY_PATH: without them there is no HTTPS";

/** Conflicts between settings that are valid by themselves. */
export function rulesOfStart(values: ReadOf<typeof START_SETTINGS>): Rule[] {
  const { serverCertPath: cert, serverKeyPath: key, caCertPath: ca } = values;
  return [
    ...certificateRules(values),
    [values.httpPort === "off" && cert === null && key === null, `HTTP_PORT=off needs ${WITHOUT_TLS}, and nothing would listen`],
    [ca !== null && cert === null && key === null, `CA_CERT_PATH needs ${WITHOUT_TLS}`],
    [values.clientAuth !== null && ca === null, "CLIENT_AUTH needs CA_CERT_PATH, which verifies client certificates"],
  ];
}

export function certificateRules({ serverCertPath: cert, serverKeyPath: key }: Pick<ReadOf<typeof START_SETTINGS>, "serverCertPath" | "serverKeyPath">): Rule[] {
  return [
    [cert !== null && key === null, "SERVER_CERT_PATH needs SERVER_KEY_PATH"],
    [key !== null && cert === null, "SERVER_KEY_PATH needs SERVER_CERT_PATH"],
  ];
}

/** Null: the port is not opened. */
type NamedPort = readonly [name: string, port: number | null];

export function portsOf({ httpPort, httpsPort, serverCertPath: cert, serverKeyPath: key }: ReadOf<typeof START_SETTINGS>): NamedPort[] {
  return [["HTTP_PORT", httpPort === "off" ? null : httpPort], ["HTTPS_PORT", cert === null || key === null ? null : httpsPort]];
}

/** Ports that are named twice; 0 is any free port. */
export function portProblems(ports: readonly NamedPort[]): string[] {
  return ports.flatMap(([name, port], i) => {
    const other = ports.slice(0, i).find(([, earlier]) => earlier === port);
    return other !== undefined && port !== 0 && port !== null ? `${name}: port ${port} is already used by ${other[0]}` : [];
  });
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

export function setting<T>(variable: string, parser: Parser<T>, fallback: string, help: string, flag = kebab(variable)): Setting<T> {
  return { variable, flag, fallback, help, ...parser };
}

/** A setting without a default. */
export function optionalSetting<T>(variable: string, parser: Parser<T>, help: string, flag: string | null = kebab(variable)): Setting<T | null> {
  return { variable, flag, fallback: null, help, ...parser };
}

export function kebab(variable: string): string {
  return variable.toLowerCase().replaceAll("_", "-");
}

export function integer(value: string, min: number, max: number): Parser<number> {
  const parse = (text: string) => (/^\d{1,9}$/.test(text) && Number(text) >= min && Number(text) <= max ? Number(text) : null);
  return { value, expects: `an integer ${min}–${max}`, parse };
}

function choice<const T extends readonly string[]>(...words: T): Parser<T[number]> {
  const parse = (text: string) => words.find((word): word is T[number] => word === text) ?? null;
  return { value: words.join("|"), expects: `one of ${words.join(", ")}`, parse };
}

export function list<T>(item: Parser<T>): Parser<readonly T[]> {
  const parse = (text: string) => {
    const items = text.split(",").map((part) => item.parse(part.trim()));
    return items.includes(null) ? null : [...new Set(items as T[])];
  };
  return { ...item, parse };
}

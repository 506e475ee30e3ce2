/**
 * How settings are read, and the table of those of a plain start, over HTTP and with nothing beside the gateway:
 * variable, flag, default, type and help of each. All others are in `settings_table.ts`.
 */
import { LOG_FORMATS, LOG_LEVELS, type LogFormat } from "../base/log.ts";
import { isContent } from "../base/regular_file.ts";
import { hostProblem } from "./fields.ts";
import type { Settings, SettingsRead } from "./settings_types.ts";

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

/** Keys have no dashes; `true` is a flag without a value. */
export type Flags = Readonly<Record<string, string | true | undefined>>;
export type Environment = Readonly<Record<string, string | undefined>>;

export type Parser<T> = Pick<Setting<T>, "parse" | "expects" | "value">;

export const FILE: Parser<string> = {
  value: "PATH",
  expects: "the path of a file",
  parse: (text) => (isContent(text) ? null : text),
};
const CONFIG: Parser<string> = { ...FILE, value: "PATH|URL", expects: "the path of a file, or a URL" };
export const PORT = wholeNumber("PORT", 0, 65_535);
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
export const HOSTS = list({
  ...HOST_NAME,
  value: "HOST,…",
  expects: "host names or IP addresses, separated by commas",
});

export const START_SETTINGS = {
  configPath: setting(
    "CONFIG_FILE_PATH",
    CONFIG,
    "gw.json",
    "Configuration file, or where it is asked for: https://…, or a key in etcd, etcds://….",
    "config",
  ),
  configKey: optionalSetting(
    "CONFIG_PUBLIC_KEY",
    FILE,
    "Public keys (PEM), one of which must have signed the configuration.",
    "config-key",
  ),
  noTests: setting(
    "NO_TESTS",
    BOOLEAN,
    "false",
    "Run no tests of the configuration, neither at the start nor before reloads.",
  ),
  httpPort: setting(
    "HTTP_PORT",
    PORT_OR_OFF,
    "8008",
    "Port for plain HTTP traffic; 0 is any free port, off opens none.",
  ),
  httpsPort: setting("HTTPS_PORT", PORT, "8443", "Port for HTTPS traffic; opened when there is a server certificate."),
  listenHosts: setting("LISTEN_HOST", HOSTS, "0.0.0.0,::", "Addresses on which traffic is accepted."),
  shutdownGraceS: setting(
    "SHUTDOWN_GRACE_S",
    wholeNumber("SECONDS", 0, 86_400),
    "30",
    "Time for requests in flight to finish on SIGTERM.",
  ),
  preStopDelayS: setting(
    "PRE_STOP_DELAY_S",
    wholeNumber("SECONDS", 0, 3600),
    "0",
    "Time to serve on after SIGTERM, with /readyz at 503.",
  ),
  logLevel: setting("LOG_LEVEL", oneOfWords(...LOG_LEVELS), "info", "Lowest severity that is logged."),
  logFormat: optionalSetting("LOG_FORMAT", oneOfWords(...LOG_FORMATS), "text on a terminal, json elsewhere."),
};

export interface Host {
  /**
   * Reads ADMIN_PASSWORD_FILE, ADMIN_VIEWER_PASSWORD_FILE, METRICS_TOKEN_FILE and OTEL_EXPORTER_OTLP_CERTIFICATE;
   * default: the file system.
   */
  readonly readFile?: (path: string) => Buffer | string;
  /** Whether standard error is a terminal. Default false. */
  readonly terminal?: boolean;
  /** Errors that have been found already, such as unknown flags. Default: none. */
  readonly issues?: readonly string[];
}

/** Their flags that are not true or false, which a command may follow: `--no-tests validate`. */
const FLAGS: ReadonlySet<string> = new Set(
  Object.values(START_SETTINGS).flatMap(({ flag, value }) => (value === BOOLEAN.value ? [] : (flag ?? []))),
);
/** The beginnings of the variables of all other settings. */
const FURTHER = new RegExp(
  String.raw`^(?:CONFIG_(?:POLL|TOKEN|CA|CERT|KEY|READ)_|ETCD_|ADMIN_|PROBE_|METRICS_|MANAGER|OTEL_|` +
    String.raw`SERVER_|CA_CERT_|CLIENT_AUTH|PERSISTENCE_|WORKERS$|STATE_DIR$|ACME_|AUDIT_|SEAL$)`,
);

/** Whether these flags, and the variables that are set, need no other settings than those of this file. */
export function areOfStart(flags: Flags, environment: Environment = {}): boolean {
  // Something else has to listen then.
  const isOff = (flags["http-port"] ?? environment.HTTP_PORT) === "off";
  const isUrl = hasScheme(flags.config ?? environment.CONFIG_FILE_PATH);
  const isNamed = Object.keys(environment).some((name) => FURTHER.test(name) && environment[name] !== "");
  return Object.keys(flags).every((flag) => FLAGS.has(flag)) && !isNamed && !isOff && !isUrl;
}

/** Whether CONFIG_FILE_PATH names a server, see `source_url.ts`, in place of a file. */
export function hasScheme(configPath: string | true | undefined): boolean {
  return typeof configPath === "string" && /^[a-z][a-z\d+.-]*:\/\//i.test(configPath);
}

/** The settings where `areOfStart`. */
export function readPlainSettings(flags: Flags, environment: Environment, host: Host = {}): SettingsRead<Settings> {
  const issues = [...(host.issues ?? [])];
  const values = readValues(START_SETTINGS, flags, environment, issues);
  if (issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: { ...startOf(values as ValuesOf<typeof START_SETTINGS>, host), ...NOTHING_ELSE } };
}

/** The values of all other settings of a plain start. */
const NOTHING_ELSE = {
  ...({
    serverCertPath: null,
    serverKeyPath: null,
    caCertPath: null,
    needHttps: false,
    clientAuth: "none",
    persistence: "dbless",
    workers: 1,
    stateDir: null,
    acmeFleetKey: null,
    audit: null,
    seal: false,
    source: null,
  } as const),
  admin: null,
  probe: null,
  metricsToken: null,
  manager: null,
  tracing: null,
  metricsExport: null,
  logsExport: null,
};

/** `values` may have more than these. */
export function startOf(values: ValuesOf<typeof START_SETTINGS>, host: Host) {
  const { configPath, httpPort, httpsPort, listenHosts, shutdownGraceS, preStopDelayS, logLevel } = values;
  return {
    configPath,
    listenHosts,
    shutdownGraceS,
    preStopDelayS,
    logLevel,
    httpsPort,
    httpPort: httpPort === "off" ? null : httpPort,
    configKeyPath: values.configKey,
    tests: values.noTests ? ("skip" as const) : ("run" as const),
    logFormat: logFormatOf(values, host),
  };
}

export function logFormatOf({ logFormat }: { readonly logFormat: LogFormat | null }, host: Host): LogFormat {
  return logFormat ?? (host.terminal === true ? "text" : "json");
}

/** The values before all checks: null also means an invalid value, which has been reported. */
export type ReadOf<R> = { readonly [K in keyof R]: ValuesOf<R>[K] | null };

/**
 * The values of some settings: flags win over the environment, the environment over defaults. Appends one sentence per
 * mistake to `issues`.
 */
export function readValues<R extends SettingsTable>(
  rows: R,
  flags: Flags,
  environment: Environment,
  issues: string[],
): ReadOf<R> {
  const read = Object.entries(rows).map(([name, row]) => {
    const given = givenTo(row, flags, environment);
    const value = valueOf(row, given);
    if (value === null && given !== undefined)
      issues.push(
        problemOf(row, given, row.flag !== null && flags[row.flag] !== undefined ? `--${row.flag}` : row.variable),
      );
    return [name, value];
  });
  return Object.fromEntries(read) as ReadOf<R>;
}

function problemOf(row: Setting<unknown>, given: string | true, source: string): string {
  if (given === true || given === "") return `${source} needs a value: ${row.expects}`;
  // What has no flag is a secret.
  return `${source}: expected ${row.expects}${row.flag === null ? "" : `, found ${JSON.stringify(shown(given))}`}`;
}

/** Masks secrets: the password in "https://user:password@host", a private key given instead of its file name. */
function shown(text: string): string {
  return isContent(text) ? "(the content of a file)" : text.replace(/^([a-z]+:\/*)?.*@/is, "$1…@");
}

/**
 * What a flag, or else a variable, sets. An empty variable counts as unset: shells and compose files pass unset
 * variables on as empty ones.
 */
function givenTo(
  { flag, variable }: Setting<unknown>,
  flags: Flags,
  environment: Environment,
): string | true | undefined {
  return (flag === null ? undefined : flags[flag]) ?? (environment[variable] || undefined);
}

/** Null: it is invalid, or there is none. */
function valueOf(row: Setting<unknown>, given: string | true | undefined): unknown {
  const text = given === true && row.value === BOOLEAN.value ? "true" : (given ?? row.fallback);
  return text === null || text === true || text === "" ? null : row.parse(text);
}

export function setting<T>(
  variable: string,
  parser: Parser<T>,
  fallback: string,
  help: string,
  flag = kebab(variable),
): Setting<T> {
  return { variable, flag, fallback, help, ...parser };
}

/** A setting without a default. */
export function optionalSetting<T>(
  variable: string,
  parser: Parser<T>,
  help: string,
  flag: string | null = kebab(variable),
): Setting<T | null> {
  return { variable, flag, fallback: null, help, ...parser };
}

export function kebab(variable: string): string {
  return variable.toLowerCase().replaceAll("_", "-");
}

export function wholeNumber(value: string, min: number, max: number): Parser<number> {
  const parse = (text: string) =>
    /^\d{1,9}$/.test(text) && Number(text) >= min && Number(text) <= max ? Number(text) : null;
  return { value, expects: `an integer ${min}–${max}`, parse };
}

export function oneOfWords<const T extends readonly string[]>(...words: T): Parser<T[number]> {
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

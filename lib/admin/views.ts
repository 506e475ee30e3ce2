/**
 * The JSON of the admin interface: the ProxyConfig, the admin configuration object, and the gateway's status, health
 * and statistics.
 */
import type { Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Json, Position } from "../config/json.ts";
import { MASK } from "../config/schema_core.ts";
import type { Settings } from "../config/settings_types.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import type { AuditSink } from "../observe/audit_log.ts";
import type { Kept } from "../gateway/features.ts";
import type { Replacement } from "../gateway/reloads.ts";
import type { AskedBy, GatewayStatus, LastTests, ReloadOutcome, ShownIssue, Warning } from "../gateway/status.ts";
import type { GatewayStats, StatusCounts } from "../observe/stats.ts";
import type { Time, View } from "../operator/json_view.ts";
import type { Explanation } from "../proof/explain.ts";
import type { Fleet } from "../source/fleet_entries.ts";

/**
 * Viewers and operators see secrets masked. An operator may also reload, drain and purge; only an administrator
 * changes the configuration.
 */
export type Role = "admin" | "operator" | "viewer";

/** What is kept of sessions, of all users. */
export interface KeptSessions {
  /** The key of keys without ADMIN_JWT_SECRET, in base64url; null: there is none yet. */
  readonly secret: string | null;
  /** Sessions that were logged out, with the second in which the last of their tokens ends. */
  readonly revoked: readonly (readonly [user: string, jti: string, end: number])[];
  /** The second up to which no session of a user is accepted. */
  readonly refused: readonly (readonly [user: string, second: number])[];
}

export interface Account {
  readonly role: Role;
  readonly user: string;
  /** As configured: plain, or a hash. */
  readonly password: string;
  /** When it came, in milliseconds since 1970: earlier sessions of its name are not accepted. Default: long ago. */
  readonly since?: number;
}

/** Settings of the interface, and what it shows. */
export interface InterfaceOptions extends Omit<NonNullable<Settings["admin"]>, "host" | "port" | "tls" | "usersPath"> {
  /** Of ADMIN_USERS_FILE as it is now. Default: there is none. */
  readonly users?: { readonly accounts: readonly Account[] } | null;
  /** Where sessions outlive the program. Default: nowhere. */
  readonly keptSessions?: Kept<KeptSessions> | null;
  /** A bearer token that opens /metrics alone; null: there is none. */
  readonly metricsToken: string | null;
  readonly clock: Clock;
  readonly log: Log;
  /** Shown to logged-in clients only. */
  readonly version: string;
  /** Files, for `GET /gateway/config`. */
  readonly paths: Pick<Settings, "serverCertPath" | "serverKeyPath" | "caCertPath" | "configPath">;
  readonly gateway: ShownGateway;
  /**
   * Brings status, health, stats and metrics of the gateway up to date; null: they are. "counts": without figures of
   * the process.
   */
  readonly refresh: (extent: "counts" | "all") => Promise<void> | null;
  /** In Prometheus' text format. */
  readonly metrics: () => Promise<Readable>;
  /** Default: the configuration is not in etcd. */
  readonly fleet?: Fleet | null;
  /** Default: there is no audit log. */
  readonly audit?: AuditSink | null;
  /**
   * Reloads like a change of the file does, and returns the outcome. With `replacement` it
   * rejects where that cannot become the configuration.
   */
  readonly reload: (replacement?: Replacement, who?: Omit<AskedBy, "by">) => Promise<ReloadOutcome>;
}

type Shown =
  | "shownConfig"
  | "maskedConfig"
  | "ready"
  | "status"
  | "health"
  | "lastTests"
  | "recentStats"
  | "explain"
  | "routePlugins"
  | "pluginKinds"
  | "dryRun"
  | "decision";
export type ShownGateway = Pick<ReportedGateway, Shown>;

/** Whether secrets that are written in the configuration itself are shown. */
export type Secrets = "shown" | "masked";

/**
 * The configuration as written, with defaults filled in and references to secrets unresolved. Each member by name:
 * others are not shown.
 */
export function gatewayView(config: Json) {
  const { services, global } = config as {
    readonly services: readonly unknown[];
    readonly global: { readonly plugins: readonly unknown[] };
  };
  return { services, plugins: global.plugins, global };
}

export function warningView(warning: Warning, place: Pick<ShownIssue, "line" | "column"> | null = null) {
  const { code, path, message, example, remedy, service, route } = warning;
  return {
    code,
    path,
    line: place?.line ?? null,
    column: place?.column ?? null,
    message,
    example,
    remedy,
    service,
    route,
    // Others are about the state of the gateway, which no configuration accepts.
    acceptable: "at" in warning && code !== "faults_injected" && code !== "stale_acceptance",
  };
}

/**
 * A value of the program in the form of the interface: names in snake_case, times as in RFC 3339, rates rounded to four
 * decimals. Names of members must not be data. `names`: those that are known, as thousands of upstreams have the same.
 */
export function view<T>(value: T, names = new Map<string, string>()): View<T> {
  if (typeof value !== "object" || value === null) return value as View<T>;
  if (Array.isArray(value)) return value.map((each) => view(each, names)) as View<T>;
  const shown: Record<string, unknown> = {};
  for (const name in value) {
    const member = value[name] as any;
    if (!names.has(name))
      names.set(
        name,
        name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      );
    shown[names.get(name)!] = TIMES.has(name)
      ? member === null
        ? null
        : new Date(member).toISOString()
      : name.endsWith("PerS")
        ? rounded(member)
        : view(member, names);
  }
  return shown as View<T>;
}

const TIMES: ReadonlySet<string> = new Set<Time>([
  "at",
  "since",
  "until",
  "adminSince",
  "loadedAt",
  "notAfter",
  "nextAt",
  "keptAt",
]);

function rounded(value: number | StatusCounts | GatewayStats["codesPerS"]): unknown {
  return typeof value === "number"
    ? Math.round(value * 1e4) / 1e4
    : Object.fromEntries(Object.entries(value).map(([name, rate]) => [name, rounded(rate)]));
}

/** `positions`: of the warnings. */
export function statusView(
  { uptimeMs, warnings, ...status }: GatewayStatus,
  positions: readonly (Position | null)[] = [],
) {
  return {
    ...view(status),
    uptime_s: Math.floor(uptimeMs / 1000),
    warnings: warnings.map((warning, i) => warningView(warning, positions[i])),
  };
}

/** What the text of a configuration has of a test. */
export interface WrittenTest extends Omit<ShownIssue, "message"> {
  readonly name: string;
  /** Null: the configuration is not in force, so that nobody knows which of its texts are secrets. */
  readonly request: Json;
}

/**
 * As `edge-gateway test --json`, with the time of the run, the digest of the configuration that was tested, and what
 * its text has of each test.
 */
export function testsView(last: LastTests | null, written: readonly WrittenTest[] = []) {
  if (last === null) return { at: null, digest: null, passed: 0, failed: 0, tests: [] };
  const {
    at,
    digest,
    report: { passed, failed, tests },
  } = last;
  const byName = new Map(written.map((test) => [test.name, test]));
  const unknown = { path: null, line: null, column: null, request: null };
  return {
    ...view({ at, digest }),
    passed,
    failed,
    tests: tests.map(({ late: _, ...result }) => ({ ...unknown, ...byName.get(result.name), ...result })),
  };
}

export function explanationView({ hashOn, sticky, timeouts, upstreams, upstreamHeaders, ...rest }: Explanation) {
  const ofService = { hash_on: hashOn, sticky, timeouts: view(timeouts), upstreams: view(upstreams) };
  return { ...rest, upstream_headers: upstreamHeaders, ...ofService };
}

/**
 * The JSON text of a status or a health without the fields that always change. No name can look like one of them:
 * inside a JSON string every `"` follows a `\`.
 */
export function steady(text: string): string {
  return text.replace(CHANGING, "");
}

const CHANGING = /"(?:in_flight|uptime_s)":\d+/g;

/** Exactly six keys; "" if a file is not set; the password as configured, which may be a hash, or masked. */
export function configView(
  { user, password, paths: { serverCertPath, serverKeyPath, caCertPath, configPath } }: InterfaceOptions,
  secrets: Secrets,
) {
  const ofTls = {
    ServerCertPath: serverCertPath ?? "",
    ServerKeyPath: serverKeyPath ?? "",
    CACertPath: caCertPath ?? "",
  };
  return {
    ...ofTls,
    AdminUser: user ?? "",
    AdminPassword: secrets === "masked" && password !== null ? MASK : (password ?? ""),
    ConfigFilePath: configPath,
  };
}

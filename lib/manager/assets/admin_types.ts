/**
 * The types of the JSON of the admin interface, free of browser types, so that specs can check both ends against them.
 */

/** A plugin instance as configured. */
export interface PluginConfig {
  readonly id?: string;
  readonly name: string;
  readonly enabled: boolean;
  readonly config: Readonly<Record<string, unknown>>;
}

/** Of a header, a query parameter or a cookie: its exact value, null (absent), true (present), or a pattern that matches somewhere in the value. */
export type Condition = string | null | true | { readonly matches: string };

/** All of them have to hold. By names. */
export interface Conditions {
  readonly headers?: Readonly<Record<string, Condition>>;
  readonly query?: Readonly<Record<string, Condition>>;
  readonly cookies?: Readonly<Record<string, Condition>>;
  readonly scheme?: "http" | "https";
}

export interface RouteConfig {
  readonly name: string;
  readonly path: string;
  /** Absent: all methods. */
  readonly methods?: readonly string[];
  readonly match?: Conditions;
  readonly plugins: readonly PluginConfig[];
}

export interface UpstreamConfig {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  readonly weight: number;
  readonly group?: string;
}

/** A share of a service's requests that goes to a group of its upstreams. */
export interface SplitConfig {
  readonly group: string;
  /** 0 to 100. */
  readonly percent: number;
  /** "credential", "header:X-Tenant", …: equal values go to the same side. Absent: by request. */
  readonly hash_on?: string;
  /** The share is one of the requests that meet these conditions; such entries are asked first. */
  readonly match?: Conditions;
}

export interface StickyConfig {
  /** The name of the cookie. */
  readonly cookie: string;
  /** 0: until the browser is closed. */
  readonly ttl_s: number;
}

export interface ServiceConfig {
  readonly name: string;
  readonly base_path: string;
  readonly protocol: string;
  readonly load_balancing_strategy: string;
  /** For the strategy "hash": "client_ip", "credential", "header:X-Tenant", "cookie:…" or "param:…". */
  readonly hash_on?: string;
  /** In percent of the mean load; 0: unlimited. */
  readonly hash_balance_factor?: number;
  readonly sticky?: StickyConfig;
  readonly split?: readonly SplitConfig[];
  readonly hosts?: readonly string[];
  readonly upstreams: readonly UpstreamConfig[];
  readonly routes: readonly RouteConfig[];
  readonly plugins: readonly PluginConfig[];
  readonly [other: string]: unknown;
}

/** GET /gateway */
export interface ProxyConfig {
  readonly services: readonly ServiceConfig[];
  readonly plugins: readonly PluginConfig[];
  /** `decisions`: how many requests are remembered; undefined: not configured. */
  readonly global: { readonly name: string; readonly plugins: readonly PluginConfig[]; readonly decisions?: number };
}

/** GET /gateway/config: names of settings and their values. */
export type Settings = Readonly<Record<string, string>>;

export interface Change {
  readonly change: "added" | "altered" | "removed";
  readonly name: string;
}

/** Why a configuration was refused. */
export interface Refusal {
  /** The file that `issues` without a file are of; null: they are of no file, or older gateways send lines. */
  readonly file?: string | null;
  readonly issues: readonly (Issue | string)[];
}

/** An error of a configuration. */
export interface Issue {
  /** "services[0].routes[1].path"; "": the whole text. */
  readonly path: string;
  readonly line: number | null;
  readonly column: number | null;
  readonly message: string;
  /** Absent: the configuration itself. */
  readonly file?: string;
  /** "unsigned": no error in the text, which has to be signed elsewhere. */
  readonly code?: string;
}

export type Reload = {
  readonly at: string;
  readonly by: "file" | "signal" | "admin" | "api";
  readonly digest: string;
} & ({ readonly outcome: "taken"; readonly changes: readonly Change[] } | ({ readonly outcome: "refused" } & Refusal));

export interface Certificate {
  /** Where it is configured: "SERVER_CERT_PATH", "global.certificates[0]", … */
  readonly where: string;
  readonly path: string | null;
  /** Host names and addresses that it is valid for. */
  readonly names: readonly string[];
  /** Used where there are no names; browsers ignore it. Null: there is none. */
  readonly common_name: string | null;
  readonly not_after: string;
}

/** A warning for operators. Older gateways send no `path`, `example` and `remedy`. */
export interface Warning {
  /** "guard_bypassed", "certificate_expires", "upstream_down", "reload_refused", … */
  readonly code: string;
  /** The item by names: "services.shop.routes.items"; null: the gateway. */
  readonly path?: string | null;
  /** In the configuration in force. Older gateways send none. */
  readonly line?: number | null;
  readonly column?: number | null;
  /** The problem, in one sentence. */
  readonly message: string;
  /** A request that shows the problem: "GET http://shop.example.com/items/x". */
  readonly example?: string | null;
  /** In one sentence. */
  readonly remedy?: string;
  readonly service: string | null;
  readonly route: string | null;
}

/** GET /gateway/status; in GET /gateway/now when something in it has changed. */
export interface Status {
  readonly version: string;
  readonly state: "serving" | "stopping" | "draining" | "closed";
  readonly ready: boolean;
  readonly uptime_s: number;
  readonly in_flight: number;
  readonly digest: string;
  readonly loaded_at: string;
  readonly counts: Readonly<Record<string, number>>;
  readonly last_reload: Reload | null;
  readonly last_change: Reload | null;
  readonly plugin_faults: readonly { readonly plugin: string; readonly id: string | null; readonly level: string; readonly service: string | null; readonly route: string | null; readonly count: number }[];
  readonly certificates: readonly Certificate[];
  readonly warnings: readonly Warning[];
  /** The last run of the configuration's tests; null: it has none. Older gateways send none. */
  readonly tests?: { readonly passed: number; readonly failed: number } | null;
  /** Threads that serve requests; null: there is one. Older gateways send none. */
  readonly workers?: { readonly configured: number; readonly serving: number; readonly restarts: number } | null;
}

export interface UpstreamHealth {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  readonly weight: number;
  /** Null: none. Older gateways send none. */
  readonly group?: string | null;
  /** "unknown", "healthy", "unhealthy", "ejected"; "draining": its configured weight is 0. */
  readonly state: string;
  readonly usable: boolean;
  readonly since: string | null;
  readonly until: string | null;
  readonly reason: string | null;
  readonly in_flight: number;
  /** What an administrator has said since the last reload. Older gateways send none. */
  readonly admin_state?: "drain" | "eject" | null;
  /** Of the requests that meet no condition of a split, 0 to 1; of an explanation: of such requests. */
  readonly share: number;
  /** Whether it gets what no split takes. */
  readonly rest: boolean;
}

export interface ServiceHealth {
  readonly name: string;
  readonly circuit_breaker: { readonly state: string; readonly since: string | null } | null;
  readonly upstreams: readonly UpstreamHealth[];
}

/** GET /gateway/health; in GET /gateway/now when a state in it has changed. */
export interface Health {
  readonly services: readonly ServiceHealth[];
}

/** Of the last `window_s` seconds. */
export interface TryFigures {
  readonly requests_per_s: number;
  /** Replies with 5xx per second. */
  readonly errors_per_s: number;
  /** Null when there was no request. */
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  readonly p99_ms: number | null;
  /** At this moment. */
  readonly in_flight: number;
}

export interface Figures extends TryFigures {
  /** Requests per second refused by a rate limit. They reach no upstream. */
  readonly limited_per_s: number;
  /** Replies per second, without the zeros. */
  readonly statuses_per_s: StatusCounts;
}

/** By class of status, and of some statuses alone. */
export type StatusCounts = Readonly<Partial<Record<"2xx" | "3xx" | "4xx" | "5xx" | "401" | "403" | "404", number>>>;

/** One step of the history: counts of the whole step, not per second. */
export interface Point {
  /** Its start. */
  readonly at: string;
  readonly requests: number;
  readonly errors: number;
  readonly limited: number;
  readonly statuses: StatusCounts;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  readonly p99_ms: number | null;
}

/** Routes and upstreams without any request in the window or in flight are left out. */
export interface Stats {
  /** The gateway's time. */
  readonly at: string;
  readonly window_s: number;
  readonly total: Figures;
  /** Requests without a route. */
  readonly unrouted: Figures;
  /** Requests per second that ended with an error of the gateway, by its code, without the zeros. */
  readonly codes_per_s: Readonly<Record<string, number>>;
  /** Null: not known. */
  readonly services: readonly ServiceStats[] | null;
  /** The current, incomplete step; replaces one with the same `at`. */
  readonly point: Point;
}

export interface ServiceStats {
  readonly name: string;
  readonly total: Figures;
  readonly routes: readonly (Figures & { readonly name: string })[];
  /** Times and errors of attempts: to the head of the response, or to the failure. */
  readonly upstreams: readonly (TryFigures & { readonly id: string })[];
  /** Null: upstreams in no group. */
  readonly groups: readonly (TryFigures & { readonly group: string | null })[];
}

/** GET /gateway/stats */
export interface StatsWithHistory extends Stats {
  readonly step_s: number;
  /** The last 15 minutes, oldest first, without the current step. */
  readonly history: readonly Point[];
}

/** GET /gateway/now */
export interface Now {
  /** To be sent with the next request. */
  readonly known: string;
  /** Absent: as known. */
  readonly status?: Status;
  readonly health?: Health;
  /** With the history if the request has no `known`. */
  readonly stats: (Stats & { readonly history?: undefined }) | StatsWithHistory;
}

/** GET /gateway/callers: the first callers that fit a search, without their keys. */
export interface CallersView {
  readonly total: number;
  readonly matching: number;
  readonly callers: readonly ShownCaller[];
}

export interface ShownCaller {
  readonly id: string;
  readonly groups: readonly string[];
  readonly enabled: boolean;
  /** Null: it is in the configuration itself. */
  readonly file: string | null;
  /** Those that can identify it. */
  readonly plugins: readonly (Pick<ExplainedPlugin, "level"> & { readonly kind: string; readonly service: string | null; readonly route: string | null })[];
  /** Within the last minute. */
  readonly used: boolean;
}

/** GET /gateway/plugins: the enabled plugins of a route in the order in which they run. */
export interface RoutePlugins {
  readonly plugins: readonly (Pick<ExplainedPlugin, "level" | "name" | "id" | "config"> & PluginCounts)[];
}

/** Since the start, on all routes for which the instance runs. */
export interface PluginCounts {
  readonly requests: number;
  /** Those that it answered itself. */
  readonly answered: number;
}

/** The request of POST /gateway/explain. */
export interface ExplainRequest {
  readonly method: string;
  /** "/shop/items?x=1", or with scheme and host. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Without it the gateway assumes 127.0.0.1. */
  readonly client_ip?: string;
  readonly body?: string;
}

/** Its reply; nothing is forwarded. */
export interface Explanation {
  readonly outcome: "matched" | "refused";
  /** The status for a request refused before any plugin: 400, 404 or 405. */
  readonly status: number | null;
  readonly code: string | null;
  /** Why this route matches, or none does. */
  readonly reasons: readonly string[];
  /** Normalised; null if that is impossible. */
  readonly path: string | null;
  readonly service: string | null;
  readonly route: string | null;
  readonly pattern: string | null;
  readonly params: Readonly<Record<string, string>>;
  /** Path and query as the upstream gets them. */
  readonly forwarded: string | null;
  /** Routes whose patterns fit the path, the most specific first, and near misses. Older gateways send none. */
  readonly candidates?: readonly Candidate[];
  /** In the order in which they run. */
  readonly plugins: readonly ExplainedPlugin[];
  /** Whether a plugin may decide otherwise: it would ask another machine, or what it does is not known. */
  readonly open: boolean;
  /** The plugin that answers the request itself, if those before it let it pass; null: none does. */
  readonly answer: Pick<ExplainedPlugin, "level" | "name" | "id" | "status" | "code"> | null;
  readonly strategy: string | null;
  readonly upstreams: readonly UpstreamHealth[];
}

export interface Candidate {
  readonly service: string;
  readonly route: string;
  /** "takes the request", "takes only POST", … */
  readonly verdict: string;
}

export interface ExplainedPlugin {
  readonly level: "global" | "service" | "route";
  readonly name: string;
  readonly id: string | null;
  readonly config: Readonly<Record<string, unknown>>;
  /** Older gateways do not send it. */
  readonly action?: "passes" | "answers" | "asks" | "hangs" | "not_reached";
  /** Of its answer; null: it gives none. */
  readonly status: number | null;
  readonly code: string | null;
  /** "passes the request on", "answers 401 key_missing", "not reached", … Older gateways send none. */
  readonly verdict?: string;
}

/** POST /gateway/reload */
export interface Reloaded {
  readonly digest: string;
  readonly changed: boolean;
  readonly changes: readonly Change[];
}

/**
 * The types of the JSON of the admin interface: those of the gateway itself, so that both ends are one, and what the
 * interface alone has.
 */
import type { AnyConfigInput } from "../../config/model.ts";
import type { DisplayedPlugin, DisplayedRoute, DisplayedService } from "../../gateway/displayed_config.ts";
import type {
  GatewayStatus,
  LastReload,
  Refusal as OwnRefusal,
  Reloaded,
  ShownIssue,
  TestReport,
  TestResult as OwnResult,
  Warning as OwnWarning,
} from "../../gateway/status.ts";
import type {
  Figures as OwnFigures,
  GatewayStats,
  Point as OwnPoint,
  TryFigures as OwnTries,
} from "../../observe/stats.ts";
import type { View } from "../../operator/json_view.ts";
import type { DryRun } from "../../proof/dry_run.ts";
import type {
  CountedPlugin,
  Explanation as OwnExplanation,
  ExplainedPlugin as OwnPlugin,
  Question,
  RunningPlugin,
} from "../../proof/explain.ts";
import type { UpstreamReport, UpstreamSetReport } from "../../upstream/upstream_report.ts";

type ServiceInput = AnyConfigInput["services"][number];
export type PluginConfig = DisplayedPlugin;
export type RouteConfig = DisplayedRoute;
/** One with `srv` has neither host, port nor weight: its targets have them. */
export interface UpstreamConfig extends Partial<Pick<UpstreamReport, "host" | "port">> {
  readonly id: string;
  readonly weight?: number;
  readonly srv?: string;
  readonly group?: string | undefined;
  readonly backup?: boolean | undefined;
}
export type SplitConfig = NonNullable<ServiceInput["split"]>[number];
export type Conditions = NonNullable<RouteConfig["match"]>;
/** Of a header, a query parameter or a cookie. */
export type Condition = NonNullable<Conditions["headers"]>[string];

/** With defaults filled in. */
export type ServiceConfig = Omit<DisplayedService, "load_balancing_strategy"> &
  Pick<ServiceInput, "split"> & {
    readonly load_balancing_strategy: string;
    readonly protocol: string;
    readonly sticky?: { readonly cookie: string; readonly ttl_s: number };
    readonly upstreams: readonly UpstreamConfig[];
    readonly [other: string]: unknown;
  };

/** GET /gateway */
export interface ProxyConfig {
  readonly services: readonly ServiceConfig[];
  readonly plugins: readonly PluginConfig[];
  /** `decisions`: how many requests are remembered; undefined: not configured. */
  readonly global: { readonly name: string; readonly plugins: readonly PluginConfig[]; readonly decisions?: number };
}

/** GET /gateway/config: names of settings and their values. */
export type Settings = Readonly<Record<string, string>>;

/** "tests_failed": said by the pages themselves. */
export type Warning = Omit<OwnWarning, "code"> &
  Pick<Issue, "line" | "column"> & {
    readonly code: OwnWarning["code"] | "tests_failed";
    /** Whether an entry of `global.accept_warnings` can accept it. */
    readonly acceptable?: boolean;
  };
export type Reload = View<LastReload>;
export type Refusal = OwnRefusal;
export type Issue = ShownIssue;
export type Change = Reloaded["changes"][number];

/** GET /gateway/status; in GET /gateway/now when something in it has changed. */
export type Status = Omit<View<GatewayStatus>, "uptime_ms" | "warnings"> & {
  readonly uptime_s: number;
  readonly warnings: readonly Warning[];
};
export type Certificate = Status["certificates"][number];
export type RevocationList = Status["revocation_lists"][number];

/** GET /gateway/health; in GET /gateway/now when a state in it has changed. */
export interface Health {
  readonly services: readonly ServiceHealth[];
}
export type ServiceHealth = View<UpstreamSetReport>;
export type UpstreamHealth = View<UpstreamReport>;

export type Figures = View<OwnFigures>;
export type TryFigures = View<OwnTries>;
export type Point = View<OwnPoint>;
export type ServiceStats = View<GatewayStats>["services"][number];

/** Routes and upstreams without any request in the window or in flight are left out; null: they are not known. */
export type Stats = Omit<View<GatewayStats>, "history" | "step_s" | "services"> & {
  readonly services: readonly ServiceStats[] | null;
};

/** GET /gateway/stats */
export type StatsWithHistory = Stats & Pick<View<GatewayStats>, "history" | "step_s">;

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

/** GET /gateway/plugins: the enabled plugins of a route in the order in which they run. */
export interface RoutePlugins {
  readonly plugins: readonly CountedPlugin[];
}

/** Since the start, on all routes for which the instance runs. */
export type PluginCounts = Pick<CountedPlugin, "requests" | "answered">;

/** The request of POST /gateway/explain. */
export type ExplainRequest = Omit<View<Question>, "headers"> & { readonly headers: Readonly<Record<string, string>> };

/** Its reply; nothing is forwarded. */
export type Explanation = Omit<
  OwnExplanation,
  "hashOn" | "upstreamHeaders" | "sticky" | "timeouts" | "upstreams" | "plugins"
> & {
  readonly upstreams: readonly UpstreamHealth[];
  readonly plugins: readonly ExplainedPlugin[];
};
export type ExplainedPlugin = Pick<OwnPlugin, keyof RunningPlugin | "status" | "code"> &
  Partial<Pick<OwnPlugin, "action" | "verdict">>;

/**
 * GET /gateway/tests: the last run of the configuration's tests, also of a configuration that was refused; without a
 * time none have run.
 */
export interface TestRun extends Pick<TestReport, "passed" | "failed"> {
  readonly at: string | null;
  /** Of the configuration that was tested. */
  readonly digest: string | null;
  readonly tests: readonly WrittenTest[];
}
export type TestResult = OwnResult & Pick<Issue, "line" | "column" | "file">;
/** `request`: as written; null: not known. */
export type WrittenTest = TestResult & { readonly request: unknown };

/** Reply to POST /gateway/reload. */
export type { Reloaded } from "../../gateway/status.ts";

/** POST /gateway/validate */
export type Validation = View<DryRun>;
export type { RoutePlace } from "../../proof/guards_lost.ts";

/** GET /gateway/requests/{id}: what became of a request. */
/** The answer to GET /gateway/docs. */
export interface DocsIndex {
  readonly pages: readonly { readonly page: string; readonly title: string; readonly chapters: readonly string[] }[];
  /** `facts`: the cells of its row, by the names of their columns. */
  readonly codes: readonly {
    readonly code: string;
    readonly heading: string;
    readonly facts: Readonly<Record<string, string>>;
  }[];
}

export type { RequestDecision } from "../../observe/decision_reader.ts";

/** GET /gateway/requests: those that fit, and counts of them. */
export type { DecisionList as RequestList } from "../../observe/decision_list.ts";

/** GET /gateway/history */
export interface HistoryEntry {
  readonly digest: string;
  readonly at: string;
  readonly by: { readonly user: string; readonly address: string } | { readonly cause: string };
  readonly changes: readonly Change[];
  readonly in_force: boolean;
  readonly can_roll_back: boolean;
  /** Why it cannot be rolled back to. */
  readonly reason: string | null;
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
  readonly plugins: readonly (Pick<ExplainedPlugin, "level"> & {
    readonly kind: string;
    readonly service: string | null;
    readonly route: string | null;
  })[];
  /** When the next of its keys ends; null: none does. A gateway of an older version has no such field. */
  readonly key_ends?: string | null;
  /** Within the last minute. */
  readonly used: boolean;
}

/** GET /gateway/caller?id=… */
export interface OneCaller extends ShownCaller {
  /** How many it has. */
  readonly keys: number;
  /** Of the last minute, by its remembered requests. */
  readonly figures: Omit<Figures, "in_flight">;
  /** Null: not since the start. */
  readonly last_seen: string | null;
  /** Where limits count that say nothing else. */
  readonly counters: "memory" | "redis";
  readonly limits: readonly CallerLimit[];
  readonly limits_total: number;
}

export interface CallerLimit {
  readonly kind: string;
  readonly service: string | null;
  readonly route: string | null;
  readonly level: string;
  readonly id: string | null;
  readonly group: string | null;
  readonly windows: readonly {
    readonly per: string;
    readonly limit: number;
    readonly left: number;
    /** Seconds until something is given back. */
    readonly reset_s: number;
  }[];
}

/** GET /gateway/settings: of one item, with secrets masked. A place is null where there is no text. */
export interface ItemSettings extends Place {
  /** Of the text. */
  readonly digest: string;
  readonly path: string;
  /** `default`: it is not in the text; null: there is none. */
  readonly settings: readonly (Place & {
    readonly name: string;
    readonly value: unknown;
    readonly default: boolean | null;
  })[];
  /** False: there are more. */
  readonly complete: boolean;
}

type Place = Pick<Issue, "line" | "column">;

/**
 * The types of the JSON of the admin interface for figures that pages ask for beside those of each second.
 */
import type { Point, Status } from "./admin_types.ts";

/** GET /gateway/figures: the history of a service, a route or an upstream. */
export interface FiguresHistory {
  readonly step_s: number;
  /** When counting began; null: just now. */
  readonly since: string | null;
  /** False: too many others have a history. */
  readonly recorded: boolean;
  /** Of steps that have ended, oldest first. */
  readonly points: readonly FigurePoint[];
  /** When another configuration came into force. */
  readonly reloads: readonly { readonly at: string; readonly digest: string }[];
}

export type FigurePoint = Omit<Point, "statuses">;

/** An event of GET /gateway/tail. */
export interface TailBatch {
  /** Requests that fit the filters; not all of them have a line. */
  readonly matched: number;
  readonly lines: readonly AccessLine[];
}

/** A line of the access log. */
export interface AccessLine {
  readonly time: string;
  readonly request_id: string;
  readonly trace_id: string | null;
  readonly client_ip: string;
  readonly method: string | null;
  readonly path: string | null;
  /** Null: the client left before there was one. */
  readonly status: number | null;
  readonly code: string | null;
  readonly service: string | null;
  readonly route: string | null;
  readonly caller: string | null;
  readonly duration_ms: number;
  readonly user_agent: string | null;
  readonly fault?: string;
}

/** GET /gateway/process */
export interface ProcessFigures {
  readonly rss_bytes: number;
  readonly cpu_s: number;
  readonly open_files: number | null;
  readonly connections: number;
  readonly in_flight: number;
  /** Of a configuration from a URL; null: it is in a file. */
  readonly source: Status["source"];
  /** Those that serve. */
  readonly threads: readonly ThreadFigures[];
}

export interface ThreadFigures {
  /** Null: there are no workers. */
  readonly worker: number | null;
  readonly heap_bytes: number;
  readonly heap_used_bytes: number;
  readonly external_bytes: number;
  /** How late the event loop came round in the last seconds. */
  readonly lag_ms: { readonly mean: number; readonly p50: number; readonly p99: number; readonly max: number };
  readonly connections: number;
  readonly in_flight: number;
}

/** GET /gateway/fleet */
export interface FleetFigures {
  /** Null: the configuration is not in etcd. */
  readonly key: string | null;
  /** Of this gateway's own entry; null: it has none. */
  readonly own_id: string | null;
  /** Why the gateways are not known; null: they are. */
  readonly problem: string | null;
  /** How many there are: `gateways` has 1,000 at most. */
  readonly count: number;
  readonly gateways: readonly FleetGateway[];
}

/** An entry that no gateway has written has an id alone. */
export interface FleetGateway {
  readonly id: string;
  readonly name?: string;
  readonly host?: string;
  readonly version?: string;
  readonly digest?: string;
  readonly since?: string;
  readonly ready?: boolean;
  readonly refused?: { readonly digest: string | null; readonly at: string; readonly reason: string };
}

/** GET /gateway/plugin-figures: since the start. */
export interface PluginFigures {
  readonly plugins: readonly {
    readonly plugin: string;
    readonly level: string;
    readonly service: string | null;
    readonly route: string | null;
    readonly id: string;
    readonly requests: number;
    /** Those that it answered itself. */
    readonly answered: number;
    readonly seconds: number;
    readonly results: Readonly<Record<string, number>>;
    /** Of rate limits. */
    readonly callers: number | null;
  }[];
  /** Without those that have neither. */
  readonly routes: readonly {
    readonly service: string | null;
    readonly route: string | null;
    readonly cache: Readonly<Record<string, number>>;
    readonly refusals: Readonly<Record<string, number>>;
  }[];
  /** What caches hold now, and what they have dropped for want of room. */
  readonly caches: readonly {
    readonly plugin: string;
    readonly level: string;
    readonly service: string | null;
    readonly route: string | null;
    readonly id: string;
    readonly bytes: number;
    readonly max_bytes: number;
    readonly entries: number;
    readonly evictions: number;
  }[];
  readonly circuits: readonly {
    readonly service: string;
    readonly state: string;
    readonly requests: number;
    readonly failures: number;
  }[];
}

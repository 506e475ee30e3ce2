/**
 * The interface of a plugin kind: types only, so that no program loads it.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { SharedMemory } from "../base/shared_memory.ts";
import type { ThreadCount, Threads } from "../base/threads.ts";
import type { COST } from "../config/cost.ts";
import type { GroupLimits } from "../config/group_limits.ts";
import type { FeatureField } from "../config/feature_schemas.ts";
import type { Infer, Schema } from "../config/schema.ts";
import type { Client, HttpClientOptions } from "../client/client.ts";
import type { Call, Exchange, PluginTime } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import type { Reply } from "../http/reply.ts";
import type { MemoryCounters, HashSecret } from "../store/caller_tables.ts";
import type { CostedLimiter, Counters, Decision, GatewaySecrets, LimiterOptions } from "../store/counters.ts";
import type { LimiterTools } from "../store/costs.ts";
import type { Reserve } from "../store/reserved.ts";
import type { CallerRegistry } from "./callers.ts";

/** What kinds that are not built in need, see `foreign_kind.ts`. */
export interface ForeignKinds {
  /** Returns the error in a plugin's definition, for its author; undefined if it is valid. */
  kindProblem(value: unknown): string | undefined;
  /** Throws, or rejects with, a `TypeError` for a reply of the plugin's own whose headers cannot be sent. */
  sendingValid(middleware: Middleware): Middleware;
  readonly TOOL_CODE: ToolCode;
}

/** The place of an instance in the configuration. */
export interface Scope {
  readonly level: "global" | "service" | "route";
  /** Names the instance across reloads: level, service, route, and the plugin's id or its place among its kind. */
  readonly key: string;
  /** Names it in logs, as warnings do: "services.shop.plugins.jwt", see `plugin_place.ts`. */
  readonly path: string;
  /** `id` of the instance in the configuration, or null. */
  readonly id: string | null;
  readonly service: string | null;
  readonly route: string | null;
}

/**
 * The tools a plugin may use besides its configuration. All state comes from here; module scope holds constants only.
 */
export interface Tools {
  readonly clock: Clock;
  readonly log: Log;
  readonly counters: Counters;
  /** The callers of the configuration; null: it has none. */
  readonly callers: CallerRegistry | null;
  /**
   * The groups of the request's caller: those that its token names, and those that the configuration's `callers` have
   * under its identity.
   */
  groupsOf(exchange: Pick<Exchange, "groups" | "identity" | "route">): readonly string[];
  /** A limiter of the instance, of another kind than those of `counters`. `key` names it; default: `scope.key`. */
  limiterBy<L>(make: (tools: LimiterTools, key: string) => L, key?: string): L;
  /** Secrets that all gateways with the same `global.counters` share; null: there are no such counters. */
  readonly gatewaySecrets: GatewaySecrets | null;
  /** For an instance whose configuration names one of them. */
  readonly limits: FurtherLimits;
  /** `global.name`. */
  readonly gatewayName: string;
  readonly scope: Scope;
  /**
   * State that survives reloads: connections, a queue, a cache. Returns the existing state of this `name` if the
   * instance is the same (see `scope.key`) and `settings` are equal as JSON, else the result of `make`, which may use
   * nothing else of the configuration. State that no active configuration uses is closed; all state is closed with the
   * gateway.
   */
  keep<T extends KeptState>(name: string, settings: unknown, make: () => T): T;
  /**
   * Memory of this instance that all workers share: all zero at first, and the same by the same `name`. Null where the
   * gateway runs without workers. It must be asked for in `create`, and stays while every configuration asks for it.
   * Throws if `bytes` is not a whole number from 1 on, or differs from the size of the memory with this name: put what
   * decides the size into the name.
   */
  shared(name: string, bytes: number): ArrayBufferLike | null;
  /**
   * What all instances of this kind share, of whatever configuration: the result of the first `make` with this name.
   * For bounds of the process.
   */
  common<T>(name: string, make: () => T): T;
  /**
   * A count over all instances of this kind in all workers. It must be asked for in `create`; what a dead worker held
   * is given back.
   */
  count(name: string): Count;
  /**
   * A count for each key over all instances of this kind in all workers. It must be asked for in `create`; what a dead
   * worker held is given back.
   */
  counts(name: string): KeyCounts;
  /**
   * A cache for results that are expensive, such as verified signatures: one limit in bytes for all instances of a
   * gateway. Use `keep("verdicts", config, () => verdicts.part())`, so that its memory is released.
   */
  readonly verdicts: SharedMemory;
  /**
   * A new client for requests of the plugin's own. A plugin must use it for all of them: in tests of a configuration it
   * gets their `answers`, and nothing is dialled. It asks only the servers that `dials` of its kind names. Use
   * `keep("client", settings, () => client(settings))`, so that its connections are closed.
   */
  client(options?: Omit<HttpClientOptions, "clock" | "egress" | "why">): Client;
  /**
   * In a test with `as.jwt`: the claims of a token whose signature counts as valid. Null otherwise, and always in a
   * running gateway.
   */
  readonly verifiedClaims: Readonly<Record<string, unknown>> | null;
  /**
   * Whether a password is the stored one: plain text, or what `edge-gateway hash-password` prints. Tests of a
   * configuration hash each password once.
   */
  verifyPassword(given: string, stored: string): Promise<boolean>;
  /**
   * The query parameters and headers in which plugins of the gateway look for credentials, in lower case: logs leave
   * out their values. Complete once all plugins of the configuration have been created.
   */
  readonly secretParameters: ReadonlySet<string>;
  /**
   * Whether requests are only tried out, in a test or an explanation: timers stand still there. Always false in a
   * running gateway.
   */
  readonly isTrial: boolean;
  /**
   * Counts a result of the instance in the metric `edge_gateway_plugin_results_total`, label `result`. At most 32
   * different ones; others are "other".
   */
  tally(result: string): void;
}

export interface Count {
  readonly total: number;
  /** Counts `amount` more, by default one; false if that would be more than `most`. */
  take(most: number, amount?: number): boolean;
  give(amount?: number): void;
}

export interface KeyCounts {
  /**
   * Counts one more for the key. Returns the function that gives it back, to be called once, or null if that would be
   * more than `most`, or if this worker holds 98,304 different keys already.
   */
  take(key: string, most: number): (() => void) | null;
}

/**
 * What a limiter has decided, carried out. It reads the decision before it calls `next`: that holds until the next one
 * is made.
 */
export type Settle = (next: Handler, exchange: Exchange, decision: Decision) => Reply | Promise<Reply>;

/** Limits by group, of costs that replies state, and in shadow mode. */
export interface FurtherLimits {
  /** For an instance with `limits_by_group`. */
  chosenByGroup<T>(
    limits: GroupLimits<T>,
    usual: Middleware,
    tools: Pick<Tools, "scope" | "groupsOf">,
    make: (limits: T, key: string, path: string) => Middleware,
  ): Middleware;
  /** For one in shadow mode. */
  shadowing(tools: Pick<Tools, "clock" | "log" | "scope">): Settle;
  /** For one with `cost`. */
  costedLimiter(tools: LimiterTools, key: string, options: LimiterOptions, reserve?: Reserve): CostedLimiter;
  /** Books the cost of each request that `limiter` admits, when its reply ends. */
  costing(
    limiter: Pick<CostedLimiter, "book">,
    cost: Infer<typeof COST>,
    tools: Pick<Tools, "keep">,
    callerOf: (exchange: Exchange) => string,
    settle: Settle,
  ): Costing;
  /** For `counts`, with which instances with a reserve count. */
  readonly HeldCounts: NonNullable<ToolCode["HeldCounts"]>;
}

/** How the decisions of a limiter of costs are carried out. */
export interface Costing {
  readonly settle: Settle;
  /** Around what an admitted request gets. */
  readonly around: Middleware;
}

/** The code behind some of the `Tools`: the kinds that use them bring it, so that it is loaded with no other kind. */
export interface ToolCode {
  /** For `counters` and `limiterBy`. */
  readonly memoryCounters?: (clock: Clock, secret?: HashSecret) => MemoryCounters;
  /** For `count`. */
  readonly SharedCount?: new (threads: Threads, name: string) => ThreadCount;
  /** For `counts`. */
  readonly HeldCounts?: new (threads: Threads, name: string) => KeyCounts & Pick<ThreadCount, "clear">;
  /** For `verdicts`. */
  readonly SharedMemory?: new (maxBytes: number) => SharedMemory;
  /** For `client`. */
  readonly HttpClient?: new (options: HttpClientOptions) => Client;
  readonly verifyPassword?: Tools["verifyPassword"];
}

export interface KeptState {
  /** Must not throw. The closing gateway waits for its promise, for a second at most. */
  close(): void | Promise<void>;
}

/**
 * A plugin kind. `create` runs once per instance when a configuration is compiled; the function that it returns wraps
 * the rest of the chain.
 * A plugin refuses by returning a Reply (`problem(exchange.call, "forbidden")`) and throws only for faults, which
 * become a 500; `next` itself neither throws nor rejects. A plugin that only reads the request returns `next(exchange)`
 * without awaiting. A plugin that replaces a reply must discard the old one.
 */
export interface Plugin<S extends Schema<unknown> = Schema<unknown>> {
  /** The `name` in configurations; lower-case letters, digits and underscores. */
  readonly name: string;
  /** Describes `config`: validator, defaults and JSON Schema in one. */
  readonly schema: S;
  /** The same, where it has fields of features. */
  readonly schemaWith?: (field: FeatureField) => S;
  /**
   * CORS preflights reach it although the route does not list OPTIONS: it answers them, or passes them on deliberately.
   * Default: they get 405.
   */
  readonly takes?: "preflights";
  /** Whether it decides who may send requests: by credentials, address or otherwise. Default: false. */
  readonly guards?: boolean;
  /** Whether it sets `exchange.identity`, by which `rate_limit` can count. Default: false. */
  readonly identifies?: boolean;
  /**
   * Whether it stores replies to answer later requests. It runs after the last guard of its route, wherever it is
   * configured, so that only admitted clients get stored replies. A kind cannot both guard and store. Default: false.
   */
  readonly stores?: boolean;
  /**
   * The request headers that an instance with this configuration reads, sets or removes: upstreams get none of them as
   * trailers, and never one that the head has. Default: none.
   */
  readonly ownHeaders?: (config: Infer<S>) => readonly string[];
  /**
   * The query parameters and headers in which an instance with this configuration looks for credentials. Default: none.
   */
  readonly secretParameters?: (config: Infer<S>) => readonly string[];
  /** Which servers its instances ask with `tools.client`. A request to any other server fails. Default: none. */
  readonly dials?: Dials<S>;
  /**
   * The protected resource that an instance with this configuration describes to clients (RFC 9728), see
   * `resource_metadata.ts`. Of several on one route the innermost counts. Default: none.
   */
  readonly resource?: (config: Infer<S>) => ProtectedResource | undefined;
  /** The code behind the tools that its instances use. Default: of a built-in kind none, of others all. */
  readonly code?: ToolCode;
  create(config: Infer<S>, tools: Tools): Middleware;
}

/** A resource that is described to clients, and how. */
export interface ProtectedResource {
  /** Its address, as the configuration has it. */
  readonly resource: string;
  /** Of the address: host, with the port where it is not that of the scheme. */
  readonly authority: string;
  /** Where its metadata is: "/.well-known/oauth-protected-resource/mcp", without a slash at its end (RFC 9728 §3.1). */
  readonly path: string;
  /** Where clients look as well, if the host has no other resource. */
  readonly rootPath: string;
  /** Answers a request for its metadata. */
  readonly answer: (request: Pick<Exchange, "call" | "method" | "headers">) => Reply;
  /** Leads clients that were refused with this 401 or 403 to the metadata. */
  readonly challenged: (reply: Reply) => Reply;
}

export interface Dials<S extends Schema<unknown> = Schema<any>> {
  /** For `edge-gateway audit`: "jwks". */
  readonly why: string;
  /**
   * The URLs of the servers of an instance with this configuration, such as `https://…` and `redis://…`, others with a
   * port; of each, scheme, host and port count.
   */
  urls(config: Infer<S>): readonly string[];
}

/** A plugin kind with any configuration. */
export type AnyPlugin = Plugin<Schema<any>>;

/** One plugin instance of a route. */
export interface Link {
  readonly name: string;
  readonly scope: Scope;
  readonly middleware: Middleware;
  /**
   * Counts its requests, and its time: from when it gets a request until the next plugin or the upstream gets it, or
   * until it answers. Time spent on replies is not included; spans (`observe/trace.ts`) have it. Null: nobody can ask
   * for them.
   */
  readonly meter: PluginTime | null;
}

/** Called for every fault of a plugin, with the value that it threw. */
export type OnFault = (link: Link, call: Call, error: unknown) => void;

/**
 * What a plugin is, and how a route's plugins are folded into one handler. The built-in kinds are listed in `builtin.ts`.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { SharedMemory } from "../base/shared_memory.ts";
import type { Infer, Schema } from "../config/schema.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import type { Counters } from "../store/counters.ts";

/** Where an instance stands in the configuration. */
export interface Scope {
  readonly level: "global" | "service" | "route";
  /** Names the instance across reloads: level, service, route, and the plugin's id or its place among its kind. */
  readonly key: string;
  /** `id` of the instance in the configuration, or null. */
  readonly id: string | null;
  readonly service: string | null;
  readonly route: string | null;
}

/** What a plugin may use besides its configuration: all state comes from here, module scope holds constants only. */
export interface Tools {
  readonly clock: Clock;
  readonly log: Log;
  readonly counters: Counters;
  /** `global.name`. */
  readonly gatewayName: string;
  readonly scope: Scope;
  /**
   * What an instance holds beyond one configuration: connections, a queue, a cache. Gives what was made before under `name` as long as
   * the instance stays (see `scope.key`) and `settings` are the same as JSON, else what `make` gives; what no configuration in force
   * holds any more is closed, and so is everything at the end of the gateway.
   */
  keep<T extends KeptState>(name: string, settings: unknown, make: () => T): T;
  /**
   * Memory for what is expensive to find out again, such as a signature that was right: one bound of bytes for all instances of a gateway.
   * To be used by `keep("verdicts", config, () => verdicts.part())`, so that it is given back.
   */
  readonly verdicts: SharedMemory;
}

export interface KeptState {
  /** Must not throw. The end of the gateway waits for its promise, for a second at most. */
  close(): void | Promise<void>;
}

/**
 * A plugin kind. `create` runs once per instance when a configuration is compiled; the function it returns wraps the rest of the
 * chain. A plugin refuses by returning a Reply (`problem(exchange.call, "forbidden")`) and throws only for faults, which become
 * a 500 there: `next` itself neither throws nor rejects. One that only looks at the request returns `next(exchange)` without awaiting. A
 * plugin that replaces a Reply must discard the old one.
 */
export interface Plugin<S extends Schema<unknown> = Schema<unknown>> {
  /** The `name` by which configurations ask for it; lower-case letters, digits and underscores. */
  readonly name: string;
  /** Describes `config`: validator, defaults and JSON Schema in one. */
  readonly schema: S;
  /**
   * "cors" preflights are let through to it although the route does not list OPTIONS: whoever says so answers them, or lets them pass on
   * purpose. Default: they get 405.
   */
  readonly takes?: "preflights";
  /** Whether it decides who may ask: by credentials, address or whatever else. Default: it does not. */
  readonly guards?: boolean;
  /**
   * Whether it stores replies and answers others from them. Wherever an instance is written, it runs behind the last guard of its route, so
   * that nobody whom a guard has not admitted is answered from memory. A kind cannot guard and store. Default: it does not.
   */
  readonly stores?: boolean;
  create(config: Infer<S>, tools: Tools): Middleware;
}

/** A plugin kind whatever its configuration: what lists of kinds hold. */
export type AnyPlugin = Plugin<Schema<any>>;

/** Checks nothing at run time: gives `create` its config type from the schema. */
export function definePlugin<S extends Schema<unknown>>(plugin: Plugin<S>): Plugin<S> {
  return plugin;
}

/** The enabled instances of a route in the order in which they run: as written, but those that store replies behind the last guard. */
export function runningOrder<T extends { readonly kind: Pick<AnyPlugin, "guards" | "stores"> }>(written: readonly T[]): readonly T[] {
  const behind = written.findLastIndex(({ kind }) => kind.guards) + 1;
  const stores = written.slice(0, behind).filter(({ kind }) => kind.stores);
  return stores.length === 0 ? written : [...written.slice(0, behind).filter(({ kind }) => !kind.stores), ...stores, ...written.slice(behind)];
}

/** Folds middlewares around a handler: the first one in the list sees the request first and the reply last. */
export function fold(middlewares: readonly Middleware[], innermost: Handler): Handler {
  return middlewares.reduceRight((next, wrap) => wrap(next), innermost);
}

/**
 * The contract of rate counters: limits in, decisions out.
 */

import type { Period } from "../base/calendar.ts";

export interface Window {
  readonly name: string;
  /** Most requests admitted in any interval of `ms`. Integer ≥ 1. */
  readonly limit: number;
  /** Length of the window in milliseconds. */
  readonly ms: number;
}

export interface LimiterOptions {
  readonly windows: readonly Window[];
  /**
   * How many callers are remembered in memory; beyond that, some who have used little are forgotten, or new ones share
   * one allowance.
   */
  readonly maxCallers: number;
  /** How many callers there can be, where that is known: threads reserve memory for no more. Default: `maxCallers`. */
  readonly callers?: number | undefined;
  /** "memory": counts in this process, whatever `global.counters` says. Default: as `global.counters` says. */
  readonly counters?: "memory" | undefined;
}

/** The answer for one request. Windows stand in the order of the options. */
export interface Decision {
  readonly admitted: boolean;
  /** Requests left in each window after this one. */
  readonly remaining: readonly number[];
  /** Milliseconds until each window gives back at least one request; 0 when it is untouched. */
  readonly resetMs: readonly number[];
  /** Milliseconds until the same request would be admitted; 0 when this one was, or when others may end before. */
  readonly retryMs: number;
  /**
   * Of an admitted request of a limiter with a reserve: books its cost, and gives back what it holds. To be called
   * once, in place of `book`.
   */
  readonly reservation?: (cost: number) => void;
}

/** The server that counts did not answer, and `on_error` is "allow" or "deny". */
export type Undecided = "allow" | "deny";

export interface Limiter {
  /**
   * Counts one request of `caller` if every window admits it; a refused request consumes nothing. A decision that is
   * returned at once is valid until the limiter is next asked; one that was promised stays valid. The promise never
   * rejects.
   */
  decide(caller: string): Decision | Promise<Decision | Undecided>;
}

/** Admits while anything is left, and counts nothing until a cost is booked. */
export interface CostedLimiter extends Limiter {
  /** Counts a cost, a whole number, whatever is left. */
  book(caller: string, cost: number): void;
}

/** One in the memory of this program. */
export interface LocalCosted extends CostedLimiter {
  decide(caller: string): Decision;
}

/** Counters that gateways share, for limiters of further kinds. `local` counts while their server does not. */
export interface SharedCosts {
  /** Of sliding windows. */
  costed(key: string, windows: readonly Window[], local: LocalCosted, reserve: number): CostedLimiter;
  /** Of calendar periods. */
  quota(key: string, options: SharedQuota, local: LocalCosted): CostedLimiter;
}

export interface SharedQuota {
  readonly limit: number;
  /** Whether `decide` leaves the counting to `book`. */
  readonly isCosted: boolean;
  /** What each request in progress holds of the limit; 0: nothing. */
  readonly reserve: number;
  /** The period that has begun. */
  readonly period: () => Period;
}

/**
 * Gives the memory that all threads of the program share by a name: `known`, or what there is already, or new memory of
 * so many bytes, all zero; null: new memory, as the known one is too small. Throws in a worker for a name that the main
 * thread has not asked for.
 */
export type GiveMemory = (name: string, bytes: number, known: ArrayBufferLike | null | undefined) => ArrayBufferLike;

export interface Counters {
  /**
   * The limiter of one plugin instance. The same key after a reload gives a limiter that keeps the admissions counted
   * so far, also when its windows have changed.
   */
  limiter(key: string, options: LimiterOptions): Limiter;
}

export interface LocalLimiter extends Limiter {
  decide(caller: string): Decision;
}

/** Secrets that gateways share. */
export interface GatewaySecrets {
  /**
   * Resolves with the 32 bytes of a name: random ones, which the first gateway has made that asked; null: the server
   * does not answer. Never rejects.
   */
  secret(name: string): Promise<Buffer | null>;
  readonly report: Pick<CountersReport, "onError">;
}

/** Counters that gateways share. */
export interface GatewayCounters extends Counters, SharedCosts, GatewaySecrets {
  readonly report: CountersReport;
  /** What the workers of a program know together. */
  readonly shared: { forget(place: number): void };
  limiter(key: string, options: LimiterOptions, memory?: GiveMemory): Limiter;
  /** Connects to their server. */
  start(): void;
}

/** The state of the counters, as `GET /gateway/status` shows it. */
export interface CountersReport {
  readonly store: "redis";
  /** "down": at least one server that is needed cannot be used; its callers are counted as `onError` says. */
  readonly state: "connecting" | "up" | "down";
  readonly onError: "local" | Undecided;
  /** When the state began, in milliseconds since 1970. */
  readonly since: number;
  readonly servers: readonly { readonly address: string; readonly state: string; readonly reason: string | null }[];
}

/**
 * The contract of rate counters: limits in, decisions out.
 */

export interface Window {
  readonly name: string;
  /** Most requests admitted in any interval of `ms`. Integer ≥ 1. */
  readonly limit: number;
  /** Length of the window in milliseconds. */
  readonly ms: number;
}

export interface LimiterOptions {
  readonly windows: readonly Window[];
  /** How many callers are remembered; beyond that, some who have used little are forgotten, or new ones share one allowance. */
  readonly maxCallers: number;
}

/** The answer for one request. Windows stand in the order of the options. Valid until the limiter is next asked. */
export interface Decision {
  readonly admitted: boolean;
  /** Requests left in each window after this one. */
  readonly remaining: readonly number[];
  /** Milliseconds until each window gives back at least one request; 0 when it is untouched. */
  readonly resetMs: readonly number[];
  /** Milliseconds until the same request would be admitted; 0 when this one was. */
  readonly retryMs: number;
}

export interface Limiter {
  /** Counts one request of `caller` if every window admits it; a refused request consumes nothing. */
  decide(caller: string): Decision | Promise<Decision>;
}

export interface Counters {
  /**
   * The limiter of one plugin instance. The same key after a reload gives a limiter that keeps the admissions counted so far, also when
   * its windows have changed.
   */
  limiter(key: string, options: LimiterOptions): Limiter;
}

/**
 * The contract of rate counters in the memory of the program: a table of callers for each limiter.
 */
import type { PeriodName } from "../base/calendar.ts";
import type { CallerShard } from "./callers.ts";
import type { Counters, GiveMemory, LimiterOptions, LocalLimiter } from "./counters.ts";

/** The callers of one limiter. */
export interface CallerTable {
  /** Independent tables, each of which has some of the callers. */
  readonly shards: readonly CallerShard[];
  /** Callers that are remembered. */
  readonly size: number;
  /** Begins a turn in the shard of a caller, which ends it. */
  enter(name: string): CallerShard;
}

/**
 * Two numbers of 32 bits. A client that knew them could choose colliding names, to slow look-ups or to use up another
 * caller's limit.
 */
export type HashSecret = readonly [number, number];

/** Rate counters in the memory of this program. */
export interface MemoryCounters extends Counters {
  readonly all: ReadonlyMap<string, CallerTable>;
  /** Limiters of one key share its callers, whatever their windows. */
  limiter(key: string, options: LimiterOptions, memory?: GiveMemory): LocalLimiter;
  /** Forgets limiters that no configuration has once their windows have run out. */
  retire(keysInUse: ReadonlySet<string>): void;
  /** Those of a configuration that does not come into force. Until then, or until `retire` has them, they stay. */
  abandon(keys: ReadonlySet<string>): void;
  close(): void;
  /** The callers of each limiter, and how many decisions were made for callers without a place of their own. */
  tables(): Iterable<readonly [key: string, numbers: { readonly callers: number; readonly shared: number }]>;
  /** In memory that threads share: a configuration comes into force with it. */
  apply?(memory: ReadonlyMap<string, ArrayBufferLike>): void;
  /** The same: a thread has ended. */
  repair?(dead: number): void;
}

/** The tables of quotas that are kept in files. */
export interface QuotaTables {
  /** Of the hashes of callers. */
  readonly secret: HashSecret;
  /** Keeps a table. One that nobody uses yet gets the counts of before. */
  keep(key: string, table: CallerTable, options: QuotaTableOptions): void;
}

/** See `QuotaOptions`. */
export interface QuotaTableOptions {
  readonly per: PeriodName;
  readonly maxCallers: number;
  readonly callers?: number | undefined;
}

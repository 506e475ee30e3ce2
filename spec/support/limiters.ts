import type { MemoryCounters } from "../../lib/store/caller_tables.ts";

/** How much the counters remember now. */
export function sizeOf(counters: Pick<MemoryCounters, "tables">): {
  readonly limiters: number;
  readonly callers: number;
} {
  const tables = [...counters.tables()];
  return { limiters: tables.length, callers: tables.reduce((sum, [, { callers }]) => sum + callers, 0) };
}

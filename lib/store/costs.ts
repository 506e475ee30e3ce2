/**
 * Limiters for requests whose cost is known when their replies end: they admit while anything is left, and the cost is
 * booked later. What a limiter is overdrawn by is carried.
 */
import type { Clock } from "../base/clock.ts";
import { LAST, LIFE, NEXT, OVERFLOW, SHARED, USED, WINDOWS } from "./cells.ts";
import type { CallerShard } from "./callers.ts";
import type { QuotaTables } from "./caller_tables.ts";
import type { CostedLimiter, Decision, GiveMemory, LimiterOptions } from "./counters.ts";
import type { MemoryCounters } from "./caller_tables.ts";
import type { LocalCosted, SharedCosts } from "./counters.ts";
import { MemoryLimiter } from "./memory.ts";
import { reserving, type Reserve } from "./reserved.ts";

/** What limiters of further kinds are made with, see `Tools.limiterBy`. */
export interface LimiterTools {
  readonly clock: Clock;
  /** Counts in the memory of this program. */
  readonly local: MemoryCounters;
  /** Null: counts are not shared with other gateways. */
  readonly shared: SharedCosts | null;
  /** Null: counts are not kept in files. */
  readonly quotas: QuotaTables | null;
  readonly memory: GiveMemory | undefined;
}

/** A limiter of sliding windows. */
export function costedLimiter(
  { clock, local, shared, memory }: LimiterTools,
  key: string,
  options: LimiterOptions,
  reserve?: Reserve,
): CostedLimiter {
  // Makes the table of the callers.
  local.limiter(key, options, memory);
  const limiter = reserving(new CostedMemoryLimiter(clock, local.all.get(key)!, options), key, reserve);
  if (options.counters === "memory" || shared === null) return limiter;
  return shared.costed(key, options.windows, limiter, reserve?.amount ?? 0);
}

export class CostedMemoryLimiter extends MemoryLimiter implements LocalCosted {
  override decide(name: string): Decision {
    const callers = this.table.enter(name);
    try {
      this.look(callers, callers.find(), this.clock.now());
    } finally {
      callers.leave();
    }
    return this.decision;
  }

  book(name: string, cost: number): void {
    const callers = this.table.enter(name);
    try {
      const now = this.clock.now();
      callers.makeRoom(now, this.plan);
      const caller = callers.find();
      this.look(callers, caller, now);
      if (this.admit(callers, caller, now, cost) === OVERFLOW) callers.numbers[SHARED]!++;
    } finally {
      callers.leave();
    }
  }

  /**
   * The newest admissions up to the limit decide what is to come: the older ones are dropped, and an overdraft is
   * carried all the same.
   */
  protected override record(callers: CallerShard, caller: number, now: number, cost: number): void {
    const { windows, batches, life } = this.plan;
    callers.words[caller + LIFE] = life;
    callers.numbers[caller / 2 + LAST] = now;
    let isOver = false;
    let window = callers.words[caller + WINDOWS]!;
    for (let w = 0; w < windows.length; w++) {
      const { limit } = windows[w]!;
      const batch = batches[w]!;
      const used = () => callers.numbers[window / 2 + USED]!;
      for (let left = Math.min(cost, limit); left > 0;) {
        const part = Math.min(left, batch - (used() % batch));
        callers.count(window, now, part);
        left -= part;
        // Drops one mark.
        if (used() - batch >= limit) callers.expire(window, now, Infinity);
      }
      isOver ||= used() > limit;
      window = callers.words[window + NEXT]!;
    }
    if (isOver) callers.convert(caller, this.plan);
  }
}

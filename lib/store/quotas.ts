/**
 * Limiters for calendar periods: a caller has its limit anew at the start of each day, week or month. Its count is kept
 * in the table of rate limits, as one mark, whose time is the number of the period.
 */
import type { Clock } from "../base/clock.ts";
import { calendar, type Period, type PeriodName } from "../base/calendar.ts";
import { BATCH, FIRST, LAST, LIFE, MARKS, CALLER_NAME, USED, WINDOWS } from "./cells.ts";
import type { CallerShard } from "./callers.ts";
import { CostedMemoryLimiter, type LimiterTools } from "./costs.ts";
import type { CallerTable, QuotaTableOptions } from "./caller_tables.ts";
import type { CostedLimiter, Decision, LimiterOptions } from "./counters.ts";
import { planOf } from "./marks.ts";
import { MemoryLimiter } from "./memory.ts";
import { reserving, type Reserve } from "./reserved.ts";

/** `maxCallers` and `callers`: see `LimiterOptions`. */
export interface QuotaOptions extends QuotaTableOptions {
  /** Requests, or costs, in a period. */
  readonly limit: number;
  /** A time zone of the IANA database. */
  readonly timeZone: string;
  /** Whether `decide` leaves the counting to `book`. */
  readonly isCosted: boolean;
}

/** More than any count: all of it is one mark. */
const MOST = 2 ** 52;
/** How long a caller without requests is remembered: an overdraft counts in the next period. */
export const LIFE_S: Readonly<Record<PeriodName, number>> = { day: 2 * 86_400, week: 14 * 86_400, month: 62 * 86_400 };

/** What the table of a quota's callers needs to know. */
export function tableOptions({ per, maxCallers, callers }: QuotaTableOptions): LimiterOptions {
  return { windows: [{ name: per, limit: 1, ms: 1000 * LIFE_S[per] }], maxCallers, callers };
}

/** With another period than before, callers begin anew. */
export function quotaLimiter(
  { clock, local, shared, memory, quotas }: LimiterTools,
  key: string,
  options: QuotaOptions,
  reserve?: Reserve,
): CostedLimiter {
  const periodAt = calendar(options.per, options.timeZone);
  const table = tableOptions(options);
  local.limiter(key, table, memory);
  const callers = local.all.get(key)!;
  if (shared === null) quotas?.keep(key, callers, options);
  const counting = new QuotaLimiter(clock, callers, table, { ...options, periodAt });
  const limiter = reserving(counting, key, reserve);
  if (shared === null) return limiter;
  const { limit, isCosted } = options;
  const inServer = { limit, isCosted, reserve: reserve?.amount ?? 0, period: () => counting.period };
  // There a count has no period of its own: the number of a month, read as that of a day, would lie decades ahead.
  return shared.quota(`${key} ${options.per}`, inServer, limiter);
}

interface PeriodOptions extends QuotaOptions {
  readonly periodAt: (now: number) => Period;
}

export class QuotaLimiter extends CostedMemoryLimiter {
  readonly #options: PeriodOptions;

  constructor(clock: Clock, table: CallerTable, options: LimiterOptions, quota: PeriodOptions) {
    super(clock, table, options, planOfQuota(options));
    this.#options = quota;
  }

  /** The one that has begun. */
  get period(): Period {
    return this.#options.periodAt(this.clock.wall());
  }

  override decide(name: string): Decision {
    return this.#options.isCosted ? super.decide(name) : MemoryLimiter.prototype.decide.call(this, name);
  }

  protected override share(): number {
    return 1 - this.decision.remaining[0]! / this.#options.limit;
  }

  /** Begins the period that it is now, if it is a new one for the caller, and fills in the decision. */
  protected override look(callers: CallerShard, caller: number): void {
    const { limit } = this.#options;
    const { number, end } = this.period;
    let window = callers.words[caller + WINDOWS]!;
    if (
      window === 0 ||
      callers.words[window + CALLER_NAME] !== this.plan.names[0] ||
      callers.numbers[window / 2 + BATCH] !== MOST
    ) {
      callers.convert(caller, this.plan);
      window = callers.words[caller + WINDOWS]!;
    }
    const { numbers } = callers;
    const mark = markOf(callers, window);
    let used = numbers[window / 2 + USED]!;
    const passed = number - numbers[mark]!;
    // One period ahead is one that the clock has just gone back from: it goes on. A clock that was wrong by more costs
    // nobody the next periods.
    if (used > 0 && passed !== 0 && passed !== -1) {
      if (passed > 0) numbers[window / 2 + USED] = used = Math.max(0, used - passed * limit);
      numbers[mark] = number;
    }
    const { decision } = this;
    decision.admitted = used < limit;
    decision.remaining[0] = Math.max(0, limit - used);
    decision.resetMs[0] = end - this.clock.wall();
    decision.retryMs = decision.admitted ? 0 : decision.resetMs[0];
  }

  protected override record(callers: CallerShard, caller: number, now: number, cost: number): void {
    callers.words[caller + LIFE] = this.plan.life;
    callers.numbers[caller / 2 + LAST] = now;
    const window = callers.words[caller + WINDOWS]!;
    const used = callers.numbers[window / 2 + USED]!;
    const { number } = this.period;
    callers.count(
      window,
      used === 0 ? number : Math.max(number, callers.numbers[markOf(callers, window)]!),
      Math.min(cost, MOST - 1 - used),
    );
    this.decision.remaining[0] = Math.max(0, this.#options.limit - used - cost);
  }
}

/** The only mark of a quota's window: where its time is. */
export function markOf(callers: CallerShard, window: number): number {
  return callers.words[window + FIRST]! / 2 + MARKS;
}

/** The limit is the limiter's own: what has been counted is never cut to it. */
export function planOfQuota(options: LimiterOptions) {
  const plan = planOf(options);
  return { ...plan, windows: plan.windows.map((window) => ({ ...window, limit: MOST })), batches: [MOST] };
}

/**
 * Counts and times requests and tries under the names of the configuration, of the last minute and since the start: a
 * few additions per request, without an allocation once its kind of request has been seen.
 */
import { METHODS } from "../base/http_grammar.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { CacheResult, Call, Meter, Notes } from "../http/exchange.ts";

/** Other methods are counted together: clients can invent them. */
const METHOD_INDEX = new Map(METHODS.map((method, i) => [method, i]));
/** Above every status. */
const SPAN = 1_000;
const HIGHEST_STATUS = 599;
/** Plugins of an embedder may have error codes of their own, in any number. */
export const MAX_CODES = 64;

/** The requests of one route. */
export class RouteMeter implements Meter {
  readonly recent: Recent;
  rateLimited = 0;
  /** Requests of this route that are not over. */
  inFlight = 0;
  /** Bytes of bodies, as in the access log. */
  receivedBytes = 0;
  sentBytes = 0;
  /**
   * Requests that reached a cache, by result. Null, like the maps below, while empty: most routes of a large
   * configuration are quiet.
   */
  cached: Map<CacheResult, number> | null = null;
  /** Requests refused by plugins, by error code. */
  refusals: Map<string, number> | null = null;
  #requests: Map<number, number> | null = null;
  readonly #total: Total;

  /** `total` counts the requests of all routes. */
  constructor(steps: StepCounter = { current: 0 }, total = new Total(steps)) {
    this.recent = new Recent(steps);
    this.#total = total;
  }

  ended(method: string, notes: Notes, ms: number): void {
    const { status, code, received, sent, cache, isTimed } = notes;
    if (received !== null) this.receivedBytes += received;
    if (sent !== null) this.sentBytes += sent;
    if (cache !== null) increase((this.cached ??= new Map<CacheResult, number>()), cache, 1);
    if (notes.meter === this) this.inFlight--;
    const isError = status !== null && status >= 500;
    const isLimited = code === "rate_limited";
    if (isLimited) this.rateLimited++;
    // WebSockets and event streams last as long as people keep them open, which would hide how long requests take.
    const timed = status === 101 || !isTimed ? null : ms;
    this.recent.count(isError, isLimited, timed, status);
    this.#total.count(isError, isLimited, timed, status);
    const bounded = status === null ? 0 : status > HIGHEST_STATUS ? HIGHEST_STATUS + 1 : status;
    const key = (METHOD_INDEX.get(method) ?? METHODS.length) * SPAN + bounded;
    increase((this.#requests ??= new Map<number, number>()), key, 1);
    if (code === null) return;
    increase(this.#total.codes, code, 1, MAX_CODES);
    if (notes.route === null || notes.attempts > 0 || code === "internal") return;
    if (ERRORS[code as ErrorCode]?.side !== "upstream")
      increase((this.refusals ??= new Map<string, number>()), code, 1, MAX_CODES);
  }

  /** Counts by method and status. */
  *requests(): Iterable<readonly [method: string, code: string, count: number]> {
    for (const [key, requests] of this.#requests ?? []) {
      const status = key % SPAN;
      const code = status === 0 ? "none" : status > HIGHEST_STATUS ? "other" : String(status);
      yield [METHODS[Math.floor(key / SPAN)] ?? "other", code, requests];
    }
  }

  /** Moves all counts into a report. */
  take() {
    const { inFlight, rateLimited, receivedBytes, sentBytes, cached, refusals } = this;
    const report = {
      recent: this.recent.take(),
      inFlight,
      rateLimited,
      receivedBytes,
      sentBytes,
      requests: this.#requests,
      cached,
      refusals,
    };
    this.receivedBytes = this.sentBytes = this.rateLimited = 0;
    this.#requests = this.cached = this.refusals = null;
    return report;
  }

  /** Adds the counts of a report, as if these requests ended now; but to the total, which reports have themselves. */
  add({ recent, rateLimited, receivedBytes, sentBytes, requests, cached, refusals }: RouteReport): void {
    this.recent.addCounts(recent);
    this.rateLimited += rateLimited;
    this.receivedBytes += receivedBytes;
    this.sentBytes += sentBytes;
    for (const [key, count] of requests ?? []) increase((this.#requests ??= new Map<number, number>()), key, count);
    for (const [result, count] of cached ?? [])
      increase((this.cached ??= new Map<CacheResult, number>()), result, count);
    for (const [code, count] of refusals ?? [])
      increase((this.refusals ??= new Map<string, number>()), code, count, MAX_CODES);
  }
}

export type RouteReport = ReturnType<RouteMeter["take"]>;

/** `most`: how many keys have counts of their own; further ones are counted as "other". */
export function increase<Key>(counts: Map<Key, number>, key: Key, by: number, most = Infinity): void {
  const before = counts.get(key);
  if (before === undefined && counts.size >= most) return increase(counts as Map<Key | "other", number>, "other", by);
  counts.set(key, (before ?? 0) + by);
}

/** The name of endpoints of a service that have no figures of their own: see `Peer.label`. */
const OTHERS = "other";

/** The tries of one service's upstreams. */
export class ServiceMeter {
  retries = 0;
  readonly upstreams = new Map<string, Recent>();

  /** `status`: null without a response; `call`: its attempt is still the current one. */
  tried(upstream: string, ms: number, status: number | null, call?: Call): void {
    if (call !== undefined) {
      const { askedAt: from, tried: before } = call.notes;
      call.notes.tried = { upstream, status, from: from!, ms, before };
    }
    if (call?.aborted) return;
    (this.upstreams.get(upstream) ?? this.upstreams.get(OTHERS))?.count(status === null || status >= 500, false, ms);
  }

  /** The tries of endpoints that have no figures of their own. */
  others(steps: StepCounter): Recent {
    const others = this.upstreams.get(OTHERS) ?? new Recent(steps);
    this.upstreams.set(OTHERS, others);
    return others;
  }

  retried(): void {
    this.retries++;
  }
}

/** Steps in the window, the current one included. */
export const WINDOW_STEPS = 12;

/** The number of the current step; shared by all counters. */
export interface StepCounter {
  current: number;
}

/**
 * Places of counts: classes of statuses without the refusals that operators look for, and each of these. The first:
 * neither.
 */
export const STATUSES = ["", "2xx", "3xx", "4xx", "5xx", "401", "403", "404"] as const;
const STATUS_PLACES = Uint8Array.from({ length: SPAN }, (_, status) => {
  const alone = STATUSES.findIndex((name) => name === String(status));
  return alone >= 0
    ? alone
    : Math.max(
        0,
        STATUSES.findIndex((name) => name === `${Math.floor(status / 100)}xx`),
      );
});

/** Upper bounds of Prometheus' buckets in seconds; a bound is within its bucket, and longer times are in +Inf. */
export const DURATION_BUCKETS: readonly number[] = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

/** In milliseconds; 24 doublings end at 17 min. */
const SHORTEST_MS = 2 ** -4;
const LONGEST_MS = 2 ** 20;
const EIGHTHS = Array.from({ length: 24 * 8 }, (_, i) => SHORTEST_MS * 2 ** Math.floor(i / 8) * (1 + (i % 8) / 8));

/**
 * The lower bounds of the buckets in milliseconds: the eighths of each doubling, so that the middle of a bucket is at
 * most 6.25 % away from any time in it, and one directly above each bound of Prometheus, whose buckets are exact sums
 * of these.
 */
const LOWER = Float64Array.from([
  ...EIGHTHS,
  ...DURATION_BUCKETS.map((seconds) => seconds * 1000 * (1 + Number.EPSILON)),
]).sort();

/** Prometheus' bucket that contains each bucket. */
const COARSE = Array.from(LOWER, (lower) => DURATION_BUCKETS.filter((seconds) => seconds * 1000 < lower).length);
/** The middle of each bucket to three digits: more would suggest a precision that is not there. */
const MIDDLES = Array.from(LOWER, (lower, i) => Number(((lower + (LOWER[i + 1] ?? LONGEST_MS)) / 2).toPrecision(3)));

/** The last bucket that begins at or below `ms`; shorter times are in the first one. */
function bucketOf(ms: number): number {
  let from = 0;
  let to = LOWER.length - 1;
  while (from < to) {
    const middle = (from + to + 1) >>> 1;
    if (LOWER[middle]! <= ms) from = middle;
    else to = middle - 1;
  }
  return from;
}

/**
 * Indexes of counters; from `STATUS` on one for each of `STATUSES`, exclusive, and from `TIME` on one for each bucket.
 */
const REQUESTS = 0;
const FAILED = 1;
const LIMITED = 2;
const STATUS = 3;
const TIME = STATUS + STATUSES.length;
const COUNTERS = TIME + LOWER.length;

/** Indexes and counts in turn, without the zeros: a route's times seldom lie far apart. */
type Counted = readonly number[];

/** Counts and times of requests or tries. */
export class Counts {
  /** Null while there are none: most routes of a large configuration are quiet. */
  protected counters: Uint32Array | null = null;

  get requests(): number {
    return this.counters?.[REQUESTS] ?? 0;
  }

  get errors(): number {
    return this.counters?.[FAILED] ?? 0;
  }

  get limited(): number {
    return this.counters?.[LIMITED] ?? 0;
  }

  /** `place`: in `STATUSES`. */
  status(place: number): number {
    return this.counters?.[STATUS + place] ?? 0;
  }

  add(counted: Counted): void {
    if (counted.length === 0) return;
    const counters = (this.counters ??= new Uint32Array(COUNTERS));
    for (let i = 0; i < counted.length; i += 2) counters[counted[i]!]! += counted[i + 1]!;
  }

  addAll({ counters }: Counts): void {
    if (counters === null) return;
    const sums = (this.counters ??= new Uint32Array(COUNTERS));
    for (let i = 0; i < counters.length; i++) sums[i]! += counters[i]!;
  }

  /**
   * The time that a share of all (0.99: 99 in 100) did not exceed, in milliseconds, within 6.25 %; null when nothing
   * was timed.
   */
  quantile(share: number): number | null {
    const { counters } = this;
    let timed = 0;
    if (counters !== null) for (let i = TIME; i < COUNTERS; i++) timed += counters[i]!;
    if (timed === 0) return null;
    let left = Math.max(1, Math.ceil(share * timed));
    let bucket = 0;
    while ((left -= counters![TIME + bucket]!) > 0) bucket++;
    return MIDDLES[bucket]!;
  }
}

export interface ReportedCounts {
  readonly sumMs: number;
  readonly counted: Counted;
}

/**
 * The counts of one route or upstream: in the current step (as `Counts`), in the earlier steps of the window, and since
 * the start.
 */
export class Recent extends Counts {
  /** Sum of all times since the start, in milliseconds. */
  sumMs = 0;
  readonly #steps: StepCounter;
  /** The end of a step costs nothing: this is compared at the next count or reading. */
  #step: number;
  /** Earlier steps of the window with requests, oldest first. */
  #past: { readonly step: number; readonly counted: Counted }[] = [];
  /** Times before the current step, as in `counts`. */
  #countsBefore: readonly number[] | null = null;

  constructor(steps: StepCounter = { current: 0 }) {
    super();
    this.#steps = steps;
    this.#step = steps.current;
  }

  /** `ms`: how long it took; null: not timed. `status`: null where statuses are not counted, or there was none. */
  count(isError: boolean, isLimited: boolean, ms: number | null, status: number | null = null): void {
    this.#endStep();
    const counters = (this.counters ??= new Uint32Array(COUNTERS));
    counters[REQUESTS]!++;
    if (isError) counters[FAILED]!++;
    if (isLimited) counters[LIMITED]!++;
    counters[STATUS + STATUS_PLACES[status ?? 0]!]!++;
    if (ms === null) return;
    this.sumMs += ms;
    counters[TIME + bucketOf(ms)]!++;
  }

  /** Moves the counts into a report: those of the current step, since a thread that reports does not end steps. */
  take(): ReportedCounts {
    const report = { sumMs: this.sumMs, counted: this.#counted() };
    // Without a request since the last report it may be quiet for long.
    if (this.requests === 0) this.counters = null;
    this.counters?.fill(0);
    this.sumMs = 0;
    return report;
  }

  /** Adds the counts of a report to the current step. */
  addCounts({ sumMs, counted }: ReportedCounts): void {
    this.#endStep();
    this.add(counted);
    this.sumMs += sumMs;
  }

  /** Counts of all times since the start by Prometheus' buckets, the last one +Inf; null while nothing was timed. */
  get counts(): readonly number[] | null {
    return this.requests === 0 ? this.#countsBefore : withTimes(this.#countsBefore, this.#counted());
  }

  /** Whether anything was counted in the window. */
  get isActive(): boolean {
    this.#endStep();
    return this.requests > 0 || this.#past.length > 0;
  }

  /** Adds the counts of the window, or of the current step alone, to `sum`. */
  addTo(sum: Counts, which: "window" | "step"): void {
    if (!this.isActive) return;
    sum.add(this.#counted());
    if (which === "window") for (const { counted } of this.#past) sum.add(counted);
  }

  #counted(): readonly number[] {
    const counted: number[] = [];
    const { counters } = this;
    if (counters !== null)
      for (let i = 0; i < counters.length; i++) if (counters[i] !== 0) counted.push(i, counters[i]!);
    return counted;
  }

  /** Ends the step of the last count, if it is over. */
  #endStep(): void {
    if (this.#step === this.#steps.current) return;
    const first = this.#steps.current - WINDOW_STEPS + 1;
    if (this.requests > 0) {
      const counted = this.#counted();
      this.#countsBefore = withTimes(this.#countsBefore, counted);
      this.#past.push({ step: this.#step, counted });
      this.counters!.fill(0);
    }
    while (this.#past.length > 0 && this.#past[0]!.step < first) this.#past.shift();
    if (this.#past.length === 0) this.counters = null;
    this.#step = this.#steps.current;
  }
}

/** The counts of all requests. */
export class Total extends Recent {
  /** Requests that ended with an error of the gateway, by its code, since the start. */
  readonly codes = new Map<string, number>();
}

/** `counts`, Prometheus' buckets, with these times added to them. Null where there is nothing. */
function withTimes(counts: readonly number[] | null, counted: Counted): readonly number[] | null {
  let sums: number[] | null = null;
  for (let i = 0; i < counted.length; i += 2) {
    if (counted[i]! < TIME) continue;
    sums ??= counts?.slice() ?? new Array<number>(DURATION_BUCKETS.length + 1).fill(0);
    sums[COARSE[counted[i]! - TIME]!]! += counted[i + 1]!;
  }
  return sums ?? counts;
}

/**
 * Counts and times requests and tries under the names of the configuration, of the last minute and since the start: a few additions per
 * request, without an allocation once its kind of request has been seen.
 */
import { METHODS } from "../base/http_grammar.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { CacheResult, Meter, Notes } from "../http/exchange.ts";
import type { ReportReader, ReportWriter } from "./report.ts";
import { BUCKETS, COARSE, FIRST_PLACE, MIDDLES, PLACES, SHIFT, SPLITS, TIME_BUCKETS, UNSPLIT } from "./time_buckets.ts";

/** Other methods are counted together: clients can invent them. */
const METHOD_INDEX = new Map(METHODS.map((method, i) => [method, i]));
/** Above every status. */
const SPAN = 1_000;
const HIGHEST_STATUS = 599;
/** Plugins of an embedder may have error codes of their own, in any number. */
const MOST_CODES = 64;

/** The requests of one route. */
export class RouteMeter implements Meter {
  readonly recent: Recent;
  rateLimited = 0;
  /** Requests of this route that are not over. */
  inFlight = 0;
  /** Bytes of bodies, as in the access log. */
  receivedBytes = 0;
  sentBytes = 0;
  /** Requests that reached a cache, by result. Null, like the maps below, while empty: most routes of a large configuration are quiet. */
  cached: Map<CacheResult, number> | null = null;
  /** Requests refused by plugins, by error code. */
  refusals: Map<string, number> | null = null;
  #requests: Map<number, { requests: number }> | null = null;
  readonly #total: Recent;

  /** `total` counts the requests of all routes. */
  constructor(steps: StepCounter = { current: 0 }, total = new Recent(steps)) {
    this.recent = new Recent(steps);
    this.#total = total;
  }

  ended(method: string, notes: Notes, ms: number): void {
    const { status, code, received, sent, cache } = notes;
    if (received !== null) this.receivedBytes += received;
    if (sent !== null) this.sentBytes += sent;
    if (cache !== null) increase((this.cached ??= new Map<CacheResult, number>()), cache, 1);
    if (notes.meter === this) this.inFlight--;
    const isError = status !== null && status >= 500;
    const isLimited = code === "rate_limited";
    if (isLimited) this.rateLimited++;
    // A WebSocket lasts as long as people keep it open, which would hide how long requests take.
    const timed = status === 101 ? null : ms;
    this.recent.count(isError, isLimited, timed, status);
    this.#total.count(isError, isLimited, timed, status);
    const bounded = status === null ? 0 : status > HIGHEST_STATUS ? HIGHEST_STATUS + 1 : status;
    const key = (METHOD_INDEX.get(method) ?? METHODS.length) * SPAN + bounded;
    const counted = this.#requests?.get(key);
    if (counted !== undefined) counted.requests++;
    else (this.#requests ??= new Map<number, { requests: number }>()).set(key, { requests: 1 });
    if (code !== null) this.#failed(code, notes);
  }

  /** Counts by method and status. */
  *requests(): Iterable<readonly [method: string, code: string, count: number]> {
    for (const [key, { requests }] of this.#requests ?? []) {
      const status = key % SPAN;
      const code = status === 0 ? "none" : status > HIGHEST_STATUS ? "other" : String(status);
      yield [METHODS[Math.floor(key / SPAN)] ?? "other", code, requests];
    }
  }

  /** Moves all counts into a report. */
  take(report: ReportWriter): void {
    this.recent.take(report);
    report.add([this.receivedBytes, this.sentBytes]);
    for (const [key, { requests }] of this.#requests ?? []) report.item().add([key, requests]);
    report.end();
    for (const counts of [this.cached, this.refusals]) {
      for (const [name, count] of counts ?? []) report.item(name).add([count]);
      report.end();
    }
    this.receivedBytes = this.sentBytes = this.rateLimited = 0;
    this.#requests = this.cached = this.refusals = null;
  }

  /** Adds the counts of a report, as if these requests ended now. */
  add(report: ReportReader): void {
    const counts = readCounts(report);
    this.recent.addCounts(counts);
    this.#total.addCounts(counts);
    this.rateLimited += counts.limited;
    this.receivedBytes += report.number();
    this.sentBytes += report.number();
    while (report.item()) {
      const [key, requests] = [report.number(), report.number()];
      const counted = this.#requests?.get(key);
      if (counted !== undefined) counted.requests += requests;
      else (this.#requests ??= new Map<number, { requests: number }>()).set(key, { requests });
    }
    while (report.item()) increase((this.cached ??= new Map<CacheResult, number>()), report.name() as CacheResult, report.number());
    while (report.item()) this.#refused(report.name(), report.number());
  }

  #failed(code: string, { route, attempts }: Notes): void {
    if (route === null || attempts > 0 || code === "internal" || ERRORS[code as ErrorCode]?.side === "upstream") return;
    this.#refused(code, 1);
  }

  #refused(code: string, count: number): void {
    const refusals = (this.refusals ??= new Map<string, number>());
    increase(refusals, refusals.has(code) || refusals.size < MOST_CODES ? code : "other", count);
  }
}

export function increase<Key>(counts: Map<Key, number>, key: Key, by: number): void {
  counts.set(key, (counts.get(key) ?? 0) + by);
}

/** The tries of one service's upstreams. */
export class ServiceMeter {
  retries = 0;
  readonly upstreams = new Map<string, Recent>();

  /** `status`: null without a response. */
  tried(upstream: string, ms: number, status: number | null): void {
    this.upstreams.get(upstream)?.count(status === null || status >= 500, false, ms);
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

/** Places of counts: classes of statuses without the refusals that operators look for, and each of these. The first: neither. */
export const STATUSES = ["", "2xx", "3xx", "4xx", "5xx", "401", "403", "404"] as const;
const STATUS_PLACES = Uint8Array.from({ length: SPAN }, (_, status) => {
  const alone = STATUSES.findIndex((name) => name === String(status));
  return alone >= 0 ? alone : Math.max(0, STATUSES.findIndex((name) => name === `${Math.floor(status / 100)}xx`));
});

/** Counts of one step, or of a report. */
export interface Counts {
  readonly requests: number;
  readonly errors: number;
  readonly limited: number;
  /** A count for each of `STATUSES`; empty while there is none. */
  readonly statuses: ArrayLike<number>;
  /** Bucket and count in turn, without the empty buckets: a route's times seldom lie far apart. */
  readonly times: ArrayLike<number>;
}

interface Step extends Counts {
  readonly step: number;
  readonly statuses: readonly number[];
  readonly times: readonly number[];
}

export interface TimedCounts extends Counts {
  readonly sumMs: number;
}

/** Counts and times of requests or tries. */
export class Tally {
  requests = 0;
  errors = 0;
  limited = 0;
  /** A count for each of `STATUSES`, exclusive. Null, like the times, while there is none: most routes of a large configuration are quiet. */
  statuses: Uint32Array | null = null;
  /** A count for each of `TIME_BUCKETS`. */
  protected times: Uint32Array | null = null;

  add({ requests, errors, limited, statuses, times }: Counts): void {
    this.requests += requests;
    this.errors += errors;
    this.limited += limited;
    for (let i = 0; i < statuses.length; i++) (this.statuses ??= new Uint32Array(STATUSES.length))[i]! += statuses[i]!;
    if (times.length === 0) return;
    const sums = (this.times ??= new Uint32Array(TIME_BUCKETS));
    for (let i = 0; i < times.length; i += 2) sums[times[i]!]! += times[i + 1]!;
  }

  /** The time that a share of all (0.99: 99 in 100) did not exceed, in milliseconds, within 6.25 %; null when nothing was timed. */
  quantile(share: number): number | null {
    const timed = this.times?.reduce((sum, count) => sum + count) ?? 0;
    if (timed === 0) return null;
    let left = Math.max(1, Math.ceil(share * timed));
    let bucket = 0;
    while ((left -= this.times![bucket]!) > 0) bucket++;
    return MIDDLES[bucket]!;
  }

  clear(): void {
    this.times?.fill(0);
    this.statuses?.fill(0);
    this.requests = this.errors = this.limited = 0;
  }
}

/** The counts of one route or upstream: in the current step (as a Tally), in the earlier steps of the window, and since the start. */
export class Recent extends Tally {
  /** Sum of all times since the start, in milliseconds. */
  sumMs = 0;
  readonly #steps: StepCounter;
  /** The end of a step costs nothing: this is compared at the next count or reading. */
  #step: number;
  /** Earlier steps of the window with requests, oldest first. */
  #past: Step[] = [];
  /** Times before the current step, as in `counts`. */
  #countsBefore: number[] | null = null;

  constructor(steps: StepCounter = { current: 0 }) {
    super();
    this.#steps = steps;
    this.#step = steps.current;
  }

  /** `ms`: how long it took; null: not timed. `status`: null where statuses are not counted, or there was none. */
  count(isError: boolean, isLimited: boolean, ms: number | null, status: number | null = null): void {
    if (this.#step !== this.#steps.current) this.#endStep();
    this.requests++;
    if (isError) this.errors++;
    if (isLimited) this.limited++;
    (this.statuses ??= new Uint32Array(STATUSES.length))[STATUS_PLACES[status ?? 0]!]!++;
    if (ms === null) return;
    this.sumMs += ms;
    (this.times ??= new Uint32Array(TIME_BUCKETS))[bucketOf(ms)]!++;
  }

  /** Moves the counts into a report: those of the current step, since a thread that reports does not end steps. */
  take(report: ReportWriter): void {
    const { requests, errors, limited, statuses, times } = this.#current();
    report.add([requests, errors, limited, this.sumMs, statuses.length]);
    report.add(statuses);
    report.add([times.length]);
    report.add(times);
    // Without a request since the last report it may be quiet for long.
    if (requests === 0) this.times = this.statuses = null;
    this.clear();
    this.sumMs = 0;
  }

  /** Adds the counts of a report to the current step. */
  addCounts(counts: TimedCounts): void {
    if (this.#step !== this.#steps.current) this.#endStep();
    this.add(counts);
    this.sumMs += counts.sumMs;
  }

  /** Counts of all times since the start by Prometheus' buckets, the last one +Inf; null while nothing was timed. */
  get counts(): readonly number[] | null {
    return this.requests === 0 ? this.#countsBefore : withTimes(this.#countsBefore, this.#current().times);
  }

  /** Whether anything was counted in the window. */
  get isActive(): boolean {
    if (this.#step !== this.#steps.current) this.#endStep();
    return this.requests > 0 || this.#past.length > 0;
  }

  /** Adds the counts of the window, or of the current step alone, to `sum`. */
  addTo(sum: Tally, which: "window" | "step"): void {
    if (!this.isActive) return;
    if (this.requests > 0) sum.add(this.#current());
    if (which === "window") for (const step of this.#past) sum.add(step);
  }

  #current(): Step {
    const { requests, errors, limited, times: counts } = this;
    const times: number[] = [];
    if (counts !== null) for (let bucket = 0; bucket < TIME_BUCKETS; bucket++) if (counts[bucket] !== 0) times.push(bucket, counts[bucket]!);
    return { step: this.#step, requests, errors, limited, statuses: this.statuses === null ? [] : Array.from(this.statuses), times };
  }

  #endStep(): void {
    const first = this.#steps.current - WINDOW_STEPS + 1;
    if (this.requests > 0) {
      const ended = this.#current();
      this.#countsBefore = withTimes(this.#countsBefore, ended.times);
      this.#past.push(ended);
      this.clear();
    }
    while (this.#past.length > 0 && this.#past[0]!.step < first) this.#past.shift();
    if (this.#past.length === 0) this.times = this.statuses = null;
    this.#step = this.#steps.current;
  }
}

export function readCounts(report: ReportReader): TimedCounts {
  const [requests, errors, limited, sumMs] = [report.number(), report.number(), report.number(), report.number()];
  return { requests, errors, limited, sumMs, statuses: report.numbers(report.number()), times: report.numbers(report.number()) };
}

/** A copy of `counts`, Prometheus' buckets, with these times in them. Null where there is nothing. */
function withTimes(counts: readonly number[] | null, times: Counts["times"]): number[] | null {
  if (counts === null && times.length === 0) return null;
  const sums = counts?.slice() ?? new Array<number>(BUCKETS.length + 1).fill(0);
  for (let i = 0; i < times.length; i += 2) sums[COARSE[times[i]!]!]! += times[i + 1]!;
  return sums;
}

/** The same four bytes as a number and as its bits. */
const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/** The bucket of a time in milliseconds. */
function bucketOf(ms: number): number {
  float[0] = ms;
  const place = (bits[0]! >>> SHIFT) - FIRST_PLACE;
  const unsplit = place < 0 ? 0 : place < UNSPLIT ? place : UNSPLIT - 1;
  return ms > SPLITS[unsplit]! ? PLACES[unsplit]! + 1 : PLACES[unsplit]!;
}

/**
 * Figures of the last minute by route and upstream, and of the last 15 minutes in all: takes what was counted at the end of each step of
 * five seconds, and adds it up when somebody asks. Counting is `metrics.ts` and `recent.ts`; requests pay nothing for what is done here.
 */
import type { Clock, Timer } from "../base/clock.ts";
import type { Metrics } from "./metrics.ts";
import { Sum, WINDOW_STEPS, type Recent, type Slice } from "./recent.ts";

export const STEP_MS = 5_000;
/** 15 minutes. */
const HISTORY_STEPS = 180;
/**
 * How many routes and upstreams end their step in one turn of the event loop, in about a millisecond where somebody reads: all of 10 000
 * busy ones at once would hold up every request for 20 to 100 ms, each five seconds, and for longer then.
 */
const ROLLED_A_TURN = 100;
/** Until the next turn. */
const TURN_MS = 1;

/** Of the last `windowS` seconds. */
export interface TryFigures {
  readonly requestsPerS: number;
  /** Answers with 5xx, of upstreams also tries without an answer, by second. */
  readonly errorsPerS: number;
  /** Milliseconds, within 6.25 %; null when there was no request. WebSockets are left out. */
  readonly p50Ms: number | null;
  readonly p95Ms: number | null;
  readonly p99Ms: number | null;
  /** Now. */
  readonly inFlight: number;
}

export interface Figures extends TryFigures {
  /** Requests refused by a rate limit, by second. They reach no upstream. */
  readonly limitedPerS: number;
}

/** One step of the history: counts of the whole step. */
export interface Point {
  /** Its begin, in milliseconds since 1970: a multiple of `STEP_MS`. */
  readonly at: number;
  readonly requests: number;
  readonly errors: number;
  readonly limited: number;
  readonly p50Ms: number | null;
  readonly p95Ms: number | null;
  readonly p99Ms: number | null;
}

export interface GatewayStats {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** At most; less as long as the gateway has not run for so long. */
  readonly windowS: number;
  readonly total: Figures;
  readonly services: readonly ServiceStats[];
  /** The step that is not over yet. */
  readonly point: Point;
  readonly stepS: number;
  /** The last 15 minutes, oldest first, without the step that is not over yet. */
  readonly history: readonly Point[];
}

export interface ServiceStats {
  readonly name: string;
  readonly routes: readonly (Figures & { readonly name: string })[];
  /** Of tries: to the head of the response, or to the failure. */
  readonly upstreams: readonly (TryFigures & { readonly id: string })[];
}

/** "active": without the history, and without routes and upstreams that had no request in the window and have none now. */
export type StatsExtent = "all" | "active";

export interface InFlight {
  readonly total: number;
  /** Requests under way at an upstream of a service. */
  upstream(service: string, id: string): number;
}

type Step = Omit<Point, "at">;

export class Stats {
  readonly #clock: Clock;
  readonly #metrics: Metrics;
  readonly #startedAt: number;
  /** When the step under way began, and when it ends, on the monotonic clock. */
  #stepFrom: number;
  #stepTo: number;
  #timer: Timer | null = null;
  #isClosed = false;
  /** Oldest first. */
  readonly #history: Step[] = [];
  readonly #sum = new Sum();
  /** All requests of the steps in the window before the one under way, the latest last. */
  readonly #totals: Slice[] = [];
  /** All requests of the step that is being ended, and what has not ended it yet; null between two ends. */
  readonly #ended = new Sum();
  #left: Iterator<Part> | null = null;
  /** Whether somebody has read since a step ended, and so will probably read again. */
  #isRead = false;
  #isRemembering = false;
  /** What each had in the window when its last step ended, as one: for those who read each second, eleven steps are much to add up. */
  #before = new WeakMap<Recent, Slice>();

  constructor(clock: Clock, metrics: Metrics) {
    this.#clock = clock;
    this.#metrics = metrics;
    this.#startedAt = this.#stepFrom = clock.now();
    this.#stepTo = this.#stepFrom + STEP_MS - (clock.wall() % STEP_MS);
  }

  /** From now on steps end by the clock. May be called for every request. */
  start(): void {
    if (this.#timer === null && !this.#isClosed) this.#await();
  }

  read(extent: StatsExtent, inFlight: InFlight): GatewayStats {
    this.#catchUp();
    this.#isRead = true;
    const now = this.#clock.now();
    const wall = this.#clock.wall();
    const seconds = this.#seconds(now);
    const sum = this.#sum;
    const isTold = ({ isActive }: Recent, under: number) => extent === "all" || isActive || under > 0;
    const services: ServiceStats[] = [];
    for (const [name, { meter, routes }] of this.#metrics.services) {
      const told = { name, routes: [] as ServiceStats["routes"][number][], upstreams: [] as ServiceStats["upstreams"][number][] };
      for (const [route, { recent, inFlight: under }] of routes) {
        if (isTold(recent, under)) told.routes.push({ name: route, ...figures(this.#sumOf(recent), seconds, under) });
      }
      for (const [id, recent] of meter.upstreams) {
        const under = inFlight.upstream(name, id);
        if (isTold(recent, under)) told.upstreams.push({ id, ...tryFigures(this.#sumOf(recent), seconds, under) });
      }
      if (extent === "all" || told.routes.length > 0 || told.upstreams.length > 0) services.push(told);
    }
    // Whatever the clock on the wall has done meanwhile, steps follow each other without a gap.
    const at = Math.round((wall + this.#stepTo - now) / STEP_MS) * STEP_MS - STEP_MS;
    const before = this.#history;
    sum.clear();
    for (const { recent, isRequests } of this.#parts()) if (isRequests) recent.addTo(sum, "step");
    const point = { at, ...stepOf(sum) };
    for (const slice of this.#totals) sum.add(slice);
    return {
      at: wall,
      windowS: (WINDOW_STEPS * STEP_MS) / 1000,
      total: figures(sum, seconds, inFlight.total),
      services,
      point,
      stepS: STEP_MS / 1000,
      history: extent === "active" ? [] : before.map((step, i) => ({ at: at - (before.length - i) * STEP_MS, ...step })),
    };
  }

  /** Looks at no clock any more. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  /** Seconds that the window covers: the steps before the one under way, and what has passed of it. */
  #seconds(now: number): number {
    const covered = Math.min(now - this.#startedAt, (WINDOW_STEPS - 1) * STEP_MS + (now - this.#stepFrom));
    // A gateway that has just begun: one request is not a thousand in a second.
    return Math.max(covered, 1_000) / 1_000;
  }

  *#parts(): IterableIterator<Part> {
    yield { recent: this.#metrics.unrouted.recent, isRequests: true };
    for (const { meter, routes } of this.#metrics.services.values()) {
      for (const { recent } of routes.values()) yield { recent, isRequests: true };
      for (const recent of meter.upstreams.values()) yield { recent, isRequests: false };
    }
  }

  #await(): void {
    const ms = this.#left === null ? Math.max(1, this.#stepTo - this.#clock.now()) : TURN_MS;
    this.#timer = this.#clock.after(ms, () => {
      if (this.#left === null && this.#over() === 1) this.#begin();
      if (this.#left === null) this.#catchUp();
      else this.#roll(ROLLED_A_TURN);
      this.#await();
    });
  }

  /** Ends every step whose time is over: several, where the event loop was held up. What was counted meanwhile is the first one's. */
  #catchUp(): void {
    if (this.#left !== null) this.#roll(Infinity);
    const over = this.#over();
    if (over > HISTORY_STEPS) this.#stepTo += (over - HISTORY_STEPS) * STEP_MS;
    for (let i = 0; i < Math.min(over, HISTORY_STEPS); i++) {
      this.#begin();
      this.#roll(Infinity);
    }
  }

  /** How many steps are over that have not been ended. */
  #over(): number {
    return Math.max(0, 1 + Math.floor((this.#clock.now() - this.#stepTo) / STEP_MS));
  }

  /** Begins to end a step. What comes for a part whose turn is still to come counts in that step, a moment too long, and never twice. */
  #begin(): void {
    this.#stepFrom = this.#stepTo;
    this.#stepTo += STEP_MS;
    this.#ended.clear();
    this.#before = new WeakMap();
    this.#isRemembering = this.#isRead;
    this.#isRead = false;
    this.#left = this.#parts();
  }

  #roll(most: number): void {
    for (let i = 0; i < most; i++) {
      const next = this.#left!.next();
      if (next.done === true) return this.#finish();
      const { recent, isRequests } = next.value;
      recent.roll(isRequests ? this.#ended : undefined);
      if (this.#isRemembering && recent.isActive) this.#before.set(recent, this.#sumOf(recent).pack());
    }
  }

  #finish(): void {
    this.#left = null;
    this.#totals.push(this.#ended.pack());
    if (this.#totals.length > WINDOW_STEPS - 1) this.#totals.shift();
    this.#history.push(stepOf(this.#ended));
    if (this.#history.length > HISTORY_STEPS) this.#history.shift();
  }

  /** All of its window; good until the next call. */
  #sumOf(recent: Recent): Sum {
    const before = this.#before.get(recent);
    const sum = this.#sum;
    sum.clear();
    if (before !== undefined) sum.add(before);
    recent.addTo(sum, before === undefined ? "window" : "step");
    return sum;
  }
}

/** What ends a step for itself: a route, what had none, or an upstream, whose tries are no requests of their own. */
interface Part {
  readonly recent: Recent;
  readonly isRequests: boolean;
}

function figures(sum: Sum, seconds: number, inFlight: number): Figures {
  return { ...tryFigures(sum, seconds, inFlight), limitedPerS: sum.limited / seconds };
}

function tryFigures(sum: Sum, seconds: number, inFlight: number): TryFigures {
  const { requests, errors } = sum;
  return { requestsPerS: requests / seconds, errorsPerS: errors / seconds, ...quantiles(sum), inFlight };
}

function stepOf(sum: Sum): Step {
  const { requests, errors, limited } = sum;
  return { requests, errors, limited, ...quantiles(sum) };
}

function quantiles(sum: Sum): Pick<Figures, "p50Ms" | "p95Ms" | "p99Ms"> {
  return { p50Ms: sum.quantile(0.5), p95Ms: sum.quantile(0.95), p99Ms: sum.quantile(0.99) };
}

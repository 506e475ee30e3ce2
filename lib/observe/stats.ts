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

/** Of the last `windowS` seconds. */
export interface Figures {
  readonly requestsPerS: number;
  /** Answers with 5xx, of upstreams also tries without an answer, by second. */
  readonly errorsPerS: number;
  /** Requests refused by a rate limit, by second. */
  readonly limitedPerS: number;
  /** Milliseconds, within 6.25 %; null when there was no request. WebSockets are left out. */
  readonly p50Ms: number | null;
  readonly p95Ms: number | null;
  readonly p99Ms: number | null;
  /** Now. */
  readonly inFlight: number;
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
  readonly upstreams: readonly (Figures & { readonly id: string })[];
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
    const now = this.#clock.now();
    const wall = this.#clock.wall();
    const seconds = this.#seconds(now);
    const sum = this.#sum;
    const figures = (under: number): Figures => {
      const { requests, errors, limited } = sum;
      return { requestsPerS: requests / seconds, errorsPerS: errors / seconds, limitedPerS: limited / seconds, ...quantiles(sum), inFlight: under };
    };
    const figuresOf = (recent: Recent, under: number): Figures => {
      sum.clear();
      recent.addTo(sum, "window");
      return figures(under);
    };
    const isTold = ({ isActive }: Recent, under: number) => extent === "all" || isActive || under > 0;
    const services: ServiceStats[] = [];
    for (const [name, { meter, routes }] of this.#metrics.services) {
      const told: ServiceStats = {
        name,
        routes: [...routes].flatMap(([route, { recent, inFlight: under }]) =>
          isTold(recent, under) ? [{ name: route, ...figuresOf(recent, under) }] : [],
        ),
        upstreams: [...meter.upstreams].flatMap(([id, { recent }]) => {
          const under = inFlight.upstream(name, id);
          return isTold(recent, under) ? [{ id, ...figuresOf(recent, under) }] : [];
        }),
      };
      if (extent === "all" || told.routes.length > 0 || told.upstreams.length > 0) services.push(told);
    }
    // Whatever the clock on the wall has done meanwhile, steps follow each other without a gap.
    const at = Math.round((wall + this.#stepTo - now) / STEP_MS) * STEP_MS - STEP_MS;
    const before = this.#history;
    sum.clear();
    for (const recent of this.#all()) recent.addTo(sum, "step");
    const point = { at, ...stepOf(sum) };
    for (const slice of this.#totals) sum.add(slice);
    return {
      at: wall,
      windowS: (WINDOW_STEPS * STEP_MS) / 1000,
      total: figures(inFlight.total),
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

  *#all(): Iterable<Recent> {
    yield this.#metrics.unrouted.recent;
    for (const { routes } of this.#metrics.services.values()) for (const { recent } of routes.values()) yield recent;
  }

  #await(): void {
    this.#timer = this.#clock.after(Math.max(1, this.#stepTo - this.#clock.now()), () => {
      this.#catchUp();
      this.#await();
    });
  }

  /** Ends every step whose time is over: several, where the event loop was held up. What was counted meanwhile is the first one's. */
  #catchUp(): void {
    const now = this.#clock.now();
    if (now < this.#stepTo) return;
    const over = 1 + Math.floor((now - this.#stepTo) / STEP_MS);
    for (let i = 0; i < Math.min(over, HISTORY_STEPS); i++) this.#roll();
    this.#stepFrom = this.#stepTo + (over - 1) * STEP_MS;
    this.#stepTo = this.#stepFrom + STEP_MS;
  }

  #roll(): void {
    const sum = this.#sum;
    sum.clear();
    for (const recent of this.#all()) recent.roll(sum);
    for (const { meter } of this.#metrics.services.values()) for (const { recent } of meter.upstreams.values()) recent.roll();
    this.#totals.push(sum.pack());
    if (this.#totals.length > WINDOW_STEPS - 1) this.#totals.shift();
    this.#history.push(stepOf(sum));
    if (this.#history.length > HISTORY_STEPS) this.#history.shift();
  }
}

function stepOf(sum: Sum): Step {
  const { requests, errors, limited } = sum;
  return { requests, errors, limited, ...quantiles(sum) };
}

function quantiles(sum: Sum): Pick<Figures, "p50Ms" | "p95Ms" | "p99Ms"> {
  return { p50Ms: sum.quantile(0.5), p95Ms: sum.quantile(0.95), p99Ms: sum.quantile(0.99) };
}

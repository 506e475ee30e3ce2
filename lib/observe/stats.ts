/**
 * Figures of the last minute by route and upstream, and a history of the last 15 minutes for all requests together:
 * requests are counted in steps of five seconds (`metrics.ts`), and added up on each read.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { Counts, STATUSES, WINDOW_STEPS, type Recent } from "./metrics.ts";
import type { Metrics, ServicePlan } from "./metrics_plan.ts";

const STEP_MS = 5_000;
/** 15 minutes. */
const HISTORY_STEPS = 180;

/** Milliseconds, within 6.25 %; null without requests. WebSockets and event streams do not count. */
interface Quantiles {
  readonly p50Ms: number | null;
  readonly p95Ms: number | null;
  readonly p99Ms: number | null;
}

/** Of the last `windowS` seconds. */
export interface TryFigures extends Quantiles {
  readonly requestsPerS: number;
  /** Answers with 5xx, and for upstreams also tries without an answer, per second. */
  readonly errorsPerS: number;
  /** Now. */
  readonly inFlight: number;
}

export interface Figures extends TryFigures {
  /** Requests refused by a rate limit, per second. They reach no upstream. */
  readonly limitedPerS: number;
  /** Replies per second by class of status, and with 401, 403 and 404 alone. Without the zeros. */
  readonly statusesPerS: StatusCounts;
}

export type StatusCounts = Readonly<Partial<Record<Exclude<(typeof STATUSES)[number], "">, number>>>;

/** One step of the history: counts of the whole step. */
export interface Point extends Quantiles {
  /** Its start, in milliseconds since 1970: a multiple of 5 s. */
  readonly at: number;
  readonly requests: number;
  readonly errors: number;
  readonly limited: number;
  /** As in `Figures`, but counts. */
  readonly statuses: StatusCounts;
}

export interface GatewayStats {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** At most; shorter after a start. */
  readonly windowS: number;
  readonly total: Figures;
  /** Requests for which no route was found, or looked for. */
  readonly unrouted: Figures;
  /**
   * Requests per second that ended with an error of the gateway, by its code: "key_missing", "rate_limited". Without
   * the zeros.
   */
  readonly codesPerS: Readonly<Record<string, number>>;
  readonly services: readonly ServiceStats[];
  /** The current step. */
  readonly point: Point;
  readonly stepS: number;
  /** The last 15 minutes, oldest first, without the current step. */
  readonly history: readonly Point[];
}

export interface ServiceStats {
  readonly name: string;
  /** Of all its routes together. */
  readonly total: Figures;
  readonly routes: readonly (Figures & { readonly name: string })[];
  /** Times of tries are those until the head of the response, or until the failure. */
  readonly upstreams: readonly (TryFigures & { readonly id: string })[];
  /** Of all upstreams of each group together, and of those in none (null). Empty without groups. */
  readonly groups: readonly (TryFigures & { readonly group: string | null })[];
}

/**
 * "busy": without routes and upstreams that have no request in the window and none in flight.
 * "services": services as a whole. "total": no services. An object: as "busy", one service.
 */
export type StatsExtent = "all" | "busy" | "services" | "total" | { readonly service: string };

interface InFlight {
  readonly total: number;
  /** Requests in progress at an upstream of a service. */
  upstream(service: string, id: string): number;
}

export class Stats {
  readonly #clock: Clock;
  readonly #metrics: Metrics;
  readonly #collect: () => Promise<void> | null;
  readonly #startedAt: number;
  /** When the current step ends, on the monotonic clock. */
  #stepTo: number;
  #timer: Timer | null = null;
  #isClosed = false;
  /** Oldest first. */
  readonly #history: Omit<Point, "at">[] = [];
  /** `codes` of all requests at the end of each step of the window, oldest first. */
  readonly #codes: ReadonlyMap<string, number>[] = [];
  /** Called at the end of each step, which began at `at`, while its counts are those of the current step. */
  onStep: ((at: number) => void) | null = null;

  /** `collect` adds to `metrics` what other threads have counted; null: it is there. */
  constructor(clock: Clock, metrics: Metrics, collect: () => Promise<void> | null = () => null) {
    this.#clock = clock;
    this.#metrics = metrics;
    this.#collect = collect;
    this.#startedAt = clock.now();
    this.#stepTo = this.#startedAt + STEP_MS - (clock.wall() % STEP_MS);
  }

  /** From now on the clock ends the steps. */
  start(): void {
    this.#timer = this.#clock.after(Math.max(1, this.#stepTo - this.#clock.now()), () => {
      const collected = this.#collect();
      if (collected === null) this.#next();
      else void collected.then(() => this.#next());
    });
  }

  #next(): void {
    this.#endSteps();
    if (!this.#isClosed) this.start();
  }

  read(extent: StatsExtent, inFlight: InFlight): GatewayStats {
    this.#endSteps();
    const now = this.#clock.now();
    const wall = this.#clock.wall();
    const seconds = this.#seconds(now);
    const at = this.#stepAt();
    return {
      at: wall,
      windowS: (WINDOW_STEPS * STEP_MS) / 1000,
      total: figures(new Sum().include(this.#metrics.total, inFlight.total), seconds),
      unrouted: figures(new Sum().include(this.#metrics.unrouted.recent, 0), seconds),
      codesPerS: this.#codesPerS(seconds),
      services: extent === "total" ? [] : this.services(extent, inFlight),
      point: { at, ...stepFigures(this.#metrics.total) },
      stepS: STEP_MS / 1000,
      history: this.#history.map((step, i, all) => ({ at: at - (all.length - i) * STEP_MS, ...step })),
    };
  }

  /** Those of `read`, or of some services: many take a while. */
  services(
    extent: Exclude<StatsExtent, "total">,
    inFlight: InFlight,
    plans: Iterable<readonly [string, ServicePlan]> = this.#metrics.services,
  ): readonly ServiceStats[] {
    const seconds = this.#seconds(this.#clock.now());
    const services: ServiceStats[] = [];
    for (const [name, { meter, routes, upstreams: groupOf }] of plans) {
      if (typeof extent === "object" && extent.service !== name) continue;
      const isShown = ({ isActive }: Recent, open: number) =>
        extent === "all" || (extent !== "services" && (isActive || open > 0));
      const whole = new Sum();
      const groups = new Map(
        [...groupOf.values()].some((group) => group !== null)
          ? [...groupOf.values()].map((group) => [group, new Sum()] as const)
          : [],
      );
      const shown = {
        routes: [] as ServiceStats["routes"][number][],
        upstreams: [] as ServiceStats["upstreams"][number][],
      };
      for (const [route, { recent, inFlight: open }] of routes) {
        whole.include(recent, open);
        if (isShown(recent, open))
          shown.routes.push({ name: route, ...figures(new Sum().include(recent, open), seconds) });
      }
      for (const [id, recent] of meter.upstreams) {
        const open = inFlight.upstream(name, id);
        groups.get(groupOf.get(id) ?? null)?.include(recent, open);
        if (isShown(recent, open))
          shown.upstreams.push({ id, ...tryFigures(new Sum().include(recent, open), seconds) });
      }
      if (extent === "busy" && shown.routes.length === 0 && shown.upstreams.length === 0) continue;
      services.push({
        name,
        total: figures(whole, seconds),
        ...shown,
        groups: Array.from(groups, ([group, sum]) => ({ group, ...tryFigures(sum, seconds) })),
      });
    }
    return services;
  }

  /** When the current step began: steps follow each other without a gap, even when the wall clock has been changed. */
  #stepAt(): number {
    return Math.round((this.#clock.wall() + this.#stepTo - this.#clock.now()) / STEP_MS) * STEP_MS - STEP_MS;
  }

  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  /** Seconds that the window covers: the full steps in it, and the part of the current one that has passed. */
  #seconds(now: number): number {
    const covered = Math.min(now - this.#startedAt, WINDOW_STEPS * STEP_MS - (this.#stepTo - now));
    // Right after the start, one request must not be reported as a thousand in a second.
    return Math.max(covered, 1_000) / 1_000;
  }

  /**
   * Closes every elapsed step: several if the event loop was blocked; all events counted meanwhile belong to the first.
   */
  #endSteps(): void {
    const over = Math.max(0, 1 + Math.floor((this.#clock.now() - this.#stepTo) / STEP_MS));
    const skipped = Math.max(0, over - HISTORY_STEPS);
    this.#stepTo += skipped * STEP_MS;
    for (let i = skipped; i < over; i++) {
      this.onStep?.(this.#stepAt());
      this.#history.push(stepFigures(this.#metrics.total));
      if (this.#history.length > HISTORY_STEPS) this.#history.shift();
      this.#codes.push(new Map(this.#metrics.total.codes));
      if (this.#codes.length > WINDOW_STEPS) this.#codes.shift();
      this.#metrics.steps.current++;
      this.#stepTo += STEP_MS;
    }
  }

  #codesPerS(seconds: number): Readonly<Record<string, number>> {
    const before = this.#codes.length < WINDOW_STEPS ? undefined : this.#codes[0];
    const counts = Array.from(
      this.#metrics.total.codes,
      ([code, count]) => [code, (count - (before?.get(code) ?? 0)) / seconds] as const,
    );
    return Object.fromEntries(counts.filter(([, rate]) => rate > 0));
  }
}

/** Of one or several routes or upstreams. */
export class Sum extends Counts {
  open = 0;

  include(recent: Recent, open: number, which: "window" | "step" = "window"): this {
    recent.addTo(this, which);
    this.open += open;
    return this;
  }
}

export function figures(sum: Sum, seconds: number): Figures {
  return { ...tryFigures(sum, seconds), limitedPerS: sum.limited / seconds, statusesPerS: statusesOf(sum, seconds) };
}

function tryFigures(sum: Sum, seconds: number): TryFigures {
  return {
    requestsPerS: sum.requests / seconds,
    errorsPerS: sum.errors / seconds,
    ...quantiles(sum),
    inFlight: sum.open,
  };
}

function stepFigures(total: Recent): Omit<Point, "at"> {
  const sum = new Sum().include(total, 0, "step");
  const { requests, errors, limited } = sum;
  return { requests, errors, limited, statuses: statusesOf(sum, 1), ...quantiles(sum) };
}

function statusesOf(sum: Counts, seconds: number): StatusCounts {
  if (sum.requests === 0) return {};
  const counts = new Map(STATUSES.map((name, i) => [name, sum.status(i)]));
  const refused = (["401", "403", "404"] as const).reduce((all, name) => all + counts.get(name)!, 0);
  counts.set("4xx", counts.get("4xx")! + refused).delete("");
  return Object.fromEntries(
    [...counts].filter(([, count]) => count > 0).map(([name, count]) => [name, count / seconds]),
  );
}

function quantiles(sum: Counts): Quantiles {
  return { p50Ms: sum.quantile(0.5), p95Ms: sum.quantile(0.95), p99Ms: sum.quantile(0.99) };
}

/**
 * The health of upstreams with workers: the main thread decides and writes it to shared memory, and the workers read it there and report
 * failures to the main thread.
 */
import type { Clock } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import { Health, slowShare, type HealthOptions, type HealthReport, type HealthSettings, type UpstreamHealth } from "./health.ts";

/** A 32-bit word, the state, and a 64-bit cell: when a slow start began, on the monotonic clock; 0: none. */
export const HEALTH_BYTES = 16;
const STATE = 0;
const SLOW_SINCE = 1;

const USABLE = 0;
const EJECTED = 1;
const UNHEALTHY = 2;

/** The health of one upstream whose `memory` all threads have: the main thread decides and writes it, a worker reads it and adds failures to `reports`. */
export function healthIn(memory: ArrayBufferLike, options: HealthOptions, reports: FailureReports | null): UpstreamHealth {
  const { clock, service, upstream } = options;
  if (reports !== null) return new PublishedHealth(clock, memory, (reason) => reports.add(service, upstream, reason));
  const health: Health = new Health({
    ...options,
    changed() {
      publish(health, memory);
      options.changed();
    },
  });
  return health;
}

function publish({ usable, ejected, slowSince }: Health, memory: ArrayBufferLike): void {
  new Float64Array(memory)[SLOW_SINCE] = slowSince ?? 0;
  Atomics.store(new Int32Array(memory), STATE, usable ? USABLE : ejected ? EJECTED : UNHEALTHY);
}

/** In the main thread: failures that a worker reports. `find` returns undefined for an upstream that is no longer configured. */
export function addFailures(failures: readonly UpstreamFailures[], find: (service: string, id: string) => { readonly health: UpstreamHealth } | undefined): void {
  for (const { service, upstream, count, reason } of failures) {
    const peer = find(service, upstream);
    for (let i = 0; i < count; i++) peer?.health.failed(reason);
  }
}

/** In a worker. */
export class PublishedHealth implements UpstreamHealth {
  failureStatuses: ReadonlySet<number> | null = null;
  readonly #clock: Clock;
  readonly #words: Int32Array;
  readonly #cells: Float64Array;
  readonly #report: (reason: string) => void;
  #maxFailures = 0;
  #slowStartMs = 0;

  /** `memory`: what the main thread writes. `report` is called for each failure that may eject the upstream. */
  constructor(clock: Clock, memory: ArrayBufferLike, report: (reason: string) => void) {
    this.#clock = clock;
    this.#words = new Int32Array(memory);
    this.#cells = new Float64Array(memory);
    this.#report = report;
  }

  configure({ passive }: HealthSettings): void {
    this.failureStatuses = passive.statuses.length === 0 ? null : new Set(passive.statuses);
    this.#maxFailures = passive.maxFailures;
    this.#slowStartMs = passive.slowStartMs;
  }

  get usable(): boolean {
    return this.#state === USABLE;
  }

  get ejected(): boolean {
    return this.#state === EJECTED;
  }

  get share(): number {
    const since = this.#cells[SLOW_SINCE]!;
    return since === 0 ? 1 : slowShare(this.#clock.now() - since, this.#slowStartMs);
  }

  answered(status: number): void {
    if (this.failureStatuses?.has(status)) this.failed(`status ${status}`);
  }

  failed(reason: string): void {
    if (this.#maxFailures > 0 && this.#state !== EJECTED) this.#report(reason);
  }

  /** Only the state: the main thread knows the rest, and is asked. */
  get report(): HealthReport {
    const state = this.#state === USABLE ? "unknown" : this.#state === EJECTED ? "ejected" : "unhealthy";
    return { state, since: null, reason: null, until: null };
  }

  close(): void {
    this.#maxFailures = 0;
  }

  get #state(): number {
    return Atomics.load(this.#words, STATE);
  }
}

/** Failures of one upstream in one worker. */
export interface UpstreamFailures {
  readonly service: string;
  readonly upstream: string;
  readonly count: number;
  /** Of the latest one. */
  readonly reason: string;
}

/** Collects the failures of one turn of the event loop: an upstream that is down may fail thousands of requests in a second. */
export class FailureReports {
  /** Sends them to the main thread. */
  send: (failures: readonly UpstreamFailures[]) => void = () => {};
  readonly #waiting = new Map<string, UpstreamFailures>();

  add(service: string, upstream: string, reason: string): void {
    if (this.#waiting.size === 0) setImmediate(entry("failures of upstreams", () => this.#flush()));
    const key = JSON.stringify([service, upstream]);
    const count = (this.#waiting.get(key)?.count ?? 0) + 1;
    this.#waiting.set(key, { service, upstream, count, reason });
  }

  #flush(): void {
    const failures = [...this.#waiting.values()];
    this.#waiting.clear();
    this.send(failures);
  }
}

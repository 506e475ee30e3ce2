/**
 * How long to wait after failures: twice as long after each, and as long as a directory asks for.
 */
import type { Clock } from "../base/clock.ts";
import type { AcmeFailure } from "./failure.ts";

/** What is left, as durations in milliseconds. */
export interface PausesLeft {
  readonly failures: number;
  readonly backOffMs: number;
  /** What the directory has asked for. */
  readonly askedMs: number;
}

export class Pauses {
  readonly #clock: Pick<Clock, "now">;
  readonly #random: () => number;
  #failures = 0;
  /** Moments of the monotonic clock: a wall clock that is set back must not make hours of seconds. */
  #backOffUntil = -Infinity;
  #askedUntil = -Infinity;

  constructor(clock: Pick<Clock, "now">, random: () => number) {
    this.#clock = clock;
    this.#random = random;
  }

  /** In milliseconds; 0: there is nothing to wait for. */
  get leftMs(): number {
    return Math.max(0, this.#backOffUntil - this.#clock.now(), this.#askedUntil - this.#clock.now());
  }

  get left(): PausesLeft {
    const now = this.#clock.now();
    return {
      failures: this.#failures,
      backOffMs: Math.max(0, this.#backOffUntil - now),
      askedMs: Math.max(0, this.#askedUntil - now),
    };
  }

  /** Goes on where another gateway was. */
  resume({ failures, backOffMs, askedMs }: PausesLeft): void {
    const now = this.#clock.now();
    this.#failures = failures;
    this.#backOffUntil = now + backOffMs;
    this.#askedUntil = now + askedMs;
  }

  /** `cause`: whether hosts could not be proved, which takes somebody who mends that, or anything else. */
  failed({ retryAfterMs, type }: AcmeFailure, cause: "hosts" | "other"): void {
    const now = this.#clock.now();
    const longestMs = cause === "hosts" ? LONGEST_FOR_HOSTS_MS : LONGEST_MS;
    const ms = Math.min(longestMs, FIRST_MS * 2 ** Math.min(this.#failures++, 20));
    this.#backOffUntil = now + ms * (0.8 + 0.4 * this.#random());
    const askedMs = retryAfterMs ?? (type === "rateLimited" ? UNSAID_LIMIT_MS : 0);
    this.#askedUntil = now + askedMs;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#backOffUntil = this.#clock.now() + FIRST_MS;
    this.#askedUntil = -Infinity;
  }

  /** The next attempt may begin at once, unless the directory has asked for a later one. */
  skip(): void {
    this.#failures = 0;
    this.#backOffUntil = -Infinity;
  }

  /** Another directory has not asked for anything. */
  forget(): void {
    this.skip();
    this.#askedUntil = -Infinity;
  }
}

const FIRST_MS = 10_000;
const LONGEST_MS = 3_600_000;
const LONGEST_FOR_HOSTS_MS = 6 * 3_600_000;
const UNSAID_LIMIT_MS = 3_600_000;

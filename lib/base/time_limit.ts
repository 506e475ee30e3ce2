/**
 * Time limits for answers from outside, which do not count the time in which this process was late itself.
 */
// Node's own function: the tests of an embedder may replace the global one to stop time.
import { setImmediate } from "node:timers";
import type { Clock, Timer } from "./clock.ts";
import { entry } from "./event_loop.ts";

/**
 * A time limit for an answer from outside. It passes in parts: of a time in which this process was busy, or got no
 * processor, no more than one part counts, and what has arrived by the end is read first.
 */
export class TimeLimit {
  readonly #clock: Clock;
  readonly #partMs: number;
  readonly #timer: Timer;
  #parts = 0;
  #isOver = false;
  #partBegan: number;
  #wasLate = false;

  constructor(clock: Clock, ms: number, expire: () => void) {
    this.#clock = clock;
    this.#partMs = ms / PARTS;
    this.#partBegan = clock.now();
    const end = entry("the end of a time limit", () => void (this.#isOver || expire()));
    this.#timer = clock.after(this.#partMs, () => {
      this.#wasLate = this.wasLate;
      if (++this.#parts === PARTS) return void setImmediate(end);
      this.#partBegan = clock.now();
      this.#timer.restart();
    });
  }

  /**
   * Whether this process has been late for a quarter of the limit at once: a broken connection may be its own fault.
   */
  get wasLate(): boolean {
    return this.#wasLate || this.#clock.now() - this.#partBegan > 2 * this.#partMs;
  }

  /** The whole limit begins again, unless it is over. */
  restart(): void {
    if (this.#parts === PARTS || this.#isOver) return;
    this.#wasLate = this.wasLate;
    this.#parts = 0;
    this.#partBegan = this.#clock.now();
    this.#timer.restart();
  }

  cancel(): void {
    this.#isOver = true;
    this.#timer.cancel();
  }
}

/** Connecting, TLS and the question itself need a round of the event loop each: a limit has more parts than that. */
const PARTS = 8;

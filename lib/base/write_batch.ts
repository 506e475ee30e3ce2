/**
 * Lets what is ready to be sent leave together, one behind the other, when all that came in the same round of the event loop has been
 * looked at. What is sent, and over which connection, is the callers' affair.
 *
 * A write whose reader sleeps has to wake it first, which costs more than the write itself. Sent as soon as it is ready, every message
 * finds its reader asleep again; behind the others of its round it finds it awake (30 % of the processor time of a small request).
 */
// Node's own: a host's tests put theirs in the place of the global one, to hold the time, and nothing would leave.
import { setImmediate } from "node:timers";

export class WriteBatch {
  #ready: (() => void)[] = [];
  #leaves = false;
  readonly #most: number;

  /** `most`: how many may wait for each other, so that the first need not wait long; default 64. */
  constructor(most = 64) {
    this.#most = most;
  }

  /** Calls `send` soon: at the end of this round, or when as many as may are ready. It must not throw. */
  add(send: () => void): void {
    if (this.#ready.push(send) >= this.#most) return this.now();
    if (this.#leaves) return;
    this.#leaves = true;
    setImmediate(() => {
      this.#leaves = false;
      this.now();
    });
  }

  /** Lets all leave that are ready: what comes next may end the connections they leave over. */
  now(): void {
    const leaving = this.#ready;
    // What is sent may make more ready.
    this.#ready = [];
    for (const send of leaving) send();
  }
}

/**
 * Sends the lines of a worker's log to the main thread, as long as that one writes them: lines that nobody reads must not fill its memory.
 */
import type { Log } from "../base/log.ts";

/** Lines that are sent and not written yet; further ones are lost. */
const MOST_WAITING = 10_000;

export class LogLines {
  readonly #words: Int32Array;
  readonly #index: number;
  readonly #send: (line: string) => void;
  #lost = 0;

  /** `words[index]`, in shared memory, counts the lines that wait: the main thread takes away those that it has written. */
  constructor(words: Int32Array, index: number, send: (line: string) => void) {
    this.#words = words;
    this.#index = index;
    this.#send = send;
  }

  /** `log` gets the number of lines that were lost before this one. */
  add(line: string, log: Log): void {
    if (Atomics.load(this.#words, this.#index) >= MOST_WAITING) {
      this.#lost++;
      return;
    }
    const lost = this.#lost;
    this.#lost = 0;
    if (lost > 0) log.warn("lines of this log are lost: they came faster than they could be written", { lines: lost });
    Atomics.add(this.#words, this.#index, 1);
    this.#send(line);
  }
}

/**
 * Sends the lines of a worker's logs to the main thread.
 */
import { entry } from "../base/event_loop.ts";
import { BoundedLines } from "../base/log.ts";

/** Lines that are sent and not written yet; further ones are lost. */
const MAX_WAITING = 10_000;

/**
 * Of the program's log, as long as the main thread writes them. `words[index]`, in shared memory, counts the lines that
 * wait: the main thread takes away those that it has written.
 */
export function sentLines(words: Int32Array, index: number, send: (line: string) => void): BoundedLines {
  return new BoundedLines(
    () => Atomics.load(words, index) >= MAX_WAITING,
    (line) => {
      Atomics.add(words, index, 1);
      send(line);
    },
  );
}

/** Lines wait this long for others, or until this many characters have arrived. */
const HOLD_MS = 50;
const BATCH_CHARACTERS = 64 * 1024;

/** Of the access log, many in a message. */
export class LineBatch {
  readonly #send: (lines: string) => void;
  #unsent = "";
  #timer: NodeJS.Timeout | null = null;

  constructor(send: (lines: string) => void) {
    this.#send = send;
  }

  add(lines: string): void {
    this.#unsent += lines;
    if (this.#unsent.length >= BATCH_CHARACTERS) this.flush();
    else
      this.#timer ??= setTimeout(
        entry("lines of the access log", () => this.flush()),
        HOLD_MS,
      );
  }

  flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#unsent === "") return;
    const lines = this.#unsent;
    this.#unsent = "";
    this.#send(lines);
  }
}

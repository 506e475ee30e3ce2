/**
 * Collects lines of the access log, so that a message carries many of them.
 */
import { entry } from "../base/event_loop.ts";

/** Lines wait this long for others, or until this many characters have arrived. */
const HOLD_MS = 50;
const BATCH_CHARACTERS = 64 * 1024;

export class LineBatch {
  readonly #send: (lines: string) => void;
  #held = "";
  #timer: NodeJS.Timeout | null = null;

  constructor(send: (lines: string) => void) {
    this.#send = send;
  }

  add(lines: string): void {
    this.#held += lines;
    if (this.#held.length >= BATCH_CHARACTERS) this.flush();
    else this.#timer ??= setTimeout(entry("lines of the access log", () => this.flush()), HOLD_MS);
  }

  flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#held === "") return;
    const lines = this.#held;
    this.#held = "";
    this.#send(lines);
  }
}

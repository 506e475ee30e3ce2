/**
 * Counts what each of many keys holds at the same time, over all workers of a program. What a dead worker held is given
 * back.
 */
import { NO_SLOT, REFUSED, SharedCounts } from "../base/shared_counts.ts";
import type { Threads } from "../base/threads.ts";
import type { HashSecret } from "./caller_tables.ts";
import { hashName } from "./memory.ts";

export class HeldCounts {
  readonly #counts: SharedCounts;
  /** Clients that knew it could choose keys that are counted as one. */
  readonly #secret: HashSecret;
  readonly #hash = new Int32Array(2);

  constructor(threads: Threads, name: string) {
    this.#counts = new SharedCounts(threads, name);
    this.#secret = [this.#counts.seed, ~this.#counts.seed];
  }

  /** See `KeyCounts`. */
  take(key: string, most: number): (() => void) | null {
    hashName(key, this.#secret, this.#hash);
    const at = this.#counts.take(this.#hash[0]!, this.#hash[1]!, most);
    return at === REFUSED || at === NO_SLOT ? null : () => this.#counts.give(at);
  }

  /** The worker with this number is dead. */
  clear(worker: number): void {
    this.#counts.clear(worker);
  }
}

/**
 * Counts the changes of targets for all workers of a program: a reply stored before a change, in whatever worker, is not used after it.
 */
import { randomInt } from "node:crypto";
import { mix } from "../../base/mix.ts";

/** Targets share counters: a change of one target also outdates the replies of about one in 4,095 others. */
export const CHANGE_COUNTERS = 4_096;
export const CHANGES_BYTES = CHANGE_COUNTERS * Int32Array.BYTES_PER_ELEMENT;

export class Changes {
  /** The seed of the hash, then the counters. */
  readonly #words: Int32Array;
  readonly #seed: number;

  /** `memory`: `CHANGES_BYTES`, all zero at first, and the same in all workers. */
  constructor(memory: ArrayBufferLike) {
    this.#words = new Int32Array(memory);
    // Random, so that no client can choose a target to change that shares its counter with another client's.
    Atomics.compareExchange(this.#words, 0, 0, randomInt(1, 2 ** 31));
    this.#seed = Atomics.load(this.#words, 0);
  }

  /** How often targets with the counter of this key have changed. */
  of(key: string): number {
    return Atomics.load(this.#words, this.place(key));
  }

  add(key: string): void {
    Atomics.add(this.#words, this.place(key), 1);
  }

  /** The index of the counter of a key. */
  place(key: string): number {
    let hash = this.#seed;
    for (let i = 0; i < key.length; i++) hash = mix(hash ^ key.charCodeAt(i));
    return 1 + (hash % (CHANGE_COUNTERS - 1));
  }
}

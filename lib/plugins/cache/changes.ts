/**
 * Counts the changes of targets for all workers of a program: a reply stored before a change, in whatever worker, is
 * not used after it.
 */
import { randomInt } from "node:crypto";
import { mix } from "../../base/mix.ts";

/** Targets share counters: a change of one target also outdates the replies of about one in 65,535 others. */
const WORDS = 65_536;
export const CHANGES_BYTES = WORDS * Int32Array.BYTES_PER_ELEMENT;

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
    return Atomics.load(this.#words, this.#place(key));
  }

  add(key: string): void {
    Atomics.add(this.#words, this.#place(key), 1);
  }

  /** 32 bits that no client can foresee. */
  hash(key: string): number {
    let hash = this.#seed;
    for (let i = 0; i < key.length; i++) hash = mix(hash ^ key.charCodeAt(i));
    return hash;
  }

  #place(key: string): number {
    return 1 + (this.hash(key) % (WORDS - 1));
  }
}

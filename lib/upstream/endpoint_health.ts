/**
 * Memory in which all threads find the health of the endpoints of one service, whose number and names change: each has
 * a place in it while it is an endpoint, under a hash of what it is.
 */
import { createHash } from "node:crypto";
import type { HealthPlace } from "./contracts.ts";
import { HEALTH_BYTES } from "./health.ts";

/** The hash in two words, then the health. */
const HASH_BYTES = 8;
const PLACE_BYTES = HASH_BYTES + HEALTH_BYTES;
/** First a word that goes up with each change of a hash. */
const HEADER_BYTES = 8;
const WORD_BYTES = Int32Array.BYTES_PER_ELEMENT;

export function healthTableBytes(places: number): number {
  return HEADER_BYTES + places * PLACE_BYTES;
}

/** Of 53 bits, as two words; never both 0, which stand for no endpoint. */
export interface EndpointHash {
  readonly low: number;
  readonly high: number;
}

/** `endpoint`: all that another one would differ in. */
export function endpointHash(endpoint: readonly (string | number)[]): EndpointHash {
  const digest = createHash("sha256").update(JSON.stringify(endpoint)).digest();
  return { low: digest.readInt32LE(0), high: (digest.readInt32LE(4) >>> 11) | 1 };
}

/** In the thread that decides, places are given; in others they are found. */
export class HealthTable {
  readonly memory: ArrayBufferLike;
  readonly #words: Int32Array;
  readonly #places: number;
  /** Where the search for a free place goes on. */
  #next = 0;
  /** In threads that find: the places by hash, as of `#version`. */
  readonly #found = new Map<number, number>();
  #version = -1;

  constructor(memory: ArrayBufferLike) {
    this.memory = memory;
    this.#words = new Int32Array(memory);
    this.#places = Math.floor((memory.byteLength - HEADER_BYTES) / PLACE_BYTES);
  }

  /** In the thread that decides. Null: there is none left, and other threads take the endpoint for usable. */
  give(hash: EndpointHash): HealthPlace | null {
    for (let i = 0; i < this.#places; i++) {
      const place = this.#next++ % this.#places;
      if (this.#words[wordOf(place) + 1] !== 0) continue;
      const health = this.#at(place);
      health.words.fill(0);
      this.#name(place, hash);
      return { ...health, free: () => void (this.#has(place, hash) && this.#name(place, NOBODY)) };
    }
    return null;
  }

  /** In other threads: the place of an endpoint, whenever it is looked at; before it has one, it is usable. */
  find(hash: EndpointHash): HealthPlace {
    let place = -1;
    let found = NO_PLACE;
    const look = () => {
      if (place >= 0 && this.#has(place, hash)) return found;
      place = this.#placeOf(hash);
      return (found = place < 0 ? NO_PLACE : this.#at(place));
    };
    return {
      memory: this.memory,
      get words() {
        return look().words;
      },
      get cells() {
        return look().cells;
      },
    };
  }

  #placeOf(hash: EndpointHash): number {
    const version = Atomics.load(this.#words, 0);
    if (version !== this.#version) {
      this.#version = version;
      this.#found.clear();
      for (let place = 0; place < this.#places; place++) {
        const word = wordOf(place);
        const [low, high] = [this.#words[word]!, this.#words[word + 1]!];
        if (high !== 0) this.#found.set(numberOf({ low, high }), place);
      }
    }
    return this.#found.get(numberOf(hash)) ?? -1;
  }

  #has(place: number, { low, high }: EndpointHash): boolean {
    const word = wordOf(place);
    return this.#words[word] === low && this.#words[word + 1] === high;
  }

  #name(place: number, { low, high }: EndpointHash): void {
    const word = wordOf(place);
    this.#words[word] = low;
    Atomics.store(this.#words, word + 1, high);
    Atomics.add(this.#words, 0, 1);
  }

  #at(place: number): HealthPlace {
    const from = HEADER_BYTES + place * PLACE_BYTES + HASH_BYTES;
    return healthAt(this.memory, from);
  }
}

const NOBODY: EndpointHash = { low: 0, high: 0 };
const NO_PLACE = healthAt(new ArrayBuffer(HEALTH_BYTES), 0);

function healthAt(memory: ArrayBufferLike, from: number): HealthPlace {
  return {
    memory,
    words: new Int32Array(memory, from, HEALTH_BYTES / WORD_BYTES),
    cells: new Float64Array(memory, from, HEALTH_BYTES / Float64Array.BYTES_PER_ELEMENT),
  };
}

function wordOf(place: number): number {
  return (HEADER_BYTES + place * PLACE_BYTES) / WORD_BYTES;
}

function numberOf({ low, high }: EndpointHash): number {
  return high * 2 ** 32 + (low >>> 0);
}

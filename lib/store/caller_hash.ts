/**
 * Reads a caller's name into whole numbers, and hashes these with a secret.
 * Where names are kept, and found again by their hash, is `caller_index.ts`.
 */
import { hash } from "node:crypto";

/** Longer names are kept as their hash, so that a caller cannot choose how much memory he costs. */
const LONGEST = 64;
/** Most whole numbers of four bytes that a name takes. */
export const MOST_INTS = LONGEST / 2 + 1;
/** Set beside the length when a number holds two code units instead of four. */
const WIDE = 128;

/** Two numbers of 32 bits. Who knew them could choose names that all hash alike, and make each decision slow. */
export type Secret = readonly [number, number];

/** One name at a time, read anew for each decision. */
export class Name {
  /** Four characters in each, or two when some are beyond Latin-1; in the last what is left, with the length above. */
  readonly ints = new Int32Array(MOST_INTS);
  count = 0;
  hash = 0;
  readonly #secret: Secret;

  constructor(secret: Secret) {
    this.#secret = secret;
  }

  read(given: string): void {
    // In UTF-16: in UTF-8 all halves of surrogate pairs, which a JWT may name somebody by, would be the same.
    const name = given.length > LONGEST ? "#" + hash("sha256", Buffer.from(given, "utf16le"), "base64url") : given;
    if (this.#pack(name, 8, name.length) > 0xff) this.#pack(name, 16, name.length | WIDE);
    this.hash = halfSipHash(this.ints, this.count, this.#secret);
  }

  /** Returns the bits that occur in the characters. */
  #pack(name: string, bits: 8 | 16, above: number): number {
    const { ints } = this;
    let seen = 0;
    let int = 0;
    let shift = 0;
    let count = 0;
    for (let i = 0; i < name.length; i++) {
      const code = name.charCodeAt(i);
      seen |= code;
      int |= code << shift;
      shift += bits;
      if (shift < 32) continue;
      ints[count++] = int;
      int = shift = 0;
    }
    ints[count++] = int | (above << 24);
    this.count = count;
    return seen;
  }
}

/** How many numbers a name takes whose last is this one. */
export function countOf(last: number): number {
  const length = (last >>> 24) & (WIDE - 1);
  return (length >> (last >>> 31 === 1 ? 1 : 2)) + 1;
}

/**
 * HalfSipHash-1-3 with a result of 32 bits (https://github.com/veorq/SipHash), which Linux has for its tables. The last number of
 * the message bears the length, as it is to. Not for secrets: what it gives is never told.
 */
export function halfSipHash(message: Int32Array, count: number, [k0, k1]: Secret): number {
  let v0 = k0;
  let v1 = k1;
  let v2 = 0x6c796765 ^ k0;
  let v3 = 0x74656462 ^ k1;
  for (let i = 0; i < count + 3; i++) {
    const m = i < count ? message[i]! : 0;
    if (i === count) v2 ^= 0xff;
    v3 ^= m;
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
    v0 ^= m;
  }
  return v1 ^ v3;
}

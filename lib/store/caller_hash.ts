/**
 * Hashes the names of callers with a secret, to 64 bits that stand for the name.
 */
import { hash } from "node:crypto";

/** Two numbers of 32 bits. A client that knew them could choose colliding names, to slow look-ups or to use up another caller's limit. */
export type Secret = readonly [number, number];

/** Longer names go through SHA-256 first: a header of 16 kB would take too long here. */
const LONGEST = 64;

/** Writes the two halves of a name's hash to `result`. Two names get the same one with a probability of 2^-64. */
export function hashName(name: string, secret: Secret, result: Int32Array): void {
  // In UTF-16: in UTF-8 all halves of surrogate pairs, which a JWT may name somebody by, would be the same.
  halfSipHash(name.length > LONGEST ? hash("sha256", Buffer.from(name, "utf16le"), "base64url") : name, secret, result);
}

/**
 * HalfSipHash-1-3 (https://github.com/veorq/SipHash) of a text in UTF-16, two code units a word. The first half is the hash of 32 bits that
 * Linux uses for its tables; the second one comes after three more rounds, as in the variant of 64 bits.
 */
function halfSipHash(text: string, [k0, k1]: Secret, result: Int32Array): void {
  let v0 = k0;
  let v1 = k1;
  let v2 = 0x6c796765 ^ k0;
  let v3 = 0x74656462 ^ k1;
  const last = text.length >> 1;
  for (let i = 0; i < last + 7; i++) {
    let word = 0;
    if (i < last) word = text.charCodeAt(2 * i) | (text.charCodeAt(2 * i + 1) << 16);
    else if (i === last) word = (text.length & 1 ? text.charCodeAt(2 * i) : 0) | (text.length << 25); // with the length in bytes
    else if (i === last + 1) v2 ^= 0xff;
    else if (i === last + 4) {
      result[0] = v1 ^ v3;
      v1 ^= 0xdd;
    }
    v3 ^= word;
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
    v0 ^= word;
  }
  result[1] = v1 ^ v3;
}

/**
 * Mixes the bits of a 32-bit integer, for hash tables and draws.
 */

/** Spreads every bit over all 32 (the finalizer of MurmurHash3); unsigned. */
export function mix(value: number): number {
  let hash = value;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/**
 * One list of callers, of the configuration itself or of one file, with what finds a caller by id and by the hash of a
 * key.
 */
import { hash, timingSafeEqual } from "node:crypto";
import { mix, textHash } from "../base/mix.ts";

/** A caller as the schema returns it. */
export interface CallerEntry {
  readonly id: string;
  readonly groups: readonly string[];
  readonly keys: readonly { readonly key?: string; readonly keySha256?: string; readonly expiresAt?: string }[];
  readonly enabled: boolean;
}

export interface Caller {
  readonly id: string;
  readonly groups: readonly string[];
  readonly enabled: boolean;
  /** Its place in the list. */
  readonly index: number;
  /** How many it has. */
  keys: number;
}

/** A key that two callers would share, or one caller would have twice. */
export interface SameKey {
  readonly index: number;
  readonly key: number;
}

const DIGEST_BYTES = 32;
const NO_GROUPS: readonly string[] = Object.freeze([]);

export class CallerList {
  /** Absolute path of its file; undefined: the list is in the configuration itself. */
  readonly file: string | undefined;
  readonly callers: Caller[] = [];
  /** Differs where the callers do. */
  fingerprint = 0;
  readonly #byId = new Map<string, Caller>();
  /** The hashes of all keys, one after the other. */
  #digests = Buffer.alloc(64 * DIGEST_BYTES);
  /** The caller of each key. */
  readonly #owners: Caller[] = [];
  /** The last key whose hash begins with these bits, and for each key the one before it: -1, none. */
  readonly #buckets = new Map<number, number>();
  readonly #before: number[] = [];
  /** When keys end, in milliseconds since 1970, by their numbers. */
  readonly ends = new Map<number, number>();

  constructor(file?: string) {
    this.file = file;
  }

  /** Undefined: the id is new. */
  withId(id: string): Caller | undefined {
    return this.#byId.get(id);
  }

  add({ id, groups, enabled }: CallerEntry): Caller {
    const caller: Caller = {
      id,
      groups: groups.length === 0 ? NO_GROUPS : Object.freeze(groups),
      enabled,
      index: this.callers.length,
      keys: 0,
    };
    this.callers.push(caller);
    this.#byId.set(id, caller);
    this.fingerprint = mix(this.fingerprint ^ textHash(id));
    return caller;
  }

  /** `endsAt`: in milliseconds since 1970, or `Infinity`. */
  addKey(owner: Caller, digest: Buffer, endsAt: number): void {
    owner.keys++;
    const number = this.#owners.push(owner) - 1;
    if (endsAt !== Infinity) this.ends.set(number, endsAt);
    const end = (number + 1) * DIGEST_BYTES;
    if (end > this.#digests.length) this.#digests = Buffer.concat([this.#digests], this.#digests.length * 2);
    digest.copy(this.#digests, number * DIGEST_BYTES);
    const bucket = bucketOf(digest);
    this.#before.push(this.#buckets.get(bucket) ?? -1);
    this.#buckets.set(bucket, number);
  }

  /**
   * The number of the key with this hash; -1: there is none. The bits of the hash that choose the keys to compare say
   * nothing about a key:
   * who could tell by the time that a guess comes close has not come closer to the key itself. The comparison takes the
   * same time for all.
   */
  keyWith(digest: Buffer): number {
    let found = -1;
    for (let i = this.#buckets.get(bucketOf(digest)) ?? -1; i >= 0; i = this.#before[i]!)
      if (timingSafeEqual(this.#digest(i), digest)) found = i;
    return found;
  }

  ownerOf(key: number): Caller {
    return this.#owners[key]!;
  }

  /** The place of a key, such as `[3].keys[0]`, for messages. */
  placeOfKey(key: number): SameKey {
    const owner = this.#owners[key]!;
    let first = key;
    while (first > 0 && this.#owners[first - 1] === owner) first--;
    return { index: owner.index, key: key - first };
  }

  /** All hashes, each with its number. */
  *digests(): Generator<readonly [number, Buffer]> {
    for (let i = 0; i < this.#owners.length; i++) yield [i, this.#digest(i)];
  }

  #digest(key: number): Buffer {
    return this.#digests.subarray(key * DIGEST_BYTES, (key + 1) * DIGEST_BYTES);
  }
}

/** 30 bits: a small integer, which takes no memory of its own. */
function bucketOf(digest: Buffer): number {
  return digest.readUInt32LE(0) >>> 2;
}

export function digestOf(entry: CallerEntry["keys"][number]): Buffer {
  return entry.key !== undefined ? hash("sha256", entry.key, "buffer") : Buffer.from(entry.keySha256!, "hex");
}

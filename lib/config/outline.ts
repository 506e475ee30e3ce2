/**
 * Divides the text of a configuration into its services and the values beside them, without reading what is in them.
 * Each array or object among them is named by the digest of its text. One that stands where the configuration before
 * has it, byte for byte, is neither looked through nor hashed again: a change costs what has changed.
 */
import { HALF_PAIR } from "./json.ts";
import {
  afterMark,
  afterSpace,
  BRACE,
  BRACKET,
  COLON,
  COMMA,
  digestSteps,
  END_BRACE,
  END_BRACKET,
  endSteps,
  QUOTE,
} from "./value_text.ts";

/** A value between two offsets, in bytes. `digest`: of an array or object. */
export interface OutlinedValue {
  readonly offset: number;
  readonly end: number;
  readonly digest?: string;
  /** Of the list of services. */
  readonly items?: readonly OutlinedValue[];
}

export interface OutlinedMember {
  readonly key: string;
  readonly keyOffset: number;
  readonly value: OutlinedValue;
}

export interface Outline {
  readonly bytes: Buffer;
  /** Of the root. */
  readonly offset: number;
  readonly members: readonly OutlinedMember[];
  /** Those with a digest, in their order. */
  readonly named: readonly OutlinedValue[];
}

/** Far more than a configuration has. */
const MAX_MEMBERS = 100;
/** Less than a millisecond of work, where they are as they were. */
const VALUES_OF_A_STEP = 64;

/**
 * Null: the text is not one object, has an error between its parts, or is not divided as configurations are. Errors in
 * the parts are not found.
 */
export function* outlineSteps(bytes: Buffer, before: Outline | null): Generator<void, Outline | null> {
  return yield* new Outliner(bytes, before).root();
}

class Outliner {
  readonly #bytes: Buffer;
  readonly #before: Outline | null;
  /** Of those of before, the one that is expected next. */
  #next = 0;
  #places: Map<string, number> | null = null;
  readonly #named: OutlinedValue[] = [];
  #at: number;

  constructor(bytes: Buffer, before: Outline | null) {
    this.#bytes = bytes;
    this.#before = before;
    this.#at = afterMark(bytes);
  }

  *root(): Generator<void, Outline | null> {
    const bytes = this.#bytes;
    const members: OutlinedMember[] = [];
    const seen = new Set<string>();
    if (this.#code() !== BRACE) return null;
    const offset = this.#at++;
    while (this.#code() !== END_BRACE || members.length > 0) {
      if (this.#code() !== QUOTE) return null;
      const keyOffset = this.#at;
      const key = textOf(bytes, keyOffset, yield* this.#end());
      if (key === null || seen.has(key) || this.#code() !== COLON) return null;
      seen.add(key);
      this.#at++;
      const value = yield* this.#code() === BRACKET && key === "services" ? this.#services() : this.#value();
      if (value === null || members.length === MAX_MEMBERS) return null;
      members.push({ key, keyOffset, value });
      if (this.#code() === END_BRACE) break;
      if (this.#code() !== COMMA) return null;
      this.#at++;
    }
    this.#at++;
    return afterSpace(bytes, this.#at) < bytes.length ? null : { bytes, offset, members, named: this.#named };
  }

  *#services(): Generator<void, OutlinedValue | null> {
    const offset = this.#at++;
    const items: OutlinedValue[] = [];
    while (this.#code() !== END_BRACKET || items.length > 0) {
      const item = yield* this.#value();
      if (item?.digest === undefined) return null;
      if (items.push(item) % VALUES_OF_A_STEP === 0) yield;
      if (this.#code() === END_BRACKET) break;
      if (this.#code() !== COMMA) return null;
      this.#at++;
    }
    return { offset, end: ++this.#at, items };
  }

  /** Null: no value begins here. */
  *#value(): Generator<void, OutlinedValue | null> {
    const code = this.#code();
    const offset = this.#at;
    if (code !== BRACE && code !== BRACKET) {
      const end = yield* this.#end();
      return end === offset ? null : { offset, end };
    }
    const known = this.#asBefore(offset);
    if (known !== null) {
      this.#at = known.end;
      this.#named.push(known);
      return known;
    }
    const end = yield* this.#end();
    // With the closing brackets: of a text that is not parsed they are all that tells whether they are the right ones.
    const value = { offset, end, digest: yield* digestSteps(this.#bytes, offset, end) };
    this.#named.push(value);
    this.#expectAfter(value.digest);
    yield;
    return value;
  }

  /** The value of before that is expected here, or the one behind it: this one may be gone, or have changed. */
  #asBefore(offset: number): OutlinedValue | null {
    const { bytes, named } = this.#before ?? NOTHING;
    for (const next of [this.#next, this.#next + 1]) {
      const value = named[next];
      if (value === undefined) return null;
      const end = offset + value.end - value.offset;
      if (end > this.#bytes.length || bytes.compare(this.#bytes, offset, end, value.offset, value.end) !== 0) continue;
      this.#next = next + 1;
      return { ...value, offset, end };
    }
    return null;
  }

  /** A value that has moved says where those behind it are. */
  #expectAfter(digest: string): void {
    const { named } = this.#before ?? NOTHING;
    this.#places ??= new Map(named.map((value, i) => [value.digest!, i]));
    const place = this.#places.get(digest);
    if (place !== undefined) this.#next = place + 1;
    else if (this.#next < named.length) this.#next++;
  }

  /** Of what comes next, behind space. */
  #code(): number | undefined {
    this.#at = afterSpace(this.#bytes, this.#at);
    return this.#bytes[this.#at];
  }

  *#end(): Generator<void, number> {
    return (this.#at = yield* endSteps(this.#bytes, this.#at));
  }
}

const NOTHING = { bytes: Buffer.alloc(0), named: [] as readonly OutlinedValue[] };

/** The key between two offsets; null: it is not one. */
function textOf(bytes: Buffer, from: number, to: number): string | null {
  try {
    const key: unknown = JSON.parse(KEYS.decode(bytes.subarray(from, to)));
    return typeof key === "string" && !HALF_PAIR.test(key) ? key : null;
  } catch {
    return null;
  }
}

const KEYS = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Reads values of ASN.1 in DER (X.690), one after the other.
 */

export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
  /** Context-specific and constructed, number 0. */
  context0: 0xa0,
} as const;

/**
 * The values within a range of bytes. Accepts definite lengths in as few bytes as they need (§10.1) and tags of one
 * byte; everything else throws an error that says at which byte, and so does a value of another tag than the expected.
 */
export class Der {
  readonly bytes: Buffer;
  readonly #end: number;
  #at: number;

  constructor(bytes: Buffer, from = 0, end = bytes.length) {
    this.bytes = bytes;
    this.#at = from;
    this.#end = end;
  }

  /** Whether a value follows; with a tag: whether one of it does. */
  has(tag?: number): boolean {
    return this.#at < this.#end && (tag === undefined || this.bytes[this.#at] === tag);
  }

  /** The values within the next value. */
  enter(tag: number): Der {
    const from = this.#content(tag);
    const inner = new Der(this.bytes, from, this.#next);
    this.#at = this.#next;
    return inner;
  }

  /** The content of the next value. */
  content(tag: number): Buffer {
    const from = this.#content(tag);
    this.#at = this.#next;
    return this.bytes.subarray(from, this.#next);
  }

  /** The same with one character for each byte: for many values, which then need no buffers. */
  latin1(tag: number): string {
    const from = this.#content(tag);
    this.#at = this.#next;
    return this.bytes.toString("latin1", from, this.#next);
  }

  skip(tag: number): void {
    this.#content(tag);
    this.#at = this.#next;
  }

  /** The next value with its tag and length. Default: of any tag. */
  whole(tag?: number): Buffer {
    const from = this.#at;
    this.#content(tag ?? this.bytes[from] ?? 0);
    this.#at = this.#next;
    return this.bytes.subarray(from, this.#next);
  }

  /** Dotted: "2.5.29.27". */
  oid(): string {
    const parts: number[] = [];
    let part = 0;
    for (const byte of this.content(TAG.oid)) {
      part = part * 128 + (byte & 0x7f);
      if (byte >= 0x80) continue;
      if (parts.length > 0) parts.push(part);
      // The first two are one number (§8.19.4).
      else parts.push(Math.min(Math.floor(part / 40), 2), part - 40 * Math.min(Math.floor(part / 40), 2));
      part = 0;
    }
    return parts.join(".");
  }

  /** In milliseconds since 1970, in one of the two forms of RFC 5280 §4.1.2.5: with seconds, in UTC. */
  time(): number {
    const isShort = this.has(TAG.utcTime);
    const text = this.content(isShort ? TAG.utcTime : TAG.generalizedTime).toString("latin1");
    // §4.1.2.5.1: two digits are of 1950 to 2049.
    const full = !isShort ? text : `${Number(text.slice(0, 2)) < 50 ? "20" : "19"}${text}`;
    const parts = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(full)?.slice(1);
    const iso = parts && `${parts.slice(0, 3).join("-")}T${parts.slice(3).join(":")}.000Z`;
    const time = Date.parse(iso ?? "");
    if (Number.isNaN(time) || new Date(time).toISOString() !== iso) this.#fail("is no time");
    return time;
  }

  /** Throws where a value follows. */
  end(): void {
    if (this.has()) this.#fail("is too much");
  }

  /** Where the value ends that `#content` has looked at. */
  #next = 0;

  #content(tag: number): number {
    const { bytes } = this;
    if (!this.has(tag)) this.#fail(this.has() ? "has another type than is expected" : "is missing");
    let from = this.#at + 2;
    let length = bytes[this.#at + 1] ?? 0;
    if (length >= 0x80) {
      const count = length & 0x7f;
      if (count === 0 || count > 4 || from + count > this.#end) this.#fail("has no length of DER");
      length = bytes.readUIntBE(from, count);
      from += count;
      if (length < 0x80 || length < 2 ** (8 * (count - 1))) this.#fail("has no length of DER");
    }
    if (from + length > this.#end) this.#fail("is cut off");
    this.#next = from + length;
    return from;
  }

  #fail(how: string): never {
    throw new Error(`what is at byte ${this.#at} ${how}`);
  }
}

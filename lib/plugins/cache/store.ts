/**
 * Keeps replies by target and by what their Vary names, within a bound of bytes: the least recently used goes first.
 */
import { headerValues, type HeaderList } from "../../http/headers.ts";

/** On what terms a stored reply may be used (sections of RFC 9111); milliseconds throughout. */
export interface Terms {
  /** How old a reply may become before it is stale (§4.2.1). */
  readonly lifetime: number;
  /** How old it was when it was received (§4.2.3). */
  readonly ageThen: number;
  /** Never without validation. */
  readonly noCache: boolean;
  /** Never once it is stale: must-revalidate, proxy-revalidate, s-maxage (§4.2.4). */
  readonly neverStale: boolean;
  readonly staleWhileRevalidate: number;
  readonly staleIfError: number;
  /** Also for requests with credentials (§3.5). */
  readonly forAuthorised: boolean;
}

/** A stored reply. Never changed; replaced by another. */
export interface Entry {
  readonly key: string;
  /** Of the route that it was requested by: it answers no request of another one. */
  readonly audience: string;
  /** Names in Vary, in lower case, and what the request had for each. */
  readonly vary: readonly string[];
  readonly variant: string;
  readonly status: number;
  readonly reason: string | undefined;
  readonly headers: HeaderList;
  readonly body: Buffer | null;
  readonly terms: Terms;
  /** `clock.now()` when its head was received. */
  readonly cameAt: number;
}

/** An entry, or the note that a target's replies cannot be shared. */
interface Item {
  readonly key: string;
  /** Without the body. */
  readonly bytes: number;
  readonly entry: Entry | null;
  /** For notes: until when. */
  readonly until: number;
}

export class CacheStore {
  readonly #most: number;
  #used = 0;
  /** Bytes of `#used` that dropping entries would not free. */
  #fixed = 0;
  /** Each body counts once, however many entries hold it and clients are being sent it. */
  readonly #bodies = new Map<Buffer, { entries: number; readers: number }>();
  /** By key; the newest first. */
  readonly #groups = new Map<string, Item[]>();
  /** The least recently used first. */
  readonly #order = new Set<Item>();
  #closed = false;

  constructor(mostBytes: number) {
    this.#most = mostBytes;
  }

  /** Bytes of all entries, reservations and bodies that are being sent. Never more than the bound. */
  get used(): number {
    return this.#used;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** The newest entry of a target that was made for such a request (RFC 9111 §4.1), under the same audience. */
  find(key: string, audience: string, headers: HeaderList): Entry | null {
    const group = this.#groups.get(key);
    if (group === undefined) return null;
    for (const item of group) {
      if (item.entry === null || item.entry.audience !== audience || !isFor(item.entry, headers)) continue;
      this.#order.delete(item);
      this.#order.add(item);
      return item.entry;
    }
    return null;
  }

  /** The Vary of the newest entry of a target under this audience; null when there is none. */
  varyOf(key: string, audience: string): readonly string[] | null {
    return this.#group(key).find(({ entry }) => entry?.audience === audience)?.entry?.vary ?? null;
  }

  /** Replaces the entries that a request with these headers would have got. False when there is no room. */
  put(entry: Entry, headers: HeaderList): boolean {
    this.#dropWhere(entry.key, (other) => other === null || (other.audience === entry.audience && isFor(other, headers)));
    return this.#add({ key: entry.key, bytes: bytesOf(entry) - (entry.body?.length ?? 0), entry, until: 0 });
  }

  /** Whether it is neither replaced nor dropped. */
  holds(entry: Entry): boolean {
    return this.#group(entry.key).some((item) => item.entry === entry);
  }

  remove(entry: Entry): void {
    this.#dropWhere(entry.key, (other) => other === entry);
  }

  /** Everything that is known of a target. */
  removeAll(key: string): void {
    this.#dropWhere(key, () => true);
  }

  /** Notes that nobody should wait for another request's reply from this target. */
  markUnshared(key: string, until: number): void {
    this.#dropWhere(key, (entry) => entry === null);
    this.#add({ key, bytes: OVERHEAD + key.length, entry: null, until });
  }

  isUnshared(key: string, now: number): boolean {
    return this.#group(key).some(({ entry, until }) => entry === null && now < until);
  }

  /** Sets bytes aside for a body that is being received, and drops entries for it. False when that is not enough. */
  reserve(bytes: number): boolean {
    if (!this.#makeRoom(bytes)) return false;
    this.#used += bytes;
    this.#fixed += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#used -= bytes;
    this.#fixed -= bytes;
  }

  /** A client is being sent this body: it counts until the returned function is called, whether it is still stored or not. */
  hold(body: Buffer): () => void {
    this.#count(body, "readers", 1);
    return () => this.#count(body, "readers", -1);
  }

  /** Drops everything, and stores nothing any more. */
  close(): void {
    this.#closed = true;
    for (const item of this.#order) this.#drop(item);
  }

  #group(key: string): readonly Item[] {
    return this.#groups.get(key) ?? NOTHING;
  }

  #dropWhere(key: string, matches: (entry: Entry | null) => boolean): void {
    for (const item of [...this.#group(key)]) if (matches(item.entry)) this.#drop(item);
  }

  #add(item: Item): boolean {
    const body = item.entry?.body ?? null;
    const isRead = body !== null && (this.#bodies.get(body)?.readers ?? 0) > 0;
    // A body that a client is being sent is counted already.
    if (!this.#makeRoom(item.bytes + (isRead ? 0 : (body?.length ?? 0)))) return false;
    this.#used += item.bytes;
    if (body !== null) this.#count(body, "entries", 1);
    const group = this.#groups.get(item.key);
    if (group === undefined) this.#groups.set(item.key, [item]);
    else {
      group.unshift(item);
      if (group.length > MOST_VARIANTS) this.#drop(group.at(-1)!);
    }
    this.#order.add(item);
    return true;
  }

  #makeRoom(bytes: number): boolean {
    if (this.#closed || this.#fixed + bytes > this.#most) return false;
    for (const item of this.#order) {
      if (this.#used + bytes <= this.#most) return true;
      this.#drop(item);
    }
    return this.#used + bytes <= this.#most;
  }

  #drop(item: Item): void {
    this.#order.delete(item);
    this.#used -= item.bytes;
    if (item.entry !== null && item.entry.body !== null) this.#count(item.entry.body, "entries", -1);
    const group = this.#groups.get(item.key)!;
    if (group.length === 1) this.#groups.delete(item.key);
    else group.splice(group.indexOf(item), 1);
  }

  #count(body: Buffer, whose: "entries" | "readers", change: 1 | -1): void {
    const counts = this.#bodies.get(body) ?? { entries: 0, readers: 0 };
    if (counts.entries + counts.readers === 0) {
      this.#used += body.length;
      this.#bodies.set(body, counts);
    }
    if (whose === "readers" && counts.readers === 0) this.#fixed += body.length;
    counts[whose] += change;
    if (whose === "readers" && counts.readers === 0) this.#fixed -= body.length;
    if (counts.entries + counts.readers > 0) return;
    this.#used -= body.length;
    this.#bodies.delete(body);
  }
}

const NOTHING: readonly Item[] = [];

/** Of one target. A look-up compares with each: a Vary on a header that differs for every client must not make that slow. */
const MOST_VARIANTS = 32;

/** Bytes that an entry takes beside its text and body, and a header line beside its text: generous estimates. */
const OVERHEAD = 512;
const LINE_OVERHEAD = 64;

export function bytesOf({ key, variant, headers, body }: Pick<Entry, "key" | "variant" | "headers" | "body">): number {
  let bytes = OVERHEAD + key.length + variant.length + (body?.length ?? 0) + (headers.length / 2) * LINE_OVERHEAD;
  for (const text of headers) bytes += text.length;
  return bytes;
}

/** Whether the request that it answered had the same values of the headers in its Vary (§4.1). */
function isFor({ vary, variant }: Entry, headers: HeaderList): boolean {
  return variantOf(vary, headers) === variant;
}

/** A request's values of the named headers: lines joined, space around commas left out. A missing header differs from an empty one. */
export function variantOf(vary: readonly string[], headers: HeaderList): string {
  let variant = "";
  for (const name of vary) {
    const values = headerValues(headers, name);
    variant += values.length === 0 ? "-\n" : `=${values.join(",").split(",").map((value) => value.trim()).join(",")}\n`;
  }
  return variant;
}

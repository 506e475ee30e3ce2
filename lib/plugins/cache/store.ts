/**
 * Stores replies by target and Vary within a limit of bytes: the least recently used is dropped first.
 */
import { headerValues, trimmed, type HeaderList } from "../../http/headers.ts";
import { type Changes } from "./changes.ts";

/** The conditions for using a stored reply (sections of RFC 9111); times in milliseconds. */
export interface Terms {
  /** How old a reply may become before it is stale (§4.2.1). */
  readonly lifetime: number;
  /** Whether the origin has stated no lifetime. */
  readonly isImplied: boolean;
  /** How old it was when it was received (§4.2.3). */
  readonly ageThen: number;
  /** Must be validated before each use. */
  readonly noCache: boolean;
  /** Must not be used once it is stale: must-revalidate, proxy-revalidate, s-maxage (§4.2.4). */
  readonly neverStale: boolean;
  readonly staleWhileRevalidate: number;
  readonly staleIfError: number;
  /** May answer requests with credentials (§3.5). */
  readonly forAuthorised: boolean;
}

/** A stored reply. Immutable; replaced by another entry. */
export interface Entry {
  readonly key: string;
  /** The names in Vary, in lower case, and the values of the request. */
  readonly vary: readonly string[];
  readonly variant: string;
  readonly status: number;
  readonly reason: string | undefined;
  readonly headers: HeaderList;
  readonly body: Buffer | null;
  readonly terms: Terms;
  /** `clock.now()` when its head was received. */
  readonly cameAt: number;
  /** `changesOf` its target before the upstream was asked. */
  readonly changes: number;
  /** Of the request. */
  readonly service: string;
  readonly route: string;
}

/** What the stores of one plugin instance report, in this thread. */
export interface InstanceStores {
  /** The first is in force; a second one belongs to a configuration that may replace it. */
  readonly stores: Set<CacheStore>;
  /** Replies that were dropped for want of room, by all of its stores so far. */
  evictions: number;
}

/** By the key of the plugin instance (`Scope`). */
export type AllStores = Map<string, InstanceStores>;

export class CacheStore {
  readonly maxBytes: number;
  readonly #changes: Changes;
  readonly #counts: Pick<InstanceStores, "evictions">;
  #used = 0;
  /** Bytes of `#used` that dropping entries would not free. */
  #fixed = 0;
  /** Each body counts once, even if several entries and clients use it. */
  readonly #bodies = new Map<Buffer, { entries: number; readers: number }>();
  /** Entries by key, the newest first. */
  readonly #groups = new Map<string, Entry[]>();
  /** All entries, the least recently used first. */
  readonly #order = new Set<Entry>();
  /** Until when requests do not wait for one another, by the hash of their key, the newest last. */
  readonly #unshared = new Map<number, number>();
  #closed = false;
  #purges = 0;

  constructor(maxBytes: number, changes: Changes, counts: Pick<InstanceStores, "evictions"> = { evictions: 0 }) {
    this.maxBytes = maxBytes;
    this.#changes = changes;
    this.#counts = counts;
  }

  get entries(): number {
    return this.#order.size;
  }

  /** Bytes of all entries, reservations and bodies that are being sent. Never more than the bound. */
  get used(): number {
    return this.#used;
  }

  /** The newest entry of a key that matches the request (RFC 9111 §4.1). */
  find(key: string, headers: HeaderList): Entry | null {
    const group = this.#group(key);
    if (group.length === 0) return null;
    const changes = this.#ofTarget(key);
    for (const entry of group) {
      if (entry.changes % PURGE !== changes || !isFor(entry, headers)) continue;
      this.#order.delete(entry);
      this.#order.add(entry);
      return entry;
    }
    this.#dropWhere(key, (entry) => entry.changes % PURGE !== changes);
    return null;
  }

  /** The Vary of the newest entry of a key; null when there is none. */
  varyOf(key: string): readonly string[] | null {
    return this.#group(key)[0]?.vary ?? null;
  }

  /** Differs where a target has changed, in whatever worker, or where replies were purged here. */
  changesOf(key: string): number {
    return this.#purges * PURGE + this.#ofTarget(key);
  }

  #ofTarget(key: string): number {
    const end = key.indexOf(END_OF_TARGET);
    return this.#changes.of(end < 0 ? key : key.slice(0, end)) >>> 0;
  }

  /**
   * No reply that was asked for before is stored from now on, or given to those that ask later. Returns the entries by
   * key, each of which is there once, also where requests use it meanwhile; those with fewer `changes` than `before`
   * are the ones of now.
   */
  beginPurge(): { readonly groups: Iterable<readonly Entry[]>; readonly before: number } {
    this.#purges++;
    return { groups: this.#groups.values(), before: this.#purges * PURGE };
  }

  /**
   * Whether a reply may be stored: one that was requested before a change of its target may be older than the change.
   */
  takes({ key, changes }: Pick<Entry, "key" | "changes">): boolean {
    return !this.#closed && changes === this.changesOf(key);
  }

  /**
   * Replaces the entries that match these request headers. False if there is no room, or if the target has changed
   * meanwhile.
   */
  put(entry: Entry, headers: HeaderList): boolean {
    if (!this.takes(entry)) return false;
    this.#unshared.delete(this.#changes.hash(entry.key));
    this.#dropWhere(entry.key, (other) => isFor(other, headers));
    return this.#add(entry);
  }

  /** Whether the entry is still stored. */
  holds(entry: Entry): boolean {
    return this.#group(entry.key).includes(entry);
  }

  remove(entry: Entry): void {
    this.#dropWhere(entry.key, (other) => other === entry);
  }

  /**
   * The target has changed: outdates its entries under all keys, in all stores and workers. They are dropped when they
   * are looked for.
   */
  change(target: string): void {
    this.#changes.add(target);
  }

  /** Requests of this key should not wait for one another, until then or until a reply is stored. */
  markUnshared(key: string, until: number): void {
    const hash = this.#changes.hash(key);
    this.#unshared.delete(hash);
    if (this.#unshared.size === MAX_UNSHARED) this.#unshared.delete(this.#unshared.keys().next().value!);
    this.#unshared.set(hash, until);
  }

  isUnshared(key: string, now: number): boolean {
    return now < (this.#unshared.get(this.#changes.hash(key)) ?? 0);
  }

  /** Reserves bytes for a body that is being received, dropping entries if needed. False if that is not enough. */
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

  /**
   * Counts a body that is being sent to a client until the returned function is called, even if it is no longer stored.
   */
  hold(body: Buffer): () => void {
    this.#count(body, "readers", 1);
    return () => this.#count(body, "readers", -1);
  }

  /** Drops everything and stores nothing from now on. */
  close(): void {
    this.#closed = true;
    for (const entry of this.#order) this.#drop(entry);
  }

  #group(key: string): readonly Entry[] {
    return this.#groups.get(key) ?? NOTHING;
  }

  #dropWhere(key: string, matches: (entry: Entry) => boolean): void {
    for (const entry of [...this.#group(key)]) if (matches(entry)) this.#drop(entry);
  }

  #add(entry: Entry): boolean {
    const { key, body } = entry;
    const length = body?.length ?? 0;
    const bytes = bytesOf(entry) - length;
    const isRead = body !== null && (this.#bodies.get(body)?.readers ?? 0) > 0;
    // A body that is being sent to a client is already counted.
    if (!this.#makeRoom(bytes + (isRead ? 0 : length))) return false;
    this.#used += bytes;
    if (body !== null) this.#count(body, "entries", 1);
    const group = this.#groups.get(key) ?? [];
    this.#groups.set(key, group);
    if (group.unshift(entry) > MAX_VARIANTS) this.#evict(group.at(-1)!);
    this.#order.add(entry);
    return true;
  }

  #makeRoom(bytes: number): boolean {
    if (this.#closed || this.#fixed + bytes > this.maxBytes) return false;
    for (const entry of this.#order) {
      if (this.#used + bytes <= this.maxBytes) return true;
      this.#evict(entry);
    }
    return this.#used + bytes <= this.maxBytes;
  }

  #evict(entry: Entry): void {
    this.#counts.evictions++;
    this.#drop(entry);
  }

  #drop(entry: Entry): void {
    const { key, body } = entry;
    this.#order.delete(entry);
    this.#used -= bytesOf(entry) - (body?.length ?? 0);
    if (body !== null) this.#count(body, "entries", -1);
    const group = this.#groups.get(key)!;
    group.splice(group.indexOf(entry), 1);
    if (group.length === 0) this.#groups.delete(key);
  }

  #count(body: Buffer, whose: "entries" | "readers", change: 1 | -1): void {
    const counts = this.#bodies.get(body) ?? { entries: 0, readers: 0 };
    const { entries, readers } = counts;
    counts[whose] += change;
    if (readers > 0 !== counts.readers > 0) this.#fixed += change * body.length;
    if (entries + readers > 0 && counts.entries + counts.readers > 0) return;
    this.#used += change * body.length;
    if (change > 0) this.#bodies.set(body, counts);
    else this.#bodies.delete(body);
  }
}

const NOTHING: readonly Entry[] = [];
/** In `changesOf`, beyond the changes of a target. */
const PURGE = 2 ** 32;
/** Keys whose requests do not wait for one another: of more, the oldest wait again, and are noted anew. */
const MAX_UNSHARED = 4_096;

/** Entries per target. A look-up compares with each: a Vary on a header with many values must not make it slow. */
const MAX_VARIANTS = 32;

/** Generous estimates of the overhead in bytes of an entry and of a header line. */
const OVERHEAD = 512;
const LINE_OVERHEAD = 64;

/** In a key, between its target and what else selects the reply. No header and no target can contain it. */
export const END_OF_TARGET = "\0";

export function bytesOf({ key, variant, headers, body }: Pick<Entry, "key" | "variant" | "headers" | "body">): number {
  let bytes = OVERHEAD + key.length + variant.length + (body?.length ?? 0) + (headers.length / 2) * LINE_OVERHEAD;
  for (const text of headers) bytes += text.length;
  return bytes;
}

/** Whether the request has the same values for the headers in Vary as the original request (§4.1). */
function isFor({ vary, variant }: Entry, headers: HeaderList): boolean {
  return variantOf(vary, headers) === variant;
}

/**
 * The values of the named headers: lines joined, space around commas removed. A missing header differs from an empty
 * one.
 */
export function variantOf(vary: readonly string[], headers: HeaderList): string {
  let variant = "";
  for (const name of vary) {
    const values = headerValues(headers, name);
    variant +=
      values.length === 0
        ? "-\n"
        : `=${values
            .join(",")
            .split(",")
            .map((value) => trimmed(value, 0, value.length))
            .join(",")}\n`;
  }
  return variant;
}

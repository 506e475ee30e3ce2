/**
 * Caches results that are expensive to compute, for many owners within one limit of bytes. When it is full, results
 * that were not used recently are dropped first, regardless of their owner.
 */

/** Bounds the time of one insertion, even if every result was used recently. */
const MAX_CHANCES = 16;

/** Estimated overhead of an item besides key and value: the item and two table entries. */
const OVERHEAD = 250;

interface Item {
  readonly key: string;
  readonly value: unknown;
  readonly bytes: number;
  readonly owner: Map<string, Item>;
  /** Since it was last considered for dropping. */
  wasAskedFor: boolean;
}

export class SharedMemory {
  readonly #maxBytes: number;
  /** Items of all owners, the oldest first. */
  readonly #items = new Set<Item>();
  #used = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of all stored results. */
  get used(): number {
    return this.#used;
  }

  /** The memory of one owner: no other owner sees its content. */
  part<V>(): MemoryPart<V> {
    return new MemoryPart(this);
  }

  /** Does nothing if the item alone exceeds the limit. */
  add(item: Item): void {
    if (item.bytes > this.#maxBytes) return;
    let chances = MAX_CHANCES;
    for (const oldest of this.#items) {
      if (this.#used + item.bytes <= this.#maxBytes) break;
      if (oldest.wasAskedFor && chances-- > 0) {
        oldest.wasAskedFor = false;
        this.#items.delete(oldest);
        this.#items.add(oldest);
      } else this.remove(oldest);
    }
    this.#items.add(item);
    this.#used += item.bytes;
    item.owner.set(item.key, item);
  }

  remove(item: Item): void {
    item.owner.delete(item.key);
    if (this.#items.delete(item)) this.#used -= item.bytes;
  }
}

/** The results of one owner; empty once it is closed. */
export class MemoryPart<V> {
  readonly #known = new Map<string, Item>();
  readonly #memory: SharedMemory;
  #isClosed = false;

  constructor(memory: SharedMemory) {
    this.#memory = memory;
  }

  get(key: string): V | undefined {
    const item = this.#known.get(key);
    if (item === undefined) return undefined;
    item.wasAskedFor = true;
    return item.value as V;
  }

  /** `key` is ASCII text; `bytes` estimates the memory of `value`. */
  set(key: string, value: V, bytes: number): void {
    this.delete(key);
    if (this.#isClosed) return;
    // A copy: a substring of a longer text, such as a header of a whole request, would keep all of it in memory.
    const own = Buffer.from(key, "latin1").toString("latin1");
    this.#memory.add({ key: own, value, bytes: bytes + own.length + OVERHEAD, owner: this.#known, wasAskedFor: false });
  }

  delete(key: string): void {
    const item = this.#known.get(key);
    if (item !== undefined) this.#memory.remove(item);
  }

  close(): void {
    this.#isClosed = true;
    for (const item of this.#known.values()) this.#memory.remove(item);
  }
}

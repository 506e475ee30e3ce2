/**
 * Remembers results that are expensive to compute, for many owners within one limit of bytes. When it is full, the results that nobody
 * asked for lately are dropped first, whoever owns them.
 */

/** So that one admission takes bounded time, even if every result has been asked for. */
const MAX_CHANCES = 16;

/** An estimate of the memory of an item beside its key and value: the item and two table entries. */
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
  /** Of all owners, the oldest first. */
  readonly #items = new Set<Item>();
  #used = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of everything that is remembered. */
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

/** What one owner remembers; nothing once it is closed. */
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

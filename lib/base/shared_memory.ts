/**
 * Remembers results that are expensive to find again, for many owners within one bound of bytes. When it is full, the results that nobody
 * has asked for lately go first, whoever owns them.
 */

export class SharedMemory {
  readonly #most: number;
  readonly #items = new Set<Item<unknown>>();
  #used = 0;

  constructor(mostBytes: number) {
    this.#most = mostBytes;
  }

  /** Bytes of everything that is remembered. */
  get used(): number {
    return this.#used;
  }

  /** The memory of one owner: no other owner sees what it holds. */
  part<V>(): MemoryPart<V> {
    const admit = (item: Item<V>) => this.#admit(item);
    const forget = (item: Item<V>) => {
      if (this.#items.delete(item)) this.#used -= item.bytes;
    };
    return new MemoryPart(admit, forget);
  }

  /** False when the item alone is larger than the bound. */
  #admit(item: Item<unknown>): boolean {
    if (item.bytes > this.#most) return false;
    let chances = MOST_CHANCES;
    for (const oldest of this.#items) {
      if (this.#used + item.bytes <= this.#most) break;
      this.#items.delete(oldest);
      if (oldest.wasAskedFor && chances-- > 0) {
        oldest.wasAskedFor = false;
        this.#items.add(oldest);
      } else {
        this.#used -= oldest.bytes;
        oldest.forgotten();
      }
    }
    this.#items.add(item);
    this.#used += item.bytes;
    return true;
  }
}

/** So that one admission takes bounded time, even when everything has been asked for. */
const MOST_CHANCES = 16;

/** An estimate of what an item costs beside its key and value: the item, its closure, two table entries. */
const OVERHEAD = 250;

interface Item<V> {
  readonly value: V;
  readonly bytes: number;
  /** Since it was last looked at for its turn to go. */
  wasAskedFor: boolean;
  readonly forgotten: () => void;
}

/** What one owner remembers. An owner that is closed remembers nothing any more. */
export class MemoryPart<V> {
  readonly #known = new Map<string, Item<V>>();
  readonly #admit: (item: Item<V>) => boolean;
  readonly #forget: (item: Item<V>) => void;
  #isClosed = false;

  constructor(admit: (item: Item<V>) => boolean, forget: (item: Item<V>) => void) {
    this.#admit = admit;
    this.#forget = forget;
  }

  get(key: string): V | undefined {
    const item = this.#known.get(key);
    if (item === undefined) return undefined;
    item.wasAskedFor = true;
    return item.value;
  }

  /** `key` is ASCII text; `bytes` estimates the memory of `value`. */
  set(key: string, value: V, bytes: number): void {
    this.delete(key);
    if (this.#isClosed) return;
    // A copy: a text that is part of a longer one, such as a header of a whole request, would keep all of it alive.
    const own = Buffer.from(key, "latin1").toString("latin1");
    const item = { value, bytes: bytes + own.length + OVERHEAD, wasAskedFor: false, forgotten: () => void this.#known.delete(own) };
    if (this.#admit(item)) this.#known.set(own, item);
  }

  delete(key: string): void {
    const item = this.#known.get(key);
    if (item === undefined) return;
    this.#known.delete(key);
    this.#forget(item);
  }

  close(): void {
    this.#isClosed = true;
    for (const item of this.#known.values()) this.#forget(item);
    this.#known.clear();
  }
}

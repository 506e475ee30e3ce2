/**
 * Hands out blocks of memory: runs of numbers in large pages, so that what belongs together lies together and no collector walks it.
 * What stands in a block, and for how long, is the affair of whoever took it.
 */

/** Numbers of eight bytes in a page: 256 kB. A block's number is that of its first place, counted through all pages. */
const PAGE = 32768;
const PAGE_BITS = 15;
/** The first pages of a shelf are smaller, so that a limiter that few ask costs little. */
const SMALLEST_PAGE = 64;
/** Numbers of blocks are to fit in 32 bits with a sign: 16 GB. */
const MOST_PAGES = 2 ** (31 - PAGE_BITS);

/** The place in its page at which a block begins. */
export function within(block: number): number {
  return block & (PAGE - 1);
}

export class Page<Kind> {
  /** How its blocks are to be read. */
  readonly kind: Kind;
  /** That of each of its blocks, in numbers. */
  readonly size: number;
  readonly shelf: Shelf<Kind>;
  /** The block with which it begins. */
  readonly first: number;
  readonly numbers: Float64Array;
  /** The same memory as whole numbers of four bytes: place p of `numbers` is 2p and 2p + 1 here. */
  readonly ints: Int32Array;

  constructor(shelf: Shelf<Kind>, first: number, memory: ArrayBuffer) {
    this.kind = shelf.kind;
    this.size = shelf.size;
    this.shelf = shelf;
    this.first = first;
    this.numbers = new Float64Array(memory);
    this.ints = new Int32Array(memory);
  }
}

/** Blocks of one size that are read in one way. They stand without gaps: every page but the last is full. */
interface Shelf<Kind> {
  readonly kind: Kind;
  readonly size: number;
  readonly pages: Page<Kind>[];
  /** Where the next block begins in the last page. */
  end: number;
}

export class Blocks<Kind> {
  /** By the upper bits of a block's number. Nothing stands at 0, so that no block is 0. */
  readonly #pages: (Page<Kind> | undefined)[] = [undefined];
  readonly #vacant: number[] = [];
  readonly #shelves = new Map<Kind, Map<number, Shelf<Kind>>>();
  /** The memory of a page that was given back: taking and giving at the edge of a page is not to cost an allocation each time. */
  #spare: ArrayBuffer | undefined;

  page(block: number): Page<Kind> {
    return this.#pages[block >> PAGE_BITS]!;
  }

  /** A block of at least `size` numbers, with anything in it. Throws a RangeError when it is larger than a page. */
  take(kind: Kind, size: number): number {
    const rounded = (size + 1) & ~1;
    if (rounded > PAGE) throw new RangeError(`a block of ${size} numbers is larger than a page`);
    const shelf = this.#shelf(kind, rounded);
    let page = shelf.pages.at(-1);
    if (page === undefined || shelf.end + rounded > page.numbers.length) page = this.#add(shelf);
    const block = page.first + shelf.end;
    shelf.end += rounded;
    return block;
  }

  /**
   * Takes a block back. The last of its shelf is moved into the gap, and `moved` is told while both can be read: were gaps left, a few
   * callers who stay could keep every page that a flood once filled.
   */
  give(block: number, moved: (from: number, to: number) => void): void {
    const { shelf, size, ints } = this.page(block);
    const page = shelf.pages.at(-1)!;
    const last = page.first + shelf.end - size;
    if (last !== block) {
      const from = 2 * within(last);
      const to = 2 * within(block);
      for (let i = 0; i < 2 * size; i++) ints[to + i] = page.ints[from + i]!;
      moved(last, block);
    }
    shelf.end -= size;
    if (shelf.end === 0) this.#drop(shelf, page);
  }

  #shelf(kind: Kind, size: number): Shelf<Kind> {
    let sizes = this.#shelves.get(kind);
    if (sizes === undefined) this.#shelves.set(kind, (sizes = new Map()));
    let shelf = sizes.get(size);
    if (shelf === undefined) sizes.set(size, (shelf = { kind, size, pages: [], end: 0 }));
    return shelf;
  }

  #add(shelf: Shelf<Kind>): Page<Kind> {
    const index = this.#vacant.pop() ?? this.#pages.length;
    if (index >= MOST_PAGES) throw new RangeError("more blocks than can be numbered");
    const length = Math.max(shelf.size, Math.min(PAGE, SMALLEST_PAGE * 2 ** shelf.pages.length));
    const page = new Page(shelf, index * PAGE, this.#memory(length * 8));
    this.#pages[index] = page;
    shelf.pages.push(page);
    shelf.end = 0;
    return page;
  }

  #memory(bytes: number): ArrayBuffer {
    const spare = this.#spare;
    if (spare?.byteLength !== bytes) return new ArrayBuffer(bytes);
    this.#spare = undefined;
    return spare;
  }

  /** Drops the last page of a shelf, in which there is no block any more. */
  #drop(shelf: Shelf<Kind>, page: Page<Kind>): void {
    const index = page.first / PAGE;
    this.#pages[index] = undefined;
    this.#vacant.push(index);
    this.#spare = page.numbers.buffer as ArrayBuffer;
    shelf.pages.pop();
    const before = shelf.pages.at(-1);
    if (before !== undefined) {
      shelf.end = before.numbers.length - (before.numbers.length % shelf.size);
      return;
    }
    const sizes = this.#shelves.get(shelf.kind)!;
    sizes.delete(shelf.size);
    if (sizes.size === 0) this.#shelves.delete(shelf.kind);
  }
}

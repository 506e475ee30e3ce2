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

/** Blocks of one size that are read in one way. */
export class Page<Kind> {
  /** How its blocks are to be read. */
  readonly kind: Kind;
  readonly numbers: Float64Array;
  /** The same memory as whole numbers of four bytes: place p of `numbers` is 2p and 2p + 1 here. */
  readonly ints: Int32Array;
  readonly first: number;
  readonly size: number;
  used = 0;
  /** The place of a block that nobody has; what stands there is the next such place. -1: none. */
  free = -1;

  constructor(kind: Kind, first: number, size: number, memory: ArrayBuffer) {
    this.kind = kind;
    this.first = first;
    this.size = size;
    this.numbers = new Float64Array(memory);
    this.ints = new Int32Array(memory);
    for (let at = (Math.floor(this.numbers.length / size) - 1) * size; at >= 0; at -= size) this.#put(at);
  }

  take(): number {
    const at = this.free;
    this.free = this.numbers[at]!;
    this.used++;
    return this.first + at;
  }

  give(block: number): void {
    this.#put(within(block));
    this.used--;
  }

  #put(at: number): void {
    this.numbers[at] = this.free;
    this.free = at;
  }
}

/** The pages of one kind and size. */
interface Shelf<Kind> {
  pages: number;
  /** Those with a free block. */
  readonly roomy: Page<Kind>[];
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
    const page = shelf.roomy.at(-1) ?? this.#add(shelf, kind, rounded);
    const block = page.take();
    if (page.free === -1) shelf.roomy.pop();
    return block;
  }

  give(block: number): void {
    const page = this.page(block);
    const shelf = this.#shelf(page.kind, page.size);
    if (page.free === -1) shelf.roomy.push(page);
    page.give(block);
    if (page.used === 0) this.#drop(shelf, page);
  }

  #shelf(kind: Kind, size: number): Shelf<Kind> {
    let sizes = this.#shelves.get(kind);
    if (sizes === undefined) this.#shelves.set(kind, (sizes = new Map()));
    let shelf = sizes.get(size);
    if (shelf === undefined) sizes.set(size, (shelf = { pages: 0, roomy: [] }));
    return shelf;
  }

  #add(shelf: Shelf<Kind>, kind: Kind, size: number): Page<Kind> {
    const index = this.#vacant.pop() ?? this.#pages.length;
    if (index >= MOST_PAGES) throw new RangeError("more blocks than can be numbered");
    const length = Math.max(size, Math.min(PAGE, SMALLEST_PAGE * 2 ** shelf.pages));
    const page = new Page(kind, index * PAGE, size, this.#memory(length * 8));
    this.#pages[index] = page;
    shelf.roomy.push(page);
    shelf.pages++;
    return page;
  }

  #memory(bytes: number): ArrayBuffer {
    const spare = this.#spare;
    if (spare?.byteLength !== bytes) return new ArrayBuffer(bytes);
    this.#spare = undefined;
    return spare;
  }

  #drop(shelf: Shelf<Kind>, page: Page<Kind>): void {
    const index = page.first / PAGE;
    this.#pages[index] = undefined;
    this.#vacant.push(index);
    this.#spare = page.numbers.buffer as ArrayBuffer;
    shelf.roomy.splice(shelf.roomy.indexOf(page), 1);
    if (--shelf.pages > 0) return;
    const sizes = this.#shelves.get(page.kind)!;
    sizes.delete(page.size);
    if (sizes.size === 0) this.#shelves.delete(page.kind);
  }
}

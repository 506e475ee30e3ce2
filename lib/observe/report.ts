/**
 * The form in which a worker reports counts to the main thread: lists of items, each with its names and then its numbers.
 */

/** Two flat lists: a report of 1000 routes is sent to another thread in a fraction of a millisecond. */
export interface Report {
  readonly names: readonly string[];
  readonly numbers: Float64Array;
}

const END = 0;
const ITEM = 1;

export class ReportWriter {
  readonly #names: string[] = [];
  #numbers = new Float64Array(256);
  #length = 0;

  /** Begins an item of a list; its numbers follow. */
  item(...names: readonly string[]): this {
    this.#names.push(...names);
    this.add([ITEM]);
    return this;
  }

  /** Ends a list. */
  end(): void {
    this.add([END]);
  }

  add(numbers: readonly number[]): void {
    const length = this.#length + numbers.length;
    if (length > this.#numbers.length) {
      const longer = new Float64Array(2 * length);
      longer.set(this.#numbers);
      this.#numbers = longer;
    }
    for (let i = 0; i < numbers.length; i++) this.#numbers[this.#length + i] = numbers[i]!;
    this.#length = length;
  }

  finish(): Report {
    return { names: this.#names, numbers: this.#numbers.slice(0, this.#length) };
  }
}

/** Reads what a `ReportWriter` has written, in the same order. */
export class ReportReader {
  readonly #names: readonly string[];
  readonly #numbers: Float64Array;
  #name = 0;
  #number = 0;

  constructor({ names, numbers }: Report) {
    this.#names = names;
    this.#numbers = numbers;
  }

  /** Whether the list has a further item, whose names and numbers are next. */
  item(): boolean {
    return this.number() === ITEM;
  }

  name(): string {
    return this.#names[this.#name++]!;
  }

  number(): number {
    return this.#numbers[this.#number++]!;
  }

  /** Valid as long as the report. */
  numbers(count: number): Float64Array {
    return this.#numbers.subarray(this.#number, (this.#number += count));
  }
}

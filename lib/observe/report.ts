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
  readonly #numbers: number[] = [];

  /** Begins an item of a list; its numbers follow. */
  item(...names: readonly string[]): this {
    this.#numbers.push(ITEM);
    this.#names.push(...names);
    return this;
  }

  /** Ends a list. */
  end(): void {
    this.#numbers.push(END);
  }

  add(...numbers: readonly number[]): void {
    this.#numbers.push(...numbers);
  }

  finish(): Report {
    return { names: this.#names, numbers: Float64Array.from(this.#numbers) };
  }
}

/** Reads what a `ReportWriter` has written, in the same order. */
export class ReportReader {
  readonly #report: Report;
  #name = 0;
  #number = 0;

  constructor(report: Report) {
    this.#report = report;
  }

  /** Whether the list has a further item, whose names and numbers are next. */
  item(): boolean {
    return this.number() === ITEM;
  }

  name(): string {
    return this.#report.names[this.#name++]!;
  }

  number(): number {
    return this.#report.numbers[this.#number++]!;
  }

  /** Valid as long as the report. */
  numbers(count: number): Float64Array {
    return this.#report.numbers.subarray(this.#number, (this.#number += count));
  }
}

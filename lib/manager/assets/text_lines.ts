/**
 * A text by its lines: an edit costs by the lines that it changes, not by the length of the text. Rows count from 0.
 */

/** More rows a call may not take as arguments. */
const MAX_SPLICED = 10_000;

export class Lines {
  #rows: string[];
  /** Offsets of the first rows; those of the others are worked out when they are asked for. */
  readonly #starts = [0];
  /** The whole text; null: nobody has asked for it since the last edit. */
  #text: string | null;

  constructor(text: string) {
    [this.#text, this.#rows] = [text, text.split("\n")];
  }

  get count(): number {
    return this.#rows.length;
  }

  get length(): number {
    return this.startOf(this.count) - 1;
  }

  get text(): string {
    this.#text ??= this.#rows.join("\n");
    return this.#text;
  }

  row(index: number): string {
    return this.#rows[index] ?? "";
  }

  rows(from: number, to: number): readonly string[] {
    return this.#rows.slice(from, to);
  }

  /** Of a row behind the last one: one more than the length of the text. */
  startOf(row: number): number {
    const index = Math.min(row, this.count);
    while (this.#starts.length <= index) this.#grow();
    return this.#starts[index]!;
  }

  /** The row of an offset; that behind the text is of the last row. */
  rowAt(offset: number): number {
    while (this.#starts.length < this.count && this.#starts.at(-1)! <= offset) this.#grow();
    let [low, high] = [0, Math.min(this.#starts.length, this.count)];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.#starts[middle]! <= offset) low = middle;
      else high = middle;
    }
    return low;
  }

  slice(from: number, to: number): string {
    const [first, last] = [this.rowAt(from), this.rowAt(to)];
    const rows = this.#rows.slice(first, last + 1);
    rows[rows.length - 1] = rows.at(-1)!.slice(0, to - this.startOf(last));
    rows[0] = rows[0]!.slice(from - this.startOf(first));
    return rows.join("\n");
  }

  /** The offset of a line and a column, which count from 1; a column is a code point. */
  offsetOf(line: number, column: number): number {
    if (line > this.count) return this.length;
    const row = this.row(line - 1);
    return this.startOf(line - 1) + [...row.slice(0, 2 * column)].slice(0, column - 1).join("").length;
  }

  replace(from: number, to: number, text: string): void {
    const [first, last] = [this.rowAt(from), this.rowAt(to)];
    const before = this.row(first).slice(0, from - this.startOf(first));
    const added = `${before}${text}${this.row(last).slice(to - this.startOf(last))}`.split("\n");
    if (added.length < MAX_SPLICED) this.#rows.splice(first, last + 1 - first, ...added);
    else this.#rows = this.#rows.slice(0, first).concat(added, this.#rows.slice(last + 1));
    this.#starts.length = first + 1;
    this.#text = null;
  }

  #grow(): void {
    this.#starts.push(this.#starts.at(-1)! + this.#rows[this.#starts.length - 1]!.length + 1);
  }
}

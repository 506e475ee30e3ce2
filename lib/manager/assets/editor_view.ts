/**
 * A text field with line numbers, colours and marks. The browser's own field does the editing: the keyboard, undo,
 * input methods and screen readers work as in every other field. Its text is transparent, and behind it the visible
 * lines are drawn in colour.
 */
import { el, replace, setText, type Child } from "./dom.ts";
import { MAX_COLOURED, piecesOf, type LineMark } from "./json_colours.ts";

/** Also in editor.css. */
export const LINE_PX = 20;
const PADDING_PX = 8;
/** Drawn above and below the visible lines. */
const SPARE_LINES = 4;

export type Mark = LineMark;

export class EditorView {
  readonly field: HTMLTextAreaElement;
  readonly node: HTMLElement;
  readonly #numbers = el("div");
  readonly #rows = el("div", { class: "editor__rows" });
  #text = "";
  /** Offset of the beginning of each line. */
  #starts: readonly number[] = [0];
  #marks: readonly Mark[] = [];
  /** What the rows show. */
  #drawn: string[] = [];

  constructor(attributes: Readonly<Record<string, string>>, overlay: Child) {
    const own = {
      class: "editor__field",
      wrap: "off",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      rows: 12,
    };
    this.field = el("textarea", { ...own, ...attributes, onscroll: () => this.draw() });
    const layer = el("div", { class: "editor__layer", "aria-hidden": "true" }, this.#rows);
    const numbers = el("div", { class: "editor__numbers", "aria-hidden": "true" }, this.#numbers);
    this.node = el(
      "div",
      { class: "editor" },
      numbers,
      el("div", { class: "editor__body" }, layer, this.field, overlay),
    );
    new ResizeObserver(() => this.draw()).observe(this.field);
  }

  get text(): string {
    return this.#text;
  }

  /** Reads what the field holds, and draws it. */
  read(): void {
    this.#text = this.field.value;
    const starts = [0];
    for (let at = this.#text.indexOf("\n"); at >= 0; at = this.#text.indexOf("\n", at + 1)) starts.push(at + 1);
    this.#starts = starts;
    this.draw();
  }

  /** Replaces all: the field forgets what could be undone. */
  setText(text: string): void {
    this.field.value = text;
    this.field.setSelectionRange(0, 0);
    this.read();
  }

  /**
   * Replaces a part as if it had been typed, so that undo reverts it; the caret is then behind it, or at `caret` within
   * it.
   */
  replace(from: number, to: number, text: string, caret = text.length): void {
    this.field.focus();
    this.field.setSelectionRange(from, to);
    // Deprecated, but the only edit by script that browsers can undo.
    const isDone =
      text === "" ? from === to || document.execCommand("delete") : document.execCommand("insertText", false, text);
    if (!isDone) {
      this.field.setRangeText(text, from, to, "end");
      this.field.dispatchEvent(new InputEvent("input"));
    }
    this.field.setSelectionRange(from + caret, from + caret);
  }

  setMarks(marks: readonly Mark[]): void {
    this.#marks = marks;
    this.draw();
  }

  /** Lines count from 1. */
  lineAt(offset: number): number {
    let [low, high] = [0, this.#starts.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.#starts[middle]! <= offset) low = middle;
      else high = middle;
    }
    return low + 1;
  }

  startOf(line: number): number {
    return this.#starts[line - 1] ?? this.#text.length;
  }

  /** Selects a part, or puts the caret there, and scrolls to it. */
  select(from: number, to: number): void {
    const { field } = this;
    field.setSelectionRange(from, to);
    const { x, y } = this.pointOf(from);
    if (y < LINE_PX || y > field.clientHeight - 3 * LINE_PX) field.scrollTop += y - field.clientHeight / 3;
    if (x < 0 || x > field.clientWidth - 40) field.scrollLeft += x - field.clientWidth / 3;
    this.draw();
  }

  /** Where an offset is drawn, from the upper left corner of the field; not exact behind wide characters. */
  pointOf(offset: number): { readonly x: number; readonly y: number } {
    const line = this.lineAt(offset);
    const x = PADDING_PX + (offset - this.startOf(line)) * this.#charPx - this.field.scrollLeft;
    return { x, y: PADDING_PX + (line - 1) * LINE_PX - this.field.scrollTop };
  }

  /** The offset of the text at a point of the window; null: there is none. */
  offsetAt(clientX: number, clientY: number): number | null {
    const { left, top } = this.field.getBoundingClientRect();
    const line = Math.floor((clientY - top + this.field.scrollTop - PADDING_PX) / LINE_PX) + 1;
    const column = Math.floor((clientX - left + this.field.scrollLeft - PADDING_PX) / this.#charPx);
    return column < 0 || column >= this.#lineText(line).length ? null : this.startOf(line) + column;
  }

  /** Draws the visible lines, and marks the one with the caret; those that are as they were stay. */
  draw(): void {
    const { scrollTop, scrollLeft, clientHeight } = this.field;
    const first = Math.max(Math.floor(scrollTop / LINE_PX) - SPARE_LINES, 0);
    const count = Math.min(Math.ceil((scrollTop + clientHeight) / LINE_PX) + SPARE_LINES, this.#starts.length) - first;
    const lines = Array.from({ length: Math.max(count, 0) }, (_, i) => this.#lineText(first + i + 1));
    const marks = this.#marksOf(first, lines);
    while (this.#rows.children.length > lines.length) this.#rows.lastChild!.remove();
    while (this.#rows.children.length < lines.length) this.#rows.append(el("div", { class: "editor__row" }));
    const isLong = lines.some((line) => line.length > MAX_COLOURED);
    const drawn = lines.map((line, i) => (isLong ? "" : `${line} ${JSON.stringify(marks[i])}`));
    for (const [i, line] of lines.entries())
      if (drawn[i] !== this.#drawn[i])
        replace(this.#rows.children[i]!, ...(isLong ? [] : piecesOf(line, marks[i]!).map(pieceNode)));
    this.#drawn = drawn;
    const current = this.lineAt(this.field.selectionStart) - 1 - first;
    for (const [i, row] of [...this.#rows.children].entries()) row.toggleAttribute("data-current", i === current);
    this.node.toggleAttribute("data-plain", isLong);
    this.#rows.style.transform = `translate(${-scrollLeft}px, ${first * LINE_PX - scrollTop}px)`;
    setText(this.#numbers, marks.map((own, i) => `${first + i + 1}${signOf(own)}`).join("\n"));
    this.#numbers.style.transform = `translateY(${first * LINE_PX - scrollTop}px)`;
    this.#numbers.style.width = `${this.#digits}ch`;
  }

  get #digits(): number {
    return String(this.#starts.length).length + 2;
  }

  get #charPx(): number {
    return this.#numbers.clientWidth / this.#digits || 8;
  }

  #lineText(line: number): string {
    return this.#text.slice(this.startOf(line), (this.#starts[line] ?? this.#text.length + 1) - 1);
  }

  /**
   * By line; `first` counts from 0. A mark has at least one character, so that it can be seen, and ends with its line.
   */
  #marksOf(first: number, lines: readonly string[]): readonly (readonly LineMark[])[] {
    const found = lines.map((): LineMark[] => []);
    for (const { from, to, kind } of this.#marks) {
      const i = this.lineAt(from) - 1 - first;
      const start = this.startOf(first + i + 1);
      const column = Math.max(Math.min(from - start, (lines[i]?.length ?? 0) - 1), 0);
      found[i]?.push({ from: column, to: Math.max(to - start, column + 1), kind });
    }
    return found;
  }
}

/** Beside the number of the line. */
function signOf(marks: readonly LineMark[]): string {
  return marks.some(({ kind }) => kind === "error") ? " ✕" : marks.some(({ kind }) => kind === "warning") ? " ▲" : "  ";
}

function pieceNode({ text, kinds }: { readonly text: string; readonly kinds: string }): Node {
  return kinds === ""
    ? document.createTextNode(text)
    : el("span", { class: kinds.replace(/\w+/g, "editor__$&") }, text);
}

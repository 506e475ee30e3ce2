/**
 * A text field with line numbers, colours and marks. The browser's own field does the editing: the keyboard, undo, input methods and screen readers
 * work as in every other field. Its text is transparent, and behind it the visible lines are drawn in colour.
 */
import { el, replace, setText, type Child } from "./dom.ts";
import { MAX_COLOURED, piecesOf, type LineMark } from "./json_colours.ts";

/** Also in editor.css. */
const LINE_PX = 20;
const PADDING_PX = 8;
/** Drawn above and below the visible lines. */
const SPARE_LINES = 4;

export interface Mark {
  readonly from: number;
  readonly to: number;
  readonly kind: LineMark["kind"];
}

export interface Caret {
  readonly x: number;
  readonly y: number;
}

export class EditorView {
  readonly field: HTMLTextAreaElement;
  readonly node: HTMLElement;
  readonly #numbers = el("div");
  readonly #rows = el("div", { class: "editor__rows" });
  readonly #body: HTMLElement;
  readonly #resized = new ResizeObserver(() => this.draw());
  #text = "";
  /** Offset of the beginning of each line. */
  #starts: readonly number[] = [0];
  #marks: readonly Mark[] = [];
  #drawn: string[] = [];

  constructor(attributes: Readonly<Record<string, string>>, overlay: Child) {
    const own = { class: "editor__field mono", wrap: "off", spellcheck: "false", autocomplete: "off", autocapitalize: "off", rows: 12 };
    this.field = el("textarea", { ...own, ...attributes, onscroll: () => this.draw() });
    this.#body = el("div", { class: "editor__body" }, el("div", { class: "editor__layer mono", "aria-hidden": "true" }, this.#rows), this.field, overlay);
    this.node = el("div", { class: "editor" }, el("div", { class: "editor__numbers", "aria-hidden": "true" }, this.#numbers), this.#body);
    this.#resized.observe(this.field);
  }

  get text(): string {
    return this.#text;
  }

  close(): void {
    this.#resized.disconnect();
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

  /** Replaces a part as if it had been typed, so that undo reverts it; the caret is then behind it, or at `caret` within it. */
  replace(from: number, to: number, text: string, caret = text.length): void {
    this.field.focus();
    this.field.setSelectionRange(from, to);
    // Deprecated, but the only edit by script that browsers can undo.
    const isDone = text === "" ? from === to || document.execCommand("delete") : document.execCommand("insertText", false, text);
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

  /** Lines count from 1, as columns do; a column is a code point. */
  offsetAt(line: number, column: number): number {
    const start = this.#starts[line - 1];
    if (start === undefined) return this.#text.length;
    return start + [...this.#lineText(line)].slice(0, column - 1).join("").length;
  }

  lineAt(offset: number): number {
    let [low, high] = [0, this.#starts.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.#starts[middle]! <= offset) low = middle;
      else high = middle;
    }
    return low + 1;
  }

  /** Selects a part and scrolls to it. */
  select(from: number, to: number): void {
    this.field.setSelectionRange(from, to);
    const { scrollTop, clientHeight } = this.field;
    const y = PADDING_PX + (this.lineAt(from) - 1) * LINE_PX;
    if (y < scrollTop + LINE_PX || y > scrollTop + clientHeight - 3 * LINE_PX) this.field.scrollTop = y - clientHeight / 3;
    this.draw();
    const left = this.caretAt(from).x;
    if (left < 0 || left > this.field.clientWidth - 40) this.field.scrollLeft += left - this.field.clientWidth / 3;
  }

  /** Where an offset is drawn, from the upper left corner of the field. */
  caretAt(offset: number): Caret {
    const line = this.lineAt(offset);
    const y = PADDING_PX + (line - 1) * LINE_PX - this.field.scrollTop;
    const row = this.#rows.querySelector(`[data-line="${line}"]`);
    if (row === null) return { x: PADDING_PX, y };
    const range = document.createRange();
    range.selectNodeContents(row);
    let left = offset - this.#starts[line - 1]!;
    for (const node of row.childNodes) {
      const text = node.firstChild ?? node;
      const { length } = text.textContent!;
      if (left <= length) {
        range.setStart(text, 0);
        range.setEnd(text, left);
        break;
      }
      left -= length;
    }
    const box = range.getClientRects();
    return { x: (box[box.length - 1]?.right ?? row.getBoundingClientRect().left) - this.field.getBoundingClientRect().left, y };
  }

  /** The offset of the text at a point of the window; null: there is none. */
  offsetOf(clientX: number, clientY: number): number | null {
    const line = Math.floor((clientY - this.field.getBoundingClientRect().top + this.field.scrollTop - PADDING_PX) / LINE_PX) + 1;
    let offset = this.#starts[line - 1] ?? 0;
    for (const node of this.#rows.querySelector(`[data-line="${line}"]`)?.childNodes ?? []) {
      const range = document.createRange();
      range.selectNodeContents(node);
      const { left, right } = range.getBoundingClientRect();
      if (clientX >= left && clientX < right) return offset;
      offset += node.textContent!.length;
    }
    return null;
  }

  /** Draws the visible lines; those that are as they were stay. */
  draw(): void {
    const { scrollTop, scrollLeft, clientHeight } = this.field;
    const first = Math.max(Math.floor(scrollTop / LINE_PX) - SPARE_LINES, 0);
    const last = Math.min(Math.ceil((scrollTop + clientHeight) / LINE_PX) + SPARE_LINES, this.#starts.length);
    const marks = this.#marksBetween(first, last);
    const rows = this.#rows.children;
    while (rows.length > last - first) rows[rows.length - 1]!.remove();
    let isLong = false;
    const numbers: string[] = [];
    for (let i = 0; i < last - first; i++) {
      const line = first + i + 1;
      const text = this.#lineText(line);
      const own = marks.get(line) ?? [];
      isLong ||= text.length > MAX_COLOURED;
      numbers.push(`${line}${own.some(({ kind }) => kind === "error") ? " ✕" : own.some(({ kind }) => kind === "warning") ? " ▲" : "  "}`);
      const key = `${line} ${text} ${JSON.stringify(own)}`;
      if (rows[i] !== undefined && this.#drawn[i] === key) continue;
      this.#drawn[i] = key;
      const row = rows[i] ?? this.#rows.appendChild(el("div", { class: "editor__row" }));
      row.setAttribute("data-line", String(line));
      replace(row, ...(isLong ? [] : piecesOf(text, own).map(pieceNode)));
    }
    this.node.toggleAttribute("data-plain", isLong);
    this.#rows.style.transform = `translate(${-scrollLeft}px, ${first * LINE_PX - scrollTop}px)`;
    setText(this.#numbers, numbers.join("\n"));
    this.#numbers.style.transform = `translateY(${first * LINE_PX - scrollTop}px)`;
    this.#numbers.style.width = `${String(this.#starts.length).length + 2}ch`;
  }

  #lineText(line: number): string {
    return this.#text.slice(this.#starts[line - 1], (this.#starts[line] ?? this.#text.length + 1) - 1);
  }

  /** By line. `first` counts from 0. */
  #marksBetween(first: number, last: number): Map<number, LineMark[]> {
    const lines = new Map<number, LineMark[]>();
    const [from, to] = [this.#starts[first] ?? 0, this.#starts[last] ?? this.#text.length];
    for (const mark of this.#marks) {
      if (mark.to < from || mark.from > to) continue;
      const line = this.lineAt(Math.max(mark.from, from));
      const start = this.#starts[line - 1]!;
      // At least one character, so that it can be seen; what is longer than its line ends with it.
      const column = Math.max(Math.min(mark.from - start, this.#lineText(line).length - 1), 0);
      lines.set(line, [...(lines.get(line) ?? []), { from: column, to: Math.max(mark.to - start, column + 1), kind: mark.kind }]);
    }
    return lines;
  }
}

function pieceNode({ text, kinds }: { readonly text: string; readonly kinds: string }): Node {
  return kinds === "" ? document.createTextNode(text) : el("span", { class: kinds.replace(/\w+/g, "editor__$&") }, text);
}

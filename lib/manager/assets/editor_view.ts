/**
 * A text field with line numbers, colours and marks, for texts of any length. The browser's own field does the editing:
 * the keyboard, input methods and screen readers work as in every other field. It holds a window of the lines, which
 * follows the caret and the scrolling; its text is transparent, and behind it the visible lines are drawn in colour.
 */
import { el, replace, setText, type Child } from "./dom.ts";
import { EditHistory, type Edit, type Selection } from "./edit_history.ts";
import { MAX_COLOURED, piecesOf, type LineMark } from "./json_colours.ts";
import { Lines } from "./text_lines.ts";

/** Also in editor.css. */
export const LINE_PX = 20;
const PADDING_PX = 8;
/** Drawn above and below the visible lines. */
const SPARE_LINES = 4;
/** Lines in the field. */
const WINDOW = 160;
/** The caret and what is visible stay that far from a border of the window. */
const MARGIN = 40;
/** Keys that the field handles at the caret, be it in sight or not: "Unidentified" are those of Android's keyboards. */
const FIELD_KEYS = /^(?:Arrow.*|Home|End|Backspace|Delete|Process|Dead|Unidentified|.)$/su;

export interface Mark {
  from: number;
  to: number;
  readonly kind: LineMark["kind"];
}

export class EditorView {
  readonly field: HTMLTextAreaElement;
  readonly node: HTMLElement;
  /** Called after each edit, undone and redone ones included. */
  edited: (edit: Edit) => void = () => {};
  lines = new Lines("");
  readonly #numbers = el("div", { class: "editor__lines" });
  readonly #rows = el("div", { class: "editor__lines" });
  readonly #canvas: HTMLElement;
  readonly #scroller: HTMLElement;
  readonly #history = new EditHistory();
  #marks: Mark[] = [];
  /** What the rows show. */
  #drawn: string[] = [];
  /** The rows that the field holds. */
  #first = 0;
  #count = 1;
  #value = "";
  #columns = 0;
  /** In the text; what is outside of the window the field cannot hold. */
  #selection: Selection = { anchor: 0, focus: 0 };
  /** What the field holds of it. */
  #held: Selection = { anchor: 0, focus: 0 };
  #isComposing = false;

  constructor(attributes: Readonly<Record<string, string>>, overlay: Child) {
    const own = {
      class: "editor__field",
      wrap: "off",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
    };
    // The field has room for all that it holds.
    const onscroll = () => this.field.scrollTo(0, 0);
    this.field = el("textarea", { ...own, ...attributes, onscroll });
    const numbers = el("div", { class: "editor__numbers", "aria-hidden": "true" }, this.#numbers);
    const layer = el("div", { class: "editor__layer", "aria-hidden": "true" }, this.#rows);
    this.#canvas = el(
      "div",
      { class: "editor__canvas" },
      numbers,
      el("div", { class: "editor__body" }, layer, this.field),
    );
    this.#scroller = el("div", { class: "editor__scroller", onscroll: () => this.draw() }, this.#canvas);
    this.node = el("div", { class: "editor" }, this.#scroller, overlay);
    new ResizeObserver(() => this.draw()).observe(this.#scroller);
    const { field } = this;
    field.addEventListener("keydown", (event) => this.#onKey(event));
    field.addEventListener("beforeinput", (event) => this.#beforeInput(event));
    field.addEventListener("input", () => this.#onInput());
    field.addEventListener("compositionstart", () => {
      this.#isComposing = true;
      if (!this.#isHeld) this.replaceSelection("");
    });
    field.addEventListener("compositionend", () => (this.#isComposing = false));
    for (const kind of ["copy", "cut"] as const) field.addEventListener(kind, (event) => this.#onCopy(event, kind));
    field.addEventListener("paste", (event) => {
      event.preventDefault();
      this.replaceSelection(shownText(event.clipboardData?.getData("text/plain") ?? ""));
    });
  }

  /** `from` and `to` in the order of the text. */
  get selection(): Selection & { readonly from: number; readonly to: number } {
    this.#readSelection();
    const { anchor, focus } = this.#selection;
    return { anchor, focus, from: Math.min(anchor, focus), to: Math.max(anchor, focus) };
  }

  /** Another text: what has been typed before cannot be undone. */
  setText(text: string): void {
    this.lines = new Lines(text);
    this.#history.clear();
    this.#marks = [];
    this.#scroller.scrollTop = 0;
    this.#hold(0, { anchor: 0, focus: 0 });
    this.draw();
  }

  /** Replaces a part, which can be undone; the caret is then behind it, or at `caret` within it. */
  replace(from: number, to: number, text: string, caret = text.length): void {
    const before = this.selection;
    const after = { anchor: from + caret, focus: from + caret };
    this.field.focus({ preventScroll: true });
    this.#change({ from, removed: this.lines.slice(from, to), added: text, before, after });
    this.select(after.anchor, after.focus);
  }

  replaceSelection(text: string): void {
    const { from, to } = this.selection;
    if (from !== to || text !== "") this.replace(from, to, text);
  }

  undo(by: "undo" | "redo"): void {
    const edit = this.#history[by]();
    if (edit === null) return;
    this.field.focus({ preventScroll: true });
    this.#apply(edit);
    this.select(edit.after.anchor, edit.after.focus);
  }

  setMarks(marks: Mark[]): void {
    this.#marks = marks;
    this.draw();
  }

  /** Selects a part, or puts the caret there, and scrolls to its end. */
  select(anchor: number, focus: number): void {
    this.#hold(this.lines.rowAt(focus), { anchor, focus });
    const { clientHeight, clientWidth } = this.#scroller;
    const { x, y } = this.pointOf(focus);
    if (y < 0 || y > clientHeight - 2 * LINE_PX) this.#scroller.scrollTop += y - clientHeight / 3;
    const left = this.#numbersPx;
    if (x < left || x > clientWidth - 40) this.#scroller.scrollLeft += x - left - (clientWidth - left) / 3;
    this.draw();
  }

  /** Where an offset is drawn, from the upper left corner of the editor; not exact behind wide characters. */
  pointOf(offset: number): { readonly x: number; readonly y: number } {
    const row = this.lines.rowAt(offset);
    const { scrollLeft, scrollTop } = this.#scroller;
    const x = this.#numbersPx + PADDING_PX + (offset - this.lines.startOf(row)) * this.#charPx - scrollLeft;
    return { x, y: PADDING_PX + row * LINE_PX - scrollTop };
  }

  /** The offset of the text at a point of the window; null: there is none. */
  offsetAt(clientX: number, clientY: number): number | null {
    const { left, top } = this.field.getBoundingClientRect();
    const row = this.#first + Math.floor((clientY - top - PADDING_PX) / LINE_PX);
    const column = Math.floor((clientX - left - PADDING_PX) / this.#charPx);
    return column < 0 || column >= this.lines.row(row).length ? null : this.lines.startOf(row) + column;
  }

  /** Draws the visible lines, and marks the one with the caret; those that are as they were stay. */
  draw(): void {
    const { count } = this.lines;
    const { scrollTop, clientHeight } = this.#scroller;
    const top = Math.max(Math.floor(scrollTop / LINE_PX) - SPARE_LINES, 0);
    const end = Math.min(Math.ceil((scrollTop + clientHeight) / LINE_PX) + SPARE_LINES, count);
    const isInWindow = top >= this.#first && end <= this.#first + this.#count;
    if (!isInWindow && !this.#isComposing) this.#hold(Math.floor((top + end) / 2), this.selection);
    const lines = this.lines.rows(top, end);
    const marks = this.#marksOf(top, lines);
    while (this.#rows.children.length > lines.length) this.#rows.lastChild!.remove();
    while (this.#rows.children.length < lines.length) this.#rows.append(el("div", { class: "editor__row" }));
    const isLong = lines.some((line) => line.length > MAX_COLOURED);
    const drawn = lines.map((line, i) => (isLong ? "" : `${line} ${JSON.stringify(marks[i])}`));
    for (const [i, line] of lines.entries())
      if (drawn[i] !== this.#drawn[i])
        replace(this.#rows.children[i]!, ...(isLong ? [] : piecesOf(line, marks[i]!).map(pieceNode)));
    this.#drawn = drawn;
    const current = this.lines.rowAt(this.selection.focus) - top;
    for (const [i, row] of [...this.#rows.children].entries()) row.toggleAttribute("data-current", i === current);
    this.node.toggleAttribute("data-plain", isLong);
    setText(this.#numbers, marks.map((own, i) => `${top + i + 1}${signOf(own)}`).join("\n"));
    this.#numbers.style.width = `${this.#digits}ch`;
    for (const part of [this.#numbers, this.#rows]) part.style.top = `${PADDING_PX + top * LINE_PX}px`;
  }

  get #digits(): number {
    return String(this.lines.count).length + 2;
  }

  get #charPx(): number {
    return this.#numbers.clientWidth / this.#digits || 8;
  }

  /** Of the column with the numbers. */
  get #numbersPx(): number {
    return this.#numbers.parentElement!.offsetWidth;
  }

  /** Whether the field holds the whole selection. */
  get #isHeld(): boolean {
    const { anchor, focus } = this.selection;
    const base = this.lines.startOf(this.#first);
    return anchor === base + this.#held.anchor && focus === base + this.#held.focus;
  }

  /** Whether the field has the row, and those around it. */
  #isNear(row: number): boolean {
    const last = this.#first + this.#count;
    const isBehindStart = row >= this.#first + (this.#first === 0 ? 0 : MARGIN);
    return isBehindStart && row < last - (last >= this.lines.count ? 0 : MARGIN);
  }

  /** Has the field hold the lines around a row, unless it does, and the selection as far as it is there. */
  #hold(row: number, selection: Selection): void {
    const { field, lines } = this;
    if (!this.#isNear(row)) this.#first = Math.max(Math.min(row - WINDOW / 2, lines.count - WINDOW), 0);
    this.#selection = { anchor: selection.anchor, focus: selection.focus };
    const rows = lines.rows(this.#first, this.#first + WINDOW);
    const value = rows.join("\n");
    if (value !== this.#value) {
      field.value = value;
      this.#value = value;
      this.#columns = 0;
    }
    this.#fit(rows);
    const base = lines.startOf(this.#first);
    const held = (offset: number) => Math.max(0, Math.min(offset - base, value.length));
    const [anchor, focus] = [held(selection.anchor), held(selection.focus)];
    field.setSelectionRange(Math.min(anchor, focus), Math.max(anchor, focus), focus < anchor ? "backward" : "forward");
    this.#held = { anchor, focus };
  }

  /** Gives the canvas room for all lines, and the field for its own. */
  #fit(rows: readonly string[]): void {
    const { count } = this.lines;
    const top = this.#first * LINE_PX;
    this.#count = rows.length;
    this.#columns = rows.reduce((most, row) => Math.max(most, widthOf(row)), this.#columns);
    const isLast = this.#first + rows.length >= count;
    const fieldHeight = isLast ? `calc(100% - ${top}px)` : `${rows.length * LINE_PX + 2 * PADDING_PX}px`;
    this.#canvas.style.height = `max(100%, ${count * LINE_PX + 2 * PADDING_PX}px)`;
    this.#canvas.style.setProperty("--columns", `${this.#columns + 3}ch`);
    this.field.style.top = `${top}px`;
    this.field.style.height = fieldHeight;
  }

  /** What the user has selected; the end of a selection that the field does not hold stays, unless it was moved. */
  #readSelection(): void {
    const { selectionStart: start, selectionEnd: end, selectionDirection } = this.field;
    const [anchor, focus] = selectionDirection === "backward" ? [end, start] : [start, end];
    const held = this.#held;
    if (anchor === held.anchor && focus === held.focus) return;
    const base = this.lines.startOf(this.#first);
    const isSameAnchor = anchor === held.anchor && anchor !== focus;
    this.#selection = { anchor: isSameAnchor ? this.#selection.anchor : base + anchor, focus: base + focus };
    this.#held = { anchor, focus };
  }

  #onKey(event: KeyboardEvent): void {
    const { key, shiftKey } = event;
    const isCommand = event.ctrlKey || event.metaKey;
    if (event.isComposing || event.defaultPrevented) return;
    const { anchor, focus } = this.selection;
    const extend = (to: number) => this.select(shiftKey ? anchor : to, to);
    const letter = isCommand ? key.toLowerCase() : "";
    if (letter === "a") this.#hold(this.#first + Math.floor(this.#count / 2), { anchor: 0, focus: this.lines.length });
    else if (letter === "z") this.undo(shiftKey ? "redo" : "undo");
    else if (letter === "y") this.undo("redo");
    else if (isCommand && (key === "Home" || (event.metaKey && key === "ArrowUp"))) extend(0);
    else if (isCommand && (key === "End" || (event.metaKey && key === "ArrowDown"))) extend(this.lines.length);
    else if (key === "PageUp" || key === "PageDown") extend(this.#pageFrom(focus, key === "PageUp" ? -1 : 1));
    else {
      // What the field does with the key it does at the caret.
      if (!FIELD_KEYS.test(key) || (isCommand && key.length === 1)) return;
      const isHeld = this.#isHeld;
      if (isHeld && this.#isNear(this.lines.rowAt(focus))) return;
      if (isHeld || shiftKey || !/^(?:Arrow|Home|End)/.test(key)) return this.select(anchor, focus);
      const isBack = /Left|Up|Home/.test(key);
      const edge = isBack ? Math.min(anchor, focus) : Math.max(anchor, focus);
      this.select(edge, edge);
    }
    event.preventDefault();
    this.draw();
  }

  /** The offset a page further up or down, in the same column. */
  #pageFrom(offset: number, by: 1 | -1): number {
    const { lines } = this;
    const row = lines.rowAt(offset);
    const rows = Math.max(Math.floor(this.#scroller.clientHeight / LINE_PX) - 2, 1);
    const next = Math.max(Math.min(row + by * rows, lines.count - 1), 0);
    this.#scroller.scrollTop += (next - row) * LINE_PX;
    if (next === row) return by < 0 ? 0 : lines.length;
    return lines.startOf(next) + Math.min(offset - lines.startOf(row), lines.row(next).length);
  }

  #beforeInput(event: InputEvent): void {
    const { inputType, data } = event;
    if (inputType === "historyUndo" || inputType === "historyRedo")
      this.undo(inputType === "historyUndo" ? "undo" : "redo");
    else if (this.#isComposing || this.#isHeld) return;
    else this.replaceSelection(inputType === "insertLineBreak" ? "\n" : (data ?? ""));
    event.preventDefault();
  }

  /** What the field has done with its part of the text is done with the text. */
  #onInput(): void {
    const [old, value] = [this.#value, this.field.value];
    const least = Math.min(old.length, value.length);
    let start = 0;
    // Of several equal characters in a row those at the caret are the new ones.
    const most = Math.min(least, this.field.selectionEnd - Math.max(value.length - old.length, 0));
    while (start < most && old.charCodeAt(start) === value.charCodeAt(start)) start++;
    let end = 0;
    while (end < least - start && old.charCodeAt(old.length - 1 - end) === value.charCodeAt(value.length - 1 - end))
      end++;
    const base = this.lines.startOf(this.#first);
    const before = this.#selection;
    this.#value = value;
    const caret = base + this.field.selectionEnd;
    const after = { anchor: caret, focus: caret };
    const removed = old.slice(start, old.length - end);
    this.#change({ from: base + start, removed, added: value.slice(start, value.length - end), before, after });
    this.#selection = after;
    this.#held = { anchor: caret - base, focus: caret - base };
    const rows = value.split("\n");
    if (rows.length > 2 * WINDOW) this.select(caret, caret);
    else this.#fit(rows);
    this.draw();
  }

  #change(edit: Edit): void {
    if (edit.removed === edit.added) return;
    this.#history.add(edit);
    this.#apply(edit);
  }

  #apply(edit: Edit): void {
    const { from, removed, added } = edit;
    this.lines.replace(from, from + removed.length, added);
    const by = added.length - removed.length;
    for (const mark of this.#marks)
      if (mark.from >= from + removed.length) {
        mark.from += by;
        mark.to += by;
      }
    this.edited(edit);
  }

  #onCopy(event: ClipboardEvent, kind: "copy" | "cut"): void {
    const { from, to } = this.selection;
    if (from === to) return;
    event.preventDefault();
    event.clipboardData?.setData("text/plain", this.lines.slice(from, to));
    if (kind === "cut") this.replaceSelection("");
  }

  /** By line. A mark has at least one character, so that it can be seen, and ends with its line. */
  #marksOf(first: number, lines: readonly string[]): readonly (readonly LineMark[])[] {
    const found = lines.map((): LineMark[] => []);
    const [start, end] = [this.lines.startOf(first), this.lines.startOf(first + lines.length)];
    for (const { from, to, kind } of this.#marks) {
      if (from < start || from >= end) continue;
      const row = this.lines.rowAt(from);
      const own = this.lines.startOf(row);
      const column = Math.max(Math.min(from - own, this.lines.row(row).length - 1), 0);
      found[row - first]!.push({ from: column, to: Math.max(to - own, column + 1), kind });
    }
    return found;
  }
}

/** Fields know one kind of line ends. */
export function shownText(text: string): string {
  return text.replace(/\r\n?/g, "\n");
}

/** Columns of a line: tabs have four at most, and characters of other scripts two at most. */
function widthOf(line: string): number {
  return /[^ -~]/.test(line) ? line.replace(/\t/g, "    ").replace(/[^ -~]/g, "  ").length : line.length;
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

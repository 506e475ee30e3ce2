/**
 * The find bar of the editor. Matches ignore case, and do not overlap; ":120" goes to a line.
 */
import { button, el, setText } from "./dom.ts";
import type { EditorView, Mark } from "./editor_view.ts";
import { number } from "./format.ts";
import type { Lines } from "./text_lines.ts";

const MAX_FOUND = 10_000;
/** Characters of a selection that is looked for. */
const MAX_WANTED = 1_000;

export class FindBar {
  readonly node: HTMLElement;
  readonly #view: EditorView;
  /** Called when other matches are to be marked. */
  readonly #changed: () => void;
  readonly #input = el("input", {
    type: "search",
    id: "editor-find",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => this.#search(0),
  });
  readonly #count = el("span", { class: "muted", role: "status" });
  /** Offsets. */
  #found: readonly number[] = [];
  #current = -1;

  constructor(view: EditorView, changed: () => void) {
    [this.#view, this.#changed] = [view, changed];
    const steps = [button("Previous", () => this.#go(-1), "small"), button("Next", () => this.#go(1), "small")];
    const buttons = [...steps, this.#count, button("Close", () => this.#close(), "small")];
    const field = [el("label", { for: "editor-find" }, "Find"), el("div", { class: "json__find" }, this.#input)];
    this.node = el(
      "div",
      { class: "toolbar", role: "search", hidden: true, onkeydown: (event: KeyboardEvent) => this.#onKey(event) },
      ...field,
      ...buttons,
    );
  }

  get marks(): Mark[] {
    const { length } = this.#input.value;
    return this.#found.map((from, i) => ({ from, to: from + length, kind: i === this.#current ? "current" : "found" }));
  }

  open(): void {
    const { from, to } = this.#view.selection;
    const selected = this.#view.lines.slice(from, Math.min(to, from + MAX_WANTED));
    if (selected !== "" && !selected.includes("\n")) this.#input.value = selected;
    this.node.hidden = false;
    this.#input.focus();
    this.#input.select();
    this.#search(0);
  }

  /** Searches again after a change of the text, and moves to no match. */
  update(): void {
    if (!this.node.hidden) this.#search(null);
  }

  #search(by: 0 | null): void {
    const wanted = this.#input.value.toLowerCase();
    const { lines } = this.#view;
    const found = foundIn(lines, wanted);
    const line = found.length === 0 && by === 0 ? lineIn(wanted) : null;
    if (line !== null) this.#view.select(lines.offsetOf(line, 1), lines.offsetOf(line, 1));
    this.#found = found;
    this.#current = Math.max(
      found.findIndex((at) => at >= this.#view.selection.from),
      Math.min(found.length, 1) - 1,
    );
    if (by === null) this.#show();
    else this.#go(by);
  }

  #go(by: 1 | 0 | -1): void {
    const { length } = this.#found;
    if (length > 0) {
      this.#current = (this.#current + by + length) % length;
      const from = this.#found[this.#current]!;
      this.#view.select(from, from + this.#input.value.length);
    }
    this.#show();
  }

  #show(): void {
    const { length } = this.#found;
    const count = `${number(this.#current + 1)} of ${number(length)}${length === MAX_FOUND ? " or more" : ""}`;
    const line = lineIn(this.#input.value);
    const none = line === null ? "Not found" : `Line ${number(line)} of ${number(this.#view.lines.count)}`;
    setText(this.#count, this.#input.value === "" ? "" : length === 0 ? none : count);
    this.#changed();
  }

  #close(): void {
    this.node.hidden = true;
    this.#found = [];
    this.#changed();
    this.#view.field.focus();
  }

  #onKey(event: KeyboardEvent): void {
    if (event.key === "Escape") this.#close();
    else if (event.key === "Enter" && event.target === this.#input) this.#go(event.shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
  }
}

/** Offsets of the first `MAX_FOUND`. `wanted` is in lower case. */
export function foundIn(lines: Lines, wanted: string): readonly number[] {
  const found: number[] = [];
  for (let row = 0; row < lines.count && wanted !== ""; row++) {
    const line = lines.row(row).toLowerCase();
    for (let at = line.indexOf(wanted); at >= 0; at = line.indexOf(wanted, at + wanted.length)) {
      found.push(lines.startOf(row) + at);
      if (found.length === MAX_FOUND) return found;
    }
  }
  return found;
}

/** 120 of ":120"; null: another search. */
function lineIn(wanted: string): number | null {
  const digits = /^:(\d+)$/.exec(wanted)?.[1];
  return digits === undefined ? null : Math.max(Number(digits), 1);
}

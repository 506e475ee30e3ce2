/**
 * The find bar of the editor.
 */
import { el, setText } from "./dom.ts";
import type { EditorView, Mark } from "./editor_view.ts";
import { number } from "./format.ts";

const MAX_FOUND = 10_000;

export interface FindBar {
  readonly node: HTMLElement;
  /** The matches that are to be marked. */
  readonly marks: readonly Mark[];
  open(): void;
  /** Searches again, after a change of the text. */
  update(): void;
}

/** `changed` is called when there are other marks. */
export function findBar(view: EditorView, changed: () => void): FindBar {
  const input = el("input", { type: "search", id: "editor-find", autocomplete: "off", spellcheck: "false", oninput: () => search(true) });
  const count = el("span", { class: "muted", role: "status" });
  const button = (text: string, act: () => void) => el("button", { type: "button", class: "button button--small", onclick: act }, text);
  const node = el(
    "div",
    { class: "toolbar editor__find", role: "search", hidden: true, onkeydown: onKey },
    el("label", { for: "editor-find" }, "Find"),
    el("div", { class: "json__find" }, input),
    button("Previous", () => go(-1)),
    button("Next", () => go(1)),
    count,
    button("Close", close),
  );
  let found: readonly number[] = [];
  let current = -1;
  return {
    node,
    get marks() {
      return found.map((from, i): Mark => ({ from, to: from + input.value.length, kind: i === current ? "current" : "found" }));
    },
    open() {
      const { selectionStart: from, selectionEnd: to } = view.field;
      const selected = view.text.slice(from, to);
      if (selected !== "" && !selected.includes("\n")) input.value = selected;
      node.hidden = false;
      input.focus();
      input.select();
      search(true);
    },
    update: () => !node.hidden && search(false),
  };

  /** Matches ignore case, and do not overlap. */
  function search(isNew: boolean): void {
    const wanted = input.value.toLowerCase();
    const text = view.text.toLowerCase();
    const all: number[] = [];
    for (let at = wanted === "" ? -1 : text.indexOf(wanted); at >= 0 && all.length < MAX_FOUND; at = text.indexOf(wanted, at + wanted.length)) all.push(at);
    found = all;
    current = isNew ? -1 : Math.min(current, all.length - 1);
    const next = all.findIndex((at) => at >= view.field.selectionStart);
    if (isNew && all.length > 0) show(next < 0 ? 0 : next);
    else say();
  }

  function go(by: 1 | -1): void {
    if (found.length > 0) show((current + by + found.length) % found.length);
  }

  function show(index: number): void {
    current = index;
    view.select(found[index]!, found[index]! + input.value.length);
    say();
  }

  function say(): void {
    setText(count, input.value === "" ? "" : found.length === 0 ? "Not found" : `${number(current + 1)} of ${number(found.length)}${found.length === MAX_FOUND ? " or more" : ""}`);
    changed();
  }

  function close(): void {
    node.hidden = true;
    found = [];
    changed();
    view.field.focus();
  }

  function onKey(event: KeyboardEvent): void {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && event.target === input) go(event.shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
  }
}

/**
 * Shows JSON as a tree that opens level by level, with hidden secrets and a search. A level is created when it is first opened, so that
 * large configurations stay fast.
 */
import { el, replace } from "./dom.ts";
import { cutAt, isHidden, type JsonPath } from "./json_text.ts";
import { secretText } from "./pairs.ts";

export interface JsonView {
  readonly node: HTMLElement;
  /** Open levels stay open where they still exist. */
  show(root: unknown): void;
  /** Marks `word` in the values at `found`, also in levels that are opened later. */
  mark(word: string, found: readonly JsonPath[]): void;
  /** Opens all levels above it, scrolls to it, and marks it as current. */
  reveal(path: JsonPath): void;
  expandAll(): void;
  /** All but the outermost levels, as initially. */
  collapse(): void;
}

/** Levels that are open initially: the root and its members. */
const FIRST_OPEN = 2;
/** The texts of a row, or of a level's own line. */
const OWN_TEXTS = ":scope > .json__key, :scope > .json__text, :scope > .json__atom, :scope > summary > .json__key";

export function createJsonView(label: string): JsonView {
  const node = el("div", { class: "json", role: "region", "aria-label": label, tabindex: "0" });
  let root: unknown = null;
  let word = "";
  /** By path, as JSON. */
  let open = new Set<string>();
  let shut = new Set<string>();
  let all = false;
  const drawn = new Map<string, HTMLElement>();

  return {
    node,
    show(value) {
      root = value;
      draw();
    },
    /** In place: rendering a large configuration again at each key takes seconds. */
    mark(text, found) {
      for (const { parentElement: span } of node.querySelectorAll("mark")) if (span !== null) replace(span, span.textContent);
      word = text;
      for (const path of found) {
        const element = drawn.get(keyOf(path));
        for (const span of element?.querySelectorAll(OWN_TEXTS) ?? []) replace(span, ...marked(span.textContent));
      }
    },
    reveal(path) {
      for (let depth = 0; depth < path.length; depth++) {
        const level = drawn.get(keyOf(path.slice(0, depth)));
        // The toggle event comes too late: the next level is needed at once.
        if (level instanceof HTMLDetailsElement && !level.open) (level.open = true), fill(level, path.slice(0, depth));
      }
      node.querySelector('[data-found="now"]')?.removeAttribute("data-found");
      const found = drawn.get(keyOf(path));
      if (found === undefined) return;
      const line = found instanceof HTMLDetailsElement ? found.querySelector("summary")! : found;
      line.dataset.found = "now";
      line.scrollIntoView({ block: "nearest" });
    },
    expandAll() {
      all = true;
      shut = new Set();
      draw();
    },
    collapse() {
      all = false;
      open = new Set();
      shut = new Set();
      draw();
    },
  };

  function draw(): void {
    drawn.clear();
    replace(node, valueNode([], root, true));
  }

  function valueNode(path: JsonPath, value: unknown, last: boolean): HTMLElement {
    const comma = last ? "" : ",";
    const members = membersOf(value);
    if (members === null || members.length === 0) return keep(path, el("div", { class: "json__row" }, ...name(path), atom(path, value), comma));
    const [begin, end] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
    const isOpen = (all || path.length < FIRST_OPEN || open.has(keyOf(path))) && !shut.has(keyOf(path));
    const summary = el("summary", {}, ...name(path), begin, el("span", { class: "json__hint" }, ` ${hintOf(value, members.length)} ${end}${comma}`));
    const level = el("details", { open: isOpen }, summary, el("div", { class: "json__inner" }), el("div", {}, end + comma));
    level.addEventListener("toggle", () => {
      const key = keyOf(path);
      (level.open ? open : shut).add(key);
      (level.open ? shut : open).delete(key);
      if (level.open) fill(level, path);
    });
    if (isOpen) fill(level, path, members);
    return keep(path, level);
  }

  function fill(level: HTMLDetailsElement, path: JsonPath, members = membersOf(at(path)) ?? []): void {
    const inner = level.children[1]!;
    if (inner.hasChildNodes()) return;
    inner.append(...members.map(([member, value], i) => valueNode([...path, member], value, i === members.length - 1)));
  }

  function name(path: JsonPath): readonly (Node | string)[] {
    const last = path.at(-1);
    return typeof last === "string" ? [el("span", { class: "json__key" }, ...marked(JSON.stringify(last))), ": "] : [];
  }

  function atom(path: JsonPath, value: unknown): HTMLElement {
    if (isHidden(path, value)) return secretText(path.join("."), JSON.stringify(value));
    const isText = typeof value === "string";
    return el("span", { class: isText ? "json__text" : "json__atom" }, ...marked(JSON.stringify(value)));
  }

  function marked(text: string): readonly (Node | string)[] {
    const cut = cutAt(text, word);
    return cut === null ? [text] : [cut[0], el("mark", {}, cut[1]), cut[2]];
  }

  function keep<E extends HTMLElement>(path: JsonPath, element: E): E {
    drawn.set(keyOf(path), element);
    return element;
  }

  function at(path: JsonPath): unknown {
    return path.reduce<unknown>((value, member) => (value as Readonly<Record<string | number, unknown>> | null | undefined)?.[member], root);
  }
}

function membersOf(value: unknown): readonly (readonly [string | number, unknown])[] | null {
  if (Array.isArray(value)) return value.map((item: unknown, i) => [i, item] as const);
  return typeof value === "object" && value !== null ? Object.entries(value) : null;
}

/** The summary of a closed level: its name, or how many members it has. */
function hintOf(value: unknown, count: number): string {
  const { name, id } = value as { readonly name?: unknown; readonly id?: unknown };
  const names = [name, id].filter((each) => typeof each === "string");
  if (!Array.isArray(value) && names.length > 0) return names.join(" · ");
  return `${count} ${Array.isArray(value) ? (count === 1 ? "item" : "items") : count === 1 ? "member" : "members"}`;
}

function keyOf(path: JsonPath): string {
  return JSON.stringify(path);
}

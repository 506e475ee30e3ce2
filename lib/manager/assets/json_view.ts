/**
 * Shows JSON as a tree with a search. A level is created when it is first opened, so that large configurations stay
 * fast.
 */
import { el, replace } from "./dom.ts";
import { cutAt, isRecord, valueAt, type JsonPath } from "./json_text.ts";

/** Levels that are open initially: the root and its members. */
const FIRST_OPEN = 2;
/** The texts of a row, or of a level's own line. */
const OWN_TEXTS = ":scope > .json__key, :scope > .json__text, :scope > .json__atom, :scope > summary > .json__key";

export class JsonView {
  readonly node: HTMLElement;
  #root: unknown = null;
  #query = "";
  /** Levels that the user opened or closed, as paths in JSON. */
  #open = new Set<string>();
  #closed = new Set<string>();
  #all = false;
  readonly #drawn = new Map<string, HTMLElement>();

  constructor(label: string) {
    this.node = el("div", { class: "json", role: "region", "aria-label": label, tabindex: "0" });
  }

  /** Open levels stay open where they still exist. */
  show(value: unknown): void {
    this.#root = value;
    this.#draw();
  }

  /**
   * Marks `text` in the values at `found`, also in levels that are opened later. In place: rendering a large
   * configuration takes seconds.
   */
  mark(text: string, found: readonly JsonPath[]): void {
    for (const { parentElement: span } of this.node.querySelectorAll("mark"))
      if (span !== null) replace(span, span.textContent);
    this.#query = text;
    for (const path of found) {
      const element = this.#drawn.get(keyOf(path));
      for (const span of element?.querySelectorAll(OWN_TEXTS) ?? []) replace(span, ...this.#marked(span.textContent));
    }
  }

  /** Opens all levels above it, scrolls to it, and marks it as current. */
  reveal(path: JsonPath): void {
    for (let depth = 0; depth < path.length; depth++) {
      const level = this.#drawn.get(keyOf(path.slice(0, depth)));
      // The toggle event comes too late: the next level is needed at once.
      if (level instanceof HTMLDetailsElement && !level.open)
        ((level.open = true), this.#fill(level, path.slice(0, depth)));
    }
    this.node.querySelector('[data-found="now"]')?.removeAttribute("data-found");
    const found = this.#drawn.get(keyOf(path));
    if (found === undefined) return;
    const line = found instanceof HTMLDetailsElement ? found.querySelector("summary")! : found;
    line.dataset.found = "now";
    line.scrollIntoView({ block: "nearest" });
  }

  expandAll(): void {
    this.#all = true;
    this.#closed = new Set();
    this.#draw();
  }

  /** All but the outermost levels, as initially. */
  collapse(): void {
    this.#all = false;
    this.#open = new Set();
    this.#closed = new Set();
    this.#draw();
  }

  #draw(): void {
    this.#drawn.clear();
    replace(this.node, this.#valueNode([], this.#root, true));
  }

  #valueNode(path: JsonPath, value: unknown, last: boolean): HTMLElement {
    const comma = last ? "" : ",";
    const members = membersOf(value);
    if (members === null || members.length === 0)
      return this.#keep(path, el("div", { class: "json__row" }, ...this.#name(path), this.#atom(value), comma));
    const [begin, end] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
    const isOpen =
      (this.#all || path.length < FIRST_OPEN || this.#open.has(keyOf(path))) && !this.#closed.has(keyOf(path));
    const summary = el(
      "summary",
      {},
      ...this.#name(path),
      begin,
      el("span", { class: "json__hint" }, ` ${hintOf(value, members.length)} ${end}${comma}`),
    );
    const level = el(
      "details",
      { open: isOpen },
      summary,
      el("div", { class: "json__inner" }),
      el("div", {}, end + comma),
    );
    level.addEventListener("toggle", () => {
      const key = keyOf(path);
      (level.open ? this.#open : this.#closed).add(key);
      (level.open ? this.#closed : this.#open).delete(key);
      if (level.open) this.#fill(level, path);
    });
    if (isOpen) this.#fill(level, path, members);
    return this.#keep(path, level);
  }

  #fill(level: HTMLDetailsElement, path: JsonPath, members = membersOf(valueAt(this.#root, path)) ?? []): void {
    const inner = level.children[1]!;
    if (inner.hasChildNodes()) return;
    inner.append(
      ...members.map(([member, value], i) => this.#valueNode([...path, member], value, i === members.length - 1)),
    );
  }

  #name(path: JsonPath): readonly (Node | string)[] {
    const last = path.at(-1);
    return typeof last === "string"
      ? [el("span", { class: "json__key" }, ...this.#marked(JSON.stringify(last))), ": "]
      : [];
  }

  #atom(value: unknown): HTMLElement {
    const isText = typeof value === "string";
    return el("span", { class: isText ? "json__text" : "json__atom" }, ...this.#marked(JSON.stringify(value)));
  }

  #marked(text: string): readonly (Node | string)[] {
    const cut = cutAt(text, this.#query);
    return cut === null ? [text] : [cut[0], el("mark", {}, cut[1]), cut[2]];
  }

  #keep<E extends HTMLElement>(path: JsonPath, element: E): E {
    this.#drawn.set(keyOf(path), element);
    return element;
  }
}

function membersOf(value: unknown): readonly (readonly [string | number, unknown])[] | null {
  if (Array.isArray(value)) return value.map((item: unknown, i) => [i, item] as const);
  return isRecord(value) ? Object.entries(value) : null;
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

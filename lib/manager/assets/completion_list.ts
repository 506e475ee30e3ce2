/**
 * The list of suggestions at the caret. The focus stays in the field, which names the chosen one for screen readers.
 */
import type { Completion } from "./completion.ts";
import { el, replace } from "./dom.ts";
import type { EditorView } from "./editor_view.ts";

const ID = "editor-suggestions";
const LINE_PX = 20;
const LIST_PX = 320;

export class CompletionList {
  readonly node = el("ul", { class: "editor__suggestions", role: "listbox", id: ID, "aria-label": "Suggestions", hidden: true });
  readonly #view: () => EditorView;
  #completion: Completion | null = null;
  #chosen = 0;

  constructor(view: () => EditorView) {
    this.#view = view;
  }

  get isOpen(): boolean {
    return this.#completion !== null;
  }

  show(completion: Completion | null): void {
    this.#completion = completion;
    this.#chosen = 0;
    const { field } = this.#view();
    this.node.hidden = completion === null;
    if (completion === null) {
      field.removeAttribute("aria-activedescendant");
      return;
    }
    replace(this.node, ...completion.suggestions.map(({ label, detail }, i) => {
      const choose = (event: Event) => (event.preventDefault(), this.#accept(i));
      return el("li", { role: "option", id: `${ID}-${i}`, onpointerdown: choose }, el("span", { class: "mono" }, label), detail !== "" && el("span", { class: "muted" }, " ", detail));
    }));
    this.#mark();
    const { x, y } = this.#view().caretAt(completion.from);
    const isBelow = y + LINE_PX + Math.min(this.node.offsetHeight, 220) <= field.clientHeight || y < field.clientHeight / 2;
    this.node.style.left = `${Math.max(Math.min(x, field.clientWidth - LIST_PX), 0)}px`;
    this.node.style.top = `${isBelow ? y + LINE_PX : y - this.node.offsetHeight}px`;
  }

  /** Whether the key was for the list. */
  onKey({ key, ctrlKey, altKey, metaKey, shiftKey }: KeyboardEvent): boolean {
    const count = this.#completion?.suggestions.length ?? 0;
    if (count === 0 || ctrlKey || altKey || metaKey || shiftKey) return false;
    if (key === "Escape") this.show(null);
    else if (key === "Enter" || key === "Tab") this.#accept(this.#chosen);
    else if (key === "ArrowDown" || key === "ArrowUp") {
      this.#chosen = (this.#chosen + (key === "ArrowDown" ? 1 : -1) + count) % count;
      this.#mark();
    } else return false;
    return true;
  }

  #mark(): void {
    for (const [i, option] of [...this.node.children].entries()) option.setAttribute("aria-selected", String(i === this.#chosen));
    this.#view().field.setAttribute("aria-activedescendant", `${ID}-${this.#chosen}`);
    this.node.children[this.#chosen]?.scrollIntoView({ block: "nearest" });
  }

  #accept(index: number): void {
    const { from, to, suggestions } = this.#completion!;
    this.show(null);
    this.#view().replace(from, to, suggestions[index]!.insert, suggestions[index]!.caret);
  }
}

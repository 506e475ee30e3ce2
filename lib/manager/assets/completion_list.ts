/**
 * The list of suggestions at the caret. The focus stays in the field, which names the chosen one for screen readers.
 */
import type { Completion } from "./completion.ts";
import { el, replace } from "./dom.ts";
import { LINE_PX, type EditorView } from "./editor_view.ts";

const ID = "editor-suggestions";

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
    this.node.hidden = completion === null;
    const { field } = this.#view();
    if (completion === null) return field.removeAttribute("aria-activedescendant");
    replace(this.node, ...completion.suggestions.map(({ label, detail }, i) => {
      const onpointerdown = (event: Event) => (event.preventDefault(), this.#accept(i));
      return el("li", { role: "option", id: `${ID}-${i}`, onpointerdown }, el("span", { class: "mono" }, label), el("span", { class: "muted" }, ` ${detail}`));
    }));
    this.#choose(0);
    const { x, y } = this.#view().pointOf(completion.from);
    const isBelow = y < field.clientHeight / 2;
    this.node.style.left = `${Math.max(Math.min(x, field.clientWidth - this.node.offsetWidth), 0)}px`;
    this.node.style.top = `${isBelow ? y + LINE_PX : y - this.node.offsetHeight}px`;
  }

  /** Whether the key was for the list. */
  onKey({ key, ctrlKey, altKey, metaKey, shiftKey }: KeyboardEvent): boolean {
    const count = this.#completion?.suggestions.length ?? 0;
    if (count === 0 || ctrlKey || altKey || metaKey || shiftKey) return false;
    if (key === "Escape") this.show(null);
    else if (key === "Enter" || key === "Tab") this.#accept(this.#chosen);
    else if (key === "ArrowDown") this.#choose((this.#chosen + 1) % count);
    else if (key === "ArrowUp") this.#choose((this.#chosen - 1 + count) % count);
    else return false;
    return true;
  }

  #choose(index: number): void {
    this.#chosen = index;
    for (const [i, option] of [...this.node.children].entries()) option.setAttribute("aria-selected", String(i === index));
    this.#view().field.setAttribute("aria-activedescendant", `${ID}-${index}`);
    this.node.children[index]!.scrollIntoView({ block: "nearest" });
  }

  #accept(index: number): void {
    const { from, to, suggestions } = this.#completion!;
    const { insert, caret } = suggestions[index]!;
    this.show(null);
    this.#view().replace(from, to, insert, caret);
  }
}

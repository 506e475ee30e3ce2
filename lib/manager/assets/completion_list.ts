/**
 * The list of suggestions at the caret. The focus stays in the field, which names the chosen one for screen readers.
 */
import type { Completion } from "./completion.ts";
import { el, replace } from "./dom.ts";
import { LINE_PX, type EditorView } from "./editor_view.ts";

const ID = "editor-suggestions";
/** Those that are for the list while it is open. */
const KEYS = ["Escape", "Enter", "Tab", "ArrowDown", "ArrowUp"];

export class CompletionList {
  readonly node = el("ul", {
    class: "editor__suggestions",
    role: "listbox",
    id: ID,
    "aria-label": "Suggestions",
    hidden: true,
  });
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
    // The same text may be read twice: what has been chosen stays.
    if (JSON.stringify(completion) === JSON.stringify(this.#completion)) return;
    this.#completion = completion;
    this.node.hidden = completion === null;
    const { field } = this.#view();
    if (completion === null) return field.removeAttribute("aria-activedescendant");
    replace(
      this.node,
      ...completion.suggestions.map(({ label, detail }, i) => {
        const onpointerdown = (event: Event) => (event.preventDefault(), this.#acceptLabel(label));
        return el(
          "li",
          { role: "option", id: `${ID}-${i}`, onpointerdown },
          el("span", { class: "mono" }, label),
          el("span", { class: "muted" }, ` ${detail}`),
        );
      }),
    );
    this.#choose(0);
    const { x, y } = this.#view().pointOf(completion.from);
    const { clientHeight, clientWidth } = this.#view().node;
    const isBelow = y < clientHeight / 2;
    this.node.style.left = `${Math.max(Math.min(x, clientWidth - this.node.offsetWidth), 0)}px`;
    this.node.style.top = `${isBelow ? y + LINE_PX : y - this.node.offsetHeight}px`;
  }

  /** Whether the key was for the list. */
  onKey({ key, ctrlKey, altKey, metaKey, shiftKey }: KeyboardEvent): boolean {
    if (!this.isOpen || !KEYS.includes(key) || ctrlKey || altKey || metaKey || shiftKey) return false;
    const count = this.#completion!.suggestions.length;
    if (key === "Escape") this.show(null);
    else if (key === "Enter" || key === "Tab") this.#accept(this.#chosen);
    else this.#choose((this.#chosen + (key === "ArrowDown" ? 1 : count - 1)) % count);
    return true;
  }

  #choose(index: number): void {
    this.#chosen = index;
    for (const [i, option] of [...this.node.children].entries())
      option.setAttribute("aria-selected", String(i === index));
    this.#view().field.setAttribute("aria-activedescendant", `${ID}-${index}`);
    this.node.children[index]!.scrollIntoView({ block: "nearest" });
  }

  #acceptLabel(wanted: string): void {
    const index = this.#completion?.suggestions.findIndex(({ label }) => label === wanted) ?? -1;
    if (index >= 0) this.#accept(index);
  }

  #accept(index: number): void {
    const { from, to, suggestions } = this.#completion!;
    const { insert, caret } = suggestions[index]!;
    this.show(null);
    this.#view().replace(from, to, insert, caret);
  }
}

/**
 * The form that drops stored replies from the caches of all workers.
 */
import { ask } from "./api.ts";
import { button, el } from "./dom.ts";
import type { Frame } from "./page.ts";

const CHOICES = {
  all: "All replies",
  tag: "With the tag",
  prefix: "Whose URL begins with",
  url: "Of the URL",
} as const;

type Choice = keyof typeof CHOICES;

/** Hidden from users who change nothing. */
export function purgeAction(frame: Frame): { readonly node: HTMLElement; refresh(areCaches: boolean): void } {
  const choice = el(
    "select",
    { "aria-label": "Which replies are purged" },
    ...Object.entries(CHOICES).map(([value, label]) => el("option", { value }, label)),
  );
  const text = el("input", { type: "text", hidden: true, "aria-label": "Tag, prefix or URL", spellcheck: "false" });
  choice.addEventListener("change", () => {
    text.hidden = choice.value === "all";
  });
  const run = button("Purge", () => void purge());
  const node = el(
    "div",
    { class: "badges", role: "group", "aria-label": "Purge caches", hidden: true },
    choice,
    text,
    run,
  );
  return {
    node,
    refresh(areCaches) {
      node.hidden = !areCaches || (frame.session?.role ?? "viewer") === "viewer";
    },
  };

  async function purge(): Promise<void> {
    const named = choice.value as Choice;
    const body = named === "all" ? {} : { [named]: text.value.trim() };
    const what =
      named === "all" ? "all stored replies" : `replies ${CHOICES[named].toLowerCase()} “${text.value.trim()}”`;
    if (!confirm(`Purge ${what}, in all workers? Upstreams are asked again.`)) return;
    run.disabled = true;
    try {
      const { purged } = await ask<{ readonly purged: number }>("POST", "/gateway/cache/purge", { body });
      frame.showMessage(`${purged} stored ${purged === 1 ? "reply was" : "replies were"} purged.`, "good");
      await frame.refresh();
    } catch (error) {
      frame.showError(error);
    } finally {
      run.disabled = false;
    }
  }
}

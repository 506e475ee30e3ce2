/**
 * Links from the page of an item to the forms that change it, with the item chosen.
 */
import { el } from "./dom.ts";
import type { Frame } from "./page.ts";
import type { Part } from "./tables.ts";
import { hashForForm } from "./url_hash.ts";

/** `names`: of the service, and of the route or the group within it. */
type FormLink = readonly [text: string, form: string, ...names: string[]];

/** Hidden from users from whom the gateway takes no changes, which a page may learn later. */
export function formLinks(frame: Frame, ...links: readonly FormLink[]): Part {
  const node = el(
    "span",
    { class: "badges" },
    ...links.map(([text, ...form]) => el("a", { class: "button", href: hashForForm(...form) }, text)),
  );
  return { node, refresh: () => void (node.hidden = frame.session?.write !== true) };
}

/**
 * The bar on every page for users from whom the gateway takes changes: what the draft would change, as the gateway
 * says, and the ways to change something. Without a draft it is small.
 */
import type { Status, Validation } from "./api.ts";
import { el, setText } from "./dom.ts";
import { draft } from "./draft.ts";
import { checks } from "./draft_checks.ts";
import { counted } from "./format.ts";
import type { Session } from "./page.ts";
import { pathIn } from "./url_hash.ts";

const WAYS = [
  ["#/add", "Forms"],
  ["#/edit", "Text"],
  ["#/history", "History"],
] as const;

export function changeBar() {
  const what = el("span", { class: "change__what" });
  const stale = el("span", { role: "status" });
  const review = el("a", { class: "button button--primary", href: "#/apply", hidden: true }, "Review");
  const ways = WAYS.map(([href, text]) => el("a", { href }, text));
  const node = el("nav", { class: "change", "aria-label": "Changes", hidden: true }, what, stale, review, ...ways);
  let digest: string | null = null;
  let isOpen = false;

  const draw = () => {
    const { isDirty, isStale, text } = draft;
    setText(what, isDirty ? `Draft: ${stateOf(checks.of(text), checks.trouble)}` : "Change:");
    setText(stale, isDirty && isStale ? "The file has been changed since you began." : "");
    node.toggleAttribute("data-draft", isDirty);
    const at = pathIn(location.hash);
    review.hidden = !isDirty || at === "#/apply";
    for (const way of ways)
      if (at.startsWith(way.hash)) way.setAttribute("aria-current", "page");
      else way.removeAttribute("aria-current");
  };
  draft.onChange(() => {
    if (draft.isDirty && isOpen) checks.check(draft.text);
    else checks.stop();
    draw();
  });
  checks.onChange(draw);
  draw();

  return {
    node,
    update(status: Status | null, session: Session | null) {
      const wasOpen = isOpen;
      isOpen = session?.write === true;
      node.hidden = !isOpen;
      draw();
      if (isOpen && !wasOpen && draft.isDirty) checks.check(draft.text);
      if (status === null) return;
      const { last_reload: last } = status;
      draft.seeFile(last?.outcome === "refused" ? last.digest : status.digest);
      if (digest !== null && digest !== status.digest) checks.renew();
      digest = status.digest;
    },
  };
}

/** "3 changes, tests pass, 1 guard lost" */
function stateOf(found: Validation | null, trouble: string | null): string {
  if (found === null) return trouble === null ? "being checked…" : `not checked. ${trouble}`;
  const { diff, issues, tests } = found;
  if (diff === null) return counted(issues.length, "error");
  const { guards_lost: lost, ...changes } = diff;
  const count = Object.values(changes).reduce((sum, list) => sum + list.length, 0);
  const guards = lost.reduce((sum, place) => sum + place.guards.length, 0);
  const run =
    tests === null ? "no tests" : tests.failed === 0 ? "tests pass" : `${counted(tests.failed, "test")} failed`;
  return [counted(count, "change"), run, guards > 0 && `${counted(guards, "guard")} lost`].filter(Boolean).join(", ");
}

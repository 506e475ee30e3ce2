/**
 * The page of former configurations: "#/history". Rolling back first shows what it would change.
 */
import { ApiError, ask, askSource, type HistoryEntry } from "./api.ts";
import { inForce, type Applied } from "./apply_page.ts";
import { changeItems, changeReview, counted } from "./change_review.ts";
import { createAges, fixedBadge, loading, unreadable } from "./components.ts";
import { el, replace } from "./dom.ts";
import { draft } from "./draft.ts";
import type { Frame, Known, OpenPage, Page } from "./page.ts";

export const historyPage: OpenPage = (frame) => new HistoryPage(frame);

const CAUSES: Readonly<Record<string, string>> = { start: "the start of the gateway", file: "a change of the file", signal: "a signal (SIGHUP)", admin: "a reload by the admin interface" };

class HistoryPage implements Page {
  readonly title = "History";
  readonly #result = el("div", { role: "status" });
  readonly #list = el("div", {}, loading("the history"));
  readonly node = el("div", { class: "stack" }, this.#result, this.#list);
  readonly #frame: Frame;
  readonly #ages = createAges();
  #force: ReturnType<typeof inForce> | null = null;
  #digest: string | null = null;
  /** Counts requests: a reply to an earlier one is ignored. */
  #asked = 0;

  constructor(frame: Frame) {
    this.#frame = frame;
  }

  update({ status, now }: Known): void {
    this.#ages.update(now);
    this.#force?.update({ status });
    if (status === null || status.digest === this.#digest) return;
    this.#digest = status.digest;
    void this.#load(now);
  }

  close(): void {
    this.#asked += 1;
  }

  async #load(now: number): Promise<void> {
    const own = ++this.#asked;
    try {
      const { entries } = await ask<{ readonly entries: readonly HistoryEntry[] }>("GET", "/gateway/history");
      if (own !== this.#asked) return;
      this.#ages.forget();
      replace(this.#list, el("ol", { class: "list" }, ...entries.map((entry) => this.#item(entry))));
      this.#ages.update(now);
    } catch (error) {
      if (own !== this.#asked) return;
      if (error instanceof ApiError && error.status === 401) return this.#frame.showError(error);
      replace(this.#list, ...unreadable("The history", error, () => void this.#load(now)));
    }
  }

  #item({ digest, at, by, changes, in_force: isInForce, can_roll_back: canRollBack, reason }: HistoryEntry): HTMLElement {
    const who = "cause" in by ? `by ${CAUSES[by.cause] ?? by.cause}` : `by ${by.user} from ${by.address}`;
    const place = el("div", {});
    const open = el("button", { type: "button", class: "button button--small", "aria-label": `Roll back to ${digest}`, onclick: () => void this.#confirm(digest, place, open) }, "Roll back…");
    const head = el("div", { class: "toolbar" }, el("h2", { class: "mono" }, digest), isInForce && fixedBadge("good", "In force"), el("span", { class: "muted" }, this.#ages.of(at), ` ${who}`), !isInForce && canRollBack && open);
    const more = changes.length > 0 && el("details", { class: "more" }, el("summary", {}, counted(changes.length, "change")), changeItems(changes));
    return el("li", { class: "card" }, head, reason !== null && el("p", { class: "muted" }, reason), more, place);
  }

  /** Shows what would change below the entry, with the button that does it. */
  async #confirm(digest: string, place: HTMLElement, opener: HTMLElement): Promise<void> {
    try {
      const [now, then] = await Promise.all([askSource(), askSource(`/gateway/history?${new URLSearchParams({ digest })}`)]);
      const cancel = () => (replace(place), opener.focus());
      const act = el("button", { type: "button", class: "button button--primary", onclick: () => void this.#rollBack(digest, now.digest, act) }, `Roll back to ${digest}`);
      const title = el("h3", { tabindex: "-1" }, "This would change:");
      replace(place, el("div", { class: "stack again" }, title, changeReview({ frame: this.#frame, before: now.text, after: then.text, judged: () => {} }), el("div", { class: "toolbar" }, act, el("button", { type: "button", class: "button", onclick: cancel }, "Cancel"))));
      title.focus();
    } catch (error) {
      this.#frame.showError(error);
    }
  }

  async #rollBack(digest: string, ifMatch: string, button: HTMLElement): Promise<void> {
    if (button.getAttribute("aria-busy") === "true") return;
    button.setAttribute("aria-busy", "true");
    try {
      this.#force = inForce(await ask<Applied>("POST", "/gateway/rollback", { body: { digest }, ifMatch }));
      replace(this.#result, this.#force.node);
      // The base of a draft is the file; a draft under edit stays, and Apply says what has changed.
      if (!draft.isDirty) draft.forget();
      this.#digest = null;
      await this.#frame.refresh();
      scrollTo(0, 0);
    } catch (error) {
      this.#frame.showError(error);
    } finally {
      button.removeAttribute("aria-busy");
    }
  }
}

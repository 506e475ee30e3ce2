/**
 * The page of former configurations: "#/history". Rolling back first shows what it would change.
 */
import { ageOf } from "./ages.ts";
import { ask, askSource, type HistoryEntry } from "./api.ts";
import { inForce, type Applied } from "./apply_page.ts";
import { askingFor } from "./asking.ts";
import { changeReview, setWhyNot } from "./change_review.ts";
import { changeList, fixedBadge, loading, notice } from "./components.ts";
import { button, el, replace, setPending, whenChanged } from "./dom.ts";
import { draft } from "./draft.ts";
import { counted } from "./format.ts";
import type { Frame, Known, OpenPage, Page } from "./page.ts";

export const page: OpenPage = (frame) => new HistoryPage(frame);

const CAUSES: Readonly<Record<string, string>> = {
  start: "the start of the gateway",
  file: "a change of the file",
  signal: "a signal (SIGHUP)",
  admin: "a reload by the admin interface",
};

class HistoryPage implements Page {
  readonly title = "History";
  readonly #result = el("div", { role: "status" });
  readonly #list = el("div", {}, loading("the history"));
  readonly node = el("div", { class: "stack" }, this.#result, this.#list);
  readonly #frame: Frame;
  readonly #ask;
  readonly #onDigest = whenChanged((_digest: string) => void this.#ask());
  #force: ReturnType<typeof inForce> | null = null;
  #shown = "";

  constructor(frame: Frame) {
    this.#frame = frame;
    const read = () => ask<{ readonly entries: readonly HistoryEntry[] }>("GET", "/gateway/history");
    this.#ask = askingFor({
      frame,
      what: "The history",
      node: this.#list,
      ask: read,
      show: ({ entries }) => this.#show(entries),
    });
  }

  update({ status }: Known): void {
    this.#force?.update({ status });
    if (status !== null) this.#onDigest(status.digest);
  }

  #show(entries: readonly HistoryEntry[]): void {
    // As long as they are the same, what somebody has opened in them stays.
    const key = JSON.stringify(entries);
    if (key === this.#shown && this.#list.querySelector("ol") !== null) return;
    this.#shown = key;
    const [{ reason } = { reason: null }] = entries;
    // Where the file cannot be changed from here, each has the same one.
    const common = entries.length > 1 && entries.every((entry) => entry.reason === reason) ? reason : null;
    const items = entries.map((entry) => this.#item(entry, common === null));
    replace(
      this.#list,
      el(
        "div",
        { class: "stack" },
        common !== null && notice("warn", "Roll back is not possible from here.", common),
        el("ol", { class: "list" }, ...items),
      ),
    );
  }

  #item(
    { digest, at, by, changes, in_force: isInForce, can_roll_back: canRollBack, reason }: HistoryEntry,
    hasReason: boolean,
  ): HTMLElement {
    const who = "cause" in by ? `by ${CAUSES[by.cause] ?? by.cause}` : `by ${by.user} from ${by.address}`;
    const place = el("div", {});
    const open = button("Roll back…", () => void this.#confirm(digest, place, open), "small", {
      "aria-label": `Roll back to ${digest}`,
    });
    const state = [
      isInForce && fixedBadge("good", "In force"),
      el("span", { class: "muted" }, ageOf(at), ` ${who}`),
      !isInForce && canRollBack && open,
    ];
    const more =
      changes.length > 0 &&
      el("details", { class: "more" }, el("summary", {}, counted(changes.length, "change")), changeList(changes));
    const head = el("div", { class: "toolbar" }, el("h2", { class: "mono" }, digest), ...state);
    return el(
      "li",
      { class: "card" },
      head,
      hasReason && reason !== null && el("p", { class: "muted" }, reason),
      more,
      place,
    );
  }

  /** Shows what would change below the entry, with the button that does it. */
  async #confirm(digest: string, place: HTMLElement, opener: HTMLElement): Promise<void> {
    try {
      const [now, then] = await Promise.all([
        askSource(),
        askSource(`/gateway/history?${new URLSearchParams({ digest })}`),
      ]);
      const act = button(`Roll back to ${digest}`, () => void this.#rollBack(digest, now.digest, act), "primary");
      const cancel = button("Cancel", () => (replace(place), opener.focus()));
      const title = el("h3", { tabindex: "-1" }, "This would change:");
      const reason = el("p", { class: "muted", role: "status" });
      const review = changeReview({
        frame: this.#frame,
        before: now.text,
        after: then.text,
        judged: (whyNot) => setWhyNot(act, reason, whyNot),
      });
      const tools = el("div", { class: "toolbar" }, act, cancel);
      replace(place, el("div", { class: "stack again" }, title, review, tools, reason));
      title.focus();
    } catch (error) {
      this.#frame.showError(error);
    }
  }

  async #rollBack(digest: string, ifMatch: string, pressed: HTMLElement): Promise<void> {
    if (pressed.getAttribute("aria-disabled") === "true") return;
    setPending(pressed, true);
    try {
      this.#force = inForce(await ask<Applied>("POST", "/gateway/rollback", { body: { digest }, ifMatch }));
      replace(this.#result, this.#force.node);
      // The base of a draft is the file; a draft under edit stays, and Apply says what has changed.
      if (!draft.isDirty) draft.forget();
      await this.#frame.refresh();
      if (!this.node.isConnected) return;
      void this.#ask();
      scrollTo(0, 0);
    } catch (error) {
      this.#frame.showError(error);
    } finally {
      setPending(pressed, false);
    }
  }
}

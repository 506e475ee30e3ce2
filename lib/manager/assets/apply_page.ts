/**
 * The review of the draft: "#/apply". It shows what would change, sends the text with the digest of the file that it is
 * based on, and says what the gateway made of it. What the gateway would refuse cannot be sent. A refused draft is
 * kept.
 */
import { ApiError, ask, isSessionEnd, type Change, type Issue, type Validation } from "./api.ts";
import { askingFor } from "./asking.ts";
import { BEING_CHECKED, issueLinks, meaningOf, reviewOf, setWhyNot, textChanges, whyNot } from "./change_review.ts";
import { changeList, link, loading, notice } from "./components.ts";
import { download } from "./copy.ts";
import { confirmed } from "./dialog.ts";
import { button, el, replace, setText, type Child } from "./dom.ts";
import { draft } from "./draft.ts";
import { checks } from "./draft_checks.ts";
import type { Frame, Known, OpenPage, Page } from "./page.ts";
import { merged } from "./text_diff.ts";

/** PUT /gateway/source and POST /gateway/rollback */
export interface Applied {
  readonly digest: string;
  readonly changes: readonly Change[];
}

const STALE = "The file has been changed since you began.";

export const page: OpenPage = (frame) => new ApplyPage(frame);

class ApplyPage implements Page {
  readonly title = "Review";
  readonly node = el("div", { class: "stack" }, loading("the file"));
  readonly #frame: Frame;
  readonly #result = el("div", { class: "stack", role: "status" });
  readonly #reason = el("p", { class: "muted", id: "apply-reason", role: "status" });
  readonly #button = button("Apply", () => void this.#apply(), "primary", { "aria-describedby": "apply-reason" });
  readonly #look = button("Look at the change", () => void this.#onChangedFile());
  readonly #meaning = el("div", { class: "stack", role: "status" });
  readonly #body = el("div", { class: "stack" });
  readonly #ends: readonly (() => void)[];
  #force: ReturnType<typeof inForce> | null = null;
  #isBusy = false;
  /** Whether the draft would undo a change of the file that has been shown. */
  #undoes = false;
  /** The draft that the page shows. Null: it is being read. */
  #text: string | null = null;
  /** What the meaning shows. */
  #shown: Validation | string | null = null;

  constructor(frame: Frame) {
    this.#frame = frame;
    this.#ends = [draft.onChange(() => this.#judge()), checks.onChange(() => this.#judge())];
    const read = askingFor({
      frame,
      what: "The file",
      node: this.node,
      ask: () => draft.load(),
      show: () => this.#show(),
    });
    void read();
  }

  update(known: Known): void {
    this.#force?.update(known);
  }

  close(): void {
    for (const end of this.#ends) end();
  }

  #show(): void {
    this.#text = draft.text;
    replace(this.node, this.#result, this.#body);
    if (!draft.isDirty) {
      const text = "There is nothing to apply: the draft is the same as the file.";
      const ways = [
        link("#/edit", "Edit the text"),
        ", ",
        link("#/add", "add something"),
        ", or ",
        link("#/history", "go back to a former configuration"),
        ".",
      ];
      return replace(this.#body, el("div", { class: "card empty" }, el("p", {}, text), el("p", {}, ...ways)));
    }
    const { readOnly } = draft;
    const tools = el(
      "div",
      { class: "toolbar" },
      readOnly === null && this.#button,
      this.#look,
      el("a", { class: "button", href: "#/edit" }, "Edit further"),
      button("Download the draft", () => download(draft.text)),
      button("Discard the draft", () => void this.#discard()),
    );
    const effect =
      readOnly === null
        ? "Nothing is changed before you apply."
        : `It cannot be applied from here: download it. ${readOnly}`;
    const base = `Based on the file with the digest ${draft.baseDigest}. ${effect}`;
    this.#shown = null;
    replace(
      this.#body,
      el("div", { class: "card stack" }, tools, this.#reason, el("p", { class: readOnly === null && "muted" }, base)),
      reviewOf(this.#meaning, draft.baseText, draft.text),
    );
    checks.check(draft.text, 0);
    this.#judge();
  }

  /** Shows what the gateway says of the draft, and whether it can be applied; another draft as a whole. */
  #judge(): void {
    if (this.#text !== null && this.#text !== draft.text) return this.#show();
    const found = checks.of(draft.text);
    const shown = found ?? checks.trouble ?? BEING_CHECKED;
    if (shown !== this.#shown) {
      this.#shown = shown;
      const unchecked =
        checks.trouble === null
          ? el("p", { class: "muted" }, BEING_CHECKED)
          : notice("warn", "Not checked by the gateway.", checks.trouble);
      replace(this.#meaning, ...(found === null ? [unchecked] : meaningOf(found)));
    }
    const { isStale } = draft;
    const unknown = checks.trouble === null ? BEING_CHECKED : null;
    const reason = isStale ? STALE : found === null ? unknown : whyNot(found);
    this.#look.hidden = !isStale;
    setWhyNot(this.#button, this.#reason, this.#isBusy ? "The gateway takes the draft…" : reason);
    this.#button.setAttribute("aria-busy", String(this.#isBusy));
    const loses = (found?.diff?.guards_lost.length ?? 0) > 0;
    const cost = [loses && "lose guards", this.#undoes && "undo the change of the file"].filter(Boolean).join(" and ");
    setText(this.#button, cost === "" ? "Apply" : `Apply, and ${cost}`);
  }

  async #discard(): Promise<void> {
    if (!(await confirmed("Discard the draft? The file stays as it is.", "Discard"))) return;
    this.#undoes = false;
    draft.discard();
    this.#judge();
  }

  async #apply(): Promise<void> {
    if (this.#text !== draft.text) return this.#show();
    if (this.#button.getAttribute("aria-disabled") === "true") return;
    this.#setBusy(true);
    replace(this.#result);
    const { text } = draft;
    try {
      const applied = await ask<Applied>("PUT", "/gateway/source", { text, ifMatch: draft.baseDigest });
      this.#undoes = false;
      draft.setBase({ text, digest: applied.digest });
      this.#force = inForce(applied);
      await this.#frame.refresh().catch(() => {});
      if (!this.node.isConnected) return;
      this.#show();
      replace(this.#result, this.#force.node);
    } catch (error) {
      await this.#onRefused(error);
    } finally {
      this.#setBusy(false);
    }
  }

  async #onRefused(error: unknown): Promise<void> {
    if (!(error instanceof ApiError) || isSessionEnd(error)) return this.#frame.showError(error);
    if (error.status === 412) return this.#onChangedFile();
    const issues = Array.isArray(error.problem.issues) ? (error.problem.issues as readonly Issue[]) : [];
    // Without a reply nobody knows whether the change was made.
    const isUnknown = error.status === 0 || error.status === 502 || error.status === 504;
    const again = button("Look at the file", () => void this.#onChangedFile(), "small");
    this.#say(
      "bad",
      isUnknown ? "Nobody knows whether it was applied." : "Not applied. Your draft is kept.",
      error.message,
      issues.length > 0 && issueLinks(issues),
      isUnknown && again,
    );
  }

  /** Takes the file as it is now for the base; the draft stays as it is. */
  async #onChangedFile(): Promise<void> {
    const { baseText: before, text: mine } = draft;
    try {
      await draft.rebase();
    } catch (error) {
      return this.#frame.showError(error);
    }
    if (!this.node.isConnected) return;
    this.#undoes = draft.isDirty && draft.baseText !== before;
    this.#show();
    if (!draft.isDirty) return this.#say("good", "The file is the same as your draft.", "It was applied.");
    if (draft.baseText === before) return this.#say("warn", "The file is as it was.", "Your draft was not applied.");
    const both = merged(before, mine, draft.baseText);
    const join =
      both === null
        ? "Your draft and the file differ in the same lines: edit further, and take over what you want to keep."
        : button("Put my changes onto the new file", () => this.#join(both));
    this.#say(
      "warn",
      "The file has been changed by somebody else or by hand. Nothing was applied, and your draft is kept.",
      "Applying the draft as it stands would undo these changes:",
      textChanges(before, draft.baseText),
      join,
    );
  }

  #join(text: string): void {
    this.#undoes = false;
    draft.setText(text);
    this.#judge();
    this.#say("good", "The draft now has the changes of both.", "Look at what is left, then apply.");
  }

  #say(tone: "good" | "warn" | "bad", title: string, ...more: readonly Child[]): void {
    replace(
      this.#result,
      el("div", { class: `notice notice--${tone} stack` }, el("p", {}, el("strong", {}, title)), ...more),
    );
    this.#result.scrollIntoView({ block: "nearest" });
  }

  #setBusy(to: boolean): void {
    this.#isBusy = to;
    this.#judge();
  }
}

/** What the gateway made of a text that it has taken: on how many workers is known a little later. */
export function inForce({ digest, changes }: Applied): {
  readonly node: HTMLElement;
  update(known: Pick<Known, "status">): void;
} {
  const where = el("p", {});
  const title = changes.length > 0 ? "Applied." : "Applied. It does what the one before did.";
  return {
    node: el(
      "div",
      { class: "notice notice--good stack" },
      el("p", {}, el("strong", {}, title), " Digest ", el("span", { class: "mono" }, digest), "."),
      where,
      changes.length > 0 && changeList(changes),
    ),
    update({ status }) {
      if (status === null) return;
      const { workers } = status;
      const on = workers === null ? "by the one process" : `on ${workers.serving} of ${workers.configured} workers`;
      setText(where, status.digest === digest ? `In force ${on}.` : `In force is now ${status.digest}.`);
    },
  };
}

/**
 * What pages ask the gateway for beside its live state. Answers that arrive after `close`, and those to an earlier question, count for nothing.
 */
import { ask as request, isSessionEnd, messageOf } from "./api.ts";
import { unreadable } from "./components.ts";
import { el, replace, setText } from "./dom.ts";
import type { Frame } from "./page.ts";

interface AskOptions<T> {
  readonly ask: () => Promise<T>;
  readonly show: (found: T) => void;
  readonly failed: (error: unknown) => void;
}

export interface Asking {
  /** Asks now. */
  load(): Promise<void>;
  close(): void;
}

export function asking<T>({ ask, show, failed }: AskOptions<T>): Asking {
  let turn = 0;
  return {
    async load() {
      const own = ++turn;
      try {
        const found = await ask();
        if (own === turn) show(found);
      } catch (error) {
        if (own === turn) failed(error);
      }
    },
    close: () => void turn++,
  };
}

interface PartOptions<T> extends Omit<AskOptions<T>, "failed"> {
  readonly frame: Frame;
  /** "The file" */
  readonly what: string;
  /** Where it says that it could not be read, with a button that asks again. */
  readonly node: Element;
}

/** For a part of a page that is nothing without the answer. */
export function askingFor<T>({ frame, what, node, ...options }: PartOptions<T>): Asking {
  const asked = asking({
    ...options,
    failed(error) {
      if (isSessionEnd(error)) frame.showError(error);
      else replace(node, ...unreadable(what, error, () => void asked.load()));
    },
  });
  return asked;
}

/**
 * Figures that are asked for again while the page is updated, so while it is visible. `path` is one of the admin interface; `note` says that they
 * could not be read. The page's own requests lead to the login where the session has ended.
 */
export function figuresAt<T>(path: string | (() => string), what: string, show: (found: T) => void, everyMs = () => 2000) {
  const note = el("p", { class: "muted", role: "status" });
  let askedAt = -Infinity;
  let failure = "";
  const asked = asking<T>({
    ask: () => request("GET", typeof path === "string" ? path : path()),
    show(found) {
      // What `show` says there stays as it is: screen readers would say it again.
      if (note.textContent === failure) setText(note, "");
      show(found);
    },
    failed(error) {
      failure = `${what} could not be read. ${messageOf(error)}`;
      setText(note, failure);
    },
  });
  return {
    ...asked,
    note,
    update(now: number): void {
      if (now - askedAt < everyMs()) return;
      askedAt = now;
      void asked.load();
    },
  };
}

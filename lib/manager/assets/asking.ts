/**
 * What pages ask the gateway for beside its live state. Answers to an earlier question, and those for a page that was
 * left, count for nothing.
 */
import { ask as request, isSessionEnd, messageOf } from "./api.ts";
import { unreadable } from "./components.ts";
import { el, replace, setText } from "./dom.ts";
import { pauseMs } from "./live_state.ts";
import type { Frame } from "./page.ts";

interface AskOptions<T> {
  readonly ask: () => Promise<T>;
  readonly show: (found: T) => void;
  readonly failed: (error: unknown) => void;
  /** A part of the page. */
  readonly node: Pick<Element, "isConnected">;
}

/** Returns what asks now. */
export function asking<T>({ ask, show, failed, node }: AskOptions<T>): () => Promise<void> {
  let turn = 0;
  return async () => {
    const own = ++turn;
    const counts = () => own === turn && node.isConnected;
    try {
      const found = await ask();
      if (counts()) show(found);
    } catch (error) {
      if (counts()) failed(error);
    }
  };
}

interface PartOptions<T> extends Omit<AskOptions<T>, "failed"> {
  readonly frame: Frame;
  /** "The file" */
  readonly what: string;
  /** Where it says that it could not be read, with a button that asks again. */
  readonly node: Element;
}

/** For a part of a page that is nothing without the answer. Returns what asks now. */
export function askingFor<T>({ frame, what, node, ...options }: PartOptions<T>): () => Promise<void> {
  const load = asking({
    ...options,
    node,
    failed(error) {
      if (isSessionEnd(error)) frame.showError(error);
      else replace(node, ...unreadable(what, error, () => void load()));
    },
  });
  return load;
}

/**
 * Figures that are asked for again while the page is updated, so while it is visible. `path` is one of the admin
 * interface; `note` says that they could not be read. The page's own requests lead to the login where the session has
 * ended.
 */
export function figuresAt<T>(
  path: string | (() => string),
  what: string,
  show: (found: T) => void,
  everyMs = () => 2000,
) {
  const note = el("p", { class: "muted", role: "status" });
  // By the browser's own clock, since that of the gateway may be set back; none is due while one is under way.
  let dueAt = 0;
  let failure = "";
  const load = asking<T>({
    node: note,
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
    load,
    note,
    update(): void {
      const askedAt = performance.now();
      if (askedAt < dueAt) return;
      dueAt = Infinity;
      void load().then(() => {
        const now = performance.now();
        dueAt = now + pauseMs(everyMs() - (now - askedAt), now - askedAt);
      });
    },
  };
}

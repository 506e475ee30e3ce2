/**
 * Reads the live stream of requests while the tab is visible.
 */
import type { TailBatch } from "./api.ts";
import { setText } from "./dom.ts";
import type { Filter } from "./requests_text.ts";

const AGAIN_MS = 5_000;

/** `note` says why nothing comes; `missed` is called when the stream is back, and requests may have ended meanwhile. */
export function requestStream(receive: (batch: TailBatch) => void, missed: () => void, note: Node) {
  let asked: Filter | null = null;
  let source: EventSource | null = null;
  let timer = 0;
  let isBroken = false;

  const open = (): void => {
    clearTimeout(timer);
    source?.close();
    source = null;
    if (asked === null || document.hidden) return;
    // What ends from now on is never before it.
    const { since: _, ...filter } = asked;
    source = new EventSource(`api/gateway/tail?${new URLSearchParams(filter)}`);
    source.addEventListener("lines", ({ data }: MessageEvent<string>) => receive(JSON.parse(data) as TailBatch));
    source.addEventListener("open", () => {
      if (isBroken) missed();
      isBroken = false;
    });
    source.addEventListener("error", () => {
      isBroken = true;
      setText(
        note,
        "New requests cannot be read: a filter cannot be used, 32 others read them, or the connection is lost.",
      );
      // A broken stream the browser opens again by itself, one that was refused it does not.
      if (source?.readyState === EventSource.CLOSED) timer = window.setTimeout(open, AGAIN_MS);
    });
  };

  const reopen = (): void => {
    isBroken = true;
    open();
  };

  return {
    /** Null: nothing is to be read any more. */
    follow(filter: Filter | null): void {
      [asked, isBroken] = [filter, false];
      document.removeEventListener("visibilitychange", reopen);
      if (filter !== null) document.addEventListener("visibilitychange", reopen);
      open();
    },
  };
}

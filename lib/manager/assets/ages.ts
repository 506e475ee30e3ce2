/**
 * Times that are shown by how long ago they are, or how long they are off: what is in the document is kept up to date
 * by the frame.
 */
import { el, setText } from "./dom.ts";
import { ago, moment, until } from "./format.ts";

/** The gateway's time, in ms since 1970. */
let latest = Date.now();

/** "3 min ago", with the exact time as its title. */
export function ageOf(iso: string): HTMLElement {
  return el("time", { class: "age", datetime: iso, title: moment(iso) }, ago(iso, latest));
}

/** "in 8 s" */
export function timeUntil(iso: string): HTMLElement {
  return el("time", { class: "age", datetime: iso, title: moment(iso), "data-until": true }, until(iso, latest));
}

export function updateAges(now: number): void {
  latest = now;
  for (const node of document.querySelectorAll<HTMLTimeElement>("time.age")) {
    setText(node, ("until" in node.dataset ? until : ago)(node.dateTime, now));
  }
}

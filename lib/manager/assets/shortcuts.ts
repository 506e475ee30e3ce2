/**
 * Keys that lead on from every page: Ctrl+K and "/" search, "?" lists the keys, and "g" with a letter goes to a page.
 */
/** Pages by the letter behind "g". */
export const PAGES: Readonly<Record<string, string>> = {
  o: "",
  q: "requests",
  s: "services",
  r: "routes",
  u: "upstreams",
  p: "plugins",
  c: "callers",
  y: "try",
  t: "tests",
  f: "config",
  e: "edit",
  a: "apply",
  h: "history",
};
/** How long after "g" a letter is awaited. */
const LETTER_MS = 1_500;
const FIELDS = "input, textarea, select, [contenteditable]";

interface KeyOptions {
  /** Whether pages are shown. */
  readonly mayGo: () => boolean;
  readonly goTo: (hash: string) => void;
  readonly open: (what: "search" | "keys") => void;
}

export function followKeys({ mayGo, goTo, open }: KeyOptions): void {
  let letterUntil = 0;
  addEventListener("keydown", (event) => {
    const { key, ctrlKey, metaKey, altKey, target, timeStamp } = event;
    if (!mayGo() || document.querySelector("dialog[open]") !== null) return;
    const isSearch = (ctrlKey || metaKey) && !altKey && key.toLowerCase() === "k";
    const isTyped = ctrlKey || metaKey || altKey || (target as Element).matches(FIELDS);
    if (isTyped && !isSearch) return;
    const isAwaited = timeStamp < letterUntil;
    letterUntil = key === "g" && !isAwaited ? timeStamp + LETTER_MS : 0;
    if (isAwaited && Object.hasOwn(PAGES, key)) goTo(`#/${PAGES[key]!}`);
    else if (isSearch || key === "/") open("search");
    else if (key === "?") open("keys");
    else return;
    event.preventDefault();
  });
}

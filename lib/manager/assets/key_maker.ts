/**
 * Makes a key of a caller, which is shown once: the configuration has its SHA-256.
 */
import { messageOf } from "./api.ts";
import { field } from "./components.ts";
import { copy } from "./copy.ts";
import { button, el, replace } from "./dom.ts";
import type { Frame } from "./page.ts";

const KEY_BYTES = 32;
const ONCE =
  "It is shown this once and stored nowhere: copy it now. It works once the draft is applied, " +
  "where a plugin key_auth " +
  "has “callers”: true.";

/** `made` gets its SHA-256. What shows the key has the attribute `data-key`. */
export function keyMaker(frame: Frame, made: (digest: string) => void): HTMLElement {
  const shown = el("div", { role: "status" });
  return el(
    "div",
    { class: "stack" },
    button("Make a key", () => void make(), "small"),
    shown,
  );

  async function make(): Promise<void> {
    try {
      const key = newKey();
      made(await sha256(key));
      const id = `key-${Date.now()}`;
      const text = el("textarea", { id, class: "mono", rows: 2, readonly: true, spellcheck: "false" });
      text.value = key;
      text.addEventListener("focus", () => text.select());
      const hint = el("p", { class: "field__hint" }, ONCE);
      const copyIt = button("Copy the key", () => void copy(frame, key, "Copied the key.", text), "small");
      replace(shown, el("div", { class: "stack", "data-key": true }, field("The new key", text, hint), copyIt));
      text.focus();
    } catch (error) {
      replace(shown, messageOf(error));
    }
  }
}

/** 256 bits, in characters that every header and URL can carry. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replace(/=+$/, "");
}

async function sha256(text: string): Promise<string> {
  // Browsers have it on pages over HTTPS and of this machine.
  if (!isSecureContext)
    throw new Error("The browser computes no SHA-256 on a page without HTTPS: open it over HTTPS, or as localhost.");
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

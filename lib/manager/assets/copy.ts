/**
 * Copies text to the clipboard, and saves a configuration as a file.
 */
import { el } from "./dom.ts";
import type { Frame } from "./page.ts";

/** Tells the user. Where the browser does not allow it, the text in `field` is selected for the user. */
export async function copy(
  frame: Frame,
  text: string,
  copied: string,
  field: HTMLTextAreaElement | null = null,
): Promise<void> {
  if (await isCopied(text, field)) return frame.showMessage(copied, "good");
  const remedy = field === null ? "Select the text instead." : "The text is selected: copy it with the keyboard.";
  frame.showMessage(`Your browser does not let this page copy. ${remedy}`, "bad");
}

/** The clipboard API exists over HTTPS and on localhost only; elsewhere the selection of `field` is copied. */
async function isCopied(text: string, field: HTMLTextAreaElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    if (field === null) return false;
    field.focus();
    field.select();
    return document.execCommand("copy");
  }
}

export function download(text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  el("a", { href: url, download: "gateway.json" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

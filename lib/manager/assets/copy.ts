/**
 * Copies text to the clipboard.
 */

/**
 * False: the browser does not allow it, and the text in `field` is selected for the user. The clipboard API exists over HTTPS and on
 * localhost only; elsewhere the selection of `field` is copied.
 */
export async function copyText(text: string, field: HTMLTextAreaElement | null = null): Promise<boolean> {
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

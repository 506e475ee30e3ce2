/**
 * Writes into the draft that a warning is accepted.
 */
import { draft } from "./draft.ts";
import { putJson, readJson } from "./edit_json.ts";
import { valueAt, type JsonPath } from "./json_text.ts";
import type { Frame } from "./page.ts";

const LIST: JsonPath = ["global", "accept_warnings"];

/** `name`: as an entry of `global.accept_warnings`. */
export async function acceptWarning(frame: Pick<Frame, "showMessage" | "showError">, name: string): Promise<void> {
  try {
    await draft.load();
    const found = valueAt(readJson(draft.text), LIST);
    const entries: readonly unknown[] = Array.isArray(found) ? found : [];
    if (!entries.includes(name)) draft.setText(putJson(draft.text, [...LIST, entries.length], name).text);
    frame.showMessage(`The draft accepts ${name}. Review it, and apply it.`, "good");
  } catch (error) {
    frame.showError(error);
  }
}

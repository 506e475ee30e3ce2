/**
 * The page that edits the text of the configuration: "#/edit". It changes the draft in memory; the page "Apply" sends
 * that to the gateway.
 */
import { ask } from "./api.ts";
import { askingFor } from "./asking.ts";
import { loading, notice, slot } from "./components.ts";
import { el } from "./dom.ts";
import { draft } from "./draft.ts";
import { checks } from "./draft_checks.ts";
import { Editor } from "./editor.ts";
import { shownText } from "./editor_view.ts";
import type { OpenPage } from "./page.ts";
import type { Schema } from "./schema_help.ts";
import { queryIn } from "./url_hash.ts";

let schema: Schema | null = null;
/** Where the caret was when the page was left. */
let caret = 0;

export const page: OpenPage = (frame) => {
  const content = slot();
  let editor: Editor | null = null;
  /** What the editor has told the draft. */
  let told = "";
  const endListening = draft.onChange(() => {
    if (editor === null) return;
    if (draft.isStale && !draft.isDirty) void draft.load().catch(frame.showError);
    if (draft.text !== told) editor.setText(shownText(draft.text));
  });
  const read = askingFor({
    frame,
    what: "The file",
    node: content.node,
    ask: () => Promise.all([schema ?? ask<Schema>("GET", "/gateway/schema"), draft.load()]),
    show: ([root]) => open(root),
  });
  content.put(loading("the file"));
  void read();
  return {
    title: "Edit",
    node: content.node,
    update() {},
    close() {
      endListening();
      if (editor !== null) caret = editor.close();
    },
  };

  function open(root: Schema): void {
    schema = root;
    editor = new Editor({
      schema: root,
      checks,
      changed: () => draft.setLater(() => (told = draftText(editor!.text))),
      rested() {
        told = draftText(editor!.text);
        draft.setText(told);
        return told;
      },
      discard: () => shownText(draft.baseText),
    });
    const readOnly =
      draft.readOnly === null
        ? null
        : notice("warn", "This text is a draft.", `${draft.readOnly} Change it here, and download it.`);
    content.put(el("div", { class: "stack" }, readOnly, editor.node));
    editor.setText(shownText(draft.text));
    // "#/edit?line=12&column=7" of a link to an error. With "of", the digest of another text: its lines are not those
    // of the draft.
    const asked = queryIn(location.hash);
    const [line, of, path] = [asked.get("line"), asked.get("of"), asked.get("path")];
    const isOther = of !== null && (of !== draft.baseDigest || draft.isDirty);
    if (isOther) frame.showMessage(`This text is not the one that had ${path} in line ${line}: find it by its name.`);
    editor.goTo(line !== null && !isOther ? editor.offsetOf(Number(line), Number(asked.get("column") ?? 1)) : caret);
  }
};

/** The text of the draft for what the field holds: with the line ends of the file. */
function draftText(text: string): string {
  const { baseText } = draft;
  if (!baseText.includes("\r")) return text;
  if (text === shownText(baseText)) return baseText;
  return /\r\n/.test(baseText) && !/(?<!\r)\n/.test(baseText) ? text.replaceAll("\n", "\r\n") : text;
}

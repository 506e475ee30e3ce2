/**
 * The page that edits the text of the configuration: "#/edit". It changes the draft in memory; the page "Apply" sends
 * that to the gateway.
 */
import { ask, type Status } from "./api.ts";
import { askingFor } from "./asking.ts";
import { loading, notice, slot } from "./components.ts";
import { el, replace } from "./dom.ts";
import { draft } from "./draft.ts";
import { Editor } from "./editor.ts";
import { offsetIn, type Verdict } from "./editor_checks.ts";
import type { OpenPage } from "./page.ts";
import type { Schema } from "./schema_help.ts";
import { queryIn } from "./url_hash.ts";

let schema: Schema | null = null;
/** Where the caret was when the page was left. */
let caret = 0;

export const page: OpenPage = (frame) => {
  const content = slot();
  const notes = el("div", { role: "status" });
  let editor: Editor | null = null;
  /** The digest of the file as the gateway knew it last, at first when the page was opened. */
  let seen: string | null = null;
  const endListening = draft.onChange(() => {
    if (editor !== null && draft.text !== draftText(editor.text)) editor.setText(fieldText(draft.text));
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
    update({ status }) {
      if (status !== null) compareFile(status);
    },
    close() {
      endListening();
      if (editor === null) return;
      caret = editor.close();
      if (draft.isDirty)
        frame.showMessage("Your changes are not applied. They are kept until you sign out or close this tab.");
    },
  };

  function open(root: Schema): void {
    schema = root;
    editor = new Editor({
      schema: root,
      isApplied: draft.readOnly === null,
      validate: (text) => ask<Verdict>("POST", "/gateway/validate", { text: draftText(text) }),
      changed: (text) => draft.setText(draftText(text)),
      discard: () => fieldText(draft.baseText),
      failed: frame.showError,
    });
    const readOnly =
      draft.readOnly === null
        ? null
        : notice("warn", "This text is a draft.", `${draft.readOnly} Change it here, and download it.`);
    content.put(el("div", { class: "stack" }, readOnly, notes, editor.node));
    editor.setText(fieldText(draft.text));
    // "#/edit?line=12&column=7" of a link to an error. With "of", the digest of another text: its lines are not those
    // of the draft.
    const asked = queryIn(location.hash);
    const [line, of, path] = [asked.get("line"), asked.get("of"), asked.get("path")];
    const isOther = of !== null && (of !== draft.baseDigest || draft.isDirty);
    if (isOther) frame.showMessage(`This text is not the one that had ${path} in line ${line}: find it by its name.`);
    editor.goTo(
      line !== null && !isOther ? offsetIn(editor.text, Number(line), Number(asked.get("column") ?? 1)) : caret,
    );
  }

  /** The file was changed by somebody else: a text that nobody has edited follows it, another one stays. */
  function compareFile({ digest, last_reload: last }: Status): void {
    const now = last?.outcome === "refused" ? last.digest : digest;
    seen ??= now;
    // What changes until the file has been read is compared with it then.
    if (editor === null) return;
    const isNew = now !== seen;
    const isNoted = notes.firstChild !== null;
    const differs = now !== draft.baseDigest;
    if (differs && draft.isDirty && !isNoted)
      replace(
        notes,
        notice(
          "warn",
          "The file has been changed since you began.",
          "Your text is kept. Apply puts both together, or shows where they differ.",
        ),
      );
    if (isNoted && (!differs || !draft.isDirty)) replace(notes);
    if (differs && !draft.isDirty && (isNew || isNoted)) void draft.load().catch(frame.showError);
    seen = now;
  }
};

/** Fields know one kind of line ends. */
function fieldText(text: string): string {
  return text.replace(/\r\n?/g, "\n");
}

/** The text of the draft for what the field holds: with the line ends of the file. */
function draftText(text: string): string {
  const { baseText } = draft;
  if (text === fieldText(baseText)) return baseText;
  return /\r\n/.test(baseText) && !/(?<!\r)\n/.test(baseText) ? text.replaceAll("\n", "\r\n") : text;
}

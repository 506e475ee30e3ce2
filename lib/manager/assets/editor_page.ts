/**
 * The page that edits the text of the configuration: "#/edit". It changes the draft in memory; the page "Apply" sends that to the gateway.
 */
import { ask, type Status } from "./api.ts";
import { completionAt } from "./completion.ts";
import { CompletionList } from "./completion_list.ts";
import { slot, unreadable } from "./components.ts";
import { download } from "./copy.ts";
import { el, replace, setText } from "./dom.ts";
import { draft } from "./draft.ts";
import { Checks, moved, tokenEnd, type Finding, type Verdict } from "./editor_checks.ts";
import { findBar } from "./editor_find.ts";
import { newLine, shiftedLines } from "./editor_typing.ts";
import { EditorView, type Mark } from "./editor_view.ts";
import { number } from "./format.ts";
import { outlineOf, placeAt } from "./json_outline.ts";
import type { Frame, Known, OpenPage } from "./page.ts";
import { helpOf, schemasAt, type Schema } from "./schema_help.ts";

const KEYS = "Tab leaves the text. Ctrl+Space suggests names and values, Ctrl+F finds, F8 goes to the next problem, and Tab shifts selected lines.";
/** Problems listed individually. */
const MAX_PROBLEMS = 100;
const READ_MS = 60;

/** A finding with the offset of its place; null: it has none. */
type Placed = Finding & { readonly from: number | null };

let schema: Schema | null = null;
/** Where the caret was when the page was left. */
let caret = 0;

export const editorPage: OpenPage = (frame) => {
  const content = slot("stack");
  let editor: ReturnType<typeof openEditor> | null = null;
  let isClosed = false;
  void load();
  return {
    title: "Edit",
    node: content.node,
    update: (known) => editor?.update(known),
    close() {
      isClosed = true;
      editor?.close();
    },
  };

  async function load(): Promise<void> {
    content.put(el("div", { class: "empty", role: "status" }, el("p", {}, "Waiting for the file…")));
    try {
      [schema] = await Promise.all([schema ?? ask<Schema>("GET", "/gateway/schema"), draft.load()]);
      if (isClosed) return;
      editor = openEditor(frame, schema);
      content.put(editor.node);
      editor.start();
    } catch (error) {
      if (!isClosed) content.put(el("div", {}, ...unreadable("The file", error, () => void load())));
      frame.showError(error);
    }
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

function openEditor(frame: Frame, root: Schema) {
  const list = new CompletionList(() => view);
  const view = new EditorView({ id: "editor-text", "aria-label": "Text of the configuration", "aria-describedby": "editor-keys", "aria-autocomplete": "list", "aria-controls": list.node.id }, list.node);
  const { field } = view;
  const find = findBar(view, mark);
  const state = el("p", { role: "status" });
  const help = el("div", { class: "editor__help" });
  const problems = el("ol", { class: "list" });
  const changed = el("div", { role: "status" });
  const apply = el("a", { class: "button button--primary", href: "#/apply" }, "Review and apply");
  const discard = button("Discard changes", () => view.replace(0, view.text.length, fieldText(draft.baseText), 0));
  const checks = new Checks({ validate: (text) => ask<Verdict>("POST", "/gateway/validate", { text }), after, changed: mark, failed: frame.showError });
  const endListening = draft.onChange(follow);
  let outline = outlineOf("");
  let findings: readonly Placed[] = [];
  let cancelReading: (() => void) | null = null;
  let costMs = 0;
  /** Where the suggestions were shown, and whether they had been asked for. */
  let suggested = { at: -1, isAsked: false };
  /** The digest of the file as the gateway knew it when the base was read. */
  let seen: string | null = null;

  field.addEventListener("input", onInput);
  field.addEventListener("keydown", onKey);
  field.addEventListener("blur", () => list.show(null));
  field.addEventListener("pointermove", ({ clientX, clientY }) => showHelp(view.offsetOf(clientX, clientY) ?? field.selectionStart));
  field.addEventListener("pointerleave", () => showHelp(field.selectionStart));
  document.addEventListener("selectionchange", onSelection);

  const tools = el(
    "div",
    { class: "toolbar" },
    button("Find", () => find.open()),
    button("Undo", () => edit("undo")),
    button("Redo", () => edit("redo")),
    discard,
    button("Download", () => download(draft.text)),
    apply,
  );
  const node = el("div", { class: "stack" }, changed, el("section", { class: "card stack", "aria-label": "Editor" }, tools, find.node, view.node, help, el("p", { class: "muted", id: "editor-keys" }, KEYS)), el("section", { class: "card stack" }, el("h2", {}, "Problems"), state, problems));
  return {
    node,
    start() {
      view.setText(fieldText(draft.text));
      view.select(caret, caret);
      read();
      // "#/edit?line=12&column=7" of a link to an error.
      const asked = new URLSearchParams(location.hash.split("?")[1]);
      if (asked.has("line")) goTo(offsetIn(view.text, Math.min(Number(asked.get("line")), view.text.length), Number(asked.get("column") ?? 1)));
    },
    update({ status }: Known) {
      if (status !== null) compareFile(status);
    },
    close() {
      caret = field.selectionStart;
      checks.stop();
      cancelReading?.();
      endListening();
      document.removeEventListener("selectionchange", onSelection);
      view.close();
      if (draft.isDirty) frame.showMessage("Your changes are not applied. They are kept until you sign out or close this tab.");
    },
  };

  function onInput(): void {
    view.read();
    draft.setText(draftText(view.text));
    cancelReading?.();
    // Reading a large text takes longer than a keystroke may.
    cancelReading = after(Math.max(READ_MS, costMs * 4), read);
  }

  /** The text has been changed elsewhere. */
  function follow(): void {
    if (draft.text !== draftText(view.text)) view.setText(fieldText(draft.text));
    setDisabled(discard, !draft.isDirty);
  }

  function read(): void {
    const began = performance.now();
    outline = outlineOf(view.text);
    costMs = performance.now() - began;
    checks.check(draft.text);
    setDisabled(discard, !draft.isDirty);
    find.update();
    mark();
    suggest(list.isOpen && suggested.isAsked);
  }

  function suggest(isAsked: boolean): void {
    const { selectionStart: from, selectionEnd: to } = field;
    const isTyped = document.activeElement === field && from === to && outline.text === view.text;
    suggested = { at: from, isAsked };
    list.show(isTyped ? completionAt(outline, from, root, isAsked) : null);
  }

  /** Marks what is wrong where it stands: as the gateway says, and what is known at once. */
  function mark(): void {
    const { verdict } = checks;
    const isCurrent = verdict?.text === draft.text;
    const local = isCurrent ? [] : outline.faults.map(({ from, message }): Placed => ({ kind: "error", ...placeOf(from), from, message }));
    const place = moved(fieldText(verdict?.text ?? ""), view.text);
    const remote = (verdict?.findings ?? []).flatMap((finding): readonly Placed[] => {
      if (finding.line === null) return isCurrent ? [{ ...finding, from: null }] : [];
      const from = place(offsetIn(fieldText(verdict!.text), finding.line, finding.column ?? 1));
      return from === null ? [] : [{ ...finding, ...placeOf(from), from }];
    });
    findings = [...local, ...remote.filter(({ from }) => from === null || !local.some((each) => each.from === from))];
    const marks = findings.flatMap(({ kind, from }): readonly Mark[] => (from === null ? [] : [{ kind, from, to: tokenEnd(view.text, from) }]));
    view.setMarks([...marks, ...find.marks]);
    field.setAttribute("aria-invalid", String(findings.some(({ kind }) => kind === "error")));
    setText(state, stateText(findings, isCurrent, checks.trouble, verdict?.tests ?? null));
    replace(problems, ...findings.slice(0, MAX_PROBLEMS).map(problemRow));
    showHelp(field.selectionStart);
  }

  function placeOf(offset: number): { readonly line: number; readonly column: number } {
    const line = view.lineAt(offset);
    return { line, column: [...view.text.slice(view.offsetAt(line, 1), offset)].length + 1 };
  }

  function problemRow({ kind, line, column, message, from }: Placed): HTMLElement {
    const badge = el("span", { class: `badge badge--${kind === "error" ? "bad" : "warn"}` }, kind === "error" ? "Error" : "Warning");
    const place = from === null ? null : el("button", { type: "button", class: "button button--small", onclick: () => goTo(from) }, `Line ${line}, column ${column}`);
    return el("li", { class: "editor__problem" }, badge, place, el("span", {}, message));
  }

  function goTo(offset: number): void {
    field.focus();
    view.select(offset, tokenEnd(view.text, offset));
    showHelp(offset);
  }

  function goToNext(by: 1 | -1): void {
    const places = findings.flatMap(({ from }) => from ?? []).sort((a, b) => (a - b) * by);
    const next = places.find((from) => (from - field.selectionStart) * by > 0) ?? places[0];
    if (next !== undefined) goTo(next);
  }

  function onSelection(): void {
    if (document.activeElement !== field) return;
    if (list.isOpen && outline.text === view.text && field.selectionStart !== suggested.at) list.show(null);
    showHelp(field.selectionStart);
  }

  /** What is wrong in the line, and what the schema says about the field. */
  function showHelp(offset: number): void {
    if (outline.text !== view.text) return;
    const line = view.lineAt(offset);
    const wrong = findings.filter((finding) => finding.from !== null && finding.line === line).map(({ message }) => message);
    const { path, values, member } = placeAt(outline, offset);
    const required = member === null ? [] : schemasAt(root, outline, { path: path.slice(0, -1), values }).flatMap((each) => each.required ?? []);
    const { description, facts } = helpOf(schemasAt(root, outline, { path, values }), required.includes(member?.key ?? ""));
    const name = path.map((step) => (typeof step === "number" ? `[${step}]` : step)).join(".").replaceAll(".[", "[");
    const lines = [...wrong, description, facts].filter((text) => text !== "");
    const shown = [name === "" ? "The configuration" : name, ...lines];
    if (help.textContent === shown.join("")) return;
    replace(help, el("p", { class: "mono" }, shown[0]!), ...lines.map((text, i) => el("p", { class: i < wrong.length ? "editor__wrong" : null }, text)));
  }

  function onKey(event: KeyboardEvent): void {
    const { key, shiftKey } = event;
    const isCommand = event.ctrlKey || event.metaKey;
    const { selectionStart: from, selectionEnd: to } = field;
    if (event.isComposing) return;
    if (list.onKey(event)) return event.preventDefault();
    if (isCommand && key.toLowerCase() === "f") find.open();
    else if (isCommand && key === " ") {
      outline = outlineOf(view.text);
      suggest(true);
    } else if (key === "F8") goToNext(shiftKey ? -1 : 1);
    else if (key === "Enter" && !isCommand) {
      const { text, caret } = newLine(view.text, from, to);
      view.replace(from, to, text, caret);
    } else if (key === "Tab" && from !== to && !isCommand) {
      const lines = shiftedLines(view.text, from, to, shiftKey ? -1 : 1);
      view.replace(lines.from, lines.to, lines.text);
      field.setSelectionRange(lines.from, lines.from + lines.text.length);
    } else return;
    event.preventDefault();
  }

  function edit(command: "undo" | "redo"): void {
    field.focus();
    document.execCommand(command);
  }

  /** The file was changed by somebody else: a text that nobody has edited follows it, another one stays. */
  function compareFile({ digest, last_reload: last }: Status): void {
    const now = last?.outcome === "refused" ? last.digest : digest;
    if (now === seen) return;
    const isFirst = seen === null;
    seen = now;
    if (now === draft.baseDigest || (isFirst && !draft.isDirty)) return replace(changed);
    if (!draft.isDirty) return void draft.load().catch(frame.showError);
    replace(
      changed,
      el("div", { class: "notice notice--warn" }, el("p", {}, el("strong", {}, "The file has been changed since you began. "), "Your text is kept, but the gateway will refuse it while it is based on the file as it was."), el("div", { class: "toolbar" }, button("Keep my text, on the new file", () => void rebase(false)), button("Discard my text", () => void rebase(true)))),
    );
  }

  async function rebase(isDiscarded: boolean): Promise<void> {
    try {
      await draft.rebase();
      if (isDiscarded) draft.discard();
      replace(changed);
    } catch (error) {
      frame.showError(error);
    }
  }
}

function stateText(findings: readonly Finding[], isCurrent: boolean, trouble: string | null, tests: Verdict["tests"]): string {
  const errors = findings.filter(({ kind }) => kind === "error").length;
  const counts = `${count(errors, "error")}, ${count(findings.length - errors, "warning")}`;
  if (trouble !== null) return `Not checked by the gateway. ${trouble}`;
  if (!isCurrent) return errors === 0 ? "The gateway checks the text…" : `${counts}. The gateway checks the text…`;
  const passed = tests === null ? "" : tests.failed === 0 ? ` ${count(tests.passed, "test")} passed.` : ` ${count(tests.failed, "test")} failed.`;
  return `Checked by the gateway: ${counts}.${passed}`;
}

function count(n: number, what: string): string {
  return n === 0 ? `no ${what}s` : n === 1 ? `one ${what}` : `${number(n)} ${what}s`;
}

function button(text: string, act: () => void): HTMLButtonElement {
  return el("button", { type: "button", class: "button button--small", onclick: act }, text);
}

function setDisabled(node: HTMLElement, isDisabled: boolean): void {
  node.setAttribute("aria-disabled", String(isDisabled));
}

function after(ms: number, run: () => void): () => void {
  const timer = setTimeout(run, ms);
  return () => clearTimeout(timer);
}

function offsetIn(text: string, line: number, column: number): number {
  let start = 0;
  for (let i = 1; i < line; i++) start = text.indexOf("\n", start) + 1;
  return start + [...text.slice(start, start + 2 * column)].slice(0, column - 1).join("").length;
}

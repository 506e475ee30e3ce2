/**
 * An editor of a configuration: the field with its tools, suggestions, help, and what is wrong with the text.
 */
import { fixedBadge } from "./components.ts";
import { completionAt } from "./completion.ts";
import { CompletionList } from "./completion_list.ts";
import { download } from "./copy.ts";
import { after, button, el, replace, setText } from "./dom.ts";
import type { Checks } from "./draft_checks.ts";
import type { Edit } from "./edit_history.ts";
import { findingsOf, moved, tokenEnd, type Finding } from "./editor_checks.ts";
import { FindBar } from "./editor_find.ts";
import { newLine, shiftedLines } from "./editor_typing.ts";
import { EditorView, shownText } from "./editor_view.ts";
import { number } from "./format.ts";
import { OutlineReader, placeAt } from "./json_outline.ts";
import { helpOf, schemasAt, type Schema } from "./schema_help.ts";
import { Lines } from "./text_lines.ts";

interface EditorOptions {
  readonly schema: Schema;
  readonly checks: Checks;
  /** Called with each edit. */
  readonly changed: () => void;
  /** Called once the keys rest. Returns the text as it is checked: with the line ends of the file. */
  readonly rested: () => string;
  /** The text to return to. */
  readonly discard: () => string;
}

const KEYS =
  "Tab leaves the text. Ctrl+Space suggests names and values, Ctrl+F finds and goes to lines (:120), " +
  "F8 goes to the next problem, and Tab shifts selected lines.";
const ATTRIBUTES = {
  id: "editor-text",
  "aria-label": "Text of the configuration",
  "aria-describedby": "editor-keys",
  "aria-autocomplete": "list",
};
/** Problems listed individually. */
const MAX_PROBLEMS = 100;
const REST_MS = 60;
/** What is read at once behind an edit: the rest follows in pieces of that time, so that no key waits. */
const READ_AHEAD = 5_000;
const PIECE_MS = 8;

export class Editor {
  readonly node: HTMLElement;
  readonly #options: EditorOptions;
  readonly #list = new CompletionList(() => this.#view);
  readonly #view = new EditorView({ ...ATTRIBUTES, "aria-controls": this.#list.node.id }, this.#list.node);
  readonly #find = new FindBar(this.#view, () => this.#mark());
  readonly #state = el("p", { role: "status" });
  readonly #help = el("div", { class: "editor__help" });
  readonly #problems = el("ol", { class: "list" });
  readonly #endListening: () => void;
  readonly #onSelection = () => this.#selectionChanged();
  #outline = new OutlineReader(this.#view.lines);
  /** What the gateway has found last, at its places in the text of now. */
  #judged = { verdict: null as Checks["verdict"], isCurrent: false, findings: [] as readonly Finding[] };
  #findings: readonly Finding[] = [];
  /** The text as it was when the keys rested; null: it has changed since. */
  #sent: string | null = null;
  #cancelRest = () => {};
  #cancelReading = () => {};
  #costMs = 0;
  /** Where the suggestions were shown, and whether they had been asked for. */
  #suggested = { at: -1, isAsked: false };

  constructor(options: EditorOptions) {
    this.#options = options;
    this.#endListening = options.checks.onChange(() => this.#mark());
    const { field } = this.#view;
    const tools = [
      button("Find", () => this.#find.open(), "small"),
      button("Undo", () => this.#view.undo("undo"), "small"),
      button("Redo", () => this.#view.undo("redo"), "small"),
      button("Discard changes", () => this.#view.replace(0, this.#view.lines.length, options.discard(), 0), "small"),
      button("Download", () => download(this.text), "small"),
    ];
    const hint = el("p", { class: "muted", id: "editor-keys" }, KEYS);
    const body = [el("div", { class: "toolbar" }, ...tools), this.#find.node, this.#view.node, this.#help, hint];
    const problems = el("section", { class: "card stack" }, el("h2", {}, "Problems"), this.#state, this.#problems);
    this.node = el(
      "div",
      { class: "stack" },
      el("section", { class: "card stack", "aria-label": "Editor" }, ...body),
      problems,
    );
    this.#view.edited = (edit) => this.#edited(edit);
    field.addEventListener("keydown", (event) => this.#onKey(event), { capture: true });
    field.addEventListener("blur", () => this.#list.show(null));
    field.addEventListener("pointermove", ({ clientX, clientY }) =>
      this.#showHelp(this.#view.offsetAt(clientX, clientY) ?? this.#view.selection.focus),
    );
    field.addEventListener("pointerleave", () => this.#showHelp(this.#view.selection.focus));
    document.addEventListener("selectionchange", this.#onSelection);
  }

  get text(): string {
    return this.#view.lines.text;
  }

  /** Another text: what was typed before cannot be brought back by undo. */
  setText(text: string): void {
    this.#view.setText(text);
    this.#outline = new OutlineReader(this.#view.lines);
    this.#rest();
  }

  /** Puts the caret there, and selects nothing: what is typed next replaces nothing. */
  goTo(offset: number): void {
    this.#view.field.focus({ preventScroll: true });
    this.#view.select(offset, offset);
    this.#showHelp(offset);
  }

  /** The offset of a line and a column, which count from 1. */
  offsetOf(line: number, column: number): number {
    return this.#view.lines.offsetOf(line, column);
  }

  /** Returns where the caret was. */
  close(): number {
    this.#endListening();
    this.#cancelReading();
    this.#cancelRest();
    if (this.#sent === null) this.#options.rested();
    document.removeEventListener("selectionchange", this.#onSelection);
    return this.#view.selection.focus;
  }

  #edited({ from, removed, added, after: { focus } }: Edit): void {
    this.#options.changed();
    this.#outline.edited(from);
    this.#outline.readTo(from + added.length + READ_AHEAD);
    const [end, by] = [from + removed.length, added.length - removed.length];
    for (const finding of new Set([...this.#findings, ...this.#judged.findings])) {
      const { at } = finding;
      if (at !== null && at >= from) finding.at = at >= end ? at + by : null;
    }
    this.#sent = null;
    this.#cancelReading();
    this.#cancelRest();
    this.#cancelRest = after(Math.max(REST_MS, this.#costMs * 8), () => this.#rest());
    this.#suggest(focus, this.#list.isOpen && this.#suggested.isAsked);
  }

  /** The keys rest: everything that needs the whole text follows. */
  #rest(): void {
    const began = performance.now();
    this.#cancelRest();
    this.#sent = this.#options.rested();
    this.#options.checks.check(this.#sent);
    this.#costMs = performance.now() - began;
    this.#find.update();
    this.#mark();
    this.#read();
  }

  /** Reads on in pieces, until the outline is that of the whole text. */
  #read(): void {
    this.#cancelReading();
    if (this.#outline.isDone) return;
    const until = performance.now() + PIECE_MS;
    while (!this.#outline.readTo(this.#outline.at + READ_AHEAD) && performance.now() < until);
    if (this.#outline.isDone) this.#mark();
    else this.#cancelReading = after(0, () => this.#read());
  }

  #suggest(at: number, isAsked: boolean): void {
    this.#suggested = { at, isAsked };
    const isTyped = document.activeElement === this.#view.field;
    this.#list.show(isTyped ? completionAt(this.#outline, at, this.#options.schema, isAsked) : null);
  }

  /** Marks what is wrong where it stands: as the gateway says, and until then what is known at once. */
  #mark(): void {
    const { trouble, verdict } = this.#options.checks;
    const isCurrent = this.#judge();
    const local = isCurrent
      ? []
      : this.#outline.faults.map(({ from, message }): Finding => ({ kind: "error", at: from, message }));
    const places = new Set(local.map(({ at }) => at));
    const known = this.#judged.findings.filter(({ at }) => isCurrent || (at !== null && !places.has(at)));
    this.#findings = [...local, ...known];
    const marks = this.#findings.flatMap(({ kind, at }) =>
      at === null ? [] : [{ kind, from: at, to: tokenEnd(this.#view.lines, at) }],
    );
    this.#view.setMarks([...marks, ...this.#find.marks]);
    const errors = this.#findings.filter(({ kind }) => kind === "error").length;
    this.#view.field.setAttribute("aria-invalid", String(errors > 0));
    const counts = `${counted(errors, "error")}, ${counted(this.#findings.length - errors, "warning")}`;
    const tests = verdict?.found.tests ?? null;
    const run =
      tests === null
        ? ""
        : tests.failed > 0
          ? ` Tests: ${number(tests.failed)} failed.`
          : ` Tests: ${number(tests.passed)} passed.`;
    setText(
      this.#state,
      trouble !== null
        ? `Not checked by the gateway. ${trouble}`
        : isCurrent
          ? `Checked by the gateway: ${counts}.${run}`
          : `Being checked: ${counts} so far.`,
    );
    replace(this.#problems, ...this.#findings.slice(0, MAX_PROBLEMS).map((finding) => this.#problemRow(finding)));
    this.#showHelp(this.#view.selection.focus);
  }

  /** Returns whether what the gateway has found is about the text of now. */
  #judge(): boolean {
    const { verdict } = this.#options.checks;
    if (verdict === null) this.#judged = { verdict, isCurrent: false, findings: [] };
    if (verdict === null) return false;
    const isCurrent = verdict.text === this.#sent;
    if (verdict === this.#judged.verdict && isCurrent === this.#judged.isCurrent) return isCurrent;
    const isNew = isCurrent || verdict !== this.#judged.verdict;
    const lines = isCurrent ? this.#view.lines : new Lines(shownText(verdict.text));
    const findings = isNew ? findingsOf(lines, verdict.found) : this.#judged.findings;
    if (isNew && !isCurrent) {
      const place = moved(lines.text, this.text);
      for (const finding of findings) finding.at = finding.at === null ? null : place(finding.at);
    }
    this.#judged = { verdict, isCurrent, findings };
    return isCurrent;
  }

  #problemRow({ kind, at, message }: Finding): HTMLElement {
    const badge = kind === "error" ? fixedBadge("bad", "Error") : fixedBadge("warn", "Warning");
    return el(
      "li",
      { class: "editor__problem" },
      badge,
      at !== null && button(this.#placeText(at), () => this.goTo(at), "small"),
      el("span", {}, message),
    );
  }

  #placeText(offset: number): string {
    const { lines } = this.#view;
    const row = lines.rowAt(offset);
    return `Line ${row + 1}, column ${[...lines.slice(lines.startOf(row), offset)].length + 1}`;
  }

  #goToNext(by: 1 | -1): void {
    const places = this.#findings.flatMap(({ at }) => at ?? []).sort((a, b) => (a - b) * by);
    const next = places.find((at) => (at - this.#view.selection.focus) * by > 0) ?? places[0];
    if (next !== undefined) this.goTo(next);
  }

  #selectionChanged(): void {
    if (document.activeElement !== this.#view.field) return;
    const { focus } = this.#view.selection;
    if (this.#list.isOpen && focus !== this.#suggested.at) this.#list.show(null);
    this.#view.draw();
    this.#showHelp(focus);
  }

  /** What is wrong in the line, and what the schema says about the field. */
  #showHelp(offset: number): void {
    if (!this.#outline.isDone && offset >= this.#outline.at) return;
    const { schema } = this.#options;
    const { lines } = this.#view;
    const row = lines.rowAt(offset);
    const [start, end] = [lines.startOf(row), lines.startOf(row + 1)];
    const wrong = this.#findings
      .filter(({ at }) => at !== null && at >= start && at < end)
      .map(({ message }) => message);
    const { path, values, member } = placeAt(this.#outline, offset);
    const required = schemasAt(schema, this.#outline, { path: path.slice(0, -1), values }).flatMap(
      (each) => each.required ?? [],
    );
    const { description, facts } = helpOf(
      schemasAt(schema, this.#outline, { path, values }),
      member !== null && required.includes(member.key),
    );
    const name = path
      .map((step) => (typeof step === "number" ? `[${step}]` : step))
      .join(".")
      .replaceAll(".[", "[");
    const texts = [...wrong, description, facts].filter((text) => text !== "");
    const shown = [name === "" ? "The configuration" : name, ...texts];
    if (this.#help.textContent === shown.join("")) return;
    replace(
      this.#help,
      el("p", { class: "mono" }, shown[0]!),
      ...texts.map((text, i) => el("p", { class: i < wrong.length && "editor__wrong" }, text)),
    );
  }

  #onKey(event: KeyboardEvent): void {
    const { key, shiftKey } = event;
    const isCommand = event.ctrlKey || event.metaKey;
    if (event.isComposing) return;
    if (this.#list.onKey(event)) return event.preventDefault();
    const view = this.#view;
    const { from, to, focus } = view.selection;
    if (isCommand && key.toLowerCase() === "f") this.#find.open();
    else if (isCommand && key === " ") {
      this.#outline.readTo(focus + READ_AHEAD);
      this.#suggest(focus, true);
    } else if (key === "F8") this.#goToNext(shiftKey ? -1 : 1);
    else if (key === "Enter" && !isCommand) {
      const { text, caret } = newLine(view.lines, from, to);
      view.replace(from, to, text, caret);
    } else if (key === "Tab" && from !== to && !isCommand) {
      const lines = shiftedLines(view.lines, from, to, shiftKey ? -1 : 1);
      view.replace(lines.from, lines.to, lines.text);
      view.select(lines.from, lines.from + lines.text.length);
    } else return;
    event.preventDefault();
  }
}

function counted(n: number, what: string): string {
  return n === 0 ? `no ${what}s` : n === 1 ? `one ${what}` : `${number(n)} ${what}s`;
}

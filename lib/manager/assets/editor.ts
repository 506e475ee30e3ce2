/**
 * An editor of a configuration: the field with its tools, suggestions, help, and what is wrong with the text.
 */
import { fixedBadge } from "./components.ts";
import { completionAt } from "./completion.ts";
import { CompletionList } from "./completion_list.ts";
import { download } from "./copy.ts";
import { after, button, el, replace, setText } from "./dom.ts";
import type { Checks } from "./draft_checks.ts";
import { findingsOf, moved, tokenEnd, type Finding } from "./editor_checks.ts";
import { FindBar } from "./editor_find.ts";
import { newLine, shiftedLines } from "./editor_typing.ts";
import { EditorView } from "./editor_view.ts";
import { number } from "./format.ts";
import { outlineOf, placeAt } from "./json_outline.ts";
import { helpOf, schemasAt, type Schema } from "./schema_help.ts";

interface EditorOptions {
  readonly schema: Schema;
  readonly checks: Checks;
  readonly changed: (text: string) => void;
  /** As it is checked: with the line ends of the file. */
  readonly asSent: (text: string) => string;
  /** The other way round. */
  readonly asShown: (text: string) => string;
  /** The text to return to. */
  readonly discard: () => string;
}

const KEYS =
  "Tab leaves the text. Ctrl+Space suggests names and values, Ctrl+F finds, F8 goes to the next problem, " +
  "and Tab shifts selected lines.";
const ATTRIBUTES = {
  id: "editor-text",
  "aria-label": "Text of the configuration",
  "aria-describedby": "editor-keys",
  "aria-autocomplete": "list",
};
/** Problems listed individually. */
const MAX_PROBLEMS = 100;
const READ_MS = 60;

export class Editor {
  readonly node: HTMLElement;
  readonly #options: EditorOptions;
  readonly #list = new CompletionList(
    () => this.#view,
    () => (this.#outline.text === this.text ? this.#selectionChanged() : this.#read()),
  );
  readonly #view = new EditorView({ ...ATTRIBUTES, "aria-controls": this.#list.node.id }, this.#list.node);
  readonly #find = new FindBar(this.#view, () => this.#mark());
  readonly #state = el("p", { role: "status" });
  readonly #help = el("div", { class: "editor__help" });
  readonly #problems = el("ol", { class: "list" });
  readonly #endListening: () => void;
  /** What the gateway has found last, in the text as it is shown. */
  #judged = { verdict: null as Checks["verdict"], text: "", findings: [] as readonly Finding[] };
  readonly #onSelection = () => this.#selectionChanged();
  #outline = outlineOf("");
  #findings: readonly Finding[] = [];
  #cancelReading = () => {};
  #costMs = 0;
  /** Where the suggestions were shown, and whether they had been asked for. */
  #suggested = { at: -1, isAsked: false };

  constructor(options: EditorOptions) {
    this.#options = options;
    this.#endListening = options.checks.onChange(() => this.#mark());
    const { field } = this.#view;
    const edit = (command: "undo" | "redo") => (field.focus(), document.execCommand(command));
    const tools = [
      button("Find", () => this.#find.open(), "small"),
      button("Undo", () => edit("undo"), "small"),
      button("Redo", () => edit("redo"), "small"),
      button("Discard changes", () => this.#view.replace(0, this.text.length, options.discard(), 0), "small"),
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
    field.addEventListener("input", () => this.#onInput());
    field.addEventListener("keydown", (event) => this.#onKey(event));
    field.addEventListener("blur", () => this.#list.show(null));
    field.addEventListener("pointermove", ({ clientX, clientY }) =>
      this.#showHelp(this.#view.offsetAt(clientX, clientY) ?? field.selectionStart),
    );
    field.addEventListener("pointerleave", () => this.#showHelp(field.selectionStart));
    document.addEventListener("selectionchange", this.#onSelection);
  }

  get text(): string {
    return this.#view.text;
  }

  /** Another text: what was typed before cannot be brought back by undo. */
  setText(text: string): void {
    this.#view.setText(text);
    this.#read();
  }

  /** Puts the caret there, and selects nothing: what is typed next replaces nothing. */
  goTo(offset: number): void {
    this.#view.field.focus();
    this.#view.select(offset, offset);
    this.#showHelp(offset);
  }

  /** Returns where the caret was. */
  close(): number {
    this.#endListening();
    this.#cancelReading();
    document.removeEventListener("selectionchange", this.#onSelection);
    return this.#view.field.selectionStart;
  }

  #onInput(): void {
    this.#view.read();
    this.#options.changed(this.text);
    this.#cancelReading();
    // Reading a large text takes longer than a keystroke may.
    this.#cancelReading = after(Math.max(READ_MS, this.#costMs * 4), () => this.#read());
  }

  #read(): void {
    this.#cancelReading();
    const began = performance.now();
    this.#outline = outlineOf(this.text);
    this.#costMs = performance.now() - began;
    this.#options.checks.check(this.#options.asSent(this.text));
    this.#find.update();
    this.#mark();
    this.#suggest(this.#list.isOpen && this.#suggested.isAsked);
  }

  #suggest(isAsked: boolean): void {
    const { selectionStart: at, selectionEnd: end } = this.#view.field;
    this.#suggested = { at, isAsked };
    const isTyped = document.activeElement === this.#view.field && at === end;
    this.#list.show(isTyped ? completionAt(this.#outline, at, this.#options.schema, isAsked) : null);
  }

  /** Marks what is wrong where it stands: as the gateway says, and until then what is known at once. */
  #mark(): void {
    const { trouble } = this.#options.checks;
    const { verdict, text: judgedText, findings } = this.#judgement();
    const isCurrent = verdict !== null && judgedText === this.text;
    const local = isCurrent
      ? []
      : this.#outline.faults.map(({ from, message }): Finding => ({ kind: "error", at: from, message }));
    const place = moved(judgedText, this.text);
    const known = findings.map((finding) => ({
      ...finding,
      at: finding.at === null ? null : place(finding.at),
    }));
    this.#findings = [
      ...local,
      ...known.filter(
        ({ at }, i) => isCurrent || (findings[i]!.at !== null && at !== null && !local.some((each) => each.at === at)),
      ),
    ];
    const marks = this.#findings.flatMap(({ kind, at }) =>
      at === null ? [] : [{ kind, from: at, to: tokenEnd(this.text, at) }],
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
    this.#showHelp(this.#view.field.selectionStart);
  }

  #judgement() {
    const { verdict } = this.#options.checks;
    if (verdict !== null && verdict !== this.#judged.verdict) {
      const text = this.#options.asShown(verdict.text);
      this.#judged = { verdict, text, findings: findingsOf(text, verdict.found) };
    }
    return this.#judged;
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
    const line = this.#view.lineAt(offset);
    return `Line ${line}, column ${[...this.text.slice(this.#view.startOf(line), offset)].length + 1}`;
  }

  #goToNext(by: 1 | -1): void {
    const places = this.#findings.flatMap(({ at }) => at ?? []).sort((a, b) => (a - b) * by);
    const next = places.find((at) => (at - this.#view.field.selectionStart) * by > 0) ?? places[0];
    if (next !== undefined) this.goTo(next);
  }

  #selectionChanged(): void {
    const { field } = this.#view;
    if (document.activeElement !== field) return;
    if (this.#list.isOpen && this.#outline.text === this.text && field.selectionStart !== this.#suggested.at)
      this.#list.show(null);
    this.#view.draw();
    this.#showHelp(field.selectionStart);
  }

  /** What is wrong in the line, and what the schema says about the field. */
  #showHelp(offset: number): void {
    if (this.#outline.text !== this.text) return;
    const { schema } = this.#options;
    const line = this.#view.lineAt(offset);
    const wrong = this.#findings
      .filter(({ at }) => at !== null && this.#view.lineAt(at) === line)
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
    const lines = [...wrong, description, facts].filter((text) => text !== "");
    const shown = [name === "" ? "The configuration" : name, ...lines];
    if (this.#help.textContent === shown.join("")) return;
    replace(
      this.#help,
      el("p", { class: "mono" }, shown[0]!),
      ...lines.map((text, i) => el("p", { class: i < wrong.length && "editor__wrong" }, text)),
    );
  }

  #onKey(event: KeyboardEvent): void {
    const { key, shiftKey } = event;
    const isCommand = event.ctrlKey || event.metaKey;
    const { field } = this.#view;
    const { selectionStart: from, selectionEnd: to } = field;
    if (event.isComposing) return;
    if (this.#list.onKey(event)) return event.preventDefault();
    if (isCommand && key.toLowerCase() === "f") this.#find.open();
    else if (isCommand && key === " ") {
      this.#outline = outlineOf(this.text);
      this.#suggest(true);
    } else if (key === "F8") this.#goToNext(shiftKey ? -1 : 1);
    else if (key === "Enter" && !isCommand) {
      const { text, caret } = newLine(this.text, from, to);
      this.#view.replace(from, to, text, caret);
    } else if (key === "Tab" && from !== to && !isCommand) {
      const lines = shiftedLines(this.text, from, to, shiftKey ? -1 : 1);
      this.#view.replace(lines.from, lines.to, lines.text);
      field.setSelectionRange(lines.from, lines.from + lines.text.length);
    } else return;
    event.preventDefault();
  }
}

function counted(n: number, what: string): string {
  return n === 0 ? `no ${what}s` : n === 1 ? `one ${what}` : `${number(n)} ${what}s`;
}

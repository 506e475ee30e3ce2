/**
 * Has the gateway check a text while it is typed: once the keys rest, one text at a time, and later if the gateway asks
 * for that.
 */
import { ApiError, messageOf, type Issue, type Warning } from "./api.ts";

/** What the editor reads of the reply to POST /gateway/validate. */
export interface Verdict {
  readonly issues: readonly Issue[];
  readonly warnings: readonly Warning[];
  readonly tests: { readonly passed: number; readonly failed: number } | null;
}

/** Something to be said about the text. */
export interface Finding {
  readonly kind: "error" | "warning";
  /** Offset of the place; null: it is about all of the text, or about another file. */
  readonly at: number | null;
  readonly message: string;
}

interface CheckOptions {
  readonly validate: (text: string) => Promise<Verdict>;
  /** Returns what cancels it. */
  readonly after: (ms: number, run: () => void) => () => void;
  readonly changed: () => void;
  /** An error that ends the session. */
  readonly failed: (error: unknown) => void;
}

const QUIET_MS = 400;
const RETRY_S = 5;

export class Checks {
  readonly #options: CheckOptions;
  /** Of `text`, and null before the first. */
  verdict: { readonly text: string; readonly findings: readonly Finding[]; readonly tests: Verdict["tests"] } | null =
    null;
  /** Why the text could not be checked; null: it was, or is about to be. */
  trouble: string | null = null;
  #text: string | null = null;
  #cancel: (() => void) | null = null;
  /** The gateway is asked, or has asked to wait: a change neither asks again nor shortens that. */
  #isBusy = false;

  constructor(options: CheckOptions) {
    this.#options = options;
  }

  check(text: string): void {
    this.#text = text;
    if (!this.#isBusy && text !== this.verdict?.text) this.#schedule(QUIET_MS);
  }

  stop(): void {
    this.#text = null;
    this.#cancel?.();
  }

  #schedule(ms: number): void {
    this.#cancel?.();
    this.#cancel = this.#options.after(ms, () => void this.#ask());
  }

  async #ask(): Promise<void> {
    const text = this.#text;
    if (text === null) return;
    this.#isBusy = true;
    let waitS = 0;
    try {
      const verdict = await this.#options.validate(text);
      this.verdict = { text, findings: findingsOf(text, verdict), tests: verdict.tests };
      this.trouble = null;
    } catch (error) {
      const { status = 0, retryAfterS = null } = error instanceof ApiError ? error : {};
      if (status === 401) this.#options.failed(error);
      this.trouble = messageOf(error);
      if (status === 0 || status >= 500 || status === 429) waitS = retryAfterS ?? RETRY_S;
    }
    if (this.#text === null) return;
    this.#isBusy = waitS > 0;
    if (waitS > 0) this.#schedule(waitS * 1000);
    else if (this.#text !== text) this.#schedule(QUIET_MS);
    this.#options.changed();
  }
}

function findingsOf(text: string, { issues, warnings }: Verdict): readonly Finding[] {
  const at = (line: number | null, column: number | null) => (line === null ? null : offsetIn(text, line, column ?? 1));
  const errors = issues.map((issue): Finding => {
    const { path, line, column, message, file, code } = issue;
    const where = [file === undefined ? "" : line === null ? file : `${file}:${line}:${column}`, path].filter(
      (part) => part !== "",
    );
    return {
      kind: code === "unsigned" ? "warning" : "error",
      at: file === undefined ? at(line, column) : null,
      message: [...where, message].join(": "),
    };
  });
  const others = warnings.map(({ line, column, message, remedy }): Finding => ({
    kind: "warning",
    at: at(line, column),
    message: `${message} Remedy: ${remedy}`,
  }));
  return [...errors, ...others];
}

/** Lines and columns count from 1; a column is a code point. */
export function offsetIn(text: string, line: number, column: number): number {
  let start = 0;
  for (let i = 1; i < line && start >= 0; i++) start = text.indexOf("\n", start) + 1 || -1;
  return start < 0
    ? text.length
    : start + [...text.slice(start, start + 2 * column)].slice(0, column - 1).join("").length;
}

/** Where an offset of `before` is in `after`; null: that part has been changed. */
export function moved(before: string, after: string): (offset: number) => number | null {
  if (before === after) return (offset) => offset;
  const least = Math.min(before.length, after.length);
  let start = 0;
  while (start < least && before.charCodeAt(start) === after.charCodeAt(start)) start++;
  let end = 0;
  while (end < least - start && before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end))
    end++;
  return (offset) =>
    offset < start ? offset : offset >= before.length - end ? offset + after.length - before.length : null;
}

const TOKEN = /"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|[^\s,:[\]{}"]+/y;

/** The end of the string, number or word at an offset; of anything else, the next character. */
export function tokenEnd(text: string, offset: number): number {
  TOKEN.lastIndex = offset;
  return TOKEN.test(text) ? TOKEN.lastIndex : offset + 1;
}

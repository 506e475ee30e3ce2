/**
 * Counts the steps of a backtracking engine for regular expressions. Node's own engine takes no more: it looks at the
 * same possibilities in the same order, and leaves out some.
 */

/** The steps of one search from `lastIndex`, which is left as it is. Throws for back references, and for too many. */
export function regexpSteps(pattern: RegExp, text: string): number {
  const { source, flags, lastIndex } = pattern;
  const key = `${flags}/${source}`;
  let program = PROGRAMS.get(key);
  if (program === undefined) PROGRAMS.set(key, (program = new Compiler(source, flags).program()));
  const run: Run = { text, unicode: /[uv]/.test(flags), lines: flags.includes("m"), steps: 0 };
  const last = flags.includes("y") ? lastIndex : text.length;
  for (let start = /[gy]/.test(flags) ? lastIndex : 0; start <= last && !matches(program, run, start); start++);
  return run.steps;
}

/** Of one search: an exponential one would never end. */
const MOST = 20_000_000;

const PROGRAMS = new Map<string, Program>();

type Assertion = "^" | "$" | "\\b" | "\\B";

type Step =
  | { readonly kind: "one"; readonly fits: (codePoint: number) => boolean; readonly back: boolean }
  | { readonly kind: "assert"; readonly what: Assertion }
  /** Another program has to match from here, or must not. */
  | { readonly kind: "look"; readonly program: Program; readonly wanted: boolean }
  /** Goes on with the next step, and with `to` if that fails; the other way round if it is `lazy`. */
  | { readonly kind: "fork"; to: number; readonly lazy: boolean }
  | { readonly kind: "jump"; to: number }
  /** A repetition begins, and has to get on: an empty one would be repeated for ever. */
  | { readonly kind: "begin" }
  | { readonly kind: "end" };

type Program = readonly Step[];

interface Run {
  readonly text: string;
  readonly unicode: boolean;
  readonly lines: boolean;
  steps: number;
}

/** The places where the repetitions around the current step began. */
interface Begun {
  readonly at: number;
  readonly outer: Begun | null;
}

/** Whether the program matches at `start`. */
function matches(program: Program, run: Run, start: number): boolean {
  const { text } = run;
  const alternatives: { readonly next: number; readonly at: number; readonly begun: Begun | null }[] = [];
  let [next, at] = [0, start];
  let begun: Begun | null = null;
  while (next < program.length) {
    if (++run.steps > MOST) throw new Error(`the regular expression takes more than ${MOST} steps`);
    const step = program[next++]!;
    let holds = true;
    if (step.kind === "one") {
      const codePoint = step.back ? before(run, at) : characterAt(run, at);
      holds = codePoint >= 0 && step.fits(codePoint);
      at += (codePoint > 0xffff ? 2 : 1) * (step.back ? -1 : 1);
    } else if (step.kind === "fork") {
      alternatives.push({ next: step.lazy ? next : step.to, at, begun });
      if (step.lazy) next = step.to;
    } else if (step.kind === "jump") next = step.to;
    else if (step.kind === "begin") begun = { at, outer: begun };
    else if (step.kind === "end") {
      holds = begun!.at !== at;
      begun = begun!.outer;
    } else if (step.kind === "look") holds = matches(step.program, run, at) === step.wanted;
    else holds = asserted(step.what, text, at, run.lines);
    if (holds) continue;
    const other = alternatives.pop();
    if (other === undefined) return false;
    ({ next, at, begun } = other);
  }
  return true;
}

function characterAt({ text, unicode }: Run, at: number): number {
  if (at >= text.length) return -1;
  return unicode ? text.codePointAt(at)! : text.charCodeAt(at);
}

function before(run: Run, at: number): number {
  if (at === 0) return -1;
  const pair = run.unicode && at > 1 ? run.text.codePointAt(at - 2)! : 0;
  return pair > 0xffff ? pair : run.text.charCodeAt(at - 1);
}

function asserted(what: Assertion, text: string, at: number, lines: boolean): boolean {
  if (what === "^") return at === 0 || (lines && text[at - 1] === "\n");
  if (what === "$") return at === text.length || (lines && text[at] === "\n");
  const isWord = (index: number) => /\w/.test(text[index] ?? "");
  return (isWord(at - 1) !== isWord(at)) === (what === "\\b");
}

/** Adds the steps of a part of the pattern; behind a place they go backwards. */
type Emit = (program: Step[], back: boolean) => void;

/** Reads a pattern that is valid, since Node has made it. */
class Compiler {
  readonly #source: string;
  readonly #flags: string;
  #at = 0;

  constructor(source: string, flags: string) {
    this.#source = source;
    this.#flags = flags.replace(/[^iuvs]/g, "");
  }

  program(): Program {
    const program: Step[] = [];
    this.#choice()(program, false);
    return program;
  }

  #choice(): Emit {
    const options = [this.#sequence()];
    while (this.#taken(/\|/y) !== null) options.push(this.#sequence());
    const last = options.pop()!;
    return (program, back) => {
      const jumps = options.map((option) => {
        const fork = { kind: "fork" as const, to: 0, lazy: false };
        const jump = { kind: "jump" as const, to: 0 };
        program.push(fork);
        option(program, back);
        program.push(jump);
        fork.to = program.length;
        return jump;
      });
      last(program, back);
      for (const jump of jumps) jump.to = program.length;
    };
  }

  #sequence(): Emit {
    const parts: Emit[] = [];
    while (this.#at < this.#source.length && !/[|)]/.test(this.#source[this.#at]!)) parts.push(this.#quantified());
    return (program, back) => {
      for (const part of back ? parts.toReversed() : parts) part(program, back);
    };
  }

  #quantified(): Emit {
    const part = this.#atom();
    const found = this.#taken(/(?:([*+?])|\{(\d+)(,?)(\d*)\})(\??)/y);
    if (found === null) return part;
    const [, mark, least, comma, most, question] = found;
    const lazy = question === "?";
    if (mark !== undefined) return repeated(part, mark === "+" ? 1 : 0, mark === "?" ? 1 : Infinity, lazy);
    const unbounded = comma !== "" && most === "";
    return repeated(part, Number(least), unbounded ? Infinity : Number(most === "" ? least : most), lazy);
  }

  #atom(): Emit {
    const group = this.#taken(/\((?:\?(?::|(<?)([=!])|<\w+>))?/y);
    if (group !== null) {
      const [, behind, sign] = group;
      const inner = this.#choice();
      this.#at++;
      if (sign === undefined) return inner;
      const program: Step[] = [];
      inner(program, behind === "<");
      return (outer) => void outer.push({ kind: "look", program, wanted: sign === "=" });
    }
    const assertion = this.#taken(/[$^]|\\[bB]/y)?.[0] as Assertion | undefined;
    if (assertion !== undefined) return (program) => void program.push({ kind: "assert", what: assertion });
    if (this.#taken(/\\[1-9k]/y) !== null) throw new Error(`the steps of /${this.#source}/ cannot be counted`);
    const fits = characterTest(this.#taken(ONE)![0], this.#flags);
    return (program, back) => void program.push({ kind: "one", fits, back });
  }

  /** What a sticky expression matches here, which is skipped; null if it does not match. */
  #taken(expression: RegExp): RegExpExecArray | null {
    expression.lastIndex = this.#at;
    const found = expression.exec(this.#source);
    if (found !== null) this.#at += found[0].length;
    return found;
  }
}

function repeated(part: Emit, min: number, max: number, lazy: boolean): Emit {
  return (program, back) => {
    for (let i = 0; i < min; i++) part(program, back);
    const forks: { to: number }[] = [];
    const once = () => {
      const fork = { kind: "fork" as const, to: 0, lazy };
      forks.push(fork);
      program.push(fork, { kind: "begin" });
      part(program, back);
      program.push({ kind: "end" });
    };
    const loop = program.length;
    if (max < Infinity) for (let i = min; i < max; i++) once();
    else {
      once();
      program.push({ kind: "jump", to: loop });
    }
    for (const fork of forks) fork.to = program.length;
  };
}

/** Matches one character: a class, an escape, or the character itself. */
const ONE = /\[(?:\\.|[^\]\\])*\]|\\(?:u\{[^}]*\}|u[\da-fA-F]{4}|x[\da-fA-F]{2}|c[A-Za-z]|[pP]\{[^}]*\}|.)|[^]/suy;

/** Node's engine decides about classes and escapes. */
function characterTest(text: string, flags: string): (codePoint: number) => boolean {
  const one = new RegExp(`^(?:${text})$`, flags);
  const known = new Map<number, boolean>();
  return (codePoint) => {
    let fits = known.get(codePoint);
    if (fits === undefined) known.set(codePoint, (fits = one.test(String.fromCodePoint(codePoint))));
    return fits;
  };
}

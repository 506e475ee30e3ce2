/**
 * Regular expressions that take time in proportion to the text, whatever the text: for patterns of a configuration that meet what clients
 * send. Node's own engine backtracks, for ages where somebody means it to. What matches is `json_schema.ts`'s affair.
 *
 * The language is ECMA-262's with the flag "u", without what needs backtracking: look-around and back references. All ways through the
 * pattern are followed at once (Thompson, 1968), a character at a time.
 */

export interface LinearPattern {
  /** Whether it matches anywhere in the text; a promise of that once it has had to pause. Throws what `meter` throws. */
  test(text: string, meter: Meter): boolean | Promise<boolean>;
}

export interface Meter {
  /** Told how many ways were looked at, once a character. */
  spend(steps: number): void;
  /** Whether it is time to pause. */
  readonly isDue: boolean;
  pause(): Promise<void>;
}

/** Compiles, or says what is wrong. */
export function linearPattern(source: string): LinearPattern | string {
  if (source.length > MAX_SOURCE) return `has more than ${MAX_SOURCE} characters`;
  try {
    // Node says best what is no pattern at all; it is never run.
    new RegExp(source, "u");
    return matcher(compiled(new Parser(source).whole()));
  } catch (error) {
    if (error instanceof Unsupported) return error.message;
    return `is no regular expression: ${(error as Error).message.replace(/^Invalid regular expression: /, "")}`;
  }
}

const MAX_SOURCE = 1000;
const MAX_STATES = 2000;
/** No text is long enough to come from here to the end of 32 bits. */
const MAX_TURN = 2 ** 30;

class Unsupported extends Error {}

type Fits = (codePoint: number) => boolean;
type Assertion = "start" | "end" | "boundary" | "no boundary";

type Node =
  | { readonly kind: "one"; readonly fits: Fits }
  | { readonly kind: "assert"; readonly what: Assertion }
  | { readonly kind: "sequence"; readonly parts: readonly Node[] }
  | { readonly kind: "choice"; readonly parts: readonly Node[] }
  | { readonly kind: "repeat"; readonly part: Node; readonly min: number; readonly max: number };

/** Reads text of which it is known that it is a pattern. */
class Parser {
  readonly #source: string;
  #at = 0;

  constructor(source: string) {
    this.#source = source;
  }

  whole(): Node {
    return this.#choice();
  }

  #choice(): Node {
    const parts = [this.#sequence()];
    while (this.#take("|")) parts.push(this.#sequence());
    return parts.length === 1 ? parts[0]! : { kind: "choice", parts };
  }

  #sequence(): Node {
    const parts: Node[] = [];
    while (this.#at < this.#source.length && this.#source[this.#at] !== "|" && this.#source[this.#at] !== ")") parts.push(this.#quantified());
    return { kind: "sequence", parts };
  }

  #quantified(): Node {
    const part = this.#atom();
    const match = /^(?:([*+?])|\{(\d+)(,?)(\d*)\})\??/.exec(this.#source.slice(this.#at));
    if (match === null) return part;
    this.#at += match[0].length;
    const [, mark, least, comma, most] = match;
    if (mark !== undefined) return { kind: "repeat", part, min: mark === "+" ? 1 : 0, max: mark === "?" ? 1 : Infinity };
    const min = Number(least);
    return { kind: "repeat", part, min, max: comma === "" ? min : most === "" ? Infinity : Number(most) };
  }

  #atom(): Node {
    const rest = this.#source.slice(this.#at);
    if (rest.startsWith("(")) {
      if (/^\(\?<?[=!]/.test(rest)) throw new Unsupported("looks ahead or behind, which takes a pattern that backtracks: write it without");
      this.#at += /^\((?:\?:|\?<[^>]*>)?/.exec(rest)![0].length;
      if (this.#source[this.#at] === "?") throw new Unsupported("has a group of a kind that is not known here");
      const inner = this.#choice();
      this.#take(")");
      return inner;
    }
    if (this.#take("^")) return { kind: "assert", what: "start" };
    if (this.#take("$")) return { kind: "assert", what: "end" };
    if (this.#take("\\b")) return { kind: "assert", what: "boundary" };
    if (this.#take("\\B")) return { kind: "assert", what: "no boundary" };
    if (/^\\[1-9k]/.test(rest)) throw new Unsupported("refers back to what it has matched, which takes a pattern that backtracks: write it without");
    const text = ONE.exec(rest)![0];
    this.#at += text.length;
    return { kind: "one", fits: fitting(text) };
  }

  #take(text: string): boolean {
    if (!this.#source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }
}

/** What stands for one character: a class, an escape, or the character itself. */
const ONE = /^(?:\[(?:\\.|[^\]\\])*\]|\\(?:u\{[^}]*\}|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|u[\da-fA-F]{4}|x[\da-fA-F]{2}|c[A-Za-z]|[pP]\{[^}]*\}|.)|.)/su;

/** Asked of one character at a time, Node's engine has nothing to go back to. */
function fitting(text: string): Fits {
  if (/^[^\\[.]$/su.test(text)) {
    const own = text.codePointAt(0);
    return (codePoint) => codePoint === own;
  }
  const one = new RegExp(`^(?:${text})$`, "u");
  const ascii = Array.from({ length: 128 }, (_, codePoint) => one.test(String.fromCharCode(codePoint)));
  return (codePoint) => (codePoint < 128 ? ascii[codePoint]! : one.test(String.fromCodePoint(codePoint)));
}

type State =
  | { readonly kind: "one"; readonly fits: Fits; readonly next: number }
  | { readonly kind: "assert"; readonly what: Assertion; readonly next: number }
  | { readonly kind: "fork"; readonly next: number[] }
  | { readonly kind: "match" };

/** State 0 is the match; the pattern is built from its end to its beginning. */
function compiled(root: Node): { readonly states: readonly State[]; readonly start: number } {
  const states: State[] = [{ kind: "match" }];
  const add = (state: State): number => {
    if (states.length >= MAX_STATES) throw new Unsupported("is too long once its repetitions are written out");
    return states.push(state) - 1;
  };
  const build = (node: Node, next: number): number => {
    switch (node.kind) {
      case "one":
      case "assert":
        return add({ ...node, next });
      case "sequence":
        return node.parts.reduceRight((behind, part) => build(part, behind), next);
      case "choice":
        return add({ kind: "fork", next: node.parts.map((part) => build(part, next)) });
      case "repeat": {
        const { part, min, max } = node;
        let start = next;
        if (max === Infinity) {
          const loop: State & { kind: "fork" } = { kind: "fork", next: [next] };
          start = add(loop);
          loop.next.push(build(part, start));
        } else {
          for (let i = min; i < max; i++) start = add({ kind: "fork", next: [build(part, start), next] });
        }
        for (let i = 0; i < min; i++) start = build(part, start);
        return start;
      }
    }
  };
  const start = build(root, 0);
  return { states, start };
}

function matcher({ states, start }: ReturnType<typeof compiled>): LinearPattern {
  // For each state the turn at which it was added last: kept from text to text, for many texts are shorter than this list.
  const added = new Int32Array(states.length);
  let turn = 0;
  return {
    test(text, meter) {
      if (turn > MAX_TURN) {
        added.fill(0);
        turn = 0;
      }
      // Which states stand at this character.
      let current: number[] = [];
      let following: number[] = [];
      const pending: number[] = [];
      let before = -1;
      let at = 0;
      // Other texts may be tested in a pause: every turn has a number of its own.
      const goOn = (): boolean | Promise<boolean> => {
        for (;;) {
          turn++;
          const codePoint = text.codePointAt(at) ?? -1;
          following.length = 0;
          for (const state of current) pending.push(state);
          // It may begin at any character.
          pending.push(start);
          let steps = 0;
          while (pending.length > 0) {
            const index = pending.pop()!;
            if (added[index] === turn) continue;
            added[index] = turn;
            steps++;
            const state = states[index]!;
            if (state.kind === "match") return true;
            if (state.kind === "fork") pending.push(...state.next);
            else if (state.kind === "assert") {
              if (holds(state.what, before, codePoint)) pending.push(state.next);
            } else if (codePoint >= 0 && state.fits(codePoint)) following.push(state.next);
          }
          meter.spend(steps);
          if (codePoint < 0) return false;
          [current, following] = [following, current];
          before = codePoint;
          at += codePoint > 0xffff ? 2 : 1;
          if (meter.isDue) return meter.pause().then(goOn);
        }
      };
      return goOn();
    },
  };
}

function holds(what: Assertion, before: number, behind: number): boolean {
  if (what === "start") return before < 0;
  if (what === "end") return behind < 0;
  return (isWord(before) !== isWord(behind)) === (what === "boundary");
}

function isWord(c: number): boolean {
  return (c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x5a) || c === 0x5f || (c >= 0x61 && c <= 0x7a);
}

/**
 * Regular expressions in time proportional to the text, for configured patterns applied to text from clients. Node's
 * own engine backtracks, which an attacker can make exponential.
 *
 * The language is ECMA-262's with the flag "u", without the features that need backtracking: lookaround and back
 * references. All paths through the pattern are followed at once, one character at a time (Thompson, 1968).
 */

export interface LinearPattern {
  /** Whether it matches anywhere in the text; a promise if it had to pause. Throws what `meter` throws. */
  test(text: string, meter: StepMeter): boolean | Promise<boolean>;
}

export interface StepMeter {
  /** Called after each character with the number of states that were looked at. */
  spend(steps: number): void;
  /** Whether it is time to pause. */
  readonly isDue: boolean;
  pause(): Promise<void>;
}

/** Compiles the pattern, or returns an error. */
export function linearPattern(source: string): LinearPattern | string {
  const compiled = statesOf(source);
  return typeof compiled === "string" ? compiled : matcher(compiled.states, compiled.start);
}

/**
 * A pattern for texts that clients choose: its steps are bounded, since a long text could keep the event loop busy.
 * Throws for one that `linearPattern` refuses.
 */
export function boundedPattern(source: string) {
  const pattern = linearPattern(source);
  if (typeof pattern === "string") throw new Error(`the pattern ${JSON.stringify(source)} ${pattern}`);
  let left = 0;
  const meter: StepMeter = {
    isDue: false,
    pause: () => Promise.resolve(),
    spend(steps) {
      left -= steps;
      if (left < 0) throw TOO_MANY_STEPS;
    },
  };
  return {
    /** A request begins, which has steps of its own. */
    begin(): void {
      left = MAX_STEPS;
    },
    /** False, too, once the steps of the request are used up. */
    test(text: string): boolean {
      try {
        return pattern.test(text, meter) === true;
      } catch (error) {
        if (error !== TOO_MANY_STEPS) throw error;
        return false;
      }
    },
  };
}

/** Of one pattern for one request, some milliseconds. A pattern with ten states needs so many for 20,000 characters. */
const MAX_STEPS = 200_000;
const TOO_MANY_STEPS = new Error("the pattern needs too many steps");

/**
 * A short text that the pattern matches, of characters of the alphabet, by default of all, the first ones preferred;
 * null if there is none.
 */
export function examplePattern(source: string, alphabet?: string): string | null {
  const compiled = statesOf(source);
  if (typeof compiled === "string") return null;
  if (alphabet !== undefined) return exampleOf(compiled, alphabet);
  const short = exampleOf(compiled, charactersUpTo(0xff)) ?? exampleOf(compiled, charactersUpTo(0xffff));
  return short ?? (BEYOND_16_BITS.test(source) ? exampleOf(compiled, charactersUpTo(0x10ffff)) : null);
}

/** What a pattern needs to match no shorter character. */
const BEYOND_16_BITS = /[\u{10000}-\u{10ffff}]|\\u\{|\\u[dD]|\\[pP]/u;

/**
 * An alphabet: letters and digits first, control characters last, no halves of surrogate pairs. Made when first wanted:
 * the largest takes 4 MB.
 */
export function charactersUpTo(last: 0xff | 0xffff | 0x10ffff): string {
  let made = ALPHABETS.get(last);
  if (made === undefined) {
    const usual = [
      [0x61, 0x61],
      [0x30, 0x30],
      [0x41, 0x41],
      [0x2d, 0x2d],
      [0x21, 0x7e],
      [0x20, 0x20],
    ] as const;
    made = "";
    for (const [from, to] of [
      ...usual,
      [0xa0, Math.min(last, 0xd7ff)],
      [0xe000, last],
      [0, 0x1f],
      [0x7f, 0x9f],
    ] as const) {
      for (let codePoint: number = from; codePoint <= to; codePoint++) made += String.fromCodePoint(codePoint);
    }
    ALPHABETS.set(last, made);
  }
  return made;
}

const ALPHABETS = new Map<number, string>();

/**
 * One character in the place of each state nearly always does; only assertions can make a difference between parts of
 * words and others.
 */
function exampleOf(compiled: States, alphabet: string): string | null {
  return search(compiled, [alphabet]) ?? search(compiled, [alphabet.replace(/\W+/g, ""), alphabet.replace(/\w+/g, "")]);
}

/** No character, a part of a word, any other: what assertions tell apart. */
const NEIGHBOURS = [-1, 0x61, 0x2d];

/** Puts the first character of each alphabet that fits in the place of a state. */
function search({ states, start }: States, alphabets: readonly string[]): string | null {
  const found = new Map<string, readonly number[]>();
  const charactersFor = (text: string) => {
    let characters = found.get(text);
    if (characters === undefined) {
      const one = new RegExp(text, "u");
      characters = alphabets.flatMap((alphabet) => one.exec(alphabet)?.[0].codePointAt(0) ?? []);
      found.set(text, characters);
    }
    return characters;
  };
  // A text that leads to each state, by its last character and by what assertions let follow. A map is iterated over
  // what is added meanwhile, too.
  const reached = new Map<
    string,
    { readonly index: number; readonly before: number; readonly after: readonly number[]; readonly text: string }
  >();
  const reach = (index: number, before: number, after: readonly number[], text: string) => {
    const key = `${index} ${before < 0 ? "none" : isWord(before)} ${after.join()}`;
    if (after.length > 0 && !reached.has(key)) reached.set(key, { index, before, after, text });
  };
  for (const before of NEIGHBOURS) reach(start, before, NEIGHBOURS, textOf(before));
  for (const { index, before, after, text } of reached.values()) {
    const state = states[index]!;
    if (state.kind === "match") return text + textOf(after[0]!);
    if (state.kind === "fork") for (const next of state.next) reach(next, before, after, text);
    else if (state.kind === "assert")
      reach(
        state.next,
        before,
        after.filter((each) => holds(state.what, before, each)),
        text,
      );
    else {
      for (const character of charactersFor(state.text)) {
        const fitsHere = after.some((each) => each >= 0 && isWord(each) === isWord(character));
        if (fitsHere) reach(state.next, character, NEIGHBOURS, text + textOf(character));
      }
    }
  }
  return null;
}

const textOf = (codePoint: number) => (codePoint < 0 ? "" : String.fromCodePoint(codePoint));

interface States {
  readonly states: readonly State[];
  readonly start: number;
}

function statesOf(source: string): States | string {
  if (source.length > MAX_SOURCE) return `has more than ${MAX_SOURCE} characters`;
  try {
    // Node reports syntax errors best; this expression is never run.
    new RegExp(source, "u");
    const states: State[] = [{ kind: "match" }];
    return { states, start: new Parser(source, states).choice()(MATCH) };
  } catch (error) {
    if (error instanceof Unsupported) return error.message;
    return `is no regular expression: ${(error as Error).message.replace(/^Invalid regular expression: /, "")}`;
  }
}

const MAX_SOURCE = 1000;
/** Of states, and of the repetitions of one part. */
const MAX_STATES = 2000;
const TOO_LONG = "is too long once its repetitions are written out";
/** No text is long enough to get from here to the end of 32 bits. */
const MAX_TURN = 2 ** 30;

class Unsupported extends Error {}

type Fits = (codePoint: number) => boolean;
type Assertion = "start" | "end" | "boundary" | "no boundary";

/** `next` is the number of the state that follows, `text` the part of the pattern. */
type State =
  | { readonly kind: "one"; readonly text: string; readonly fits: Fits; readonly next: number }
  | { readonly kind: "assert"; readonly what: Assertion; readonly next: number }
  | { readonly kind: "fork"; readonly next: number[] }
  | { readonly kind: "match" };

/** The number of the final state. */
const MATCH = 0;

/**
 * Adds the states of a part of the pattern in front of the state `next`, and returns the first of them. May be called
 * several times.
 */
type Build = (next: number) => number;

const ASSERTIONS = { "^": "start", $: "end", "\\b": "boundary", "\\B": "no boundary" } as const;

/** Reads a pattern that is valid for Node. */
class Parser {
  readonly #source: string;
  readonly #states: State[];
  #at = 0;

  constructor(source: string, states: State[]) {
    this.#source = source;
    this.#states = states;
  }

  choice(): Build {
    const parts = [this.#sequence()];
    while (this.#skip("|")) parts.push(this.#sequence());
    return parts.length === 1
      ? parts[0]!
      : (next) => this.#add({ kind: "fork", next: [...new Set(parts.map((build) => build(next)))] });
  }

  #sequence(): Build {
    const parts: Build[] = [];
    while (this.#at < this.#source.length && this.#source[this.#at] !== "|" && this.#source[this.#at] !== ")")
      parts.push(this.#quantified());
    return (next) => parts.reduceRight((following, build) => build(following), next);
  }

  #quantified(): Build {
    const part = this.#atom();
    const match = /^(?:([*+?])|\{(\d+)(,?)(\d*)\})\??/.exec(this.#source.slice(this.#at));
    if (match === null) return part;
    this.#at += match[0].length;
    const [, mark, least, comma, most] = match;
    if (mark !== undefined) return this.#repeated(part, mark === "+" ? 1 : 0, mark === "?" ? 1 : Infinity);
    return this.#repeated(part, Number(least), comma === "" ? Number(least) : most === "" ? Infinity : Number(most));
  }

  #repeated(part: Build, min: number, max: number): Build {
    if (min > MAX_STATES || (max > MAX_STATES && max < Infinity)) throw new Unsupported(TOO_LONG);
    return (next) => {
      let start = next;
      if (max === Infinity) {
        const loop = { kind: "fork" as const, next: [next] };
        start = this.#add(loop);
        loop.next.push(part(start));
      } else {
        for (let i = min; i < max; i++) start = this.#add({ kind: "fork", next: [part(start), next] });
      }
      for (let i = 0; i < min; i++) {
        const before = start;
        start = part(before);
        // A part without states, such as `(?:)`, would be repeated without ever reaching their bound.
        if (start === before) break;
      }
      return start;
    };
  }

  #atom(): Build {
    const rest = this.#source.slice(this.#at);
    if (rest.startsWith("(")) {
      if (/^\(\?<?[=!]/.test(rest))
        throw new Unsupported("uses lookahead or lookbehind, which needs backtracking: rewrite it without");
      this.#at += /^\((?:\?:|\?<[^>]*>)?/.exec(rest)![0].length;
      if (this.#source[this.#at] === "?") throw new Unsupported("has an unsupported kind of group");
      const group = this.choice();
      this.#skip(")");
      return group;
    }
    for (const [text, what] of Object.entries(ASSERTIONS))
      if (this.#skip(text)) return (next) => this.#add({ kind: "assert", what, next });
    if (/^\\[1-9k]/.test(rest))
      throw new Unsupported("uses a back reference, which needs backtracking: rewrite it without");
    const text = ONE.exec(rest)![0];
    this.#at += text.length;
    const fits = characterTest(text);
    return (next) => this.#add({ kind: "one", text, fits, next });
  }

  #add(state: State): number {
    if (this.#states.length >= MAX_STATES) throw new Unsupported(TOO_LONG);
    return this.#states.push(state) - 1;
  }

  #skip(text: string): boolean {
    if (!this.#source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }
}

/** Matches one character: a class, an escape, or the character itself. */
const ONE = new RegExp(
  String.raw`^(?:\[(?:\\.|[^\]\\])*\]|\\(?:u\{[^}]*\}|` +
    String.raw`u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|u[\da-fA-F]{4}|` +
    String.raw`x[\da-fA-F]{2}|c[A-Za-z]|[pP]\{[^}]*\}|.)|.)`,
  "su",
);

/** Node's engine decides about classes and escapes: for a single character it has nothing to backtrack over. */
function characterTest(text: string): Fits {
  if (/^[^\\[.]$/su.test(text)) {
    const own = text.codePointAt(0);
    return (codePoint) => codePoint === own;
  }
  const one = new RegExp(`^(?:${text})$`, "u");
  const ascii = Array.from({ length: 128 }, (_, codePoint) => one.test(String.fromCharCode(codePoint)));
  return (codePoint) => (codePoint < 128 ? ascii[codePoint]! : one.test(String.fromCodePoint(codePoint)));
}

function matcher(states: readonly State[], start: number): LinearPattern {
  // The step in which each state was last followed. Kept between texts: most texts are shorter than this list.
  const followed = new Int32Array(states.length);
  let turn = 0;
  return {
    test(text, meter) {
      if (turn > MAX_TURN) {
        followed.fill(0);
        turn = 0;
      }
      let current: number[] = [];
      let following: number[] = [];
      const pending: number[] = [];
      let before = -1;
      let at = 0;
      // Other texts may be tested during a pause, so step numbers are unique.
      const resume = (): boolean | Promise<boolean> => {
        for (;;) {
          turn++;
          const codePoint = text.codePointAt(at) ?? -1;
          following.length = 0;
          for (const state of current) pending.push(state);
          // A match may start at any character.
          pending.push(start);
          let steps = 0;
          while (pending.length > 0) {
            const index = pending.pop()!;
            steps++;
            if (followed[index] === turn) continue;
            followed[index] = turn;
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
          if (meter.isDue) return meter.pause().then(resume);
        }
      };
      return resume();
    },
  };
}

function holds(what: Assertion, before: number, after: number): boolean {
  if (what === "start") return before < 0;
  if (what === "end") return after < 0;
  return (isWord(before) !== isWord(after)) === (what === "boundary");
}

function isWord(c: number): boolean {
  return (c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x5a) || c === 0x5f || (c >= 0x61 && c <= 0x7a);
}

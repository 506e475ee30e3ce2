/**
 * Reads JSON as it is while somebody types it: an outline of whatever is there, with the offset of each value, and what
 * the gateway's reader would refuse first. The gateway has the last word; see `editor_checks.ts`.
 */
import { Lines } from "./text_lines.ts";

export interface JsonValue {
  readonly kind: "object" | "array" | "string" | "number" | "word" | "missing";
  readonly start: number;
  /** Behind its last character. */
  end: number;
  /** Of an object. */
  readonly members: JsonMember[];
  /** Of an array. */
  readonly items: JsonValue[];
  /** Whether its closing bracket or quote is there. */
  isClosed: boolean;
}

interface JsonMember {
  readonly key: string;
  readonly start: number;
  readonly end: number;
  /** Offset of the colon, or -1. */
  readonly colon: number;
  readonly value: JsonValue | null;
}

interface JsonFault {
  readonly from: number;
  readonly to: number;
  readonly message: string;
}

export interface Outline {
  readonly lines: Lines;
  readonly root: JsonValue;
  /** The first error of syntax, and every duplicate key. */
  readonly faults: readonly JsonFault[];
}

/** A container that is being read. */
interface Frame {
  readonly value: JsonValue;
  /** Where each key was first. */
  readonly places: Map<string, number>;
  /** Offset of the comma behind its last item, or -1. */
  comma: number;
  /** Where its last item begins, until what stands behind it has been read; -1: it has been. */
  begun: number;
}

/** From where reading can go on after an edit further down. */
interface Point {
  readonly at: number;
  readonly row: number;
  readonly base: number;
  readonly faults: number;
  readonly isBroken: boolean;
  readonly frames: readonly (Omit<Frame, "places"> & { readonly count: number })[];
}

/** As the gateway's reader: deeper texts are refused, and need no outline. */
const MAX_DEPTH = 100;
/** Characters between two points. */
const SPACING = 4_000;
const TOKEN = /[^\s{}[\],:"]+/y;
const PLAIN_STRING = /"[^"\\\u0000-\u001f]*"/y;
const STRING = /"[^"\\]*(?:\\.[^"\\]*)*"?/y;
const NUMBER = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/;
/** Up to a control character, or an escape that JSON does not have. */
const GOOD_STRING = /^[^\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|$)[^\\\u0000-\u001f]*)*/;
/** Of what is no container. */
const NONE: never[] = [];

export function outlineOf(text: string): Outline {
  const reader = new OutlineReader(new Lines(text));
  reader.readTo(Infinity);
  return reader;
}

/**
 * Reads as far as it is asked to, and after an edit only what stands behind it once more: a container that has not been
 * read to its end has the end `Infinity`.
 */
export class OutlineReader implements Outline {
  readonly lines: Lines;
  readonly faults: JsonFault[] = [];
  root!: JsonValue;
  #row = 0;
  #line = "";
  /** Offset of the row. */
  #base = 0;
  #column = 0;
  #stack: Frame[] = [];
  readonly #points: Point[] = [];
  #isBroken = false;
  /** Whether the whole text has been read. */
  isDone = false;

  constructor(lines: Lines) {
    this.lines = lines;
    this.edited(0);
  }

  /** What stands before it has been read. */
  get at(): number {
    return this.#base + this.#column;
  }

  /** Returns whether it was the rest. */
  readTo(offset: number): boolean {
    while (!this.isDone && this.at < offset) this.#step();
    return this.isDone;
  }

  /** The lines are others from `from` on. */
  edited(from: number): void {
    if (from > this.at) {
      // Maybe in the row that is being read.
      this.#line = this.lines.row(this.#row);
      return;
    }
    while (this.#points.length > 0 && this.#points.at(-1)!.at >= from) this.#points.pop();
    const point = this.#points.at(-1) ?? { at: 0, row: 0, base: 0, faults: 0, isBroken: false, frames: [] };
    [this.#row, this.#base, this.#column] = [point.row, point.base, point.at - point.base];
    this.#line = this.lines.row(point.row);
    [this.faults.length, this.#isBroken, this.isDone] = [point.faults, point.isBroken, false];
    this.#stack = point.frames.map(({ value, comma, begun, count }) => {
      (value.kind === "array" ? value.items : value.members).length = count;
      [value.isClosed, value.end] = [false, Infinity];
      const places = new Map<string, number>();
      for (const { key, start } of value.members) if (!places.has(key)) places.set(key, start);
      return { value, comma, begun, places };
    });
    if (this.#stack.length === 0) this.root = this.#value();
  }

  #step(): void {
    const frame = this.#stack.at(-1);
    if (frame === undefined) {
      if (this.#skip() !== "") this.#fault("expected the end of the file");
      this.isDone = true;
    } else if (frame.begun < 0) {
      if (this.at - (this.#points.at(-1)?.at ?? 0) >= SPACING) this.#points.push(this.#point());
      this.#item(frame);
    } else {
      frame.comma = this.#skip() === "," ? this.at : -1;
      // Also a character that begins nothing.
      if (frame.comma >= 0 || this.at === frame.begun) this.#column++;
      frame.begun = -1;
    }
  }

  #point(): Point {
    const frames = this.#stack.map(({ value, comma, begun }) => {
      return { value, comma, begun, count: value.members.length + value.items.length };
    });
    const [row, base, isBroken] = [this.#row, this.#base, this.#isBroken];
    return { at: this.at, row, base, isBroken, faults: this.faults.length, frames };
  }

  /** The next item of a container, or its end. */
  #item(frame: Frame): void {
    const { value, comma } = frame;
    const open = value.kind === "object" ? "{" : "[";
    const close = open === "{" ? "}" : "]";
    const char = this.#skip();
    if (char === close) {
      if (comma >= 0) this.#fault("remove the trailing comma", comma, comma + 1);
      value.isClosed = true;
      this.#column++;
    } else if (char === "" || char === "}" || char === "]")
      this.#fault(`the "${open}" is not closed`, value.start, value.start + 1);
    else {
      if (comma < 0 && value.members.length + value.items.length > 0) this.#fault(`expected "," or "${close}"`);
      frame.begun = this.at;
      if (value.kind === "array") value.items.push(this.#value());
      else this.#member(frame);
      return;
    }
    value.end = this.at;
    this.#stack.pop();
  }

  #value(): JsonValue {
    const char = this.#skip();
    if (char === '"') return this.#string();
    if ((char === "{" || char === "[") && this.#stack.length < MAX_DEPTH) {
      const isObject = char === "{";
      const value = made(isObject ? "object" : "array", this.at, Infinity, isObject ? [] : NONE, isObject ? NONE : []);
      value.isClosed = false;
      this.#column++;
      this.#stack.push({ value, places: new Map(), comma: -1, begun: -1 });
      return value;
    }
    if (char === "{" || char === "[") {
      this.#fault(`nested deeper than ${MAX_DEPTH} levels`);
      while (this.#nextRow());
      this.#column = this.#line.length;
    }
    const start = this.at;
    const token = this.#take(TOKEN);
    if (token === "") this.#fault("expected a value");
    else if (/^[-\d]/.test(token) && !NUMBER.test(token))
      this.#fault("expected a number such as 80 or -1.5e3", start, this.at);
    else if (!/^[-\d]/.test(token) && !["true", "false", "null"].includes(token))
      this.#fault("expected a value: write strings in double quotes", start, this.at);
    return made(token === "" ? "missing" : /^[-\d]/.test(token) ? "number" : "word", start, this.at);
  }

  #string(): JsonValue {
    const start = this.at;
    if (this.#take(PLAIN_STRING) !== "") return made("string", start, this.at);
    const token = this.#take(STRING);
    const isClosed = token.length > 1 && token.endsWith('"');
    if (!isClosed) this.#fault("expected the closing quote of this string", start, this.at);
    const bad = start + GOOD_STRING.exec(token)![0].length;
    if (bad < this.at)
      this.#fault('expected a printable character or one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX', bad, bad + 1);
    return { ...made("string", start, this.at), isClosed };
  }

  #member({ value: { members }, places }: Frame): void {
    const [start, column] = [this.at, this.#column];
    const isString = this.#line[column] === '"';
    if (!isString) this.#fault("expected a key in double quotes");
    const token = isString ? (this.#string(), this.#line.slice(column, this.#column)) : this.#take(TOKEN);
    const key = textOf(token);
    const end = this.at;
    const first = token === "" ? undefined : places.get(key);
    if (first !== undefined) {
      const line = this.lines.rowAt(first) + 1;
      const message = `duplicate key: the first ${JSON.stringify(key)} is at line ${line}`;
      this.faults.push({ from: start, to: end, message });
    }
    places.set(key, first ?? start);
    const colon = this.#skip() === ":" ? this.at : -1;
    if (colon < 0) this.#fault(`expected ":" after the key ${JSON.stringify(key)}`);
    else this.#column++;
    members.push({ key, start, end, colon, value: colon < 0 ? null : this.#value() });
  }

  /** The next character that is no space; "" at the end. */
  #skip(): string {
    for (;;) {
      const char = this.#line[this.#column];
      if (char === " " || char === "\t" || char === "\r" || char === "\uFEFF") this.#column++;
      else if (char === undefined) {
        if (!this.#nextRow()) return "";
      } else if ((char !== "/" && char !== "#") || !this.#passComment()) return char;
    }
  }

  /** Returns whether there is one. */
  #passComment(): boolean {
    const start = this.at;
    const kind = /(?:\/\/|#|\/\*)/y;
    kind.lastIndex = this.#column;
    const opening = kind.exec(this.#line)?.[0];
    if (opening === undefined) return false;
    if (opening === "/*") {
      this.#column += 2;
      while (!this.#line.includes("*/", this.#column) && this.#nextRow());
    }
    const end = opening === "/*" ? this.#line.indexOf("*/", this.#column) : -1;
    this.#column = end < 0 ? this.#line.length : end + 2;
    this.#fault("JSON has no comments", start, this.at);
    return true;
  }

  #nextRow(): boolean {
    if (this.#row + 1 >= this.lines.count) return false;
    this.#base += this.#line.length + 1;
    this.#line = this.lines.row(++this.#row);
    this.#column = 0;
    return true;
  }

  #take(pattern: RegExp): string {
    pattern.lastIndex = this.#column;
    if (!pattern.test(this.#line)) return "";
    const start = this.#column;
    this.#column = pattern.lastIndex;
    return this.#line.slice(start, this.#column);
  }

  /** Only the first one: the others follow from it. */
  #fault(message: string, from = this.at, to = from + 1): void {
    if (!this.#isBroken) this.faults.push({ from, to, message });
    this.#isBroken = true;
  }
}

function made(
  kind: JsonValue["kind"],
  start: number,
  end: number,
  members: JsonMember[] = NONE,
  items: JsonValue[] = NONE,
): JsonValue {
  return { kind, start, end, members, items, isClosed: true };
}

/** The text of a string as written, also of one that is not complete. */
export function textOf(token: string): string {
  if (!token.includes("\\")) return token.replace(/^"|"$/g, "");
  try {
    return String(JSON.parse(token));
  } catch {
    return token.replace(/^"|"$/g, "");
  }
}

/** Where an offset is in the outline. */
export interface Place {
  /** Of the value or member at the offset; of the container where there is none yet. */
  readonly path: readonly (string | number)[];
  /** The containers from the root on: `values[i]` has `path[i]`. */
  readonly values: readonly JsonValue[];
  /** A name or a value would be written here; null: neither. */
  readonly at: "key" | "value" | null;
  /** What is written there; null: nothing yet. */
  readonly token: { readonly start: number; readonly end: number } | null;
  readonly member: JsonMember | null;
}

export function placeAt({ root }: Outline, offset: number): Place {
  const path: (string | number)[] = [];
  const values: JsonValue[] = [];
  const found = (at: Place["at"], token: Place["token"], member: JsonMember | null = null): Place => ({
    path,
    values,
    at,
    token,
    member,
  });
  let value = root;
  while (isInside(value, offset)) {
    values.push(value);
    const member =
      value.members.find(({ start, end, value: own }) => start <= offset && offset <= Math.max(end, own?.end ?? 0)) ??
      null;
    const index = value.items.findIndex(
      ({ start, end, kind }) => start <= offset && offset <= end && kind !== "missing",
    );
    if (member === null && index < 0) return found(value.kind === "object" ? "key" : "value", null);
    path.push(member?.key ?? index);
    if (member !== null && offset <= member.end) return found("key", member, member);
    const next = member === null ? value.items[index]! : member.value;
    if (next === null || offset <= (member?.colon ?? -1)) return found(null, null, member);
    if (next.kind === "missing") return found("value", null, member);
    if (offset < next.start) return found(null, null, member);
    if (!isContainer(next)) return found("value", next, member);
    value = next;
    if (!isInside(value, offset)) return found(null, null, member);
  }
  return isContainer(root) ? found(null, null) : found("value", root.kind === "missing" ? null : root);
}

function isContainer({ kind }: JsonValue): boolean {
  return kind === "object" || kind === "array";
}

/** Between the brackets of a container. */
function isInside(value: JsonValue, offset: number): boolean {
  const { start, end, isClosed } = value;
  return isContainer(value) && start < offset && (offset < end || (!isClosed && offset <= end));
}

/** The value at a path such as `services[].name`, everywhere. */
export function textsAt({ lines, root }: Outline, path: string): readonly string[] {
  let found: readonly JsonValue[] = [root];
  for (const step of path.replaceAll("[]", ".[]").split(".")) {
    found = found.flatMap(({ items, members }) =>
      step === "[]" ? items : members.flatMap(({ key, value }) => (key === step && value !== null ? [value] : [])),
    );
  }
  return found.filter(({ kind }) => kind === "string").map(({ start, end }) => textOf(lines.slice(start, end)));
}

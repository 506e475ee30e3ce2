/**
 * Reads JSON as it is while somebody types it: an outline of whatever is there, with the offset of each value, and what
 * the gateway's reader would refuse first. The gateway has the last word; see `editor_checks.ts`.
 */

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

export interface JsonMember {
  readonly key: string;
  readonly start: number;
  readonly end: number;
  /** Offset of the colon, or -1. */
  readonly colon: number;
  readonly value: JsonValue | null;
}

export interface JsonFault {
  readonly from: number;
  readonly to: number;
  readonly message: string;
}

export interface Outline {
  readonly text: string;
  readonly root: JsonValue;
  /** The first error of syntax, and every duplicate key. */
  readonly faults: readonly JsonFault[];
}

/** As the gateway's reader: deeper texts are refused, and need no outline. */
const MAX_DEPTH = 100;
const TOKEN = /[^\s{}[\],:"]+/y;
const STRING = /"[^"\\\n]*(?:\\.[^"\\\n]*)*"?/y;
const SPACE = /[ \n\r\t\uFEFF]*/y;
const COMMENT = /(?:\/\/|#)[^\n]*|\/\*[^]*?(?:\*\/|$)/y;
const NUMBER = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/;
/** Up to a control character, or an escape that JSON does not have. */
const GOOD_STRING = /^[^\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|$)[^\\\u0000-\u001f]*)*/;

export function outlineOf(text: string): Outline {
  const reader = new Reader(text);
  return { text, root: reader.document(), faults: reader.faults };
}

class Reader {
  readonly faults: JsonFault[] = [];
  readonly #text: string;
  #at = 0;
  #depth = 0;
  #isBroken = false;

  constructor(text: string) {
    this.#text = text;
  }

  document(): JsonValue {
    const root = this.#value();
    this.#skip();
    if (this.#at < this.#text.length) this.#fault("expected the end of the file");
    return root;
  }

  #value(): JsonValue {
    const char = this.#skip();
    if (char === '"') return this.#string();
    if ((char === "{" || char === "[") && this.#depth < MAX_DEPTH) return this.#container(char);
    if (char === "{" || char === "[") {
      this.#fault(`nested deeper than ${MAX_DEPTH} levels`);
      this.#at = this.#text.length;
    }
    const start = this.#at;
    const token = this.#take(TOKEN);
    if (token === "") this.#fault("expected a value");
    else if (/^[-\d]/.test(token) && !NUMBER.test(token))
      this.#fault("expected a number such as 80 or -1.5e3", start, this.#at);
    else if (!/^[-\d]/.test(token) && !["true", "false", "null"].includes(token))
      this.#fault("expected a value: write strings in double quotes", start, this.#at);
    return made(token === "" ? "missing" : /^[-\d]/.test(token) ? "number" : "word", start, this.#at);
  }

  #string(): JsonValue {
    const start = this.#at;
    const token = this.#take(STRING);
    const value = made("string", start, this.#at);
    value.isClosed = token.length > 1 && token.endsWith('"');
    if (!value.isClosed) this.#fault("expected the closing quote of this string", start, this.#at);
    const bad = GOOD_STRING.exec(token)![0].length;
    if (bad < token.length)
      this.#fault(
        'expected a printable character or one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX',
        start + bad,
        start + bad + 1,
      );
    return value;
  }

  #container(open: "{" | "["): JsonValue {
    const close = open === "{" ? "}" : "]";
    const value = made(open === "{" ? "object" : "array", this.#at++, 0);
    value.isClosed = false;
    const places = new Map<string, number>();
    this.#depth++;
    for (let comma = -1; ;) {
      const char = this.#skip();
      if (char === close) {
        if (comma >= 0) this.#fault("remove the trailing comma", comma, comma + 1);
        value.isClosed = true;
        this.#at++;
        break;
      }
      if (char === "" || char === "}" || char === "]") {
        this.#fault(`the "${open}" is not closed`, value.start, value.start + 1);
        break;
      }
      if (comma < 0 && value.members.length + value.items.length > 0) this.#fault(`expected "," or "${close}"`);
      const before = this.#at;
      if (open === "{") this.#member(value, places);
      else value.items.push(this.#value());
      comma = this.#skip() === "," ? this.#at++ : -1;
      // A character that begins nothing.
      if (this.#at === before) this.#at++;
    }
    this.#depth--;
    value.end = this.#at;
    return value;
  }

  #member({ members }: JsonValue, places: Map<string, number>): void {
    const start = this.#at;
    const isString = this.#text[start] === '"';
    if (!isString) this.#fault("expected a key in double quotes");
    const token = isString ? (this.#string(), this.#text.slice(start, this.#at)) : this.#take(TOKEN);
    const key = textOf(token);
    const end = this.#at;
    const first = token === "" ? undefined : places.get(key);
    if (first !== undefined)
      this.faults.push({
        from: start,
        to: end,
        message: `duplicate key: the first ${JSON.stringify(key)} is at line ${lineAt(this.#text, first)}`,
      });
    places.set(key, first ?? start);
    const colon = this.#skip() === ":" ? this.#at++ : -1;
    if (colon < 0) this.#fault(`expected ":" after the key ${JSON.stringify(key)}`);
    members.push({ key, start, end, colon, value: colon < 0 ? null : this.#value() });
  }

  /** The next character that is no space; "" at the end. */
  #skip(): string {
    for (;;) {
      this.#take(SPACE);
      const start = this.#at;
      const char = this.#text[start] ?? "";
      if ((char !== "/" && char !== "#") || this.#take(COMMENT) === "") return char;
      this.#fault("JSON has no comments", start, this.#at);
    }
  }

  #take(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    if (!pattern.test(this.#text)) return "";
    const start = this.#at;
    this.#at = pattern.lastIndex;
    return this.#text.slice(start, this.#at);
  }

  /** Only the first one: the others follow from it. */
  #fault(message: string, from = this.#at, to = from + 1): void {
    if (!this.#isBroken) this.faults.push({ from, to, message });
    this.#isBroken = true;
  }
}

function made(kind: JsonValue["kind"], start: number, end: number): JsonValue {
  return { kind, start, end, members: [], items: [], isClosed: true };
}

/** The text of a string as written, also of one that is not complete. */
export function textOf(token: string): string {
  try {
    return String(JSON.parse(token));
  } catch {
    return token.replace(/^"|"$/g, "");
  }
}

/** From 1. */
function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
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
export function textsAt({ text, root }: Outline, path: string): readonly string[] {
  let found: readonly JsonValue[] = [root];
  for (const step of path.replaceAll("[]", ".[]").split(".")) {
    found = found.flatMap(({ items, members }) =>
      step === "[]" ? items : members.flatMap(({ key, value }) => (key === step && value !== null ? [value] : [])),
    );
  }
  return found.filter(({ kind }) => kind === "string").map(({ start, end }) => textOf(text.slice(start, end)));
}

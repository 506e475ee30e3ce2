/**
 * Reads JSON (RFC 8259, strictly) into nodes that remember where they stood, and says in plain words what is wrong with text that
 * is not JSON. What the values mean is `schema.ts`.
 */

/** Line and column count from 1; a column is a character (code point), not a byte. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** Where a value stands in the document: keys and indexes from the root. */
export type Path = readonly (string | number)[];

export interface Issue {
  readonly at: Path;
  readonly message: string;
  /** Null when the document did not come from text. */
  readonly position: Position | null;
}

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

export interface Member {
  readonly keyPosition: Position | null;
  readonly value: JsonNode;
}

export type JsonNode = { readonly position: Position | null } & (
  | { readonly kind: "null" }
  | { readonly kind: "boolean"; readonly value: boolean }
  | { readonly kind: "number"; readonly value: number; readonly text: string }
  | { readonly kind: "string"; readonly value: string }
  | { readonly kind: "array"; readonly items: readonly JsonNode[] }
  | { readonly kind: "object"; readonly members: ReadonlyMap<string, Member> }
  /** What JSON cannot hold, out of a JavaScript object; `text` names it. */
  | { readonly kind: "other"; readonly text: string }
);

const MAX_DEPTH = 100;

/**
 * The document, or null after a syntax error (then there is exactly one issue). Duplicate keys are issues; the first one is kept. So are
 * strings with half a surrogate pair: UTF-8 cannot hold it, and two names that differ in it alone are the same in logs and metrics.
 */
export function parseJson(input: Buffer | string, maxDepth = MAX_DEPTH): { node: JsonNode | null; issues: readonly Issue[] } {
  const text = typeof input === "string" ? input : decode(input);
  if (typeof text !== "string") return { node: null, issues: [text] };
  const reader = new Reader(text.startsWith("\uFEFF") ? text.slice(1) : text, maxDepth);
  try {
    return { node: reader.document(), issues: reader.issues };
  } catch (error) {
    if (!(error instanceof SyntaxFault)) throw error;
    return { node: null, issues: [error.issue] };
  }
}

/** Nodes for a JavaScript value, all at one position. What JSON cannot hold becomes a node of kind "other". */
export function nodeFrom(value: unknown, position: Position | null = null, depth = 0): JsonNode {
  const other = (text: string): JsonNode => ({ kind: "other", text, position });
  if (depth > MAX_DEPTH) return other(`a value nested deeper than ${MAX_DEPTH} levels`); // ends cycles too
  switch (typeof value) {
    case "boolean":
      return { kind: "boolean", value, position };
    case "string":
      return HALF_PAIR.test(value) ? other("a string with half a surrogate pair") : { kind: "string", value, position };
    case "number":
      return Number.isFinite(value) ? { kind: "number", value, text: String(value), position } : other(String(value));
    case "object":
      break;
    default:
      return other(value === undefined ? "undefined" : `a ${typeof value}`);
  }
  if (value === null) return { kind: "null", position };
  if (Array.isArray(value)) return { kind: "array", items: Array.from(value, (item) => nodeFrom(item, position, depth + 1)), position };
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) return other(`an instance of ${value.constructor.name}`);
  const members = new Map<string, Member>();
  for (const [key, item] of Object.entries(value)) {
    if (HALF_PAIR.test(key)) return other("an object with half a surrogate pair in a key");
    members.set(key, { keyPosition: position, value: nodeFrom(item, position, depth + 1) });
  }
  return { kind: "object", members, position };
}

/** `services[0].upstreams[1].port`; keys that are no plain words stand quoted: `headers["X-A"]`. */
export function formatPath(path: Path): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (/^[A-Za-z_$][\w$]*$/.test(step)) text += text === "" ? step : `.${step}`;
    else text += `[${JSON.stringify(step)}]`;
  }
  return text;
}

/** The node at the path, or undefined where there is none. */
export function nodeAt(node: JsonNode, path: Path): JsonNode | undefined {
  let found: JsonNode | undefined = node;
  for (const step of path) {
    if (found?.kind === "object") found = found.members.get(String(step))?.value;
    else if (found?.kind === "array" && typeof step === "number") found = found.items[step];
    else return undefined;
  }
  return found;
}

/** Where the value at the path stands, or its nearest ancestor that is there. */
export function positionAt(node: JsonNode, path: Path): Position | null {
  for (let length = path.length; length > 0; length--) {
    const found = nodeAt(node, path.slice(0, length));
    if (found !== undefined) return found.position;
  }
  return node.position;
}

/** The value for an error message, short: `"80a"`, `12`, `an array`. */
export function describeNode(node: JsonNode): string {
  switch (node.kind) {
    case "null":
      return "null";
    case "boolean":
      return String(node.value);
    case "string":
      return JSON.stringify(node.value.length > 60 ? `${node.value.slice(0, 57)}…` : node.value);
    case "array":
      return "an array";
    case "object":
      return "an object";
    default:
      return node.text;
  }
}

/** The same without the value itself, which may be a secret: `a string`, `a number`. */
export function describeKind(node: JsonNode): string {
  return node.kind === "string" || node.kind === "number" || node.kind === "boolean" ? `a ${node.kind}` : describeNode(node);
}

/** The text, or the issue that names the first byte that is no UTF-8. */
function decode(bytes: Buffer): string | Issue {
  const wide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  if (wide) return { at: [], message: "expected UTF-8, found UTF-16: save the file as UTF-8", position: { line: 1, column: 1 } };
  const utf8 = new TextDecoder("utf-8", { fatal: true });
  try {
    return utf8.decode(bytes);
  } catch {
    // A line feed is never part of a longer sequence: look for the first line that cannot be decoded by itself.
    for (let start = 0, line = 1; ; line++) {
      const feed = bytes.indexOf(10, start);
      const bad = bytes.subarray(start, feed === -1 ? bytes.length : feed);
      try {
        utf8.decode(bad);
        start = feed + 1;
      } catch {
        const column = [...bad.toString("utf8")].indexOf("\uFFFD") + 1;
        return { at: [], message: "expected UTF-8, found bytes that are not: save the file as UTF-8", position: { line, column } };
      }
    }
  }
}

class SyntaxFault extends Error {
  readonly issue: Issue;

  constructor(issue: Issue) {
    super(issue.message);
    this.issue = issue;
  }
}

const HALF_PAIR = /\p{Surrogate}/u;
const HALF_PAIR_FOUND = "holds half a surrogate pair: write the character itself, or both halves of it (\\uD83D\\uDE00)";
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const WORD = /[A-Za-z_$][\w$-]*/y;
const KEY = /"[^"\n]{0,40}"?|[\w$.+-]{1,40}/y;
const PLAIN_RUN = /[^"\\\u0000-\u001f]*/y;
const HEX4 = /[0-9a-fA-F]{4}/y;
const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t",
};
const NOT_JSON = new Set(["NaN", "Infinity", "undefined", "True", "False", "None", "TRUE", "FALSE", "NULL", "Null", "nil"]);

/** One pass over the text, recursive descent. Every method leaves `#offset` behind what it has read. */
class Reader {
  readonly issues: Issue[] = [];
  readonly #text: string;
  readonly #maxDepth: number;
  readonly #path: (string | number)[] = [];
  #offset = 0;
  /** The last offset whose position was asked for, and that position: the next is counted from there. */
  #mark = { offset: 0, line: 1, column: 1 };

  constructor(text: string, maxDepth: number) {
    this.#text = text;
    this.#maxDepth = maxDepth;
  }

  document(): JsonNode {
    const node = this.#value();
    this.#skipSpace();
    if (this.#offset < this.#text.length) throw this.#expected("the end of the file");
    return node;
  }

  #value(): JsonNode {
    this.#skipSpace();
    const position = this.#position(this.#offset);
    const char = this.#text[this.#offset];
    if (char === "{") return this.#object(position);
    if (char === "[") return this.#array(position);
    if (char === '"') return { kind: "string", value: this.#string(), position };
    if (char !== undefined && ((char >= "0" && char <= "9") || char === "-")) return this.#number(position);
    const word = this.#peek(WORD);
    if (word === "true" || word === "false" || word === "null") {
      this.#offset += word.length;
      return word === "null" ? { kind: "null", position } : { kind: "boolean", value: word === "true", position };
    }
    const isKnown = NOT_JSON.has(word);
    const hint = isKnown ? "besides numbers and strings JSON has true, false and null" : word && "strings take double quotes";
    throw this.#expected("a value", hint || (char === "+" || char === "." ? "a number starts with a digit or a minus sign" : ""), isKnown ? word : "");
  }

  #object(position: Position): JsonNode {
    this.#enter();
    const members = new Map<string, Member>();
    if (!this.#take("}")) {
      do {
        this.#skipSpace();
        if (this.#text[this.#offset] !== '"') {
          const word = this.#peek(WORD);
          throw this.#expected("a key in double quotes", word && `write "${word}"`, this.#peek(KEY));
        }
        const keyPosition = this.#position(this.#offset);
        const key = this.#string();
        this.#path.push(key);
        if (!this.#take(":")) throw this.#expected(`":" after the key ${JSON.stringify(key)}`);
        const value = this.#value();
        const first = members.get(key)?.keyPosition;
        if (first) {
          const message = `duplicate key: the first ${JSON.stringify(key)} stands at ${first.line}:${first.column}`;
          this.issues.push({ at: [...this.#path], message, position: keyPosition });
        } else {
          members.set(key, { keyPosition, value });
        }
        this.#path.pop();
      } while (this.#more("{", "}", position));
    }
    return { kind: "object", members, position };
  }

  #array(position: Position): JsonNode {
    this.#enter();
    const items: JsonNode[] = [];
    if (!this.#take("]")) {
      do {
        this.#path.push(items.length);
        items.push(this.#value());
        this.#path.pop();
      } while (this.#more("[", "]", position));
    }
    return { kind: "array", items, position };
  }

  #enter(): void {
    if (this.#path.length >= this.#maxDepth) throw this.#fault(this.#offset, `nested deeper than ${this.#maxDepth} levels`);
    this.#offset++;
  }

  /** Reads what stands behind an item: true after a comma, false after the closing bracket. */
  #more(open: string, close: string, opened: Position): boolean {
    if (this.#take(close)) return false;
    const comma = this.#offset;
    if (this.#take(",")) {
      this.#skipSpace();
      if (this.#text[this.#offset] !== close) return true;
      const what = close === "}" ? "a key" : "a value";
      throw this.#fault(comma, `expected ${what} after ",", found "${close}": remove the trailing comma`);
    }
    const char = this.#text[this.#offset];
    const closes = char === undefined || char === "}" || char === "]";
    const unclosed = `the "${open}" at ${opened.line}:${opened.column} is not closed`;
    const hint = closes ? unclosed : /["{[\w-]/.test(char) ? "a comma is missing before it" : "";
    throw this.#expected(`"," or "${close}"`, hint);
  }

  #number(position: Position): JsonNode {
    const text = this.#peek(NUMBER);
    const next = this.#text[this.#offset + text.length];
    if (text === "" || (next !== undefined && /[\w.+-]/.test(next))) throw this.#fault(this.#offset, "expected a number such as 80 or -1.5e3, found another form of one");
    this.#offset += text.length;
    return { kind: "number", value: Number(text), text, position };
  }

  #string(): string {
    const start = this.#offset++;
    let value = "";
    for (;;) {
      value += this.#match(PLAIN_RUN);
      const char = this.#text[this.#offset];
      if (char === '"') {
        this.#offset++;
        if (HALF_PAIR.test(value)) this.issues.push({ at: [...this.#path], message: HALF_PAIR_FOUND, position: this.#position(start) });
        return value;
      }
      if (char === "\\") value += this.#escape();
      else if (char === undefined || char === "\n" || char === "\r") {
        throw this.#fault(start, `expected the closing quote of this string, found the end of the ${char ? "line" : "file"}`);
      } else throw this.#expected("printable characters", `write \\u${hex(char)} inside a string`);
    }
  }

  #escape(): string {
    const start = this.#offset;
    const letter = this.#text[start + 1] ?? "";
    this.#offset += 2;
    const simple = ESCAPES[letter];
    if (simple !== undefined) return simple;
    const code = letter === "u" ? this.#match(HEX4) : "";
    if (code !== "") return String.fromCharCode(parseInt(code, 16));
    // What stands behind the backslash is not repeated: the string may be a secret.
    if (letter === "u") throw this.#fault(start, "expected four hexadecimal digits after \\u, found something else");
    throw this.#fault(start, 'expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX, found another escape');
  }

  /** Skips white space and then the character, if it is the next. */
  #take(char: string): boolean {
    this.#skipSpace();
    if (this.#text[this.#offset] !== char) return false;
    this.#offset++;
    return true;
  }

  #skipSpace(): void {
    for (;;) {
      const code = this.#text.charCodeAt(this.#offset);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.#offset++;
    }
  }

  /** What stands next as the pattern says; `exec` would make an object for each of a configuration's thousand words. */
  #peek(pattern: RegExp): string {
    pattern.lastIndex = this.#offset;
    return pattern.test(this.#text) ? this.#text.slice(this.#offset, pattern.lastIndex) : "";
  }

  #match(pattern: RegExp): string {
    const found = this.#peek(pattern);
    this.#offset += found.length;
    return found;
  }

  /** `quoted` is what stands there, where that can be no value: of values, which may be secrets, only the kind is told. */
  #expected(what: string, hint = "", quoted = ""): SyntaxFault {
    const char = this.#text[this.#offset];
    const help = slip(char, this.#text[this.#offset + 1]) || hint;
    const kind = char === '"' ? "a string" : /[\d-]/.test(char ?? "") ? "a number" : /[\w$]/.test(char ?? "") ? "a word" : "";
    const found = quoted || kind || describeChar(this.#text.codePointAt(this.#offset));
    return this.#fault(this.#offset, `expected ${what}, found ${found}${help && `: ${help}`}`);
  }

  #fault(offset: number, message: string): SyntaxFault {
    return new SyntaxFault({ at: [...this.#path], message, position: this.#position(offset) });
  }

  #position(offset: number): Position {
    const mark = this.#mark;
    if (offset < mark.offset) Object.assign(mark, { offset: 0, line: 1, column: 1 });
    for (; mark.offset < offset; mark.offset++) {
      const code = this.#text.charCodeAt(mark.offset);
      if (code === 10) {
        mark.line++;
        mark.column = 1;
      } else if (code < 0xdc00 || code > 0xdfff) mark.column++; // the second half of a surrogate pair is no character of its own
    }
    return { line: mark.line, column: mark.column };
  }
}

/** What people write out of habit from JavaScript, YAML or a word processor. */
function slip(char: string | undefined, next: string | undefined): string {
  if (char === "#" || (char === "/" && (next === "/" || next === "*"))) return "JSON has no comments";
  if (char !== undefined && "'`\u2018\u2019\u201c\u201d\u201e".includes(char)) return 'JSON has only straight double quotes (")';
  return "";
}

function describeChar(code: number | undefined): string {
  if (code === undefined) return "the end of the file";
  const char = String.fromCodePoint(code);
  return /^[\p{L}\p{N}\p{P}\p{S}]$/u.test(char) ? (char === '"' ? char : `"${char}"`) : `U+${hex(char)}`;
}

function hex(char: string): string {
  return char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
}

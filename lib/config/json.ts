/**
 * Reads JSON (RFC 8259, strictly) into nodes that know their line and column, and explains syntax errors.
 */
import { isUtf8 } from "node:buffer";

/** Line and column count from 1; a column is a character (code point), not a byte. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** The place of a value in the document: keys and indexes from the root. */
export type Path = readonly (string | number)[];

export interface Issue {
  readonly at: Path;
  readonly message: string;
  /** Null when the document did not come from text. */
  readonly position: Position | null;
  /** Absolute path of the file that it is in, unless that is the configuration itself. */
  readonly file?: string;
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
  /** A JavaScript value that JSON cannot express; `text` names it. */
  | { readonly kind: "other"; readonly text: string }
);

const MAX_DEPTH = 100;
const HALF_PAIR = /\p{Surrogate}/u;

/**
 * The document, or null after a syntax error (then there is exactly one issue). Duplicate keys are issues; the first one is kept. So are
 * strings with half a surrogate pair: UTF-8 cannot express it, and two names that differ only in it are the same in logs and metrics.
 */
export function parseJson(input: Buffer | string): { node: JsonNode | null; issues: readonly Issue[] } {
  const wrong = typeof input === "string" ? null : encodingIssue(input);
  if (wrong !== null) return { node: null, issues: [wrong] };
  const parser = new Parser(String(input).replace(/^\uFEFF/, ""));
  try {
    return { node: parser.document(), issues: parser.issues };
  } catch (error) {
    if (!(error instanceof SyntaxFault)) throw error;
    return { node: null, issues: [error.issue] };
  }
}

/** Nodes for a JavaScript value, all at one position. Values that JSON cannot express become nodes of kind "other". */
export function nodeFrom(value: unknown, position: Position | null = null, depth = 0): JsonNode {
  const other = (text: string): JsonNode => ({ kind: "other", text, position });
  if (depth > MAX_DEPTH) return other(`a value nested deeper than ${MAX_DEPTH} levels`); // ends cycles too
  if (value === null) return { kind: "null", position };
  if (typeof value === "boolean") return { kind: "boolean", value, position };
  if (typeof value === "number" && Number.isFinite(value)) return { kind: "number", value, text: String(value), position };
  if (typeof value === "number") return other(String(value));
  if (typeof value === "string" && HALF_PAIR.test(value)) return other("a string with half a surrogate pair");
  if (typeof value === "string") return { kind: "string", value, position };
  if (typeof value !== "object") return other(value === undefined ? "undefined" : `a ${typeof value}`);
  if (Array.isArray(value)) return { kind: "array", items: Array.from(value, (item) => nodeFrom(item, position, depth + 1)), position };
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) return other(`an instance of ${value.constructor.name}`);
  const members = new Map<string, Member>();
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue; // as in JSON.stringify
    if (HALF_PAIR.test(key)) return other("an object with half a surrogate pair in a key");
    members.set(key, { keyPosition: position, value: nodeFrom(item, position, depth + 1) });
  }
  return { kind: "object", members, position };
}

/** `services[0].upstreams[1].port`; keys that are not identifiers are quoted: `headers["X-A"]`. */
export function formatPath(path: Path): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (/^[A-Za-z_$][\w$]*$/.test(step)) text += text === "" ? step : `.${step}`;
    else text += `[${JSON.stringify(step)}]`;
  }
  return text;
}

/** The node at the path, or undefined if there is none. */
export function nodeAt(node: JsonNode, path: Path): JsonNode | undefined {
  let found: JsonNode | undefined = node;
  for (const step of path) {
    if (found?.kind === "object") found = found.members.get(String(step))?.value;
    else found = found?.kind === "array" && typeof step === "number" ? found.items[step] : undefined;
  }
  return found;
}

/** The items of an array; none of another node. */
export function itemsOf(node: JsonNode | undefined): readonly JsonNode[] {
  return node?.kind === "array" ? node.items : [];
}

/** The values at a place such as `services[].protocol`, as far as the document has them; `=h2` behind it: those that are this text. */
export function valuesAt(node: JsonNode, place: string): readonly { readonly at: Path; readonly value: JsonNode }[] {
  const [path, text] = place.split("=") as [string, string | undefined];
  let found: readonly { readonly at: Path; readonly value: JsonNode }[] = [{ at: [], value: node }];
  for (const step of path.replaceAll("[]", ".[]").split(".")) {
    found = found.flatMap(({ at, value }) => {
      if (step === "[]") return value.kind === "array" ? value.items.map((item, i) => ({ at: [...at, i], value: item })) : [];
      const member = value.kind === "object" ? value.members.get(step) : undefined;
      return member === undefined ? [] : [{ at: [...at, step], value: member.value }];
    });
  }
  return text === undefined ? found : found.filter(({ value }) => value.kind === "string" && value.value === text);
}

/** The position of the value at the path, or of its nearest ancestor that exists. */
export function positionAt(node: JsonNode, path: Path): Position | null {
  return path.length === 0 ? node.position : (nodeAt(node, path)?.position ?? positionAt(node, path.slice(0, -1)));
}

/** For issues of one text, in its order. */
export function byPosition({ position: a }: Issue, { position: b }: Issue): number {
  return a === null || b === null ? 0 : a.line - b.line || a.column - b.column;
}

/** The value for an error message, short: `"80a"`, `12`, `an array`. A secret is named by its kind: `a string`. */
export function describeNode(node: JsonNode, isSecret = false): string {
  if (node.kind === "null") return "null";
  if (node.kind === "array" || node.kind === "object") return `an ${node.kind}`;
  if (node.kind === "other") return node.text;
  if (isSecret) return `a ${node.kind}`;
  if (node.kind === "string") return JSON.stringify(node.value.length > 60 ? `${node.value.slice(0, 57)}…` : node.value);
  return node.kind === "number" ? node.text : String(node.value);
}

/** The place of the first byte that is not UTF-8; null if all bytes are. */
function encodingIssue(bytes: Buffer): Issue | null {
  if (isUtf8(bytes)) return null;
  const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  if (isWide) return { at: [], message: "expected UTF-8, found UTF-16: save the file as UTF-8", position: { line: 1, column: 1 } };
  // A line feed is never part of a longer sequence, so each line can be checked by itself.
  for (let start = 0, line = 1; ; line++) {
    const feed = bytes.indexOf(10, start);
    const content = bytes.subarray(start, feed < 0 ? bytes.length : feed);
    if (!isUtf8(content)) {
      const column = [...content.toString()].indexOf("\uFFFD") + 1;
      return { at: [], message: "expected UTF-8, found bytes that are not UTF-8: save the file as UTF-8", position: { line, column } };
    }
    start = feed + 1;
  }
}

class SyntaxFault extends Error {
  readonly issue: Issue;

  constructor(issue: Issue) {
    super(issue.message);
    this.issue = issue;
  }
}

const HALF_PAIR_FOUND = "contains half a surrogate pair: write the character itself, or both halves of it (\\uD83D\\uDE00)";
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const WORD = /[A-Za-z_$][\w$-]*/y;
const KEY = /"[^"\n]{0,40}"?|[\w$.+-]{1,40}/y;
const SPACE = /[ \n\r\t]*/y;
const PLAIN_RUN = /[^"\\\u0000-\u001f]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;

/** One pass over the text, recursive descent. Every method leaves `#offset` after the text it has read. */
class Parser {
  readonly issues: Issue[] = [];
  readonly #text: string;
  readonly #path: (string | number)[] = [];
  #offset = 0;
  /** The last offset whose position was computed, and that position: the next one is counted from there. */
  #mark = { offset: 0, line: 1, column: 1 };

  constructor(text: string) {
    this.#text = text;
  }

  document(): JsonNode {
    const node = this.#value();
    this.#skip(SPACE);
    if (this.#offset < this.#text.length) throw this.#expected("the end of the file");
    return node;
  }

  #value(): JsonNode {
    this.#skip(SPACE);
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
    const hint = word && "write strings in double quotes; the only words in JSON are true, false and null";
    throw this.#expected("a value", hint || (char === "+" || char === "." ? "a number starts with a digit or a minus sign" : ""));
  }

  #object(position: Position): JsonNode {
    const members = new Map<string, Member>();
    this.#items("{", position, () => {
      this.#skip(SPACE);
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
      if (!first) members.set(key, { keyPosition, value });
      else this.#report(`duplicate key: the first ${JSON.stringify(key)} is at ${first.line}:${first.column}`, keyPosition);
      this.#path.pop();
    });
    return { kind: "object", members, position };
  }

  #array(position: Position): JsonNode {
    const items: JsonNode[] = [];
    this.#items("[", position, () => {
      this.#path.push(items.length);
      items.push(this.#value());
      this.#path.pop();
    });
    return { kind: "array", items, position };
  }

  /** Reads everything between two brackets, item by item. */
  #items(open: "{" | "[", position: Position, readItem: () => void): void {
    if (this.#path.length >= MAX_DEPTH) throw this.#fault(this.#offset, `nested deeper than ${MAX_DEPTH} levels`);
    const close = open === "{" ? "}" : "]";
    this.#offset++;
    if (this.#take(close)) return;
    for (;;) {
      readItem();
      if (this.#take(close)) return;
      const comma = this.#offset;
      if (!this.#take(",")) {
        const char = this.#text[comma];
        const isEnd = char === undefined || char === "}" || char === "]";
        const unclosed = `the "${open}" at ${position.line}:${position.column} is not closed`;
        throw this.#expected(`"," or "${close}"`, isEnd ? unclosed : /["{[\w-]/.test(char) ? "a comma is missing before it" : "");
      }
      this.#skip(SPACE);
      if (this.#text[this.#offset] === close) {
        throw this.#fault(comma, `expected ${open === "{" ? "a key" : "a value"} after ",", found "${close}": remove the trailing comma`);
      }
    }
  }

  #number(position: Position): JsonNode {
    const text = this.#peek(NUMBER);
    const next = this.#text[this.#offset + text.length];
    if (text === "" || (next !== undefined && /[\w.+-]/.test(next))) {
      throw this.#fault(this.#offset, "expected a number such as 80 or -1.5e3, found a number in another form");
    }
    this.#offset += text.length;
    return { kind: "number", value: Number(text), text, position };
  }

  #string(): string {
    const start = this.#offset++;
    for (;;) {
      this.#skip(PLAIN_RUN);
      const char = this.#text[this.#offset];
      if (char === '"') break;
      // The character after the backslash is not quoted: the string may be a secret.
      const escapes = 'one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX (four hexadecimal digits)';
      if (char === "\\" && !this.#skip(ESCAPE)) throw this.#fault(this.#offset, `expected ${escapes}, found another escape`);
      if (char === undefined || char === "\n" || char === "\r") {
        throw this.#fault(start, `expected the closing quote of this string, found the end of the ${char ? "line" : "file"}`);
      }
      if (char !== "\\") throw this.#expected("printable characters", `write \\u${hex(char)} inside a string`);
    }
    const written = this.#text.slice(start, ++this.#offset);
    const value = written.includes("\\") ? (JSON.parse(written) as string) : written.slice(1, -1);
    if (HALF_PAIR.test(value)) this.#report(HALF_PAIR_FOUND, this.#position(start));
    return value;
  }

  /** Skips white space and then the character, if it is the next. */
  #take(char: string): boolean {
    this.#skip(SPACE);
    if (this.#text[this.#offset] !== char) return false;
    this.#offset++;
    return true;
  }

  /** The next characters that match the pattern; `exec` would allocate an object for each of thousands of tokens. */
  #peek(pattern: RegExp): string {
    pattern.lastIndex = this.#offset;
    return pattern.test(this.#text) ? this.#text.slice(this.#offset, pattern.lastIndex) : "";
  }

  #skip(pattern: RegExp): boolean {
    pattern.lastIndex = this.#offset;
    const fits = pattern.test(this.#text);
    if (fits) this.#offset = pattern.lastIndex;
    return fits;
  }

  /** `quoted` is the text found if it cannot be a value: values may be secrets, so only their kind is reported. */
  #expected(what: string, hint = "", quoted = ""): SyntaxFault {
    const char = this.#text[this.#offset] ?? "";
    const help = habit(char, this.#text[this.#offset + 1]) || hint;
    const kind = char === '"' ? "a string" : /[\d-]/.test(char) ? "a number" : /[\w$]/.test(char) ? "a word" : "";
    const found = quoted || kind || describeChar(this.#text.codePointAt(this.#offset));
    return this.#fault(this.#offset, `expected ${what}, found ${found}${help && `: ${help}`}`);
  }

  #fault(offset: number, message: string): SyntaxFault {
    return new SyntaxFault({ at: [...this.#path], message, position: this.#position(offset) });
  }

  #report(message: string, position: Position): void {
    this.issues.push({ at: [...this.#path], message, position });
  }

  #position(offset: number): Position {
    const mark = this.#mark;
    if (offset < mark.offset) Object.assign(mark, { offset: 0, line: 1, column: 1 });
    for (; mark.offset < offset; mark.offset++) {
      const code = this.#text.charCodeAt(mark.offset);
      if (code === 10) {
        mark.line++;
        mark.column = 1;
      } else if (code < 0xdc00 || code > 0xdfff) mark.column++; // the second half of a surrogate pair is not counted
    }
    return { line: mark.line, column: mark.column };
  }
}

/** Remedies for common mistakes from JavaScript, YAML and word processors. */
function habit(char: string, next: string | undefined): string {
  if (char === "#" || (char === "/" && (next === "/" || next === "*"))) return "JSON has no comments";
  if (char !== "" && "'`\u2018\u2019\u201c\u201d\u201e".includes(char)) return 'JSON has only straight double quotes (")';
  return "";
}

function describeChar(code: number | undefined): string {
  if (code === undefined) return "the end of the file";
  const char = String.fromCodePoint(code);
  return /^[\p{L}\p{N}\p{P}\p{S}]$/u.test(char) ? `"${char}"` : `U+${hex(char)}`;
}

function hex(char: string): string {
  return char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
}

/** The same with the keys of all objects in alphabetical order. */
export function inKeyOrder(value: Json): Json {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(inKeyOrder);
  const keys = Object.keys(value).sort();
  // fromEntries defines properties: a key named __proto__ is data like any other.
  return Object.fromEntries(keys.map((key) => [key, inKeyOrder((value as { readonly [key: string]: Json })[key]!)]));
}

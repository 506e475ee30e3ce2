/**
 * The one reader of JSON texts (RFC 8259, strictly), in steps, which explains what is wrong with them.
 */
import { isUtf8 } from "node:buffer";
import { atOnce } from "../base/time_slices.ts";
import {
  addIssue,
  HALF_PAIR,
  MAX_DEPTH,
  NOWHERE,
  shortText,
  type Issue,
  type JsonDocument,
  type JsonNode,
  type JsonPlace,
  type Path,
  type PositionOf,
} from "./json.ts";
import { positionsIn, withoutMark } from "./positions.ts";
import { BACKSLASH, BRACE, BRACKET, COLON, COMMA, END_BRACE, END_BRACKET, QUOTE } from "./value_text.ts";

/**
 * The document of a text. Duplicate keys are issues; the first one is kept. So are strings with half a surrogate pair:
 * UTF-8 cannot express it, and two names that differ only in it are the same in logs and metrics.
 */
export function parseJson(input: Buffer | string, options?: ParseOptions): JsonDocument {
  return atOnce(parseSteps(input, options));
}

export interface ParseOptions {
  /** Gets each item of a text that is one array, in place of the document. */
  readonly each?: (item: JsonNode, positionOf: PositionOf) => void;
}

/** The same in steps of about a millisecond, for `inSlices`. */
export function* parseSteps(input: Buffer | string, options: ParseOptions = {}): Generator<void, JsonDocument> {
  const wrong = typeof input === "string" ? null : encodingIssue(input);
  if (wrong !== null) return { node: null, issues: [wrong], positionOf: NOWHERE };
  const text = withoutMark(input);
  const positionOf = positionsIn(text);
  const parser = new Parser(text, positionOf, WHOLE, options.each);
  try {
    const node = yield* parser.document();
    return { node, issues: parser.issues, positionOf };
  } catch (error) {
    if (!(error instanceof SyntaxFault)) throw error;
    return { node: null, issues: [error.issue], positionOf };
  }
}

/** Where the text of a value stands that is read apart from the rest of its document. */
interface PartPlace extends JsonPlace {
  /** How many arrays and objects it is in. */
  readonly depth: number;
}

const WHOLE: PartPlace = { offset: 0, keyOffset: -1, depth: 0 };

/**
 * The value that a text is, of a larger document; null where anything is wrong with it, whose place only the document
 * knows. Offsets in it count from that of its place.
 */
export function* partSteps(text: string, place: PartPlace): Generator<void, JsonNode | null> {
  const parser = new Parser(text, positionsIn(text), place);
  try {
    const node = yield* parser.document();
    return parser.issues.length > 0 ? null : node;
  } catch (error) {
    if (!(error instanceof SyntaxFault)) throw error;
    return null;
  }
}

/** The place of the first byte that is not UTF-8; null if all bytes are. */
function encodingIssue(bytes: Buffer): Issue | null {
  if (isUtf8(bytes)) return null;
  const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  const before = withoutMark(bytes.subarray(0, firstWrong(bytes)));
  const message = `expected UTF-8, found ${isWide ? "UTF-16" : "bytes that are not UTF-8"}: save the file as UTF-8`;
  return { at: [], message, position: positionsIn(before)(before.length) };
}

/** The first byte that is not UTF-8, of bytes that are not. */
function firstWrong(bytes: Buffer): number {
  const replaced = Buffer.from(bytes.toString());
  let at = 0;
  while (replaced[at] === bytes[at]) at++;
  // What stands for a wrong character may begin as it does.
  while (!isUtf8(bytes.subarray(0, at))) at--;
  return at;
}

class SyntaxFault extends Error {
  readonly issue: Issue;

  constructor(issue: Issue) {
    super(issue.message);
    this.issue = issue;
  }
}

const HALF_PAIR_FOUND =
  "contains half a surrogate pair: write the character itself, or both halves of it (\\uD83D\\uDE00)";
const ESCAPES = 'one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX (four hexadecimal digits)';
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const WORD = /[A-Za-z_$][\w$-]{0,40}/y;
const KEY = /"[^"\n]{0,40}"?|[\w$.+-]{1,40}/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const [SPACE, FIRST_SURROGATE, LAST_SURROGATE] = [0x20, 0xd800, 0xdfff];

/** V8 makes longer parts of a text point into it: a service that stays would hold the whole text that it is from. */
const PART_LENGTH = 12;

/** Less than a millisecond of work, but for one string that is longer. */
const VALUES_OF_A_STEP = 1000;
const CHARACTERS_OF_A_STEP = 100_000;

/** An array or object whose end has not been read. */
interface Open {
  readonly node: JsonNode;
  /** Null: it is an object. */
  readonly items: JsonNode[] | null;
  readonly members: Map<string, JsonNode>;
  readonly end: number;
  /** Of the value that is being read; null between two. */
  step: string | number | null;
  keyOffset: number;
  /** How many items have been read. */
  count: number;
}

/** One pass over the text, without recursion, so that it can pause between any two values. */
class Parser {
  readonly issues: Issue[] = [];
  readonly #text: string;
  readonly #positionOf: PositionOf;
  readonly #place: PartPlace;
  readonly #each: ParseOptions["each"];
  /** From the root inwards. */
  readonly #open: Open[] = [];
  /** Behind what has been read. */
  #offset = 0;

  constructor(text: string, positionOf: PositionOf, place: PartPlace, each?: ParseOptions["each"]) {
    this.#text = text;
    this.#positionOf = positionOf;
    this.#place = place;
    this.#each = each;
  }

  *document(): Generator<void, JsonNode> {
    const root = yield* this.#whole();
    this.#skipSpace();
    if (this.#offset < this.#text.length) throw this.#expected("the end of the file");
    return root;
  }

  *#whole(): Generator<void, JsonNode> {
    let end = CHARACTERS_OF_A_STEP;
    for (let count = 1; ; count++) {
      if (count % VALUES_OF_A_STEP === 0 || this.#offset > end) {
        yield;
        end = this.#offset + CHARACTERS_OF_A_STEP;
      }
      const node = this.#value();
      const root = node === null ? null : this.#put(node);
      if (root !== null) return root;
    }
  }

  /** Null: an array or object has begun, whose first value is next. */
  #value(): JsonNode | null {
    const code = this.#skipSpace();
    const offset = this.#place.offset + this.#offset;
    const keyOffset = this.#open.at(-1)?.keyOffset ?? this.#place.keyOffset;
    if (code === QUOTE) return { kind: "string", offset, keyOffset, value: this.#string() };
    if (code === BRACE || code === BRACKET) return this.#begin(code === BRACKET, offset, keyOffset);
    const char = this.#text[this.#offset];
    if (char !== undefined && ((char >= "0" && char <= "9") || char === "-")) {
      const text = this.#number();
      return { kind: "number", offset, keyOffset, value: Number(text), text };
    }
    const word = this.#peek(WORD);
    if (word === "true" || word === "false" || word === "null") {
      this.#offset += word.length;
      return word === "null"
        ? { kind: "null", offset, keyOffset }
        : { kind: "boolean", offset, keyOffset, value: word === "true" };
    }
    const hint = word && "write strings in double quotes; the only words in JSON are true, false and null";
    throw this.#expected(
      "a value",
      hint || (char === "+" || char === "." ? "a number starts with a digit or a minus sign" : ""),
    );
  }

  /** Returns the node if it is empty. */
  #begin(isArray: boolean, offset: number, keyOffset: number): JsonNode | null {
    if (this.#place.depth + this.#open.length >= MAX_DEPTH)
      throw this.#fault(this.#offset, `nested deeper than ${MAX_DEPTH} levels`);
    this.#offset++;
    const end = isArray ? END_BRACKET : END_BRACE;
    const isEmpty = this.#skipSpace() === end;
    const items = isArray && !isEmpty ? [] : NO_ITEMS;
    const members = isArray || isEmpty ? NO_MEMBERS : new Map<string, JsonNode>();
    const node: JsonNode = isArray
      ? { kind: "array", offset, keyOffset, items }
      : { kind: "object", offset, keyOffset, members };
    if (isEmpty) {
      this.#offset++;
      return node;
    }
    const open: Open = { node, items: isArray ? items : null, members, end, step: null, keyOffset: -1, count: 0 };
    this.#open.push(open);
    this.#beginItem(open);
    return null;
  }

  #beginItem(open: Open): void {
    if (open.items !== null) {
      open.step = open.count;
      return;
    }
    if (this.#skipSpace() !== QUOTE) {
      const word = this.#peek(WORD);
      throw this.#expected("a key in double quotes", word && `write ${shortText(word)}`, this.#peek(KEY));
    }
    open.keyOffset = this.#place.offset + this.#offset;
    const key = this.#string();
    open.step = key;
    if (this.#skipSpace() !== COLON) throw this.#expected(`":" after the key ${shortText(key)}`);
    this.#offset++;
  }

  /** Puts a whole value where it belongs, and reads on to the next one. Returns the root once that is whole. */
  #put(value: JsonNode): JsonNode | null {
    let node = value;
    for (;;) {
      const open = this.#open.at(-1);
      if (open === undefined) return node;
      this.#add(open, node);
      open.step = null;
      const code = this.#skipSpace();
      if (code === open.end) {
        this.#offset++;
        this.#open.pop();
        node = open.node;
        continue;
      }
      if (code !== COMMA) throw this.#unseparated(open);
      const comma = this.#offset++;
      if (this.#skipSpace() === open.end) {
        const [what, end] = open.items === null ? ["a key", "}"] : ["a value", "]"];
        throw this.#fault(comma, `expected ${what} after ",", found "${end}": remove the trailing comma`);
      }
      this.#beginItem(open);
      return null;
    }
  }

  #add(open: Open, node: JsonNode): void {
    const { items, members, step, keyOffset } = open;
    if (items !== null) {
      open.count++;
      if (this.#each !== undefined && this.#open.length === 1) this.#each(node, this.#positionOf);
      else items.push(node);
      return;
    }
    const key = step as string;
    const first = members.get(key);
    if (first === undefined) {
      members.set(key, node);
      return;
    }
    this.#report(() => {
      const { line, column } = this.#positionOf(first.keyOffset)!;
      return `duplicate key: the first ${shortText(key)} is at ${line}:${column}`;
    }, keyOffset);
  }

  #unseparated({ node, end }: Open): SyntaxFault {
    const char = this.#text[this.#offset];
    const [begin, close] = end === END_BRACE ? ["{", "}"] : ["[", "]"];
    const { line, column } = this.#positionOf(node.offset)!;
    const isEnd = char === undefined || char === "}" || char === "]";
    const isItem = !isEnd && /["{[\w-]/.test(char);
    const unclosed = isEnd ? `the "${begin}" at ${line}:${column} is not closed` : "";
    return this.#expected(`"," or "${close}"`, isItem ? "a comma is missing before it" : unclosed);
  }

  #number(): string {
    const text = this.#peek(NUMBER);
    const next = this.#text[this.#offset + text.length];
    if (text === "" || (next !== undefined && /[\w.+-]/.test(next)))
      throw this.#fault(this.#offset, "expected a number such as 80 or -1.5e3, found a number in another form");
    this.#offset += text.length;
    return text;
  }

  #string(): string {
    const text = this.#text;
    const start = this.#offset;
    let isPlain = true;
    let at = start + 1;
    for (let code = text.charCodeAt(at); code !== QUOTE; code = text.charCodeAt(++at)) {
      if (code === BACKSLASH) {
        ESCAPE.lastIndex = at;
        // The character after the backslash is not quoted: the string may be a secret.
        if (!ESCAPE.test(text)) throw this.#fault(at, `expected ${ESCAPES}, found another escape`);
        at = ESCAPE.lastIndex - 1;
        isPlain = false;
      } else if (code >= FIRST_SURROGATE) isPlain &&= code > LAST_SURROGATE;
      else if (!(code >= SPACE)) throw this.#unprintable(start, at);
    }
    this.#offset = at + 1;
    if (isPlain && at - start <= PART_LENGTH) return text.slice(start + 1, at);
    const value = JSON.parse(text.slice(start, at + 1)) as string;
    if (!isPlain && HALF_PAIR.test(value)) this.#report(() => HALF_PAIR_FOUND, start);
    return value;
  }

  /** For what a string cannot contain, or does not have: its end. */
  #unprintable(start: number, at: number): SyntaxFault {
    const char = this.#text[at];
    if (char === undefined || char === "\n" || char === "\r") {
      const end = char === undefined ? "file" : "line";
      return this.#fault(start, `expected the closing quote of this string, found the end of the ${end}`);
    }
    this.#offset = at;
    return this.#expected("printable characters", `write \\u${hex(char)} inside a string`);
  }

  /** Returns the code of the next character; NaN at the end. */
  #skipSpace(): number {
    const text = this.#text;
    let at = this.#offset;
    let code = text.charCodeAt(at);
    while (code === SPACE || code === 10 || code === 13 || code === 9) code = text.charCodeAt(++at);
    this.#offset = at;
    return code;
  }

  /** The next characters that match the pattern. */
  #peek(pattern: RegExp): string {
    pattern.lastIndex = this.#offset;
    return pattern.test(this.#text) ? this.#text.slice(this.#offset, pattern.lastIndex) : "";
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
    return new SyntaxFault({ at: this.#path(), message, position: this.#positionOf(offset) });
  }

  #report(message: () => string, offset: number): void {
    addIssue(this.issues, () => ({ at: this.#path(), message: message(), position: this.#positionOf(offset) }));
  }

  /** Of the value that is being read. */
  #path(): Path {
    return this.#open.flatMap(({ step }) => (step === null ? [] : [step]));
  }
}

const NO_MEMBERS: Map<string, JsonNode> = new Map();
const NO_ITEMS: JsonNode[] = [];

/** Remedies for common mistakes from JavaScript, YAML and word processors. */
function habit(char: string, next: string | undefined): string {
  if (char === "#" || (char === "/" && (next === "/" || next === "*"))) return "JSON has no comments";
  if (char !== "" && "'`\u2018\u2019\u201c\u201d\u201e".includes(char))
    return 'JSON has only straight double quotes (")';
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

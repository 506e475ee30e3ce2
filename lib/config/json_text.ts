/**
 * Reads JSON (RFC 8259, strictly) into nodes that know their line and column, and explains syntax errors. `json.ts`
 * reads what has none.
 */
import { isUtf8 } from "node:buffer";
import { HALF_PAIR, MAX_DEPTH, type Issue, type JsonNode, type Member, type Position } from "./json.ts";
import { parsed, type ConfigSource } from "./source.ts";

/**
 * Reads a source so that `parsedFrom` has the positions of all values, and all errors; it ends at the deepest level
 * that is allowed.
 */
export function parseWithPositions(source: ConfigSource): void {
  if (!("text" in source)) return;
  const {
    node,
    issues: [issue],
  } = parsed.get(source) ?? { node: null, issues: [] };
  const hasPositions = (node ?? issue)?.position != null;
  if (!hasPositions) parsed.set(source, parseJson(source.text));
}

/**
 * The document, or null after a syntax error (then there is exactly one issue). Duplicate keys are issues; the first
 * one is kept. So are strings with half a surrogate pair: UTF-8 cannot express it, and two names that differ only in it
 * are the same in logs and metrics.
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

/** The place of the first byte that is not UTF-8; null if all bytes are. */
function encodingIssue(bytes: Buffer): Issue | null {
  if (isUtf8(bytes)) return null;
  const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  if (isWide)
    return {
      at: [],
      message: "expected UTF-8, found UTF-16: save the file as UTF-8",
      position: { line: 1, column: 1 },
    };
  // A line feed is never part of a longer sequence, so each line can be checked by itself.
  for (let start = 0, line = 1; ; line++) {
    const feed = bytes.indexOf(10, start);
    const content = bytes.subarray(start, feed < 0 ? bytes.length : feed);
    if (!isUtf8(content)) {
      const column = [...content.toString()].indexOf("\uFFFD") + 1;
      return {
        at: [],
        message: "expected UTF-8, found bytes that are not UTF-8: save the file as UTF-8",
        position: { line, column },
      };
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

const HALF_PAIR_FOUND =
  "contains half a surrogate pair: write the character itself, or both halves of it (\\uD83D\\uDE00)";
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
    throw this.#expected(
      "a value",
      hint || (char === "+" || char === "." ? "a number starts with a digit or a minus sign" : ""),
    );
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
      else
        this.#report(
          `duplicate key: the first ${JSON.stringify(key)} is at ${first.line}:${first.column}`,
          keyPosition,
        );
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
        throw this.#expected(
          `"," or "${close}"`,
          isEnd ? unclosed : /["{[\w-]/.test(char) ? "a comma is missing before it" : "",
        );
      }
      this.#skip(SPACE);
      if (this.#text[this.#offset] === close) {
        throw this.#fault(
          comma,
          `expected ${open === "{" ? "a key" : "a value"} after ",", found "${close}": remove the trailing comma`,
        );
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
      if (char === "\\" && !this.#skip(ESCAPE))
        throw this.#fault(this.#offset, `expected ${escapes}, found another escape`);
      if (char === undefined || char === "\n" || char === "\r") {
        throw this.#fault(
          start,
          `expected the closing quote of this string, found the end of the ${char ? "line" : "file"}`,
        );
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

/**
 * Edits one value in the text of a JSON document and keeps every other byte: order, white space, indentation and line ends stay as they are.
 */
import type { JsonPath } from "./json_text.ts";

export interface Edit {
  readonly text: string;
  /** What has been written stands in `text` from `start` to `end`; all before and all behind it is as before. */
  readonly start: number;
  readonly end: number;
}

/** The value of a text, which may begin with a byte order mark. Throws a `SyntaxError`. */
export function readJson(text: string): unknown {
  return JSON.parse(text.startsWith("\uFEFF") ? text.slice(1) : text);
}

/**
 * Puts `value` at `path` of a valid document: replaces the value there, or adds it as the last member of its object, or as the last element of its
 * array, whose length is then the last step. What is missing on the way is created. Throws a `RangeError` where no value can stand.
 */
export function putJson(text: string, path: JsonPath, value: unknown): Edit {
  const style = styleOf(text);
  let start = spaceAfter(text, text.startsWith("\uFEFF") ? 1 : 0);
  for (const [depth, step] of path.entries()) {
    const container = containerAt(text, start);
    // JSON.parse keeps the last of equal keys.
    const item = container?.items.findLast(({ key }) => key === step);
    if (item === undefined) return insert(text, container, path.slice(depth), value, style);
    start = item.start;
  }
  const end = endOf(text, start);
  const old = text.slice(start, end);
  const shape = isOneLine(old) && !style.isOneLine && typeof value === "object" && /^[[{]./.test(old) ? oneLineOf(old, style) : style;
  return spliced(text, start, end, written(value, shape, indentAt(text, start)));
}

interface Item {
  readonly key: string | number;
  /** Where the key, or the element, begins. */
  readonly from: number;
  /** The value stands from `start` to `end`. */
  readonly start: number;
  readonly end: number;
}

interface Container {
  readonly isArray: boolean;
  /** Of the opening and of the closing bracket. */
  readonly open: number;
  readonly close: number;
  readonly items: readonly Item[];
}

/** How values are written. */
interface Style {
  readonly isOneLine: boolean;
  /** One step of indentation. */
  readonly unit: string;
  readonly newline: string;
  /** Between a key and its value: ": ". */
  readonly colon: string;
  /** Inside of the braces of an object in one line. */
  readonly pad: string;
}

const SPACE = /[ \t\r\n]*/y;
const TEXT = /"[^"\\]*(?:\\.[^"\\]*)*"/y;
const ATOM = /[^ \t\r\n,\]}]*/y;
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[{]|[\]}]|[^"[\]{}]+/y;

function endOfMatch(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  pattern.test(text);
  return pattern.lastIndex;
}

function spaceAfter(text: string, at: number): number {
  return endOfMatch(SPACE, text, at);
}

/** The end of the value that begins at `start`. */
function endOf(text: string, start: number): number {
  const first = text[start];
  if (first !== "{" && first !== "[") return endOfMatch(first === '"' ? TEXT : ATOM, text, start);
  let at = start;
  let depth = 0;
  do {
    const token = text[at];
    if (token === "{" || token === "[") depth += 1;
    else if (token === "}" || token === "]") depth -= 1;
    at = endOfMatch(TOKEN, text, at);
  } while (depth > 0);
  return at;
}

/** Null: the value at `open` is no object and no array. */
function containerAt(text: string, open: number): Container | null {
  const isArray = text[open] === "[";
  if (!isArray && text[open] !== "{") return null;
  const items: Item[] = [];
  let at = spaceAfter(text, open + 1);
  while (text[at] !== "}" && text[at] !== "]") {
    const from = at;
    let key: string | number = items.length;
    if (!isArray) {
      const end = endOfMatch(TEXT, text, at);
      key = JSON.parse(text.slice(at, end)) as string;
      at = spaceAfter(text, spaceAfter(text, end) + 1);
    }
    const end = endOf(text, at);
    items.push({ key, from, start: at, end });
    at = spaceAfter(text, end);
    if (text[at] === ",") at = spaceAfter(text, at + 1);
  }
  return { isArray, open, close: at, items };
}

/** Adds the last item of a container; `path`: from its key on. */
function insert(text: string, container: Container | null, [key, ...rest]: JsonPath, value: unknown, style: Style): Edit {
  const fits = container !== null && (container.isArray ? key === container.items.length : typeof key === "string");
  if (!fits) throw new RangeError(`There is no place for ${JSON.stringify(key)} here.`);
  const inner = rest.reduceRight<unknown>((nested, step) => (typeof step === "number" ? [nested] : { [step]: nested }), value);
  const { isArray, items, open, close } = container;
  const last = items.at(-1);
  if (last === undefined) return spliced(text, open, close + 1, written(isArray ? [inner] : { [key!]: inner }, style, indentAt(text, open)));
  // As the last item stands behind the one before it, or behind the bracket.
  const before = items.at(-2);
  const gap = text.slice(before === undefined ? open + 1 : text.indexOf(",", before.end) + 1, last.from);
  const sibling = text.slice(last.start, last.end);
  const shape = isOneLine(sibling) && (isArray ? /^[[{]./.test(sibling) : isOneLine(text.slice(open, close))) ? oneLineOf(sibling, style) : style;
  const name = isArray ? "" : `${JSON.stringify(key)}${text.slice(endOfMatch(TEXT, text, last.from), last.start)}`;
  // The first item of a line has no space before it, the others have.
  const space = before === undefined && isOneLine(gap) ? style.colon.slice(style.colon.indexOf(":") + 1) : gap;
  const indent = isOneLine(gap) ? indentAt(text, last.from) : gap.slice(gap.lastIndexOf("\n") + 1);
  return spliced(text, last.end, last.end, `,${space}${name}${written(inner, shape, indent)}`);
}

function spliced(text: string, start: number, end: number, added: string): Edit {
  return { text: text.slice(0, start) + added + text.slice(end), start, end: start + added.length };
}

function styleOf(text: string): Style {
  const newline = /\r?\n/.exec(text)?.[0] ?? "\n";
  const unit = /^\s*[[{][ \t]*\r?\n([ \t]+)/.exec(text)?.[1] ?? "  ";
  const colon = /^\s*[[{\s]+"[^"]*"([ \t]*:[ \t]*)/.exec(text)?.[1] ?? ": ";
  const isOneLine = !/[\n]/.test(text.trim());
  return { isOneLine, unit, newline, colon, pad: isOneLine ? (/^\s*\{([ \t]*)"/.exec(text)?.[1] ?? "") : " " };
}

/** In one line, as `sibling` is. */
function oneLineOf(sibling: string, style: Style): Style {
  return { ...style, isOneLine: true, pad: /^\{([ \t]*)/.exec(sibling)?.[1] ?? style.pad };
}

function isOneLine(text: string): boolean {
  return !text.includes("\n");
}

/** The white space at the beginning of the line of `at`. */
function indentAt(text: string, at: number): string {
  const start = text.lastIndexOf("\n", at - 1) + 1;
  return /[ \t]*/.exec(text.slice(start, at))![0];
}

/** Lists of plain values stand in one line. */
function written(value: unknown, style: Style, indent: string): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const isArray = Array.isArray(value);
  const inner = indent + style.unit;
  const items = isArray
    ? value.map((item) => written(item, style, inner))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}${style.colon}${written(item, style, inner)}`);
  const [open, close] = isArray ? "[]" : "{}";
  if (items.length === 0) return `${open}${close}`;
  const isFlat = style.isOneLine || (isArray && value.every((item) => typeof item !== "object" || item === null));
  if (!isFlat) return `${open}${style.newline}${inner}${items.join(`,${style.newline}${inner}`)}${style.newline}${indent}${close}`;
  const pad = isArray ? "" : style.pad;
  return `${open}${pad}${items.join(`,${style.colon.slice(style.colon.indexOf(":") + 1)}`)}${pad}${close}`;
}

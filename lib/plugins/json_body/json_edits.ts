/**
 * Edits a text of JSON at places that JSON Pointers name (RFC 6901), and keeps every other byte: numbers keep their
 * digits, members their order, and white space stays.
 *
 * `{"n": 1.0, "user": "ada"}` without `/user` is `{"n": 1.0}`. Only objects and arrays on the way to an edit are looked
 * into; all others remain pieces of the text.
 */
import { closingQuote } from "../../json_schema/read_json.ts";
import { pointerStep } from "../../json_schema/values.ts";

/** The steps of a pointer, decoded: `/a~1b/0` is `["a/b", "0"]`. */
export type Pointer = readonly string[];

/** One change. `value` is a text of JSON. */
export type Edit =
  /** The value moves, and replaces what is there; in the same object the member keeps its place. */
  | { readonly change: "rename"; readonly at: Pointer; readonly to: Pointer }
  | { readonly change: "remove"; readonly at: Pointer }
  /** Only where there is no value; nothing where a parent is there that can have none. */
  | { readonly change: "default"; readonly at: Pointer; readonly value: string }
  /** Parents that are missing are made, and those that can have no such member are replaced. */
  | { readonly change: "set"; readonly at: Pointer; readonly value: string };

/** An edit names an item behind the end of an array and the place after it. */
export class BeyondEnd extends Error {
  /** Of the edit, as it is written. */
  readonly pointer: string;

  constructor(at: Pointer) {
    super("an index is beyond the end of its array");
    this.pointer = pointerText(at);
  }
}

export function pointerText(at: Pointer): string {
  return at.map((step) => `/${pointerStep(step)}`).join("");
}

/** Whether a pointer leads to the same place as `outer`, or into it. */
export function isWithin(inner: Pointer, outer: Pointer): boolean {
  return outer.length <= inner.length && outer.every((step, i) => step === inner[i]);
}

/**
 * The text with the edits, made in their order. `text` must be valid JSON without duplicate members, which is not
 * checked. `beyond`: for an index beyond the end, "throw" a `BeyondEnd`, or "skip" that edit.
 */
export function editedJson(text: string, edits: readonly Edit[], beyond: "throw" | "skip"): string {
  const from = text.search(NOT_WHITE);
  const root: Entry = { key: null, head: text.slice(0, from), value: text.slice(from) };
  for (const edit of edits) {
    try {
      apply(root, edit);
    } catch (error) {
      if (beyond === "throw" || !(error instanceof BeyondEnd)) throw error;
    }
  }
  return written(root);
}

function apply(root: Entry, edit: Edit): void {
  switch (edit.change) {
    case "rename":
      return rename(root, edit.at, edit.to);
    case "remove": {
      const place = placeOf(root, edit.at);
      if (place !== null) place.parent.entries.splice(place.index, 1);
      return;
    }
    case "default":
      if (placeOf(root, edit.at) === null) put(root, edit.at, edit.value, "keep");
      return;
    case "set":
      put(root, edit.at, edit.value, "replace");
  }
}

function rename(root: Entry, at: Pointer, to: Pointer): void {
  const place = placeOf(root, at);
  if (place === null) return;
  const { parent, index } = place;
  const entry = parent.entries[index]!;
  if (parent.kind === "object" && parentOf(root, to) === parent) {
    const key = to.at(-1)!;
    const replaced = indexOf(parent, key);
    const from = entry.head.indexOf('"');
    const end = closingQuote(entry.head, from) + 1;
    entry.head = entry.head.slice(0, from) + JSON.stringify(key) + entry.head.slice(end);
    entry.key = key;
    if (replaced >= 0 && replaced !== index) parent.entries.splice(replaced, 1);
    return;
  }
  parent.entries.splice(index, 1);
  try {
    put(root, to, entry.value, "replace");
  } catch (error) {
    parent.entries.splice(index, 0, entry);
    throw error;
  }
}

/** An object or an array that has been looked into. */
interface Container {
  readonly kind: "object" | "array";
  readonly entries: Entry[];
  /** What is between the brackets of an empty one. */
  readonly blank: string;
  /** White space behind its closing bracket. */
  readonly tail: string;
}

/** A member or an item, or the whole text. */
interface Entry {
  /** Null: it is an item. */
  key: string | null;
  /** What is before the value: white space, the key, a colon. */
  head: string;
  /** The text of the value and of white space behind it, or what that has become. */
  value: string | Container;
}

interface Place {
  readonly parent: Container;
  readonly index: number;
}

const NOT_WHITE = /[^ \t\n\r]/;
/** RFC 6901 §4: without leading zeros. */
export const INDEX = /^(?:0|[1-9]\d{0,15})$/;

/** Null: nothing is there. */
function placeOf(root: Entry, at: Pointer): Place | null {
  const parent = parentOf(root, at);
  const index = parent === null ? -1 : indexOf(parent, at.at(-1)!);
  return index < 0 ? null : { parent: parent!, index };
}

/** What has the place, or could have it; null: nothing can. */
function parentOf(root: Entry, at: Pointer): Container | null {
  let parent = opened(root, at[0]!);
  for (let depth = 1; depth < at.length; depth++) {
    const index = parent === null ? -1 : indexOf(parent, at[depth - 1]!);
    if (index < 0) return null;
    parent = opened(parent!.entries[index]!, at[depth]!);
  }
  return parent;
}

/** -1: it has none of that name or index. */
function indexOf({ kind, entries }: Container, step: string): number {
  if (kind === "object") return entries.findIndex(({ key }) => key === step);
  return step !== "-" && Number(step) < entries.length ? Number(step) : -1;
}

/** Puts a value to a place. `parents`: "replace" those that can have none there, or "keep" them and change nothing. */
function put(root: Entry, at: Pointer, value: Entry["value"], parents: "keep" | "replace"): void {
  let entry = root;
  let isNew = false;
  for (const step of at) {
    let parent = isNew ? null : opened(entry, step);
    if (parent === null) {
      if (!isNew && parents === "keep") return;
      // "/tags/0" of missing "tags" may well be a member: only the place behind the last item tells of an array.
      parent = { kind: step === "-" ? "array" : "object", entries: [], blank: "", tail: foot(entry.value) };
      entry.value = parent;
    }
    const { kind, entries } = parent;
    const index = indexOf(parent, step);
    isNew = index < 0;
    if (isNew) {
      if (kind === "array" && step !== "-" && Number(step) > entries.length) throw new BeyondEnd(at);
      const key = kind === "array" ? null : step;
      entries.push({ key, head: key === null ? "" : `${JSON.stringify(key)}:`, value: "" });
    }
    entry = entries.at(isNew ? -1 : index)!;
  }
  entry.value = typeof value === "string" ? value.trimEnd() + foot(entry.value) : value;
}

/** The white space behind a value. */
function foot(value: Entry["value"]): string {
  return typeof value === "string" ? value.slice(value.trimEnd().length) : value.tail;
}

/**
 * The object or array that an entry has as its value, looked into; null if the value can have nothing at this step. An
 * array is read only for an index: one from a client may have a million items.
 */
function opened(entry: Entry, step: string): Container | null {
  const { value } = entry;
  const kind = typeof value === "string" ? kindOf(value) : value.kind;
  if (kind === null || (kind === "array" && step !== "-" && !INDEX.test(step))) return null;
  return typeof value === "string" ? (entry.value = read(value, kind)) : value;
}

function kindOf(text: string): Container["kind"] | null {
  return text.startsWith("{") ? "object" : text.startsWith("[") ? "array" : null;
}

function read(text: string, kind: Container["kind"]): Container {
  const close = kind === "object" ? BRACE : BRACKET;
  const entries: Entry[] = [];
  let at = 1;
  for (let from = 1; ; from = at + 1) {
    at = skipWhite(text, from);
    // Nothing stands between a comma and a closing bracket.
    if (text.charCodeAt(at) === close) return { kind, entries, blank: text.slice(from, at), tail: text.slice(at + 1) };
    let key: string | null = null;
    if (kind === "object") {
      const end = closingQuote(text, at) + 1;
      key = keyOf(text, at, end);
      at = skipWhite(text, text.indexOf(":", end) + 1);
    }
    const head = text.slice(from, at);
    const end = skipWhite(text, valueEnd(text, at));
    entries.push({ key, head, value: text.slice(at, end) });
    at = end;
    if (text.charCodeAt(at) === close) return { kind, entries, blank: "", tail: text.slice(at + 1) };
  }
}

function keyOf(text: string, from: number, end: number): string {
  const raw = text.slice(from + 1, end - 1);
  return raw.includes("\\") ? (JSON.parse(text.slice(from, end)) as string) : raw;
}

const [QUOTE, COMMA, BRACE, BRACKET] = [0x22, 0x2c, 0x7d, 0x5d];

function skipWhite(text: string, from: number): number {
  let at = from;
  for (let c = text.charCodeAt(at); c === 0x20 || (c >= 0x09 && c <= 0x0d); c = text.charCodeAt(at)) at++;
  return at;
}

/** Where the value ends that begins there. */
function valueEnd(text: string, from: number): number {
  let depth = 0;
  for (let at = from; ; at++) {
    const c = text.charCodeAt(at);
    if (c === QUOTE) at = closingQuote(text, at);
    // "{" and "[", and their counterparts, differ in one bit.
    else if ((c | 0x20) === 0x7b) depth++;
    else if ((c | 0x20) === BRACE) depth--;
    // The comma, white space or bracket behind a number, or behind true, false or null.
    else if (depth > 0 || !isBehindScalar(text.charCodeAt(at + 1))) continue;
    if (depth === 0) return at + 1;
  }
}

function isBehindScalar(c: number): boolean {
  return c === COMMA || c === BRACE || c === BRACKET || c <= 0x20 || Number.isNaN(c);
}

function written({ head, value }: Entry): string {
  if (typeof value === "string") return head + value;
  const [open, close] = value.kind === "object" ? "{}" : "[]";
  const inner = value.entries.length === 0 ? value.blank : value.entries.map(written).join(",");
  return `${head}${open}${inner}${close}${value.tail}`;
}

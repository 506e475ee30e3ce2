/**
 * Edits one value in the text of a JSON document and keeps every other byte: order, white space, indentation and line
 * ends stay as they are.
 */
import { outlineOf, type JsonValue } from "./json_outline.ts";
import { isRecord, type JsonPath } from "./json_text.ts";

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
 * Puts `value` at `path` of a document: replaces the value there, or adds it as the last member of its object, or as
 * the last element of its array, whose length is then the last step. What is missing on the way is created. Throws a
 * `RangeError` where no value can stand, and for a document with errors.
 */
export function putJson(text: string, path: JsonPath, value: unknown): Edit {
  const { root, faults } = outlineOf(text);
  if (faults[0] !== undefined) throw new RangeError(`The text has an error: ${faults[0].message}.`);
  const style = styleOf(text);
  let found = root;
  for (const [depth, step] of path.entries()) {
    const next =
      found.kind === "array" ? found.items[step as number] : found.members.find(({ key }) => key === step)?.value;
    if (next == null) return insert(text, found, path.slice(depth), value, style);
    found = next;
  }
  const old = text.slice(found.start, found.end);
  return spliced(
    text,
    found.start,
    found.end,
    written(value, isOneLine(old) && /^[[{]./.test(old) ? oneLineOf(old, style) : style, indentAt(text, found.start)),
  );
}

/**
 * Makes the value at `path`, which is `before`, the value `after`, by as few edits as that takes: what both have stays
 * as it is written. Throws as `putJson` does.
 */
export function changeJson(text: string, path: JsonPath, before: unknown, after: unknown): string {
  if (JSON.stringify(before) === JSON.stringify(after)) return text;
  if (isRecord(before) && isRecord(after)) {
    const gone = Object.keys(before).filter((key) => !Object.hasOwn(after, key));
    const rest = gone.reduce((left, key) => dropJson(left, [...path, key]), text);
    const changed = (now: string, key: string) => changeJson(now, [...path, key], before[key], after[key]);
    return Object.keys(after).reduce(changed, rest);
  }
  if (!Array.isArray(before) || !Array.isArray(after)) return putJson(text, path, after).text;
  const isSame = (i: number, j: number) => JSON.stringify(before[i]) === JSON.stringify(after[j]);
  let [first, last] = [0, 0];
  while (first < Math.min(before.length, after.length) && isSame(first, first)) first++;
  const most = Math.min(before.length, after.length) - first;
  while (last < most && isSame(before.length - 1 - last, after.length - 1 - last)) last++;
  const [old, fresh] = [before.slice(first, before.length - last), after.slice(first, after.length - last)];
  const place = (i: number) => [...path, first + i];
  if (old.length === fresh.length) return old.reduce((now, each, i) => changeJson(now, place(i), each, fresh[i]), text);
  if (fresh.length === 0) return old.reduceRight<string>((now, _, i) => dropJson(now, place(i)), text);
  if (old.length > 0 || last > 0) return putJson(text, path, after).text;
  return fresh.reduce<string>((now, each, i) => putJson(now, place(i), each).text, text);
}

/** Removes a member, or an item of a list, with what separates it from the others. */
export function dropJson(text: string, path: JsonPath): string {
  const { value, container } = valueIn(text, path);
  const all =
    container?.kind === "array"
      ? container.items.map(({ start, end }) => ({ start, end }))
      : (container?.members ?? []).map(({ start, value: own }) => ({ start, end: own?.end ?? start }));
  const i = all.findIndex(({ end }) => end === value?.end);
  if (container == null || i < 0) throw new RangeError("There is nothing to remove here.");
  const [from, to] = i > 0 ? [all[i - 1]!.end, all[i]!.end] : [all[0]!.start, all[1]?.start ?? all[0]!.end];
  if (all.length > 1) return text.slice(0, from) + text.slice(to);
  return text.slice(0, container.start + 1) + text.slice(container.end - 1);
}

/** Where the value at a path begins, or the last one on the way that is there. */
export function startOf(text: string, path: JsonPath): number {
  const { value, container } = valueIn(text, path);
  return value?.start ?? container?.start ?? 0;
}

function valueIn(text: string, path: JsonPath) {
  let container: JsonValue | null = null;
  let value: JsonValue | null = outlineOf(text).root;
  for (const step of path) {
    if (value === null) break;
    container = value;
    value =
      (typeof step === "number" ? container.items[step] : container.members.find(({ key }) => key === step)?.value) ??
      null;
  }
  return { value, container };
}

/** How values are written. */
interface Style {
  readonly isOneLine: boolean;
  /** One step of indentation. */
  readonly unit: string;
  readonly newline: string;
  /** Between a key and its value, and the part of it behind the colon: ": ". */
  readonly colon: string;
  readonly space: string;
  /** Inside of the braces of an object in one line. */
  readonly pad: string;
}

function styleOf(text: string): Style {
  const colon = /^\s*[[{\s]+"[^"]*"([ \t]*:[ \t]*)/.exec(text)?.[1] ?? ": ";
  const isFlat = isOneLine(text.trim());
  return {
    isOneLine: isFlat,
    unit: /^\s*[[{][ \t]*\r?\n([ \t]+)/.exec(text)?.[1] ?? "  ",
    newline: /\r?\n/.exec(text)?.[0] ?? "\n",
    colon,
    space: colon.slice(colon.indexOf(":") + 1),
    pad: isFlat ? (/^\s*\{([ \t]*)"/.exec(text)?.[1] ?? "") : " ",
  };
}

/** In one line, as `sibling` is. */
function oneLineOf(sibling: string, style: Style): Style {
  return { ...style, isOneLine: true, pad: /^\{([ \t]*)/.exec(sibling)?.[1] ?? style.pad };
}

/** Adds the last item of a container; `path`: from its key on. */
function insert(
  text: string,
  { kind, start: open, end: close, members, items }: JsonValue,
  [key, ...rest]: JsonPath,
  value: unknown,
  style: Style,
): Edit {
  if (kind === "array" ? key !== items.length : kind !== "object" || typeof key !== "string")
    throw new RangeError(`There is no place for ${JSON.stringify(key)} here.`);
  const inner = rest.reduceRight<unknown>(
    (nested, step) => (typeof step === "number" ? [nested] : { [step]: nested }),
    value,
  );
  const all =
    kind === "array"
      ? items.map((item) => ({ from: item.start, nameEnd: item.start, value: item }))
      : members.map(({ start, end, value: own }) => ({ from: start, nameEnd: end, value: own! }));
  const [before, last] = [all.at(-2), all.at(-1)];
  if (last === undefined)
    return spliced(
      text,
      open,
      close,
      written(kind === "array" ? [inner] : { [key!]: inner }, style, indentAt(text, open)),
    );
  // As the last item stands behind the one before it, or behind the bracket.
  const gap = text.slice(before === undefined ? open + 1 : text.indexOf(",", before.value.end) + 1, last.from);
  const sibling = text.slice(last.value.start, last.value.end);
  const isFlat = isOneLine(sibling) && (kind === "array" ? /^[[{]./.test(sibling) : isOneLine(text.slice(open, close)));
  const name = kind === "array" ? "" : `${JSON.stringify(key)}${text.slice(last.nameEnd, last.value.start)}`;
  // The first item of a line may have another space before it than the others.
  const space = before === undefined && isOneLine(gap) ? style.space : gap;
  const indent = isOneLine(gap) ? indentAt(text, last.from) : gap.slice(gap.lastIndexOf("\n") + 1);
  return spliced(
    text,
    last.value.end,
    last.value.end,
    `,${space}${name}${written(inner, isFlat ? oneLineOf(sibling, style) : style, indent)}`,
  );
}

function spliced(text: string, start: number, end: number, added: string): Edit {
  return { text: text.slice(0, start) + added + text.slice(end), start, end: start + added.length };
}

function isOneLine(text: string): boolean {
  return !text.includes("\n");
}

/** The white space at the beginning of the line of `at`. */
function indentAt(text: string, at: number): string {
  return /[ \t]*/.exec(text.slice(text.lastIndexOf("\n", at - 1) + 1, at))![0];
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
  if (!isFlat)
    return `${open}${style.newline}${inner}${items.join(`,${style.newline}${inner}`)}${style.newline}${indent}${close}`;
  const pad = isArray ? "" : style.pad;
  return `${open}${pad}${items.join(`,${style.space}`)}${pad}${close}`;
}

/**
 * A value of a document that is imported: reads it as the type that is needed, and remembers what was read, so that the
 * rest can be listed.
 */
import { formatPath, type Path } from "../../config/json.ts";
import { isObject, typeName } from "../../json_schema/values.ts";
import { Failure } from "../failure.ts";

/** Most entries of one list, and most services, routes and plugins of a result: more take too much time and memory. */
export const MAX_PARTS = 100_000;

/** What could not be carried over, and what to do. Equal messages are one entry. */
export class ImportNotes {
  readonly #places = new Map<string, Set<string>>();
  /** Messages that say what is closed. */
  readonly #closed = new Set<string>();

  add(at: Path, message: string): void {
    const places = this.#places.get(message) ?? new Set();
    this.#places.set(message, places.add(formatPath(at) || "the document"));
  }

  /** What answers 503 comes first. */
  addClosed(at: Path, message: string): void {
    this.#closed.add(message);
    this.add(at, message);
  }

  get size(): number {
    return this.#places.size;
  }

  /** `paths["/a"].get, paths["/b"].get and 7 more: …`, with at most `shown` places each. */
  lines(shown: number): string[] {
    const isOpen = ([message]: readonly [string, unknown]) => Number(!this.#closed.has(message));
    return [...this.#places]
      .sort((a, b) => isOpen(a) - isOpen(b))
      .map(([message, places]) => {
        const named = [...places].slice(0, shown);
        return `${named.join(", ")}${places.size > shown ? ` and ${places.size - shown} more` : ""}: ${message}`;
      });
  }
}

/**
 * Null and a missing member are the same. A value of another type than the one asked for is noted, and counts as
 * missing.
 */
export class SourceValue {
  readonly value: unknown;
  readonly at: Path;
  readonly notes: ImportNotes;
  /** What was read of it and is there. */
  readonly #children = new Map<string | number, SourceValue>();
  /** Whether any member was asked for. */
  #isRead = false;
  #isOfOtherType = false;
  #isSettled = false;

  constructor(value: unknown, at: Path, notes: ImportNotes) {
    this.value = value ?? undefined;
    this.at = at;
    this.notes = notes;
  }

  get(name: string): SourceValue {
    return this.#child(name, isObject(this.value) && Object.hasOwn(this.value, name) ? this.value[name] : undefined);
  }

  /** Whether the member is there; it counts as read. */
  has(name: string): boolean {
    return this.get(name).value !== undefined;
  }

  /** The items of an array, as the following: of this value, or of the member that is named. */
  items(name?: string): readonly SourceValue[] {
    const array = this.#of(name);
    return array
      .#few(array.#as<readonly unknown[]>(Array.isArray, "an array") ?? [])
      .map((item, i) => array.#child(i, item));
  }

  entries(name?: string): readonly (readonly [key: string, SourceValue])[] {
    const object = this.#of(name);
    return object
      .#few(Object.entries(object.#as(isObject, "an object") ?? {}))
      .map(([key, value]) => [key, object.#child(key, value)] as const);
  }

  text(name?: string): string | undefined {
    return this.#of(name).#as((value) => typeof value === "string", "a string");
  }

  number(name?: string): number | undefined {
    return this.#of(name).#as(Number.isFinite, "a number");
  }

  flag(name?: string): boolean | undefined {
    return this.#of(name).#as((value) => typeof value === "boolean", "true or false");
  }

  /** The texts of an array; other items are noted. */
  texts(name?: string): string[] {
    return this.items(name).flatMap((item) => item.text() ?? []);
  }

  /** Whether it is missing, or a list of texts. */
  isTexts(name?: string): boolean {
    const { value } = this.#of(name);
    return value === undefined || (Array.isArray(value) && value.every((item) => typeof item === "string"));
  }

  /** Whether this, or what was read within it, is of another type than the one that was asked for. */
  isMistyped(): boolean {
    const isScalar = this.value !== undefined && typeof this.value !== "object";
    if (this.#isOfOtherType || (this.#isRead && isScalar)) return true;
    return [...this.#children.values()].some((child) => child.isMistyped());
  }

  note(message: string): void {
    this.notes.add(this.at, message);
  }

  /** Notes it, and nothing within it. */
  leaveOut(message: string): void {
    this.note(message);
    this.#isSettled = true;
  }

  /** These members need not be carried over. */
  ignore(...names: readonly string[]): this {
    for (const name of names) this.get(name);
    return this;
  }

  /** Notes each of these members whose value is not the usual one, the default of the source. */
  noteUnusual(members: Readonly<Record<string, readonly [usual: unknown, message: string]>>): this {
    for (const [name, [usual, message]] of Object.entries(members)) {
      const member = this.get(name);
      if (member.value !== undefined && member.value !== usual) member.note(message);
    }
    return this;
  }

  /** Notes the members that nothing has read, of this object and those within it whose members were asked for. */
  noteUnread(): void {
    if (this.#isSettled) return;
    for (const child of this.#children.values()) child.noteUnread();
    if (!this.#isRead || !isObject(this.value)) return;
    for (const [name, value] of Object.entries(this.value)) {
      if (!this.#children.has(name) && !name.startsWith("_") && !isEmpty(value))
        this.notes.add([...this.at, name], `"${name}" has no counterpart here`);
    }
  }

  #of(name: string | undefined): SourceValue {
    return name === undefined ? this : this.get(name);
  }

  #few<T>(list: readonly T[]): readonly T[] {
    if (list.length <= MAX_PARTS) return list;
    throw new Failure(`${formatPath(this.at)} has ${list.length} entries: at most ${MAX_PARTS} can be imported`, 2);
  }

  #child(step: string | number, value: unknown): SourceValue {
    this.#isRead = true;
    const known = this.#children.get(step);
    if (known !== undefined) return known;
    // Of a large document, most members that are asked for are missing.
    if (value === undefined || value === null) return new SourceValue(undefined, [...this.at, step], this.notes);
    const child = new SourceValue(value, [...this.at, step], this.notes);
    this.#children.set(step, child);
    return child;
  }

  #as<T>(fits: (value: unknown) => boolean, expected: string): T | undefined {
    if (this.value === undefined || fits(this.value)) return this.value as T | undefined;
    this.#isOfOtherType = true;
    this.note(`expected ${expected}, found ${typeName(this.value)}: not carried over`);
    return undefined;
  }
}

function isEmpty(value: unknown): boolean {
  return (
    value === null || value === false || value === "" || (typeof value === "object" && Object.keys(value).length === 0)
  );
}

/**
 * `wanted`, fit for a name of a configuration, with a number if it is taken. `taken` has the last number of each name.
 */
export function freeName(wanted: string, taken: Map<string, number>): string {
  const name = wanted.replace(/\p{Cc}|\p{Surrogate}/gu, "").slice(0, 180) || "imported";
  let number = taken.get(name) ?? 0;
  let found = name;
  if (number > 0)
    do found = `${name}_${++number}`;
    while (taken.has(found));
  taken.set(name, Math.max(number, 1));
  if (found !== name) taken.set(found, 1);
  return found;
}

/** Escapes what would be a pattern here, or of another gateway: /$metadata, /me(). */
export function literal(text: string): string {
  return text.replace(
    /[()[\]^$*{}<>\\]|(?<=\/):/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** For a value that is a template here. */
export function fixedText(value: string): string {
  return value.replace(/\$\{|\{(\w+\*?)\}/g, (found, name?: string) =>
    name === undefined ? `$${found}` : `{{${name}}}`,
  );
}

/**
 * JSON values: names of their types, equality, decimal multiples, lengths, and paths to them.
 */
import type { Run, Work } from "./run.ts";

/** Keys and indexes from the root. */
export type InstancePath = readonly (string | number)[];

/** The name of each JSON Schema type in a sentence. */
export const TYPE_NAMES: Readonly<Record<string, string>> = {
  null: "null",
  boolean: "true or false",
  integer: "an integer",
  number: "a number",
  string: "a string",
  array: "an array",
  object: "an object",
};

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isOfType(value: unknown, type: string): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    case "integer":
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

/** The type of a value, without the value: clients may send secrets. */
export function typeName(value: unknown): string {
  if (value === null) return "null";
  if (typeof value === "boolean") return String(value);
  return TYPE_NAMES[Array.isArray(value) ? "array" : typeof value]!;
}

/** A value of the configuration for an error message: `12`, `"80a"`, `an array`. */
export function described(value: unknown): string {
  return typeof value === "string" || typeof value === "number" ? shortJson(value, 60) : typeName(value);
}

export function shortJson(value: unknown, longest: number): string {
  const text = JSON.stringify(value);
  return text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
}

/** The path that a `$ref` names: the root (`#`) or a definition (`#/$defs/NAME`); null for other references. */
export function definitionPath(reference: string): InstancePath | null {
  if (reference === "#") return [];
  if (!reference.startsWith("#/$defs/")) return null;
  try {
    const name = decodeURIComponent(reference.slice(8));
    return name.includes("/") ? null : ["$defs", name.replaceAll("~1", "/").replaceAll("~0", "~")];
  } catch {
    return null;
  }
}

export function valueAt(root: unknown, path: InstancePath): unknown {
  let found = root;
  for (const step of path) found = isObject(found) && Object.hasOwn(found, step) ? found[step] : undefined;
  return found;
}

/** One step of a JSON Pointer (RFC 6901 §3). */
export function pointerStep(name: string): string {
  return name.includes("~") || name.includes("/") ? name.replaceAll("~", "~0").replaceAll("/", "~1") : name;
}

/** How many more values `canonical` may meet; below 0 there were too many, and the text is part of one. */
interface Room {
  left: number;
}

/**
 * Equal values give equal texts (JSON Schema Core §4.2.2): the members of an object have no order. Yields where a pause
 * is due.
 */
export function* canonical(
  value: unknown,
  work: Work | null,
  room: Room = { left: Infinity },
): Generator<void, string> {
  work?.spendOn(value);
  if (work?.isDue) yield;
  room.left--;
  const names = isObject(value) ? (work?.namesOf(value) ?? Object.keys(value)) : null;
  if ((names ?? (Array.isArray(value) ? value : [])).length > room.left) room.left = -1;
  if (room.left < 0) return "";
  if (Array.isArray(value)) {
    const items: string[] = [];
    for (let i = 0; i < value.length && room.left >= 0; i++) items.push(yield* canonical(value[i], work, room));
    return `[${items.join(",")}]`;
  }
  if (isObject(value)) {
    const members: string[] = [];
    for (const name of yield* inOrder(names!, work)) {
      if (room.left < 0) break;
      members.push(`${JSON.stringify(name)}:${yield* canonical(value[name], work, room)}`);
    }
    return `{${members.join(",")}}`;
  }
  // JSON.stringify writes Infinity (1e400) as null. String(-0) is "0".
  return typeof value === "number" ? String(value) : JSON.stringify(value);
}

/** Sorts names: few at once, many in parts that are merged with pauses. */
function* inOrder(names: readonly string[], work: Work | null): Generator<void, readonly string[]> {
  if (names.length <= SORTED_AT_ONCE || work === null) return names.toSorted();
  const middle = names.length >> 1;
  const left = yield* inOrder(names.slice(0, middle), work);
  const right = yield* inOrder(names.slice(middle), work);
  const merged: string[] = [];
  for (let i = 0, j = 0; i + j < names.length;) {
    merged.push(j >= right.length || left[i]! < right[j]! ? left[i++]! : right[j++]!);
    work.spend(1);
    if (work.isDue) yield;
  }
  return merged;
}

const SORTED_AT_ONCE = 1_000;

/** Counts a value and all values within it, up to a little more than `limit`. */
export function countValues(value: unknown, limit: number): number {
  if (typeof value !== "object" || value === null) return 1;
  let count = 1;
  for (const name in value) {
    count += countValues((value as Record<string, unknown>)[name], limit - count);
    if (count > limit) break;
  }
  return count;
}

/** Counts code points, at least up to `enough`. */
export function countCharacters(text: string, enough: number): number {
  if (text.length < enough || text.length > enough * 2) return text.length;
  let count = 0;
  for (let i = 0; i < text.length; i += text.codePointAt(i)! > 0xffff ? 2 : 1) count++;
  return count;
}

/** Numbers count as they are written in decimal: 0.3 is a multiple of 0.1. */
export function isMultipleOf(step: number): (value: number, run: Run) => boolean {
  if (Number.isInteger(step)) return (value) => value % step === 0;
  const [stepDigits, stepExponent] = decimal(step);
  const scale = Number(`1e${-stepExponent}`);
  return (value, run) => {
    if (!Number.isFinite(value)) return false;
    // A number of up to fifteen digits is one decimal and no other (IEEE 754): with more decimal places than the step
    // it is no multiple.
    if (stepExponent >= -15 && Math.abs(value * scale) < 1e15) {
      const digitsOfValue = Math.round(value * scale);
      return digitsOfValue / scale === value && digitsOfValue % Number(stepDigits) === 0;
    }
    run.work.spend(50);
    const [digits, exponent] = decimal(value);
    const least = Math.min(exponent, stepExponent);
    return (digits * 10n ** BigInt(exponent - least)) % (stepDigits * 10n ** BigInt(stepExponent - least)) === 0n;
  };
}

/** The shortest decimal for this number: its digits and the power of ten. */
function decimal(value: number): readonly [digits: bigint, exponent: number] {
  const [mantissa = "", exponent = "0"] = String(value).split("e");
  const [whole = "", fraction = ""] = mantissa.split(".");
  return [BigInt(whole + fraction), Number(exponent) - fraction.length];
}

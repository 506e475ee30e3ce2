/**
 * Reads JSON from clients (RFC 8259), and refuses texts that parsers interpret differently: invalid UTF-8, duplicate
 * keys, deep nesting.
 */
import { pointerStep } from "./values.ts";

type Refused = { readonly at: string; readonly problem: string };

/** The problem of a text that is no JSON at all, for every parser. */
export const NOT_JSON = "is not JSON";
/** Other parsers have limits too, and some crash beyond them. */
const MAX_DEPTH = 100;

/** Yields after each millisecond or so of work, so that the caller can pause. */
export function* readJson(bytes: Buffer): Generator<void, { readonly value: unknown } | Refused> {
  let text: string;
  try {
    text = UTF8.decode(bytes);
  } catch {
    return { at: "", problem: "is not encoded in UTF-8" };
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { at: "", problem: NOT_JSON };
  }
  return (yield* ambiguity(text)) ?? { value };
}

/** Keeps a byte order mark, which then is a syntax error. */
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

interface Level {
  /** Keys of the object so far; null for an array. */
  readonly keys: Set<string> | null;
  /** The current key or index. */
  at: string | number;
}

/** One pass over text that is valid JSON. */
function* ambiguity(text: string): Generator<void, Refused | null> {
  const levels: Level[] = [];
  let awaitsKey = false;
  let pauseAt = PAUSE_CHARACTERS;
  for (let i = 0; i < text.length; i++) {
    if (i >= pauseAt) {
      yield;
      pauseAt = i + PAUSE_CHARACTERS;
    }
    switch (text.charCodeAt(i)) {
      case 0x22: {
        const start = i;
        i = closingQuote(text, i);
        if (!awaitsKey) break;
        awaitsKey = false;
        const raw = text.slice(start + 1, i);
        const key = raw.includes("\\") ? (JSON.parse(text.slice(start, i + 1)) as string) : raw;
        const level = levels.at(-1)!;
        level.at = key;
        if (level.keys!.has(key)) return { at: pointer(levels), problem: "is a duplicate key" };
        level.keys!.add(key);
        break;
      }
      case 0x7b:
      case 0x5b: {
        if (levels.length === MAX_DEPTH) return { at: "", problem: `is nested deeper than ${MAX_DEPTH} levels` };
        const isObject = text.charCodeAt(i) === 0x7b;
        levels.push({ keys: isObject ? new Set() : null, at: isObject ? "" : 0 });
        awaitsKey = isObject;
        break;
      }
      case 0x7d:
      case 0x5d:
        levels.pop();
        awaitsKey = false;
        break;
      case 0x2c: {
        const level = levels.at(-1)!;
        awaitsKey = level.keys !== null;
        if (typeof level.at === "number") level.at++;
        break;
      }
    }
  }
  return null;
}

/** About a millisecond. */
const PAUSE_CHARACTERS = 65_536;

/** Where the string ends that begins there, in text that is valid JSON. */
export function closingQuote(text: string, opening: number): number {
  for (let i = text.indexOf('"', opening + 1); ; i = text.indexOf('"', i + 1)) {
    let slashes = 0;
    while (text.charCodeAt(i - 1 - slashes) === 0x5c) slashes++;
    if (slashes % 2 === 0) return i;
  }
}

function pointer(levels: readonly Level[]): string {
  return levels.map(({ at }) => `/${typeof at === "number" ? at : pointerStep(at)}`).join("");
}

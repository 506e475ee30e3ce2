/**
 * Compares what a test of a configuration expects with what was found, and puts the differences into words.
 */
import { isDeepStrictEqual } from "node:util";
import { linearPattern } from "../../base/linear_pattern.ts";
import type { Json } from "../../config/json.ts";
import { isMatches, type ConfigTest } from "../../config/tests.ts";
import { headerValues, type HeaderList } from "../../http/headers.ts";
import type { Forwarded } from "./stand_ins.ts";

/** What became of the last request of a test. */
export interface Outcome {
  readonly status: number;
  /** Code of the problem; null without one. */
  readonly code: string | null;
  readonly service: string | null;
  readonly route: string | null;
  /** The identity of the caller; null without one. */
  readonly caller: string | null;
  /** Null: the upstream got no request. */
  readonly forwarded: Forwarded | null;
  readonly headers: HeaderList;
  readonly body: Buffer;
}

export interface Compared {
  /** The members of `expect` with what was found. */
  readonly found: Readonly<Record<string, Json>>;
  /** "status: expected 401, found 200"; none: the test has passed. */
  readonly differences: readonly string[];
}

export function compare({ expect, expected }: Pick<ConfigTest, "expect" | "expected">, outcome: Outcome): Compared {
  const written = expected as Readonly<Record<string, Json>>;
  const found: Record<string, Json> = {};
  const differences: string[] = [];
  const judge = (name: string, wanted: unknown, shown: Json, value: Json) => {
    if (!holds(wanted, value)) differences.push(`${name}: expected ${inWords(shown)}, found ${inWords(value)}`);
    // As written, so that the value of a reference (`${env:TOKEN}`) that is right is not shown.
    else if (!isMatches(wanted)) return shown;
    return value;
  };
  const judgeHeaders = (name: string, wanted: Readonly<Record<string, unknown>>, list: HeaderList | null): Json => {
    const shown = written[name] as Readonly<Record<string, Json>>;
    if (list === null) return judge(name, wanted, shown, null);
    return Object.fromEntries(
      Object.entries(wanted).map(([header, value]) => [header, judge(`${name}.${header}`, value, shown[header]!, valueOf(list, header, Array.isArray(value)))]),
    );
  };
  const { forwarded } = outcome;
  for (const member of Object.keys(expect) as (keyof typeof expect)[]) {
    const name = member.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    const shown = written[name]!;
    if (member === "headers") found[name] = judgeHeaders(name, expect.headers!, outcome.headers);
    else if (member === "upstreamHeaders") found[name] = judgeHeaders(name, expect.upstreamHeaders!, forwarded === null ? null : forwarded.headers);
    else if (member === "upstreamPath") found[name] = judge(name, expect.upstreamPath, shown, forwarded === null ? null : forwarded.path);
    else if (member === "body") found[name] = judge(name, expect.body, shown, bodyOf(outcome.body, expect.body!));
    else found[name] = judge(name, expect[member], shown, outcome[member]);
  }
  return { found, differences };
}

function holds(wanted: unknown, value: Json): boolean {
  if (!isMatches(wanted)) return isDeepStrictEqual(wanted, value);
  if (typeof value !== "string" && typeof value !== "number") return false;
  const pattern = linearPattern(wanted.matches);
  return typeof pattern !== "string" && pattern.test(String(value), UNMETERED) === true;
}

/** Never pauses, so that `test` answers at once. */
const UNMETERED = { spend() {}, isDue: false, pause: () => Promise.resolve() };

/** Several lines as an array, or joined (RFC 9110 §5.3); null without the header. */
function valueOf(list: HeaderList, name: string, asArray: boolean): Json {
  const values = headerValues(list, name.toLowerCase());
  if (values.length === 0) return null;
  return asArray ? values : values.join(", ");
}

/** As text where text, a pattern or nothing is expected, else as JSON; null without a body. */
function bodyOf(body: Buffer, wanted: unknown): Json {
  const text = body.toString();
  if (typeof wanted === "string") return text;
  if (text === "") return null;
  if (wanted === null || isMatches(wanted)) return text;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

function inWords(value: Json): string {
  const text = isMatches(value) ? `a match of ${value.matches}` : JSON.stringify(value);
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
}

/** Of a value in a message; `found` has it whole. */
const MAX_SHOWN = 200;

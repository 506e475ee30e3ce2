/**
 * Compares what a test of a configuration expects with what was found, and puts the differences into words.
 */
import { isDeepStrictEqual } from "node:util";
import { linearPattern, type StepMeter } from "../base/linear_pattern.ts";
import { isMatches } from "../config/expected.ts";
import type { Json } from "../config/json.ts";
import type { ConfigTest } from "../config/tests.ts";
import { headerValues, type HeaderList } from "../http/headers.ts";
import { displayedFound, type Conceal } from "./displayed.ts";
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
  /** The members of `expect` with what was found, as `displayed`. */
  readonly found: Readonly<Record<string, Json>>;
  /** "status: expected 401, found 200"; none: the test has passed. */
  readonly differences: readonly string[];
  /** The members that differ, as the first `differences` name them: "status", "headers.Via". */
  readonly differing: readonly string[];
}

/**
 * `expected` is `displayed` already. `meter`: of the patterns, as long texts take long; rejects with what it throws.
 */
export async function compare(
  { expect, expected }: Pick<ConfigTest, "expect" | "expected">,
  outcome: Outcome,
  conceal: Conceal,
  meter: StepMeter,
): Promise<Compared> {
  const written = expected as Readonly<Record<string, Json>>;
  const found: Record<string, Json> = {};
  const differences: string[] = [];
  const differing: string[] = [];
  const judge = async (name: string, wanted: unknown, shown: Json, value: Json): Promise<Json> => {
    const isRight = await holds(wanted, value, meter);
    if (isRight && !isMatches(wanted)) return shown;
    const seen = displayedFound(value, conceal, ...name.split("."));
    const [left, right] = [inWords(shown), inWords(seen)];
    if (isRight) return seen;
    differing.push(name);
    differences.push(
      left === right
        ? `${name}: not as expected; both are secret or too long to be shown`
        : `${name}: expected ${left}, found ${right}`,
    );
    return seen;
  };
  const judgeHeaders = async (
    name: string,
    wanted: Readonly<Record<string, unknown>>,
    list: HeaderList | null,
  ): Promise<Json> => {
    const shown = written[name] as Readonly<Record<string, Json>>;
    if (list === null && Object.values(wanted).some((value) => value !== null)) return judge(name, wanted, shown, null);
    const values: Record<string, Json> = {};
    for (const [header, value] of Object.entries(wanted)) {
      values[header] = await judge(
        `${name}.${header}`,
        value,
        shown[header]!,
        valueOf(list ?? [], header, Array.isArray(value)),
      );
    }
    return values;
  };
  const { forwarded } = outcome;
  for (const member of Object.keys(expect) as (keyof typeof expect)[]) {
    const name = member.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    const shown = written[name]!;
    if (member === "headers") found[name] = await judgeHeaders(name, expect.headers!, outcome.headers);
    else if (member === "upstreamHeaders")
      found[name] = await judgeHeaders(name, expect.upstreamHeaders!, forwarded === null ? null : forwarded.headers);
    else if (member === "upstreamPath")
      found[name] = await judge(name, expect.upstreamPath, shown, forwarded === null ? null : forwarded.path);
    else if (member === "body") found[name] = await judge(name, expect.body, shown, bodyOf(outcome.body, expect.body!));
    else found[name] = await judge(name, expect[member], shown, outcome[member]);
  }
  return { found, differences, differing };
}

async function holds(wanted: unknown, value: Json, meter: StepMeter): Promise<boolean> {
  if (!isMatches(wanted)) return isDeepStrictEqual(wanted, value);
  if (typeof value !== "string" && typeof value !== "number") return false;
  const pattern = linearPattern(wanted.matches);
  return typeof pattern !== "string" && (await pattern.test(String(value), meter));
}

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

/** Of a value in a message. */
const MAX_SHOWN = 200;

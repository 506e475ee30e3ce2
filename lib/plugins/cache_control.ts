/**
 * Reads what caching headers say: directives of Cache-Control (RFC 9111 §5.2) and numbers of seconds. What follows from them is
 * `cache_rules.ts`, their dates are read by `http/date.ts`.
 */
import { headerValues, type HeaderList } from "../http/headers.ts";

/** Argument by directive, names in lower case; null for a directive without one. */
export type Directives = ReadonlyMap<string, string | null>;

/**
 * The directives of all lines. One that comes twice: without an argument it is unqualified, whatever the other says; two arguments are
 * joined by a comma, which makes a longer list of field names, and no number at all.
 */
export function directives(list: HeaderList, lower: string): Directives {
  const found = new Map<string, string | null>();
  for (const value of headerValues(list, lower)) {
    DIRECTIVE.lastIndex = 0;
    for (let match = DIRECTIVE.exec(value); match !== null && match[0] !== ""; match = DIRECTIVE.exec(value)) {
      const name = match[1]!.toLowerCase();
      if (name === "") continue;
      const argument = match[2]?.replace(/\\(.)/g, "$1") ?? match[3] ?? null;
      const earlier = found.get(name);
      found.set(name, earlier === undefined || earlier === argument ? argument : joined(earlier, argument));
    }
  }
  return found;
}

/**
 * A member that is no directive has no name, and does not hide those behind it. Space around "=" is not allowed there: `max-age = 5` is a
 * max-age without a number.
 */
const DIRECTIVE = /[\s,]*([^\s,="]*)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*)))?[^,]*/y;

function joined(one: string | null, other: string | null): string | null {
  return one === null || other === null ? null : `${one},${other}`;
}

/** An argument in milliseconds; undefined where the directive is missing, NaN where it has no number (RFC 9111 §1.2.2). */
export function milliseconds(all: Directives, name: string): number | undefined {
  const argument = all.get(name);
  return argument === undefined ? undefined : deltaSeconds(argument) * 1_000;
}

/** Non-negative whole seconds, 2^31 at most; NaN for anything else. */
export function deltaSeconds(text: string | null): number {
  return text !== null && DIGITS.test(text) ? Math.min(Number(text), 2 ** 31) : NaN;
}

const DIGITS = /^[0-9]+$/;

/** The field names that an argument lists, in lower case. */
export function fieldNames(argument: string): string[] {
  const names: string[] = [];
  for (const part of argument.toLowerCase().split(",")) if (part.trim() !== "") names.push(part.trim());
  return names;
}

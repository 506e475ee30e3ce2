/**
 * Parses Cache-Control and headers of the same form (RFC 9111 §5.2): directives, seconds, lists of field names.
 */
import { headerValues, type HeaderList } from "../../http/headers.ts";

/** Argument by directive, names in lower case; null for a directive without one. */
export type Directives = ReadonlyMap<string, string | null>;

/**
 * The directives of all lines. If a directive occurs twice and once without an argument, it is unqualified; two
 * arguments are joined by a comma, which makes a longer list of field names, and an invalid number.
 */
export function directives(list: HeaderList, lower: string): Directives {
  const found = new Map<string, string | null>();
  for (const value of headerValues(list, lower)) {
    for (const [whole, written = "", quoted, plain = null] of value.matchAll(DIRECTIVE)) {
      if (whole === "") break;
      const name = written.toLowerCase();
      if (name === "") continue;
      const argument = quoted?.replace(/\\(.)/g, "$1") ?? plain;
      const earlier = found.get(name);
      if (earlier === undefined || earlier === argument) found.set(name, argument);
      else found.set(name, earlier === null || argument === null ? null : `${earlier},${argument}`);
    }
  }
  return found;
}

/**
 * A member that is not a directive has no name, and does not hide the members after it. Space around "=" is not
 * allowed: `max-age = 5` is a max-age without a number.
 */
const DIRECTIVE = /[\s,]*([^\s,="]*)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*)))?[^,]*/gy;

/** An argument in milliseconds; undefined if the directive is missing, NaN if it has no number (RFC 9111 §1.2.2). */
export function directiveMs(all: Directives, name: string): number | undefined {
  const argument = all.get(name);
  return argument === undefined ? undefined : deltaSeconds(argument) * 1_000;
}

/** Non-negative whole seconds, 2^31 at most; NaN for anything else. */
export function deltaSeconds(text: string | null): number {
  return text !== null && /^[0-9]+$/.test(text) ? Math.min(Number(text), 2 ** 31) : NaN;
}

/** The field names that an argument lists, in lower case. */
export function fieldNames(argument: string): string[] {
  return argument
    .toLowerCase()
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
}

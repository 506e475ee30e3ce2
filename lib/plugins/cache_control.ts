/**
 * Reads what caching headers say: directives of Cache-Control (RFC 9111 §5.2), numbers of seconds, dates of HTTP (RFC 9110 §5.6.7).
 * What follows from them is `cache_rules.ts`.
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

/** A date in any of its three forms as milliseconds since 1970; NaN for anything else, "0" and "-1" among it. `now`: wall clock. */
export function httpDate(text: string, now: number): number {
  let match = IMF_FIXDATE.exec(text);
  if (match !== null) return moment(Number(match[3]), match[2]!, match[1]!, match, 4);
  match = RFC_850.exec(text);
  if (match !== null) return moment(fullYear(Number(match[3]), now), match[2]!, match[1]!, match, 4);
  match = ASCTIME.exec(text);
  return match === null ? NaN : moment(Number(match[6]), match[1]!, match[2]!, match, 3);
}

const IMF_FIXDATE = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT$/;
const RFC_850 = /^(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, ([0-9]{2})-([A-Z][a-z]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT$/;
const ASCTIME = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) ([ 0-9][0-9]) ([0-9]{2}):([0-9]{2}):([0-9]{2}) ([0-9]{4})$/;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Hours, minutes and seconds stand in `match` from `at` on. */
function moment(year: number, monthName: string, dayText: string, match: RegExpExecArray, at: number): number {
  const month = MONTHS.indexOf(monthName);
  const [day, hour, minute, second] = [dayText, match[at], match[at + 1], match[at + 2]].map(Number) as [number, number, number, number];
  // A leap second is the first of the next minute.
  if (month < 0 || hour > 23 || minute > 59 || second > 60) return NaN;
  const time = Date.UTC(year, month, day, hour, minute, second);
  return day >= 1 && new Date(Date.UTC(year, month, day)).getUTCDate() === day ? time : NaN;
}

/** Two digits that would be more than 50 years ahead are of the century before (RFC 9110 §5.6.7). */
function fullYear(digits: number, now: number): number {
  const thisYear = new Date(now).getUTCFullYear();
  const year = thisYear - (thisYear % 100) + digits;
  return year > thisYear + 50 ? year - 100 : year;
}

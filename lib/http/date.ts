/**
 * Reads the dates of headers (RFC 9110 §5.6.7). `Date.parse` accepts "Later 5", and reads the form without a zone as
 * local time.
 */

/**
 * A date in any of its three forms as milliseconds since 1970; NaN for anything else, "0" and "-1" among it. `now`:
 * wall clock.
 */
export function httpDate(text: string, now: number): number {
  let match = IMF_FIXDATE.exec(text);
  if (match !== null) return moment(Number(match[3]), match[2]!, match[1]!, match, 4);
  match = RFC_850.exec(text);
  if (match !== null) return moment(fullYear(Number(match[3]), now), match[2]!, match[1]!, match, 4);
  match = ASCTIME.exec(text);
  return match === null ? NaN : moment(Number(match[6]), match[1]!, match[2]!, match, 3);
}

const IMF_FIXDATE =
  /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT$/;
const RFC_850 = new RegExp(
  String.raw`^(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, ([0-9]{2})-([A-Z][a-z]{2})-([0-9]{2}) ` +
    String.raw`([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT$`,
);
const ASCTIME =
  /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) ([ 0-9][0-9]) ([0-9]{2}):([0-9]{2}):([0-9]{2}) ([0-9]{4})$/;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Hours, minutes and seconds stand in `match` from `at` on. */
function moment(year: number, monthName: string, dayText: string, match: RegExpExecArray, at: number): number {
  const month = MONTHS.indexOf(monthName);
  const [day, hour, minute, second] = [dayText, match[at], match[at + 1], match[at + 2]].map(Number) as [
    number,
    number,
    number,
    number,
  ];
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

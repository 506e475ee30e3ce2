/**
 * Formats lists, numbers, rates, durations, shares and times for people; "–" stands for a missing value.
 */

const NOTHING = "–";
const UNITS = ["", " M", " G", " T"];
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const plain = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const hundredths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });
const local = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});

/** "a, b and 3 more" */
export function listed(names: readonly string[], most: number): string {
  return names.slice(0, most).join(", ") + (names.length > most ? ` and ${number(names.length - most)} more` : "");
}

/** "1 route", "1,000 routes" */
export function counted(count: number, what: string): string {
  return `${number(count)} ${what}${count === 1 ? "" : "s"}`;
}

/** 1234567 → "1.2 M", 12345 → "12,345", 12.34 → "12.3", 0.123 → "0.12": about three significant digits. */
export function number(n: number | null): string {
  if (n === null || !Number.isFinite(n)) return NOTHING;
  if (Math.round(Math.abs(n)) < 1e6) return byMagnitude(n);
  let scaled = n / 1e6;
  let unit = 1;
  // 999,960,000 is "1 G", not "1,000 M": the rounded number decides.
  while (Math.abs(scaled) >= 999.95 && unit < UNITS.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  return tenths.format(scaled) + UNITS[unit]!;
}

/** 12345678 → "12.3 MB", 999 → "1 KB" */
export function bytes(count: number): string {
  return count < 1e6 ? `${number(count / 1e3)} KB` : `${number(count / 1e6)} MB`;
}

/** 12.34 → "12.3/s" */
export function perSecond(n: number | null): string {
  return n !== null && Number.isFinite(n) ? `${number(n)}/s` : NOTHING;
}

/** 0.8 → "0.8 ms", 12.3 → "12 ms", 1240 → "1.24 s", 75000 → "1 min 15 s"; null → "–" */
export function milliseconds(ms: number | null): string {
  if (ms === null || !Number.isFinite(ms)) return NOTHING;
  if (ms < 0.1) return ms <= 0 ? "0 ms" : `${hundredths.format(Math.max(ms, 0.01))} ms`;
  if (ms < 9.95) return `${tenths.format(ms)} ms`;
  if (ms < 999.5) return `${plain.format(ms)} ms`;
  if (ms < 59_950) return `${(ms < 9995 ? hundredths : tenths).format(ms / SECOND)} s`;
  const seconds = Math.round(ms / SECOND);
  const rest = seconds % 60;
  return `${plain.format(Math.floor(seconds / 60))} min${rest === 0 ? "" : ` ${rest} s`}`;
}

/** 0.0042 → "0.4 %". Only 0 reads "0 %", and only 1 reads "100 %". */
export function percent(share: number | null): string {
  if (share === null || !Number.isFinite(share)) return NOTHING;
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  if (share > 0.9995 && share < 1) return "> 99.9 %";
  const digits = share < 0.0995 || (share > 0.9905 && share < 1) ? tenths : plain;
  return `${digits.format(share * 100)} %`;
}

/**
 * "3 min ago"; "just now" for less than five seconds, and for times in the future, since the clocks may differ. `now`
 * in ms since 1970.
 */
export function ago(iso: string, now: number): string {
  const ms = now - Date.parse(iso);
  if (Number.isNaN(ms)) return NOTHING;
  return ms < 5 * SECOND ? "just now" : `${span(ms)} ago`;
}

/** "in 12 days"; past times as in `ago`. */
export function until(iso: string, now: number): string {
  const ms = Date.parse(iso) - now;
  if (Number.isNaN(ms)) return NOTHING;
  return ms < SECOND ? ago(iso, now) : `in ${span(ms)}`;
}

/** Keeps a number and its unit on one line. */
export function unbroken(text: string): string {
  return text.replaceAll(" ", "\u00a0");
}

/** Date and time in the local time zone, with its name: "21 Nov 2026, 14:15:10 CET". */
export function moment(iso: string): string {
  const ms = Date.parse(iso);
  return Number.isNaN(ms) ? NOTHING : local.format(ms);
}

/** That of `moment`: "CET, Europe/Berlin". */
export function timeZone(): string {
  const { timeZone: name } = local.resolvedOptions();
  const short = local.formatToParts().find(({ type }) => type === "timeZoneName")?.value ?? name;
  return short === name ? name : `${short}, ${name}`;
}

/** 93784000 → "1 day": the largest unit alone, rounded down, for both sides of now. */
function span(ms: number): string {
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h`;
  const days = Math.floor(ms / DAY);
  return days === 1 ? "1 day" : `${plain.format(days)} days`;
}

function byMagnitude(n: number): string {
  const size = Math.abs(n);
  return (size < 9.995 ? hundredths : size < 99.95 ? tenths : plain).format(n);
}

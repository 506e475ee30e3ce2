/**
 * The schemas of times at which something ends: a signed configuration, whose order is here as well, or an API key.
 */
import * as s from "./schema.ts";

export const SERIAL = s.integer({
  min: 0,
  max: Number.MAX_SAFE_INTEGER,
  describe: "Number of a signed configuration: after one with a higher number it is refused.",
});
export const EXPIRES_AT = time("When a signed configuration ends: from then on no start and no reload takes it.");
export const KEY_EXPIRES_AT = time("When the key ends: from then on requests with it get 401 key_expired.");

function time(describe: string) {
  return s.string({
    references: "none",
    hint: 'a time such as "2027-01-31T12:00:00Z" (RFC 3339)',
    check: (text) => (timeOf(text) === null ? "" : undefined),
    describe,
  });
}

const TIME = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d:\d\d)$/i;

/** When a key of the configuration ends, in milliseconds since 1970; `Infinity`: it does not end. */
export function endOfKey({ expiresAt }: { readonly expiresAt?: string }): number {
  return expiresAt === undefined ? Infinity : timeOf(expiresAt)!;
}

/** Of a `date-time` of RFC 3339 §5.6 without leap seconds, in milliseconds since 1970; null: it is none. */
export function timeOf(text: string): number | null {
  const [, day, time, zone] = TIME.exec(text) ?? [];
  if (day === undefined) return null;
  const at = Date.parse(`${day}T${time}${zone!.toUpperCase()}`);
  // JavaScript takes 30 February for 2 March.
  const isDay = !Number.isNaN(at) && new Date(`${day}T00:00:00Z`).toISOString().startsWith(day);
  return isDay ? at : null;
}

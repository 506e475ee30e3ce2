/**
 * The values of `format` in JSON Schema (draft 2020-12, Validation §7.3) that are checked.
 */
import { isIPv4, isIPv6 } from "node:net";

const DATE = /^\d{4}-\d\d-\d\d$/;
const TIME = /^([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(?:\.\d{1,9})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;
const UUID = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i;
const HOST_LABEL = /^[a-z\d](?:[a-z\d-]{0,61}[a-z\d])?$/i;
const LOCAL_PART = /^[A-Za-z\d!#$%&'*+/=?^_`{|}~.-]{1,64}$/;

/** Each check takes bounded time, however long the text. */
export const FORMATS: Readonly<
  Record<string, { readonly expected: string; readonly fits: (text: string) => boolean }>
> = {
  "date-time": {
    expected: "a date and time such as 2026-01-31T12:00:00Z",
    fits: (text) =>
      /[Tt]/.test(text[10] ?? "") && isDate(text.slice(0, 10)) && text.length <= 40 && TIME.test(text.slice(11)),
  },
  date: { expected: "a date such as 2026-01-31", fits: isDate },
  time: { expected: "a time such as 12:00:00Z", fits: (text) => text.length <= 30 && TIME.test(text) },
  email: { expected: "an e-mail address", fits: isEmail },
  hostname: { expected: "a host name", fits: isHostname },
  ipv4: { expected: "an IPv4 address", fits: isIPv4 },
  ipv6: { expected: "an IPv6 address", fits: (text) => isIPv6(text) && !text.includes("%") },
  uuid: { expected: "a UUID", fits: (text) => text.length === 36 && UUID.test(text) },
  uri: { expected: "an absolute URI", fits: isUri },
};

/** JavaScript reads a day that its month does not have as one of the next month. */
function isDate(text: string): boolean {
  const time = DATE.test(text) ? Date.parse(text) : NaN;
  return !Number.isNaN(time) && new Date(time).toISOString().startsWith(text);
}

function isEmail(text: string): boolean {
  const at = text.lastIndexOf("@");
  const local = text.slice(0, at);
  return (
    at > 0 &&
    text.length <= 254 &&
    LOCAL_PART.test(local) &&
    !/^\.|\.\.|\.$/.test(local) &&
    isHostname(text.slice(at + 1))
  );
}

function isHostname(text: string): boolean {
  return text.length >= 1 && text.length <= 253 && text.split(".").every((label) => HOST_LABEL.test(label));
}

function isUri(text: string): boolean {
  return (
    text.length <= 8192 &&
    /^[A-Za-z][A-Za-z\d+.-]*:/.test(text) &&
    !/[^\x21-\x7e]|["<>\\^`{|}]/.test(text) &&
    !/%(?![\da-fA-F]{2})/.test(text) &&
    URL.canParse(text)
  );
}

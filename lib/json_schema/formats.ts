/**
 * The values of `format` in JSON Schema (draft 2020-12, Validation §7.3) that are checked.
 */
import { isIPv4, isIPv6 } from "node:net";

const DATE = /^\d{4}-\d\d-\d\d$/;
const TIME = /^([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.\d+)?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))$/;
const UUID = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i;
const HOST_LABEL = /^[a-z\d](?:[a-z\d-]{0,61}[a-z\d])?$/i;
const ATOMS = /^[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*$/;
const QUOTED = /^"(?:[ !#-[\]-~]|\\[ -~])*"$/;
const MAX_NAME = 253;
const MAX_TIME = 60;
const MAX_URI = 8192;

/** Each check takes bounded time, however long the text. */
export const FORMATS: Readonly<
  Record<string, { readonly expected: string; readonly fits: (text: string) => boolean }>
> = {
  "date-time": {
    expected: "a date and time such as 2026-01-31T12:00:00Z",
    fits: (text) => /[Tt]/.test(text[10] ?? "") && isDate(text.slice(0, 10)) && isTime(text.slice(11)),
  },
  date: { expected: "a date such as 2026-01-31", fits: isDate },
  time: { expected: "a time such as 12:00:00Z", fits: isTime },
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

/** RFC 3339 §5.6: any number of decimals; second 60 is a leap second, which is 23:59:60 in UTC (§5.7). */
function isTime(text: string): boolean {
  const parts = text.length <= MAX_TIME ? TIME.exec(text) : null;
  if (parts === null) return false;
  const [, hour, minute, second, sign, hours = 0, minutes = 0] = parts;
  const offset = (Number(hours) * 60 + Number(minutes)) * (sign === "-" ? -1 : 1);
  const inUtc = (Number(hour) * 60 + Number(minute) - offset + 2880) % 1440;
  return second !== "60" || inUtc === 1439;
}

/** RFC 5321 §4.1.2: a dot-string or a quoted string, and a domain or an address in brackets (§4.1.3). */
function isEmail(text: string): boolean {
  const at = text.lastIndexOf("@");
  if (at < 1 || at > 64 || text.length > 254) return false;
  const local = text.slice(0, at);
  const domain = text.slice(at + 1);
  const address = /^\[(?:IPv6:(.*)|(.*))\]$/i.exec(domain);
  const [, v6 = "", v4 = ""] = address ?? [];
  const isDomain = address === null ? isHostname(domain) : FORMATS.ipv6!.fits(v6) || isIPv4(v4);
  return isDomain && (ATOMS.test(local) || QUOTED.test(local));
}

/** RFC 1123 §2.1. A label that is said to be punycode has to be that of a text (RFC 5890 §2.3.2.1). */
function isHostname(text: string): boolean {
  return text.length <= MAX_NAME && text.split(".").every(isLabel);
}

function isLabel(label: string): boolean {
  return HOST_LABEL.test(label) && (!/^xn--/i.test(label) || URL.canParse(`http://${label}.test`));
}

/** RFC 3986: what the URL Standard alone would refuse or repair is not looked at. */
function isUri(text: string): boolean {
  if (text.length > MAX_URI || /[^\x21-\x7e]|["<>\\^`{|}]|%(?![\da-fA-F]{2})/.test(text)) return false;
  const [, rest] = /^[A-Za-z][A-Za-z\d+.-]*:(.*)$/.exec(text) ?? [];
  if (rest === undefined || /#.*#/.test(rest)) return false;
  const [, authority] = /^\/\/([^/?#]*)/.exec(rest) ?? [];
  const bracketed = /^[^[\]]*$/.test(rest.slice(authority === undefined ? 0 : authority.length + 2));
  return bracketed && (authority === undefined || isAuthority(authority));
}

function isAuthority(authority: string): boolean {
  const host = authority.slice(authority.lastIndexOf("@") + 1);
  const [, literal, name] = /^(?:\[(.*)\]|([^[\]:@]*))(?::\d*)?$/.exec(host) ?? [];
  if (literal !== undefined) return FORMATS.ipv6!.fits(literal) || /^v[\da-f]+\.[\w.~!$&'()*+,;=:-]+$/i.test(literal);
  return name !== undefined && !/[[\]@]/.test(authority.slice(0, -host.length - 1));
}

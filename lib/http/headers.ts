/**
 * Reads and changes header lists: flat arrays `[name, value, name, value, …]` as node's `rawHeaders` gives them, so
 * that case, order and duplicates survive.
 *
 * No function changes a list in place; each returns a new one, or the same one when there is nothing to change. `lower`
 * parameters take the name in lower case. Names compare without case (RFC 9110 §5.1).
 */
import { isIPv6 } from "node:net";
import { FIELD_VALUE, FORWARDING, HOP_BY_HOP, TOKEN } from "../base/http_grammar.ts";

export type HeaderList = readonly string[];

/** The first value of the named header, or undefined. */
export function headerValue(list: HeaderList, lower: string): string | undefined {
  for (let i = 0; i < list.length; i += 2) {
    if (sameName(list[i]!, lower)) return list[i + 1];
  }
  return undefined;
}

/** Whether the body is server-sent events: it goes on as long as somebody listens. */
export function isEventStream(list: HeaderList): boolean {
  const type = headerValue(list, "content-type");
  return type !== undefined && sameName(type.slice(0, 17), "text/event-stream");
}

/** All values of the named header, in order. */
export function headerValues(list: HeaderList, lower: string): string[] {
  const values: string[] = [];
  for (let i = 0; i < list.length; i += 2) {
    if (sameName(list[i]!, lower)) values.push(list[i + 1]!);
  }
  return values;
}

export function hasHeader(list: HeaderList, lower: string): boolean {
  return headerValue(list, lower) !== undefined;
}

/** `text` from `from` to `to` without white space at its ends (OWS, RFC 9110 §5.6.3). */
export function trimmed(text: string, from: number, to: number): string {
  while (from < to && isBlank(text.charCodeAt(from))) from++;
  while (to > from && isBlank(text.charCodeAt(to - 1))) to--;
  return text.slice(from, to);
}

function isBlank(c: number): boolean {
  return c === 0x20 || c === 0x09;
}

/** A copy with every header of that name removed. */
export function withoutHeader(list: HeaderList, lower: string): HeaderList {
  return hasHeader(list, lower) ? list.filter((_text, i) => !sameName(list[i & ~1]!, lower)) : list;
}

/** Returns a copy with exactly one header of this name and value: in the position of the first, else at the end. */
export function withHeader(list: HeaderList, name: string, value: string): HeaderList {
  const lower = name.toLowerCase();
  const at = list.findIndex((text, i) => i % 2 === 0 && sameName(text, lower));
  return at < 0
    ? [...list, name, value]
    : [...list.slice(0, at), name, value, ...withoutHeader(list.slice(at + 2), lower)];
}

/**
 * Whether a comma-separated value holds this token, ignoring case and parameters: `hasToken("gzip;q=1, Close",
 * "close")`.
 */
export function hasToken(value: string | undefined, lowerToken: string): boolean {
  if (value === undefined || value.length < lowerToken.length) return false;
  if (value.length === lowerToken.length) return value.toLowerCase() === lowerToken;
  const lower = value.toLowerCase();
  if (!lower.includes(lowerToken)) return false;
  for (const part of lower.split(",")) {
    const semicolon = part.indexOf(";");
    if ((semicolon < 0 ? part : part.slice(0, semicolon)).trim() === lowerToken) return true;
  }
  return false;
}

/** The members of all lines of a comma-separated header, in lower case, in order, with their parameters. */
export function tokens(list: HeaderList, lower: string): string[] {
  const members = headerValues(list, lower).flatMap((value) => value.toLowerCase().split(","));
  return members.map((member) => member.trim()).filter((member) => member !== "");
}

/**
 * How many options all Connection lines of a message may have; empty ones count. Common messages have one to three.
 * Without a bound, 30 KB of commas cost milliseconds.
 */
export const MAX_CONNECTION_OPTIONS = 100;

/** The number of options in one line of Connection; counted no further than to one more than MAX_CONNECTION_OPTIONS. */
export function connectionOptions(value: string): number {
  let options = 1;
  for (
    let comma = value.indexOf(",");
    comma >= 0 && options <= MAX_CONNECTION_OPTIONS;
    comma = value.indexOf(",", comma + 1)
  )
    options++;
  return options;
}

/**
 * A copy without the headers of one connection (RFC 9110 §7.6.1): Connection and every header it names, Keep-Alive,
 * Proxy-Connection, TE, Transfer-Encoding, Upgrade, HTTP2-Settings. The copy may be appended to by the caller.
 */
export function endToEnd(list: HeaderList): string[] {
  const kept: string[] = [];
  let isNaming = false;
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!;
    if (!isHopByHop(name)) kept.push(name, list[i + 1]!);
    else if (sameName(name, "connection") && !plainConnection(list[i + 1]!)) isNaming = true;
  }
  return isNaming ? withoutHeaders(kept, namedHeaders(list)) : kept;
}

/**
 * The list without the headers that its own Connection names, and without those names in Connection; the same list
 * where it names none.
 * Called where a message is received: a header that the gateway sets later under such a name must stay.
 */
export function withoutNamed(list: HeaderList): HeaderList {
  const named = namedHeaders(list);
  if (named === NONE) return list;
  const kept = withoutHeaders(list, named);
  for (let i = kept.length - 2; i >= 0; i -= 2) {
    if (!sameName(kept[i]!, "connection")) continue;
    const options = kept[i + 1]!.split(",").filter((option) => option.trim() !== "" && !named.has(option.trim()));
    if (options.length > 0) kept[i + 1] = options.join(",").trim();
    else kept.splice(i, 2);
  }
  return kept;
}

/**
 * The names in all lines of Connection. Framing and Host stay even where they are named (RFC 9110 §7.6.1 forbids it).
 */
function namedHeaders(list: HeaderList): NameMap<string> {
  for (let i = 0; i < list.length; i += 2) {
    if (!sameName(list[i]!, "connection") || plainConnection(list[i + 1]!)) continue;
    // Others are no names, or those of headers that are dropped or kept anyway.
    const named = tokens(list, "connection").filter((option) => !NEVER_NAMED.includes(option) && !isHopByHop(option));
    return named.length === 0 ? NONE : nameSet(named);
  }
  return NONE;
}

/** A copy without the headers of these names. The copy may be appended to by the caller. */
export function withoutHeaders(list: HeaderList, names: NameMap<unknown>): string[] {
  const kept: string[] = [];
  for (let i = 0; i < list.length; i += 2) {
    if (!names.has(list[i]!)) kept.push(list[i]!, list[i + 1]!);
  }
  return kept;
}

/**
 * Values by header name. Most other names already differ from all of its names in length: they are not copied to lower
 * case.
 */
export class NameMap<T> {
  readonly #values: ReadonlyMap<string, T>;
  /** A bit for each length, modulo 32. */
  readonly #lengths: number;

  constructor(entries: Iterable<readonly [name: string, value: T]>) {
    this.#values = new Map([...entries].map(([name, value]) => [name.toLowerCase(), value]));
    this.#lengths = [...this.#values.keys()].reduce((bits, { length }) => bits | (1 << length), 0);
  }

  get(name: string): T | undefined {
    return ((this.#lengths >>> name.length) & 1) === 1 ? this.#values.get(name.toLowerCase()) : undefined;
  }

  has(name: string): boolean {
    return this.get(name) !== undefined;
  }
}

/** Each name is its own value. */
export function nameSet<const N extends string>(names: Iterable<N>): NameMap<N> {
  return new NameMap([...names].map((name) => [name, name]));
}

const NONE = nameSet([]);

const NEVER_NAMED = ["close", "content-length", "host"];

/** `keep-alive` and `close` name no header that exists: the common case stays cheap. */
export function plainConnection(value: string): boolean {
  return (
    (value.length === 10 || value.length === 5) &&
    (value.toLowerCase() === "keep-alive" || value.toLowerCase() === "close")
  );
}

const HOP_BY_HOP_NAMES = nameSet(HOP_BY_HOP);

/** Whether a header concerns one connection only, whatever `Connection` says. */
export function isHopByHop(name: string): boolean {
  return HOP_BY_HOP_NAMES.has(name);
}

/** The list without the headers in which proxies say for whom they forward; the same list where there are none. */
export function withoutForwarding(list: HeaderList): HeaderList {
  // Names and values: few others have nine characters, or a dash in this place.
  const hasSome = list.some(
    (text) => (text.length === 9 || text.charCodeAt(11) === DASH) && FORWARDING_NAMES.has(text),
  );
  return hasSome ? withoutHeaders(list, FORWARDING_NAMES) : list;
}

const DASH = 0x2d;
const FORWARDING_NAMES = nameSet(FORWARDING);

/**
 * A quoted-string (RFC 9110 §5.6.4), which is also a string of structured fields (RFC 9651 §3.3.3); other characters
 * become "?".
 */
export function quotedString(text: string): string {
  return `"${text.replace(/[^\x20-\x7e]/g, "?").replace(/["\\]/g, "\\$&")}"`;
}

/** A name in lower case as upstreams read it that take "_" for "-", as CGI has them do. */
export function dashed(name: string): string {
  return name.replaceAll("_", "-").toLowerCase();
}

/**
 * Why HTTP cannot carry the list, for the author of the plugin that made it; null if it can: names are tokens, values
 * Latin-1 text without control characters (RFC 9110 §5.5, §5.6.2). Headers that stand in `known`, in the same order,
 * are not looked at again.
 */
export function headerProblem(list: HeaderList, known: HeaderList = NO_HEADERS): string | null {
  if (!Array.isArray(list) || list.length % 2 !== 0) return "the headers are no list of names and values in turn";
  for (let i = 0, at = 0; i < list.length; i += 2, at += 2) {
    const name: unknown = list[i];
    const value: unknown = list[i + 1];
    if (name === known[at] && value === known[at + 1]) continue;
    // One has been removed.
    if (name === known[at + 2] && value === known[at + 3] && name !== undefined) at += 2;
    else if (typeof name !== "string" || !TOKEN.test(name))
      return `${quotedString(String(name))} cannot be the name of a header`;
    else if (typeof value !== "string" || !FIELD_VALUE.test(value))
      return `the header ${name} has a value that HTTP cannot carry`;
  }
  return null;
}

const NO_HEADERS: HeaderList = [];

/** Compares a name as received with one in lower case; most comparisons end at the length or at the first letter. */
export function sameName(name: string, lower: string): boolean {
  if (name.length !== lower.length || (name.charCodeAt(0) | 0x20) !== (lower.charCodeAt(0) | 0x20)) return false;
  return name === lower || name.toLowerCase() === lower;
}

/**
 * Stands for the value of a header that is not known. No request can have it: a header with this character is refused.
 */
export const UNKNOWN_VALUE = "\0";

/**
 * The headers of the request that a preflight asks about, as far as they are known (Fetch §3.2.2): those that
 * Access-Control-Request-Headers names have `UNKNOWN_VALUE`. Browsers send a preflight without cookies, and other
 * headers of their own with it.
 */
export function headersAskedFor(headers: HeaderList): HeaderList {
  const named = tokens(headers, "access-control-request-headers").flatMap((name) => [name, UNKNOWN_VALUE]);
  return [...named, ...headers.filter((_text, i) => !sameName(headers[i & ~1]!, "cookie"))];
}

/**
 * Whether this is a host with an optional port up to 65535 (RFC 3986 §3.2.2, §3.2.3), or empty (RFC 9110 §7.2). RFC
 * 3986 also allows `!$&'()*+,;=`, which no name in DNS has: a list such as `evil.com,a.example.com` would match
 * `*.example.com`.
 */
export function isHost(host: string): boolean {
  if (!HOST.test(host)) return false;
  const nameEnd = host.charCodeAt(0) === BRACKET ? host.indexOf("]") + 1 : 0;
  const colon = host.indexOf(":", nameEnd);
  return (
    (colon < 0 || Number(host.slice(colon + 1)) <= 65_535) && (nameEnd === 0 || isIPv6(host.slice(1, nameEnd - 1)))
  );
}

const BRACKET = 0x5b;
/** Without "%": no host that is matched or forwarded to contains it, and a zone is of one machine (RFC 6874 §1). */
const HOST = /^(?:[A-Za-z0-9\-._~]*|\[[^\]%]*\])(?::[0-9]*)?$/;

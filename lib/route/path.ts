/**
 * Reads a request target and normalises its path for matching and forwarding, or refuses it.
 *
 * Every refusal prevents two readings of the same bytes: a path that the gateway matches in one way and a backend
 * resolves in another lets a request bypass the guards of a route.
 */
import type { ErrorCode } from "../base/errors.ts";
import { hexDigit } from "../base/http_grammar.ts";

export interface Target {
  /** Normalised, starts with "/": the text that is matched and forwarded. */
  readonly path: string;
  /** As received, "?" included; "" when there is none. */
  readonly query: string;
  /** Host and port of an absolute-form target, as received; null for the usual origin-form. */
  readonly authority: string | null;
  /**
   * Whether the path holds `%2F`, which only services with `encoded_slashes` accept: all others refuse with
   * ENCODED_SLASH.
   */
  readonly encodedSlash: boolean;
}

export interface PathRefusal {
  readonly code: ErrorCode & ("path_ambiguous" | "bad_request");
  /** For the client; does not repeat its path. */
  readonly detail: string;
}

/**
 * Reads origin-form and absolute-form (RFC 9112 §3.2) from a target whose characters are bytes, as node's `req.url`
 * gives it.
 */
export function readTarget(target: string): Target | PathRefusal {
  return target.charCodeAt(0) === SLASH ? readPathAndQuery(target, 0, null) : readAbsolute(target);
}

/**
 * The normal form of a path: unreserved characters decoded, hex digits in upper case, `//` merged, characters that may
 * not stand raw in a path encoded (RFC 3986 §6.2.2). Normalising twice changes nothing more. `raw` starts with "/" and
 * has no query.
 */
export function normalisePath(raw: string): Pick<Target, "path" | "encodedSlash"> | PathRefusal {
  let path = "";
  let encodedSlash = false;
  let segment: "" | "." | ".." | "other" = "";
  let afterSlash = false;
  for (let i = 0; i < raw.length; i++) {
    let code = raw.charCodeAt(i);
    const encoded = code === PERCENT;
    if (encoded) {
      code = hexPair(raw, i + 1);
      if (code < 0) return BROKEN_ENCODING;
      i += 2;
    }
    if (code < 0x20 || code === 0x7f) return CONTROL;
    if (code === BACKSLASH) return BACKSLASH_FOUND;
    // `..%2F` is a dot segment, too, for a backend that decodes before it resolves dots. So is `..;x`: servlet
    // containers cut parameters off before they resolve dots.
    if ((segment === "." || segment === "..") && (code === SLASH || code === SEMICOLON)) return DOT_SEGMENT;
    if (code === SLASH) {
      if (encoded) path += "%2F";
      else if (!afterSlash) path += "/";
      encodedSlash ||= encoded;
      afterSlash = !encoded;
      segment = "";
      continue;
    }
    if (!encoded && code === HASH) return FRAGMENT;
    if (!encoded && code > 0x7f) return RAW_BYTE;
    path += encoded ? ENCODED[code] : WRITTEN[code];
    afterSlash = false;
    segment = code !== DOT ? "other" : segment === "" ? "." : segment === "." ? ".." : "other";
  }
  if (segment === "." || segment === "..") return DOT_SEGMENT;
  return { path, encodedSlash };
}

/**
 * The spelling in which normalised paths are compared: `%3A` as `:` and so on for every reserved character that may
 * also stand raw.
 * Forwarding keeps the client's spelling, since to a backend the two may differ (`%2B` and `+`); but most backends
 * route them alike, so a guard on `/items:export` must hold for `/items%3Aexport` too. Segments stay segments: `%2F` is
 * left alone.
 */
export function comparable(path: string): string {
  let at = path.indexOf("%");
  if (at < 0) return path;
  let result = "";
  let copied = 0;
  for (; at >= 0; at = path.indexOf("%", at + 3)) {
    const code = hexPair(path, at + 1);
    if (code > 0x7f || KIND[code] !== RESERVED) continue;
    result += path.slice(copied, at) + WRITTEN[code];
    copied = at + 3;
  }
  return copied === 0 ? path : result + path.slice(copied);
}

/** For a path with `%2F` where its route's service does not accept it, or no route matches. */
export const ENCODED_SLASH = refusal("path_ambiguous", "the path has an encoded “/”");
/** For a path that a more specific route matches once its parameters are cut off. */
export const PATH_PARAMETERS = refusal(
  "path_ambiguous",
  "the path has a “;” that other readers cut off, with what follows it in the segment",
);

const DOT_SEGMENT = refusal("path_ambiguous", "the path has a “.” or “..” segment");
const BACKSLASH_FOUND = refusal("path_ambiguous", "the path has a “\\”, raw or encoded");
const CONTROL = refusal("path_ambiguous", "the path has a control character, raw or encoded");
const BROKEN_ENCODING = refusal("path_ambiguous", "the path has a “%” that two hexadecimal digits do not follow");
const RAW_BYTE = refusal("bad_request", "the path has a byte outside ASCII that is not percent-encoded");
const FRAGMENT = refusal("bad_request", "the request target has a “#”");
const BAD_QUERY = refusal(
  "bad_request",
  "the query has a space, a control character or a byte outside ASCII that is not percent-encoded",
);
const BAD_FORM = refusal("bad_request", "the request target is neither a path nor an http or https URL");
const BAD_AUTHORITY = refusal("bad_request", "the request target names no valid host");

/** Reads from `start` on: a path, possibly empty, and a query. */
function readPathAndQuery(target: string, start: number, authority: string | null): Target | PathRefusal {
  const mark = target.indexOf("?", start);
  const end = mark < 0 ? target.length : mark;
  let query = "";
  if (mark >= 0) {
    const fault = queryFault(target, mark + 1);
    if (fault !== null) return fault;
    query = target.slice(mark);
  }
  if (start === end) return { path: "/", query, authority, encodedSlash: false };
  const written = start === 0 && mark < 0 ? target : target.slice(start, end);
  if (isNormal(written)) return { path: written, query, authority, encodedSlash: false };
  const normal = normalisePath(written);
  return "code" in normal ? normal : { path: normal.path, query, authority, encodedSlash: normal.encodedSlash };
}

/** True only for paths that normalising would not change; false for a few of them, such as `/.well-known`. */
function isNormal(path: string): boolean {
  let afterSlash = false;
  for (let i = 0; i < path.length; i++) {
    const code = path.charCodeAt(i);
    if (code === SLASH) {
      if (afterSlash) return false;
      afterSlash = true;
    } else {
      if (code > 0x7f || KIND[code] === ESCAPED || (afterSlash && code === DOT)) return false;
      afterSlash = false;
    }
  }
  return true;
}

/**
 * The query is forwarded byte for byte, so it must not contain characters that end the target or the request line (`a
 * b`, CR, `#`).
 */
function queryFault(target: string, start: number): PathRefusal | null {
  for (let i = start; i < target.length; i++) {
    const code = target.charCodeAt(i);
    if (code === HASH) return FRAGMENT;
    if (code <= 0x20 || code >= 0x7f) return BAD_QUERY;
  }
  return null;
}

/** `http://host:port/path?query`. Refuses asterisk-form and authority-form: the gateway is not a forward proxy. */
function readAbsolute(target: string): Target | PathRefusal {
  const scheme = target.slice(0, 8).toLowerCase();
  const start = scheme === "https://" ? 8 : scheme.startsWith("http://") ? 7 : 0;
  if (start === 0) return BAD_FORM;
  let end = start;
  for (; end < target.length; end++) {
    const code = target.charCodeAt(end);
    if (code === SLASH || code === QUESTION) break;
    if (code === HASH) return FRAGMENT;
    // User names in a URL mislead readers about the host (RFC 9110 §4.2.4).
    if (code > 0x7f || code === AT || (KIND[code] === ESCAPED && !AUTHORITY_EXTRA.includes(target[end]!)))
      return BAD_AUTHORITY;
  }
  if (end === start || target[start] === ":") return BAD_AUTHORITY;
  return readPathAndQuery(target, end, target.slice(start, end));
}

function hexPair(text: string, at: number): number {
  const high = hexDigit(text.charCodeAt(at));
  const low = hexDigit(text.charCodeAt(at + 1));
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

function refusal(code: PathRefusal["code"], detail: string): PathRefusal {
  return Object.freeze({ code, detail });
}

const HASH = 0x23;
const PERCENT = 0x25;
const DOT = 0x2e;
const SLASH = 0x2f;
const SEMICOLON = 0x3b;
const QUESTION = 0x3f;
const AT = 0x40;
const BACKSLASH = 0x5c;

/**
 * Characters that a segment may contain unescaped (RFC 3986 §2.2, §2.3, §3.3). Everything else in ASCII is written
 * `%XX`.
 */
const ESCAPED = 0;
const UNRESERVED = 1;
const RESERVED = 2;
const KIND = new Uint8Array(128);
for (const c of "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
  KIND[c.charCodeAt(0)] = UNRESERVED;
for (const c of "!$&'()*+,;=:@") KIND[c.charCodeAt(0)] = RESERVED;

/** A host may also hold percent-encoding and the brackets of an IPv6 address. */
const AUTHORITY_EXTRA = "%[]";

const HEX = Array.from({ length: 256 }, (_, code) => "%" + code.toString(16).toUpperCase().padStart(2, "0"));
/** How a byte that arrived raw is written, and one that arrived encoded. */
const WRITTEN = HEX.map((hex, code) => (code < 128 && KIND[code] !== ESCAPED ? String.fromCharCode(code) : hex));
const ENCODED = HEX.map((hex, code) => (code < 128 && KIND[code] === UNRESERVED ? String.fromCharCode(code) : hex));

/**
 * The rules of RFC 9111 for a shared cache: which replies may be stored, when a stored reply may answer a request, and
 * what a validation changes.
 */
import { httpDate } from "../../http/date.ts";
import { CREDENTIAL_HEADERS } from "../../base/secret_names.ts";
import {
  hasHeader,
  headerValue,
  headerValues,
  isEventStream,
  NameMap,
  nameSet,
  tokens,
  withoutHeaders,
  type HeaderList,
} from "../../http/headers.ts";
import type { Reply } from "../../http/reply.ts";
import { deltaSeconds, directives, fieldNames, directiveMs, type Directives } from "./cache_control.ts";
import type { Entry, Terms } from "./store.ts";
import type { VaryBy } from "./target.ts";
import { targetedDirectives } from "./targeted_control.ts";
import { influenceOf } from "./unkeyed_headers.ts";

/** What a cache has to know of the sender of a request and of its own settings. */
export interface Sender {
  /** An auth plugin knows the caller. */
  readonly known: boolean;
  readonly trusted: boolean;
  /** See `VaryBy`. */
  readonly covers: VaryBy["covers"];
}

/**
 * The cache-related parts of a request (§5.2.1): its directives, in milliseconds, its Range header or null, and whether
 * it has credentials (`authorised`), conditions that a stored reply can answer, or a header that only the origin can
 * evaluate. `mayImply`: whether lifetimes that the origin has not stated apply. `keyed`: the lines of headers that are
 * part of the key.
 */
export function cacheRequestOf(headers: HeaderList, { known, trusted, covers }: Sender) {
  const has = {
    authorised: known,
    credential: false,
    conditional: false,
    bypass: false,
    directed: false,
    ranged: false,
  };
  let mayImply = true;
  let keyed = "";
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    const kind = RELEVANT.get(name);
    if (kind !== undefined) has[kind] = true;
    if (kind === "authorised" || kind === "credential") mayImply &&= covers(name.toLowerCase(), headers[i + 1]!);
    if (kind !== undefined || PLAIN.has(name)) continue;
    const lower = name.toLowerCase();
    const influence = influenceOf(lower);
    if (influence === undefined || (influence === "client" && trusted)) continue;
    if (influence === "key" || (influence === "target" && trusted)) keyed += `\n${lower}: ${headers[i + 1]!}`;
    else has.bypass = true;
  }
  const { authorised, conditional, directed } = has;
  const range = has.ranged ? headerValues(headers, "range").join() : null;
  const bypass = has.bypass || (range !== null && !BYTES.test(range));
  return {
    ...(directed ? requestDirectives(headers) : NO_DIRECTIVES),
    authorised,
    mayImply,
    keyed,
    conditional,
    bypass,
    range,
  };
}

export type CacheRequest = Readonly<ReturnType<typeof cacheRequestOf>>;

/** Other units are the origin's business (RFC 9110 §14.1). */
const BYTES = /^bytes=/i;
const RELEVANT = new NameMap<"authorised" | "credential" | "conditional" | "bypass" | "directed" | "ranged">([
  ["authorization", "authorised"],
  ...["cookie", "proxy-authorization", ...CREDENTIAL_HEADERS].map((name) => [name, "credential"] as const),
  ["if-none-match", "conditional"],
  ["if-modified-since", "conditional"],
  ["cache-control", "directed"],
  ["pragma", "directed"],
  ["range", "ranged"],
  // A cache does not evaluate these conditions (§4.3.2).
  ["if-match", "bypass"],
  ["if-unmodified-since", "bypass"],
]);
/** Of nearly every request, and of no influence by itself: Vary names them where they matter. */
const PLAIN = nameSet([
  "host",
  "user-agent",
  "accept",
  "accept-encoding",
  "accept-language",
  "connection",
  "referer",
  "if-range",
  "te",
  "dnt",
  "priority",
]);

const NO_DIRECTIVES = {
  noStore: false,
  noCache: false,
  onlyIfCached: false,
  maxAge: Infinity,
  minFresh: 0,
  maxStale: 0,
  staleIfError: 0,
};

function requestDirectives(headers: HeaderList): typeof NO_DIRECTIVES {
  const all = directives(headers, "cache-control");
  // Pragma counts only where there is no Cache-Control (§5.4).
  if (all.size === 0) return { ...NO_DIRECTIVES, noCache: directives(headers, "pragma").has("no-cache") };
  // A limit without a number is the strictest one.
  const maxAge = directiveMs(all, "max-age") ?? Infinity;
  return {
    noStore: all.has("no-store"),
    // Literally, a reply of age 0 satisfies max-age=0; but clients that send it want a validation.
    noCache: all.has("no-cache") || !(maxAge > 0),
    onlyIfCached: all.has("only-if-cached"),
    maxAge,
    minFresh: directiveMs(all, "min-fresh") || 0,
    maxStale: all.get("max-stale") === null ? Infinity : directiveMs(all, "max-stale") || 0,
    staleIfError: directiveMs(all, "stale-if-error") || 0,
  };
}

/**
 * When the request was sent and the head of the reply received (monotonic clock), and the wall clock at that moment.
 */
export interface Timing {
  readonly askedAt: number;
  readonly cameAt: number;
  readonly wall: number;
}

/** The stored parts of the head of a reply. */
export type Storable = Pick<Entry, "terms" | "headers" | "vary">;

/** Whether a body can be stored according to its head: not too long, and matching Content-Length. */
export function fits({ headers, body }: Reply, expected: number | null, most: number): boolean {
  if (body === null) return expected === null || expected === 0;
  if (Buffer.isBuffer(body)) return body.length <= most && (expected === null || expected === body.length);
  // Event streams do not end.
  return (expected ?? 0) <= most && !isEventStream(headers);
}

/**
 * How a reply to GET may be stored; null if it may not (§3) or could never be used. `implied`: the lifetime of replies
 * that state none, in milliseconds, 0 for a heuristic one (§4.2.2); null if such a reply must not be stored.
 */
export function storable(
  status: number,
  given: HeaderList,
  authorised: boolean,
  timing: Timing,
  implied: number | null,
): Storable | null {
  const targeted = targetedDirectives(given);
  const all = targeted ?? directives(given, "cache-control");
  if (status < 200 || status === 206 || status === 304) return null;
  // must-understand overrides no-store if the status is understood (§5.2.2.3).
  if (all.has("must-understand") ? !UNDERSTOOD.has(status) : all.has("no-store")) return null;
  if (all.get("private") === null) return null;
  const forAuthorised = all.has("public") || all.has("must-revalidate") || all.has("s-maxage");
  if (authorised && !forAuthorised) return null;
  // Never, even if declared public: the next client would get the session of the first one.
  if (hasHeader(given, "set-cookie")) return null;
  const headers = keptHeaders(given, all, timing.wall);
  const vary = tokens(headers, "vary");
  if (vary.includes("*")) return null;
  // A targeted header also replaces Expires and Pragma (RFC 9213 §2.2).
  const explicit = lifetimeIn(all) ?? (targeted === null ? lifetimeByExpires(given, timing.wall) : undefined);
  if (explicit === undefined && !all.has("public") && !HEURISTIC.has(status)) return null;
  const noCache = all.get("no-cache") === null || (all.size === 0 && directives(given, "pragma").has("no-cache"));
  const isImplied = explicit === undefined && !noCache;
  if (isImplied && implied === null) return null;
  const terms: Terms = {
    lifetime: explicit ?? (implied || heuristicLifetime(headers, timing.wall)),
    isImplied,
    ageThen: ageThen(given, timing),
    noCache,
    neverStale: all.has("must-revalidate") || all.has("proxy-revalidate") || all.has("s-maxage"),
    staleWhileRevalidate: directiveMs(all, "stale-while-revalidate") || 0,
    staleIfError: directiveMs(all, "stale-if-error") || 0,
    forAuthorised,
  };
  return isUseful(terms, headers) ? { terms, headers, vary } : null;
}

/** Final statuses whose meaning for caches is known here (RFC 9110 §15, RFC 7538, RFC 7725). */
const UNDERSTOOD = new Set([
  200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414, 451, 500, 501, 502, 503, 504,
]);

/** "Heuristically cacheable" (RFC 9110 §15.1), without 206. */
const HEURISTIC = new Set([200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501]);

/** Whether a stored reply can ever be used: it is fresh, may be used while stale, or can be validated. */
function isUseful(terms: Terms, headers: HeaderList): boolean {
  if (isValidatable(headers) || terms.noCache) return isValidatable(headers);
  return (
    terms.lifetime > terms.ageThen || (!terms.neverStale && (terms.staleWhileRevalidate > 0 || terms.staleIfError > 0))
  );
}

/** Removes headers that must not be stored (§3.1, §5.2.2.4, §5.2.2.7), and adds a Date (RFC 9110 §6.6.1). */
function keptHeaders(given: HeaderList, all: Directives, wall: number): HeaderList {
  const kept = withoutHeaders(
    given,
    nameSet([...NEVER_KEPT, ...fieldNames(all.get("no-cache") ?? ""), ...fieldNames(all.get("private") ?? "")]),
  );
  if (!hasHeader(kept, "date")) kept.push("Date", new Date(wall).toUTCString());
  return kept;
}

/** Trailers are not stored; Age is computed for each reply; rate limits belong to one caller. */
const NEVER_KEPT = [
  "age",
  "trailer",
  "proxy-authenticate",
  "proxy-authentication-info",
  "proxy-authorization",
  "authentication-info",
  "x-request-id",
  ...["ratelimit", "ratelimit-policy"],
];

/** The lifetime set by the origin in milliseconds, 0 if it is invalid; undefined if there is none (§4.2.1). */
function lifetimeIn(all: Directives): number | undefined {
  const lifetime = directiveMs(all, "s-maxage") ?? directiveMs(all, "max-age");
  return lifetime === undefined ? undefined : lifetime || 0;
}

function lifetimeByExpires(given: HeaderList, wall: number): number | undefined {
  const expires = headerValues(given, "expires");
  if (expires.length === 0) return undefined;
  if (expires.some((each) => each !== expires[0])) return 0;
  return Math.max(0, httpDate(expires[0]!, wall) - dateOf(given, wall)) || 0;
}

/** A tenth of the time since the last change (§4.2.2). */
function heuristicLifetime(headers: HeaderList, wall: number): number {
  return Math.max(0, (dateOf(headers, wall) - dateIn(headers, "last-modified", wall)) / 10) || 0;
}

function dateOf(headers: HeaderList, wall: number): number {
  const date = dateIn(headers, "date", wall);
  return Number.isNaN(date) ? wall : date;
}

/** NaN if the header is missing or not a date. */
function dateIn(headers: HeaderList, lower: string, wall: number): number {
  return httpDate(headerValue(headers, lower) ?? "", wall);
}

/** §4.2.3, `corrected_initial_age`; only the first member of Age counts; an invalid number is ignored (§5.1). */
function ageThen(given: HeaderList, { askedAt, cameAt, wall }: Timing): number {
  const seconds = deltaSeconds(headerValue(given, "age")?.split(",", 1)[0]!.trim() ?? null) || 0;
  return Math.max(0, wall - dateOf(given, wall), seconds * 1_000 + cameAt - askedAt);
}

export function ageOf({ terms, cameAt }: Entry, now: number): number {
  return terms.ageThen + now - cameAt;
}

/** How a stored reply may be used; "stale" and "request" are reasons why it may not (RFC 9211 §2.2). */
export type CacheVerdict = "use" | "use stale" | "use and renew" | "stale" | "request";

/** §4, §5.2.1. */
export function judge(entry: Entry, request: CacheRequest, now: number): CacheVerdict {
  const { terms } = entry;
  const age = ageOf(entry, now);
  const left = terms.lifetime - age;
  if (terms.noCache) return "stale";
  if (!mayAnswer(entry, request)) return "request";
  const mayUse = !request.noCache && age <= request.maxAge;
  if (left > 0) return mayUse && left >= request.minFresh ? "use" : "request";
  if (!mayUse || terms.neverStale || request.minFresh > 0) return "stale";
  if (isWithin(-left, request.maxStale)) return "use stale";
  return isWithin(-left, terms.staleWhileRevalidate) ? "use and renew" : "stale";
}

/** Whether the stored reply may answer a request with these credentials at all (§3.5). */
function mayAnswer({ terms }: Entry, { authorised, mayImply }: CacheRequest): boolean {
  return (!authorised || terms.forAuthorised) && (!terms.isImplied || mayImply);
}

/** Whether the stored reply may be used in place of an error of the upstream (RFC 5861 §4). */
export function replacesErrors(entry: Entry, request: CacheRequest, now: number): boolean {
  const { terms } = entry;
  if (terms.noCache || terms.neverStale || request.noCache || !mayAnswer(entry, request)) return false;
  return isWithin(ageOf(entry, now) - terms.lifetime, Math.max(terms.staleIfError, request.staleIfError));
}

/** An allowance of 0 does not even cover a staleness of 0. */
function isWithin(staleness: number, allowed: number): boolean {
  return allowed > 0 && staleness <= allowed;
}

export function isServerError(status: number): boolean {
  return status === 500 || (status >= 502 && status <= 504);
}

/**
 * Whether this status means that the stored reply is outdated. A refusal of one request (401, 429) does not affect
 * other requests.
 */
export function supersedes(status: number): boolean {
  return (status < 400 && status !== 206 && status !== 304) || status === 404 || status === 410;
}

/** Whether a reply can be validated: it has an entity tag or a date of change (§4.3.1). */
export function isValidatable(stored: HeaderList): boolean {
  return headerValue(stored, "etag") !== undefined || headerValue(stored, "last-modified") !== undefined;
}

/** The request's headers with the validators of a stored reply instead of its own conditions. */
export function validating(headers: HeaderList, stored: HeaderList): HeaderList {
  const result = withoutHeaders(headers, CONDITIONS);
  const etag = headerValue(stored, "etag");
  const modified = headerValue(stored, "last-modified");
  if (etag !== undefined) result.push("If-None-Match", etag);
  if (modified !== undefined) result.push("If-Modified-Since", modified);
  return result;
}

const CONDITIONS = nameSet(["if-none-match", "if-modified-since"]);

/** What a client asks for itself, and no renewal in the background. */
export const OF_THE_CLIENT = nameSet(["if-none-match", "if-modified-since", "range", "if-range"]);

/**
 * Whether a 304 is about this reply (§4.3.4): it names the same entity tag; without one, the same date of change; or
 * neither.
 */
export function confirms(given: HeaderList, stored: HeaderList): boolean {
  const etag = headerValue(given, "etag");
  if (etag !== undefined) return opaque(etag) === opaque(headerValue(stored, "etag") ?? "");
  const modified = headerValue(given, "last-modified");
  return modified === undefined || modified === headerValue(stored, "last-modified");
}

/** The stored headers updated with the headers of a 304 (§3.2), except headers of the stored body. */
export function updated(stored: HeaderList, given: HeaderList): HeaderList {
  const fresh = withoutHeaders(given, OF_THE_BODY);
  // An old Date would make the reply look as old as before.
  const replaced = nameSet(["date", ...fresh.filter((_text, i) => i % 2 === 0)]);
  return [...withoutHeaders(stored, replaced), ...fresh];
}

/**
 * The stored entity tag stays: it may differ in strength, which depends on how the stored body was encoded. So do
 * digests of the stored bytes:
 * those of a 304 may be about its own empty content (RFC 9530 §2).
 */
const OF_THE_BODY = nameSet([
  "content-length",
  "content-encoding",
  "content-range",
  "content-digest",
  "content-md5",
  "etag",
]);

/** Whether a reply to HEAD still describes the stored one (§4.3.5). */
export function describes(given: HeaderList, stored: HeaderList, bytes: number): boolean {
  const length = headerValue(given, "content-length");
  if (length !== undefined && length !== String(bytes)) return false;
  const same = (name: string) => headerValue(given, name) === headerValue(stored, name);
  return same("etag") && same("last-modified");
}

/** Whether the client already has the stored reply (§4.3.2, RFC 9110 §13.1.2, §13.1.3). */
export function isNotModified(headers: HeaderList, { status, headers: stored }: Entry, wall: number): boolean {
  if (status !== 200) return false;
  const tags = headerValues(headers, "if-none-match");
  if (tags.length > 0) {
    const etag = headerValue(stored, "etag");
    return tags.some(
      (list) =>
        list.trim() === "*" ||
        (etag !== undefined && (list.match(ENTITY_TAG) ?? []).some((tag) => opaque(tag) === opaque(etag))),
    );
  }
  const modified = dateIn(stored, hasHeader(stored, "last-modified") ? "last-modified" : "date", wall);
  return modified <= dateIn(headers, "if-modified-since", wall);
}

const ENTITY_TAG = /(?:W\/)?"[^"]*"/g;

/** Weak comparison (RFC 9110 §8.8.3.2). */
function opaque(etag: string): string {
  return etag.startsWith("W/") ? etag.slice(2) : etag;
}

/** The headers of a 304 (RFC 9110 §15.4.5): without headers that describe the missing body. */
export function notModifiedHeaders(stored: HeaderList): HeaderList {
  return withoutHeaders(stored, headerValue(stored, "etag") === undefined ? DESCRIBES_BODY : NEEDLESS_WITH_TAG);
}

const BODY_HEADERS = ["content-type", "content-length", "content-encoding", "content-language", "content-range"];
const DESCRIBES_BODY = nameSet(BODY_HEADERS);
const NEEDLESS_WITH_TAG = nameSet([...BODY_HEADERS, "last-modified"]);

/**
 * What RFC 9111 lets a shared cache do: which replies may be stored and on what terms, when a stored one may answer a request, and what
 * a validation changes. Where replies are kept is `cache_store.ts`; asking the upstream is `response_cache.ts`.
 */
import { httpDate } from "../http/date.ts";
import { hasHeader, headerValue, headerValues, tokens, withHeader, withoutHeader, type HeaderList } from "../http/headers.ts";
import { deltaSeconds, directives, fieldNames, milliseconds, type Directives } from "./cache_control.ts";
import type { Entry, Terms } from "./cache_store.ts";

/** What a request says that concerns a cache (§5.2.1), milliseconds throughout. */
export interface Wishes {
  readonly noStore: boolean;
  readonly noCache: boolean;
  readonly onlyIfCached: boolean;
  /** Infinity where it does not say. */
  readonly maxAge: number;
  readonly minFresh: number;
  readonly maxStale: number;
  readonly staleIfError: number;
  /** With Authorization; an identity is the caller's to add. */
  readonly authorised: boolean;
  /** With If-None-Match or If-Modified-Since. */
  readonly conditional: boolean;
  /** With headers that only the origin can heed: Range, If-Range, If-Match, If-Unmodified-Since; or that ask for another method or target. */
  readonly bypass: boolean;
}

export function wishesOf(headers: HeaderList): Wishes {
  let authorised = false;
  let conditional = false;
  let bypass = false;
  let directed = false;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!;
    switch (name.length) {
      case 5:
        bypass ||= name.toLowerCase() === "range";
        break;
      case 6:
        directed ||= name.toLowerCase() === "pragma";
        break;
      case 8: {
        const lower = name.toLowerCase();
        bypass ||= lower === "if-match" || lower === "if-range";
        break;
      }
      case 13: {
        const lower = name.toLowerCase();
        authorised ||= lower === "authorization";
        conditional ||= lower === "if-none-match";
        directed ||= lower === "cache-control";
        bypass ||= lower === "x-http-method" || lower === "x-rewrite-url";
        break;
      }
      case 14:
        bypass ||= name.toLowerCase() === "x-original-url";
        break;
      case 17: {
        const lower = name.toLowerCase();
        conditional ||= lower === "if-modified-since";
        bypass ||= lower === "x-method-override";
        break;
      }
      case 22:
        bypass ||= name.toLowerCase() === "x-http-method-override";
        break;
      case 19:
        bypass ||= name.toLowerCase() === "if-unmodified-since";
    }
  }
  return { ...(directed ? directedWishes(headers) : NO_WISHES), authorised, conditional, bypass };
}

type Directed = Omit<Wishes, "authorised" | "conditional" | "bypass">;

const NO_WISHES: Directed = { noStore: false, noCache: false, onlyIfCached: false, maxAge: Infinity, minFresh: 0, maxStale: 0, staleIfError: 0 };

function directedWishes(headers: HeaderList): Directed {
  const all = directives(headers, "cache-control");
  // Pragma counts only where there is no Cache-Control (§5.4).
  if (all.size === 0) return directives(headers, "pragma").has("no-cache") ? { ...NO_WISHES, noCache: true } : NO_WISHES;
  // A limit without a number is the strictest one.
  const maxAge = milliseconds(all, "max-age") ?? Infinity;
  return {
    noStore: all.has("no-store"),
    // A reply of age 0 would do by the letter; whoever asks so wants it looked after.
    noCache: all.has("no-cache") || !(maxAge > 0),
    onlyIfCached: all.has("only-if-cached"),
    maxAge,
    minFresh: milliseconds(all, "min-fresh") || 0,
    maxStale: all.get("max-stale") === null ? Infinity : milliseconds(all, "max-stale") || 0,
    staleIfError: milliseconds(all, "stale-if-error") || 0,
  };
}

/** When a reply was asked for and when its head came: `now` of the monotonic clock, and the wall clock at the end. */
export interface Timing {
  readonly askedAt: number;
  readonly cameAt: number;
  readonly wall: number;
}

export interface Storable {
  readonly terms: Terms;
  /** What is stored of the headers. */
  readonly headers: HeaderList;
  /** Names in Vary, in lower case. */
  readonly vary: readonly string[];
}

/** How a reply to GET may be stored; null where it may not (§3), or where that would be of no use to anybody. */
export function storable(status: number, given: HeaderList, authorised: boolean, timing: Timing, defaultTtl: number): Storable | null {
  const all = directives(given, "cache-control");
  if (status < 200 || status === 206 || status === 304) return null;
  // must-understand takes the place of no-store where the status is understood (§5.2.2.3).
  if (all.has("must-understand") ? !UNDERSTOOD.has(status) : all.has("no-store")) return null;
  if (all.get("private") === null) return null;
  const forAuthorised = all.has("public") || all.has("must-revalidate") || all.has("s-maxage");
  if (authorised && !forAuthorised) return null;
  // Whatever it says: the next client to get it would be taken for the one that it was made for.
  if (hasHeader(given, "set-cookie")) return null;
  const headers = keptHeaders(given, all, timing.wall);
  const vary = tokens(headers, "vary");
  if (vary.includes("*")) return null;
  const explicit = explicitLifetime(given, all, timing.wall);
  if (explicit === undefined && !all.has("public") && !HEURISTIC.has(status)) return null;
  const terms: Terms = {
    lifetime: explicit ?? (defaultTtl > 0 ? defaultTtl : heuristicLifetime(headers, timing.wall)),
    ageThen: ageThen(given, timing),
    noCache: all.get("no-cache") === null || (all.size === 0 && directives(given, "pragma").has("no-cache")),
    neverStale: all.has("must-revalidate") || all.has("proxy-revalidate") || all.has("s-maxage"),
    staleWhileRevalidate: milliseconds(all, "stale-while-revalidate") || 0,
    staleIfError: milliseconds(all, "stale-if-error") || 0,
    forAuthorised,
  };
  return isUseful(terms, headers) ? { terms, headers, vary } : null;
}

/** Final statuses whose meaning for caches is known here (RFC 9110 §15, RFC 7538, RFC 7725). */
const UNDERSTOOD = new Set([200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414, 451, 500, 501, 502, 503, 504]);

/** "Heuristically cacheable" (RFC 9110 §15.1), without 206. */
const HEURISTIC = new Set([200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501]);

/** Whether anything can become of it: it is fresh, may be used while stale, or can be validated. */
function isUseful(terms: Terms, headers: HeaderList): boolean {
  if (isValidatable(headers)) return true;
  if (terms.noCache) return false;
  return terms.lifetime > terms.ageThen || (!terms.neverStale && (terms.staleWhileRevalidate > 0 || terms.staleIfError > 0));
}

/** Without what concerns one hop, or may not be used unvalidated (§3.1, §5.2.2.4, §5.2.2.7); with a Date (RFC 9110 §6.6.1). */
function keptHeaders(given: HeaderList, all: Directives, wall: number): HeaderList {
  const named = [...fieldNames(all.get("no-cache") ?? ""), ...fieldNames(all.get("private") ?? "")];
  const kept: string[] = [];
  let dated = false;
  for (let i = 0; i < given.length; i += 2) {
    const lower = given[i]!.toLowerCase();
    if (NEVER_KEPT.has(lower) || named.includes(lower)) continue;
    dated ||= lower === "date";
    kept.push(given[i]!, given[i + 1]!);
  }
  if (!dated) kept.push("Date", new Date(wall).toUTCString());
  return kept;
}

/** Trailers are not kept; Age is told anew each time; what is left of one caller's allowance says nothing to the next. */
const NEVER_KEPT = new Set([
  ...["age", "trailer", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization", "authentication-info", "x-request-id"],
  ...["ratelimit", "ratelimit-policy"],
]);

/** What the origin says, NaN being stale; undefined where it says nothing (§4.2.1). */
function explicitLifetime(given: HeaderList, all: Directives, wall: number): number | undefined {
  const said = milliseconds(all, "s-maxage") ?? milliseconds(all, "max-age");
  if (said !== undefined) return said || 0;
  const expires = headerValues(given, "expires");
  if (expires.length === 0) return undefined;
  if (expires.some((each) => each !== expires[0])) return 0;
  return Math.max(0, httpDate(expires[0]!, wall) - dateOf(given, wall)) || 0;
}

/** A tenth of the time for which it has not changed (§4.2.2). */
function heuristicLifetime(headers: HeaderList, wall: number): number {
  const modified = httpDate(headerValue(headers, "last-modified") ?? "", wall);
  return Math.max(0, (dateOf(headers, wall) - modified) / 10) || 0;
}

function dateOf(headers: HeaderList, wall: number): number {
  const date = httpDate(headerValue(headers, "date") ?? "", wall);
  return Number.isNaN(date) ? wall : date;
}

/** §4.2.3, `corrected_initial_age`; of several members of Age the first counts, one that is no number does not (§5.1). */
function ageThen(given: HeaderList, { askedAt, cameAt, wall }: Timing): number {
  const told = deltaSeconds(headerValue(given, "age")?.split(",", 1)[0]!.trim() ?? null) || 0;
  return Math.max(0, wall - dateOf(given, wall), told * 1_000 + cameAt - askedAt);
}

export function ageOf({ terms, cameAt }: Entry, now: number): number {
  return terms.ageThen + now - cameAt;
}

/**
 * What a stored reply is good for: "use"; "use stale", because the client or the origin allows it; "use and renew" in the background;
 * else why not: it is "stale", or it would do but for what the "request" is or says.
 */
export type Verdict = "use" | "use stale" | "use and renew" | "stale" | "request";

/** §4, §5.2.1. `authorised`: the request has credentials of any kind. */
export function judge(entry: Entry, wishes: Wishes, authorised: boolean, now: number): Verdict {
  const { terms } = entry;
  const age = ageOf(entry, now);
  const left = terms.lifetime - age;
  if (terms.noCache) return "stale";
  if (left > 0) {
    const fits = !wishes.noCache && age <= wishes.maxAge && left >= wishes.minFresh && (!authorised || terms.forAuthorised);
    return fits ? "use" : "request";
  }
  if (terms.neverStale || wishes.noCache || age > wishes.maxAge || wishes.minFresh > 0 || (authorised && !terms.forAuthorised)) return "stale";
  if (isWithin(-left, wishes.maxStale)) return "use stale";
  return isWithin(-left, terms.staleWhileRevalidate) ? "use and renew" : "stale";
}

/** Whether it may stand in for an error of the upstream (RFC 5861 §4). */
export function standsIn(entry: Entry, wishes: Wishes, authorised: boolean, now: number): boolean {
  const { terms } = entry;
  if (terms.noCache || terms.neverStale || wishes.noCache || (authorised && !terms.forAuthorised)) return false;
  return isWithin(ageOf(entry, now) - terms.lifetime, Math.max(terms.staleIfError, wishes.staleIfError));
}

/** No leave at all is none for the first moment either. */
function isWithin(staleness: number, allowed: number): boolean {
  return allowed > 0 && staleness <= allowed;
}

export function isServerError(status: number): boolean {
  return status === 500 || (status >= 502 && status <= 504);
}

/** Whether what is stored is no longer what the upstream would say. A refusal of one request (401, 429) says nothing of others. */
export function supersedes(status: number): boolean {
  return (status < 400 && status !== 206 && status !== 304) || status === 404 || status === 410;
}

/** Whether a reply can be validated: it has an entity tag or a date of change (§4.3.1). */
export function isValidatable(stored: HeaderList): boolean {
  return headerValue(stored, "etag") !== undefined || headerValue(stored, "last-modified") !== undefined;
}

/** The request's headers with the validators of a stored reply instead of its own conditions. */
export function validating(headers: HeaderList, stored: HeaderList): HeaderList {
  const result = withoutConditions(headers);
  const etag = headerValue(stored, "etag");
  const modified = headerValue(stored, "last-modified");
  if (etag !== undefined) result.push("If-None-Match", etag);
  if (modified !== undefined) result.push("If-Modified-Since", modified);
  return result;
}

/** A copy that may be appended to. */
export function withoutConditions(headers: HeaderList): string[] {
  return without(headers, CONDITIONS);
}

const CONDITIONS: ReadonlySet<string> = new Set(["if-none-match", "if-modified-since"]);

function without(list: HeaderList, names: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (let i = 0; i < list.length; i += 2) if (!names.has(list[i]!.toLowerCase())) kept.push(list[i]!, list[i + 1]!);
  return kept;
}

/** Whether a 304 speaks of this reply (§4.3.4): it names no entity tag, or the same one. */
export function confirms(given: HeaderList, stored: HeaderList): boolean {
  const etag = headerValue(given, "etag");
  return etag === undefined || opaque(etag) === opaque(headerValue(stored, "etag") ?? "");
}

/** The stored headers with those of a 304 in place of them (§3.2), except what belongs to the body that is kept. */
export function updated(stored: HeaderList, given: HeaderList): HeaderList {
  const fresh = without(given, OF_THE_BODY);
  // An old Date would make the reply look as old as before.
  const replaced = new Set(["date"]);
  for (let i = 0; i < fresh.length; i += 2) replaced.add(fresh[i]!.toLowerCase());
  return [...without(stored, replaced), ...fresh];
}

/** The tag is the same but for its strength, and how strong it is depends on how the body was encoded. */
const OF_THE_BODY: ReadonlySet<string> = new Set(["content-length", "content-encoding", "content-range", "etag"]);

export function withoutAge(headers: HeaderList): HeaderList {
  return withoutHeader(headers, "age");
}

/** Whether a reply to HEAD still describes the stored one (§4.3.5). */
export function describes(given: HeaderList, stored: HeaderList, bytes: number): boolean {
  const length = headerValue(given, "content-length");
  if (length !== undefined && length !== String(bytes)) return false;
  const same = (name: string) => headerValue(given, name) === headerValue(stored, name);
  return same("etag") && same("last-modified");
}

/** Whether the client has the stored reply already (§4.3.2, RFC 9110 §13.1.2, §13.1.3). */
export function hasIt(headers: HeaderList, { status, headers: stored }: Entry, wall: number): boolean {
  if (status !== 200) return false;
  const tags = headerValues(headers, "if-none-match");
  if (tags.length > 0) {
    const etag = headerValue(stored, "etag");
    return tags.some((list) => list.trim() === "*" || (etag !== undefined && (list.match(ENTITY_TAG) ?? []).some((tag) => opaque(tag) === opaque(etag))));
  }
  const since = httpDate(headerValue(headers, "if-modified-since") ?? "", wall);
  const modified = httpDate(headerValue(stored, "last-modified") ?? headerValue(stored, "date") ?? "", wall);
  return modified <= since;
}

const ENTITY_TAG = /(?:W\/)?"[^"]*"/g;

/** Weak comparison (RFC 9110 §8.8.3.2). */
function opaque(etag: string): string {
  return etag.startsWith("W/") ? etag.slice(2) : etag;
}

/** The headers of a 304 (RFC 9110 §15.4.5): without those that describe a body that does not come. */
export function notModifiedHeaders(stored: HeaderList): HeaderList {
  return without(stored, headerValue(stored, "etag") === undefined ? DESCRIBES_BODY : NEEDLESS_WITH_TAG);
}

const DESCRIBES_BODY: ReadonlySet<string> = new Set(["content-type", "content-length", "content-encoding", "content-language", "content-range"]);
const NEEDLESS_WITH_TAG: ReadonlySet<string> = new Set([...DESCRIBES_BODY, "last-modified"]);

/** For HEAD, which has no body that would tell. */
export function withBodyLength(headers: HeaderList, body: Buffer | null): HeaderList {
  return body === null ? headers : withHeader(headers, "Content-Length", String(body.length));
}

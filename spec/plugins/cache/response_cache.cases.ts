/**
 * RFC 9111 as a table: what a shared cache does with which messages, by section. It holds data only and may be used to look at any
 * cache; `response_cache.spec.ts` runs it against the plugin.
 *
 * The clock of a case begins at 2026-01-01T00:00:00Z. Every reply of the origin has a body of its own, so that an old one is known.
 */

export type Headers = Readonly<Record<string, string | readonly string[]>>;

export interface Step {
  /** Seconds since the step before. Default 1, for the first step 0. */
  readonly after?: number;
  /** Default GET. */
  readonly method?: string;
  /** Default "/a/b". */
  readonly target?: string;
  /** Headers of the request. */
  readonly ask?: Headers;
  /** Who asks, where an auth plugin has found it out. */
  readonly identity?: string;
  /** Headers of the origin's reply, if it is asked. */
  readonly says?: Headers;
  /** Its status. Default 200; 304 where it is asked to validate. */
  readonly status?: number;
  /** How long it takes, in seconds. Default 0. */
  readonly takes?: number;
  /**
   * Where the client's reply comes from: the origin, the store, or the store after the origin has been asked whether it still holds.
   * Default: the origin in the first step, the store in later ones.
   */
  readonly from?: "origin" | "store" | "validation";
  /** Which of the origin's replies the client's one has the body of, counted from 1. */
  readonly like?: number;
  /** What the client gets: status (default: that of the origin, or of what is stored) and headers, null for none. */
  readonly gets?: { readonly status?: number; readonly headers?: Readonly<Record<string, string | null>> };
  /** Headers that reach the origin, null for none. */
  readonly sent?: Readonly<Record<string, string | null>>;
}

export interface Case {
  /** Of RFC 9111 unless it says otherwise. */
  readonly section: string;
  readonly promise: string;
  /** Seconds for which replies are fresh that say nothing. */
  readonly defaultTtl?: number;
  readonly steps: readonly Step[];
}

const FRESH: Headers = { "Cache-Control": "max-age=60" };
const TAGGED: Headers = { "Cache-Control": "max-age=10", ETag: '"1"' };
const DATED: Headers = { "Cache-Control": "max-age=10", "Last-Modified": "Wed, 31 Dec 2025 12:00:00 GMT" };
const AUTHORISED: Headers = { Authorization: "Basic YTpi" };

/** The reply of the first step answers the second one, or does not. */
function kept(section: string, promise: string, says: Headers, more: Partial<Step> = {}): Case {
  return { section, promise, steps: [{ says, ...more }, {}] };
}

function notKept(section: string, promise: string, says: Headers, more: Partial<Step> = {}): Case {
  return { section, promise, steps: [{ says, ...more }, { from: "origin" }] };
}

function request(section: string, promise: string, ask: Headers, from: "origin" | "store" | "validation", stored: Headers = FRESH, after = 20): Case {
  return { section, promise, steps: [{ says: stored }, { after, ask, from }] };
}

export const CASES: readonly Case[] = [
  // Which replies are stored.
  kept("3", "max-age", FRESH),
  kept("3", "s-maxage", { "Cache-Control": "s-maxage=60" }),
  kept("3", "Expires", { Expires: "Thu, 01 Jan 2026 00:01:00 GMT" }),
  notKept("3", "nothing that says how long it is fresh, nothing to validate", {}),
  kept("3", "an unknown status with max-age", FRESH, { status: 299 }),
  kept("3", "302 with max-age", { ...FRESH, Location: "/x" }, { status: 302 }),
  kept("3", "404 with max-age", FRESH, { status: 404 }),
  kept("3", "503 with max-age", FRESH, { status: 503 }),
  notKept("3", "a reply to POST", FRESH, { method: "POST" }),
  notKept("3", "a reply to HEAD", FRESH, { method: "HEAD" }),
  notKept("3.3", "206", { ...FRESH, "Content-Range": "bytes 0-3/10" }, { status: 206 }),
  notKept("3.3", "a reply to a request for a range", FRESH, { ask: { Range: "bytes=0-3" } }),
  { section: "3.3", promise: "a range is not taken from the store", steps: [{ says: FRESH }, { ask: { Range: "bytes=0-3" }, from: "origin", status: 206 }, {}] },
  notKept("3", "304 to a condition of the client's own", FRESH, { ask: { "If-None-Match": '"1"' }, status: 304 }),
  kept("3", "200 to a condition of the client's own", FRESH, { ask: { "If-None-Match": '"0"' } }),
  kept("3.1", "headers are told again as they were, whatever their case and number", { ...FRESH, "X-Two": ["a", "b"] }, { gets: { headers: { "x-two": "a, b" } } }),
  {
    section: "3.1",
    promise: "headers that concern one proxy are not stored",
    steps: [{ says: { ...FRESH, "Proxy-Authenticate": "Basic" } }, { gets: { headers: { "proxy-authenticate": null } } }],
  },
  {
    section: "3.1",
    promise: "nor what is said of one caller's allowance",
    steps: [{ says: { ...FRESH, RateLimit: '"second";r=9;t=1', "RateLimit-Policy": '"second";q=10;w=1' } }, { gets: { headers: { ratelimit: null, "ratelimit-policy": null } } }],
  },
  {
    section: "3.2",
    promise: "a 304 updates the stored headers, but not those of the body",
    steps: [
      { says: { ...TAGGED, "X-A": "1", "X-B": "1", "Content-Length": "6" } },
      { after: 11, from: "validation", says: { "Cache-Control": "max-age=100", "X-A": "2", "Content-Length": "0" }, gets: { headers: { "x-a": "2", "x-b": "1", "content-length": "6" } } },
      { after: 99, gets: { headers: { "x-a": "2", "x-b": "1" } } },
    ],
  },
  {
    section: "3.2",
    promise: "a weak tag does not become a strong one by a 304 (compress further in has made it weak)",
    steps: [{ says: { ...TAGGED, ETag: 'W/"1"' } }, { after: 11, from: "validation", says: TAGGED, gets: { headers: { etag: 'W/"1"' } } }, { gets: { headers: { etag: 'W/"1"' } } }],
  },
  {
    section: "3.2",
    promise: "a 304 that says no-store ends the storing",
    steps: [{ says: TAGGED }, { after: 11, from: "validation", says: { "Cache-Control": "no-store" } }, { from: "origin", sent: { "if-none-match": null } }],
  },

  // Credentials.
  notKept("3.5", "a reply to a request with Authorization", FRESH, { ask: AUTHORISED }),
  kept("3.5", "the same with public", { "Cache-Control": "max-age=60, public" }, { ask: AUTHORISED }),
  kept("3.5", "the same with s-maxage", { "Cache-Control": "s-maxage=60" }, { ask: AUTHORISED }),
  kept("3.5", "the same with must-revalidate", { "Cache-Control": "max-age=60, must-revalidate" }, { ask: AUTHORISED }),
  notKept("3.5", "a reply to a caller whom an auth plugin knows by other means", FRESH, { identity: "alice" }),
  kept("3.5", "the same with public", { "Cache-Control": "max-age=60, public" }, { identity: "alice" }),
  { section: "3.5", promise: "what was got without credentials is not for those who have some", steps: [{ says: FRESH }, { ask: AUTHORISED, from: "origin" }, { identity: "alice", from: "origin" }, {}] },
  { section: "3.5", promise: "unless it is public", steps: [{ says: { "Cache-Control": "public, max-age=60" } }, { ask: AUTHORISED }, { identity: "alice" }] },
  notKept("7.3", "a reply with Set-Cookie", { ...FRESH, "Set-Cookie": "a=1" }),
  notKept("7.3", "the same with public", { "Cache-Control": "public, max-age=60", "Set-Cookie": "a=1" }),
  notKept("7.3", "the same to a request with Authorization", { "Cache-Control": "public, s-maxage=60", "set-cookie": "a=1" }, { ask: AUTHORISED }),
  {
    section: "7.3",
    promise: "a 304 with Set-Cookie goes to the client that asked, and ends the storing",
    steps: [
      { says: TAGGED },
      { after: 11, from: "validation", says: { "Cache-Control": "public, max-age=100", "Set-Cookie": "a=1" }, gets: { headers: { "set-cookie": "a=1" } } },
      { from: "origin", sent: { "if-none-match": null } },
    ],
  },

  // The target and Vary.
  { section: "2", promise: "another query is another target", steps: [{ says: FRESH }, { target: "/a/b?x=1", from: "origin", says: FRESH }, { like: 1 }, { target: "/a/b?x=1", like: 2 }] },
  { section: "2", promise: "another host is another target", steps: [{ says: FRESH }, { target: "http://other.example/a/b", from: "origin" }] },
  { section: "2", promise: "another scheme is another target", steps: [{ says: FRESH }, { target: "https://gateway.example/a/b", from: "origin" }] },
  { section: "2", promise: "the case of the host and the default port make no difference", steps: [{ says: FRESH }, { target: "http://GATEWAY.example:80/a/b" }] },
  ...["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"].map((name): Case => ({
    section: "4",
    promise: `${name} asks some origins for something else`,
    steps: [{ says: FRESH, ask: { [name]: "/x" } }, { from: "origin", says: FRESH }, { ask: { [name]: "/x" }, from: "origin" }, { like: 2 }],
  })),
  { section: "4", promise: "HEAD is answered by what GET has stored", steps: [{ says: FRESH }, { method: "HEAD", gets: { headers: { "content-length": "6" } } }] },
  {
    section: "4.1",
    promise: "a reply answers requests that have the same in what Vary names",
    steps: [
      { ask: { "Accept-Language": "de" }, says: { ...FRESH, Vary: "Accept-Language" } },
      { ask: { "Accept-Language": "de" }, like: 1 },
      { ask: { "Accept-Language": "en" }, from: "origin", says: { ...FRESH, Vary: "Accept-Language" } },
      { ask: { "Accept-Language": "de" }, like: 1 },
      { ask: { "Accept-Language": "en" }, like: 2 },
      { from: "origin" },
    ],
  },
  { section: "4.1", promise: "nothing in it fits nothing in it", steps: [{ says: { ...FRESH, Vary: "Accept-Language" } }, {}] },
  {
    section: "4.1",
    promise: "all the names count, and space between members does not",
    steps: [
      { ask: { A: "1", B: "2,3" }, says: { ...FRESH, Vary: ["a", "B"] } },
      { ask: { B: "2 , 3", a: "1" } },
      { ask: { A: "1", B: ["2", "3"] } },
      { ask: { A: "1" }, from: "origin" },
    ],
  },
  {
    section: "4.1",
    promise: "what Connection takes off the request counts as missing (9110 7.6.1)",
    steps: [
      { ask: { "Accept-Language": "de", Connection: "keep-alive, Accept-Language" }, says: { ...FRESH, Vary: "Accept-Language" }, sent: { "accept-language": null } },
      { ask: { "Accept-Language": "de" }, from: "origin" },
      { ask: {}, like: 1 },
    ],
  },
  notKept("4.1", "Vary: *", { ...FRESH, Vary: "*" }),
  notKept("4.1", "* among other names", { ...FRESH, Vary: "Accept, *" }),
  {
    section: "4.1",
    promise: "of several that fit the newest is used",
    steps: [
      { ask: { A: "1" }, says: { ...FRESH, Vary: "A" } },
      { ask: { A: "1", "Cache-Control": "no-cache" }, from: "origin", says: { ...FRESH, "X-New": "yes" } },
      { ask: { A: "1" }, gets: { headers: { "x-new": "yes" } } },
    ],
  },

  // How long a reply is fresh.
  { section: "4.2", promise: "fresh while its lifetime is more than its age, and not longer", steps: [{ says: FRESH }, { after: 59 }, { after: 1, from: "origin" }] },
  { section: "4.2.1", promise: "s-maxage goes before max-age", steps: [{ says: { "Cache-Control": "max-age=1, s-maxage=60" } }, { after: 30 }] },
  { section: "4.2.1", promise: "s-maxage goes before max-age also where it is less", steps: [{ says: { "Cache-Control": "max-age=60, s-maxage=5" } }, { after: 6, from: "origin" }] },
  { section: "4.2.1", promise: "max-age goes before Expires", steps: [{ says: { ...FRESH, Expires: "Thu, 01 Jan 2026 00:00:01 GMT" } }, { after: 30 }] },
  { section: "4.2.1", promise: "Expires counts from Date", steps: [{ says: { Date: "Wed, 31 Dec 2025 23:59:50 GMT", Expires: "Thu, 01 Jan 2026 00:00:05 GMT" } }, { after: 4 }, { after: 2, from: "origin" }] },
  notKept("4.2.1", "max-age without a number", { "Cache-Control": "max-age" }),
  notKept("4.2.1", "max-age that is no number, whatever Expires says", { "Cache-Control": "max-age=1h", Expires: "Thu, 01 Jan 2026 01:00:00 GMT" }),
  notKept("4.2.1", "max-age below zero", { "Cache-Control": "max-age=-60" }),
  notKept("4.2.1", "two different max-age", { "Cache-Control": ["max-age=60", "max-age=30"] }),
  kept("4.2.1", "max-age twice the same", { "Cache-Control": ["max-age=60", "max-age=60"] }),
  kept("1.2.2", "max-age beyond 2^31", { "Cache-Control": "max-age=99999999999999999999" }),
  kept("5.2", "a number in quotes", { "Cache-Control": 'max-age="60"' }),
  kept("5.2", "directives in any case", { "Cache-Control": "MaX-AgE=60" }),
  kept("5.2.3", "directives that nobody knows, quoted commas among them", { "Cache-Control": 'foo="a, no-store", max-age=60, bar' }),
  notKept("5.2", "private behind members that are no directives", { "Cache-Control": 'max-age=60, "x", =, =y, private' }),
  kept("5.2", "max-age behind them", { "Cache-Control": '"x", =y, max-age=60,, ' }),
  notKept("5.2", "max-age with space around its =", { "Cache-Control": "max-age = 60" }),
  notKept("5.3", "Expires: 0", { Expires: "0" }),
  notKept("5.3", "Expires that is no date", { Expires: "tomorrow" }),
  notKept("5.3", "two different Expires", { Expires: ["Thu, 01 Jan 2026 00:01:00 GMT", "Thu, 01 Jan 2026 00:02:00 GMT"] }),
  kept("5.3", "Expires in the form of RFC 850", { Expires: "Thursday, 01-Jan-26 00:01:00 GMT" }),
  kept("5.3", "Expires in the form of asctime", { Expires: "Thu Jan  1 00:01:00 2026" }),
  notKept("5.3", "a year of two digits more than 50 years ahead is past", { Expires: "Friday, 01-Jan-77 00:01:00 GMT" }),
  {
    section: "4.2.2",
    promise: "a tenth of the time since Last-Modified",
    steps: [{ says: { "Last-Modified": "Wed, 31 Dec 2025 23:50:00 GMT", Date: "Thu, 01 Jan 2026 00:00:00 GMT" } }, { after: 59 }, { after: 1, from: "validation", sent: { "if-modified-since": "Wed, 31 Dec 2025 23:50:00 GMT" } }],
  },
  notKept("4.2.2", "no guess for statuses that do not allow it", { "Last-Modified": "Wed, 31 Dec 2025 00:00:00 GMT" }, { status: 302 }),
  kept("4.2.2", "public allows it", { "Last-Modified": "Wed, 31 Dec 2025 00:00:00 GMT", "Cache-Control": "public" }, { status: 302 }),
  ...[200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501].map((status) => kept("4.2.2", `a guess for ${status}`, { "Last-Modified": "Wed, 31 Dec 2025 00:00:00 GMT" }, { status })),
  { section: "4.2.2", promise: "a Last-Modified in the future gives no lifetime", steps: [{ says: { "Last-Modified": "Fri, 02 Jan 2026 00:00:00 GMT" } }, { from: "validation" }] },
  { section: "4.2.2", promise: "a time set in the configuration goes in place of the guess", defaultTtl: 30, steps: [{}, { after: 29 }, { after: 1, from: "origin" }] },
  { section: "4.2.2", promise: "but not in place of what the origin says", defaultTtl: 30, steps: [{ says: { "Cache-Control": "max-age=5" } }, { after: 6, from: "origin" }] },
  { section: "4.2.2", promise: "nor for statuses that allow no guess", defaultTtl: 30, steps: [{ status: 302 }, { from: "origin" }] },
  { section: "4.2.2", promise: "nor for callers with credentials", defaultTtl: 30, steps: [{ identity: "alice" }, { identity: "alice", from: "origin" }] },

  // How old a reply is.
  { section: "4.2.3", promise: "Age grows while it is stored", steps: [{ says: FRESH }, { after: 30, gets: { headers: { age: "30" } } }] },
  { section: "4.2.3", promise: "the age that it came with counts", steps: [{ says: { ...FRESH, Age: "50" } }, { after: 9, gets: { headers: { age: "59" } } }, { after: 1, from: "origin" }] },
  { section: "4.2.3", promise: "an old Date makes it old", steps: [{ says: { ...FRESH, Date: "Wed, 31 Dec 2025 23:59:10 GMT" } }, { after: 9, gets: { headers: { age: "59" } } }, { after: 1, from: "origin" }] },
  { section: "4.2.3", promise: "the time that the origin took counts to an Age", steps: [{ says: { ...FRESH, Age: "10" }, takes: 20 }, { after: 29, gets: { headers: { age: "59" } } }, { from: "origin" }] },
  { section: "5.1", promise: "of several members of Age the first counts", steps: [{ says: { ...FRESH, Age: "10, 50" } }, { gets: { headers: { age: "11" } } }] },
  { section: "5.1", promise: "an Age that is no number does not count", steps: [{ says: { ...FRESH, Age: "-5" } }, { gets: { headers: { age: "1" } } }] },
  { section: "5.1", promise: "Age is told once", steps: [{ says: { ...FRESH, Age: "10" } }, { gets: { headers: { age: "11" } } }] },
  kept("4.2.3", "a Date in the future makes nothing younger", { ...FRESH, Date: "Thu, 01 Jan 2026 00:10:00 GMT" }, {}),
  { section: "9110 6.6.1", promise: "a reply without Date is stored with one", steps: [{ says: FRESH }, { gets: { headers: { date: "Thu, 01 Jan 2026 00:00:00 GMT" } } }] },

  // Stale replies.
  { section: "4.2.4", promise: "nothing stale without leave", steps: [{ says: TAGGED }, { after: 11, from: "validation" }] },
  request("5.2.1.2", "max-stale takes what is stale for no longer", { "Cache-Control": "max-stale=10" }, "store", TAGGED, 20),
  request("5.2.1.2", "and nothing beyond", { "Cache-Control": "max-stale=9" }, "validation", TAGGED, 20),
  request("5.2.1.2", "max-stale without a number takes anything", { "Cache-Control": "max-stale" }, "store", TAGGED, 9_999),
  request("4.2.4", "must-revalidate goes before max-stale", { "Cache-Control": "max-stale" }, "validation", { ...TAGGED, "Cache-Control": "max-age=10, must-revalidate" }),
  request("4.2.4", "proxy-revalidate goes before max-stale", { "Cache-Control": "max-stale" }, "validation", { ...TAGGED, "Cache-Control": "max-age=10, proxy-revalidate" }),
  request("4.2.4", "s-maxage goes before max-stale", { "Cache-Control": "max-stale" }, "validation", { ...TAGGED, "Cache-Control": "s-maxage=10" }),

  // What requests ask for.
  request("5.2.1.1", "max-age takes what is no older", { "Cache-Control": "max-age=20" }, "store"),
  request("5.2.1.1", "and nothing older", { "Cache-Control": "max-age=19" }, "origin"),
  request("5.2.1.1", "max-age=0 asks for validation", { "Cache-Control": "max-age=0" }, "validation", { ...TAGGED, ...FRESH }),
  request("5.2.1.1", "a max-age that is no number too", { "Cache-Control": "max-age=x" }, "validation", { ...TAGGED, ...FRESH }),
  request("5.2.1.3", "min-fresh takes what stays fresh for so long", { "Cache-Control": "min-fresh=40" }, "store"),
  request("5.2.1.3", "and nothing else", { "Cache-Control": "min-fresh=41" }, "origin"),
  request("5.2.1.4", "no-cache asks for validation", { "Cache-Control": "no-cache" }, "validation", { ...TAGGED, ...FRESH }),
  request("5.4", "Pragma: no-cache too", { Pragma: "no-cache" }, "validation", { ...TAGGED, ...FRESH }),
  request("5.4", "but not beside Cache-Control", { Pragma: "no-cache", "Cache-Control": "max-age=60" }, "store"),
  notKept("5.2.1.5", "no-store: the reply is not stored", FRESH, { ask: { "Cache-Control": "no-store" } }),
  request("5.2.1.5", "but what is stored may answer", { "Cache-Control": "no-store" }, "store"),
  request("5.2.1.7", "only-if-cached takes what is stored", { "Cache-Control": "only-if-cached" }, "store"),
  { section: "5.2.1.7", promise: "504 where nothing is", steps: [{ ask: { "Cache-Control": "only-if-cached" }, from: "store", gets: { status: 504 } }] },
  { section: "5.2.1.7", promise: "504 where it is stale", steps: [{ says: TAGGED }, { after: 11, ask: { "Cache-Control": "only-if-cached" }, gets: { status: 504 } }] },

  // What replies ask for.
  request("5.2.2.2", "must-revalidate: fresh is fresh", {}, "store", { "Cache-Control": "max-age=60, must-revalidate" }),
  request("5.2.2.4", "no-cache: each use is validated", {}, "validation", { "Cache-Control": "max-age=60, no-cache", ETag: '"1"' }, 1),
  notKept("5.2.2.4", "no-cache without anything to validate", { "Cache-Control": "max-age=60, no-cache" }),
  { section: "5.2.2.4", promise: "no-cache with names: those are not used again", steps: [{ says: { "Cache-Control": 'max-age=60, no-cache="x-a, X-B"', "X-A": "1", "X-B": "1", "X-C": "1" } }, { gets: { headers: { "x-a": null, "x-b": null, "x-c": "1" } } }] },
  { section: "5.2.2.4", promise: "no-cache with and without names is without", steps: [{ says: { "Cache-Control": 'max-age=60, no-cache="x-a", no-cache', ETag: '"1"' } }, { from: "validation" }] },
  notKept("7.3", "the same with no-cache that names it", { "Cache-Control": 'max-age=60, no-cache="Set-Cookie"', "Set-Cookie": "a=1" }),
  notKept("5.2.2.5", "no-store", { "Cache-Control": "max-age=60, no-store" }),
  notKept("5.2.2.5", "no-store in a line of its own", { "Cache-Control": ["max-age=60", "no-store"] }),
  kept("5.2.2.3", "must-understand in place of no-store, where the status is known", { "Cache-Control": "max-age=60, must-understand, no-store" }),
  notKept("5.2.2.3", "must-understand where the status is unknown", { "Cache-Control": "max-age=60, must-understand" }, { status: 299 }),
  notKept("5.2.2.7", "private", { "Cache-Control": "max-age=60, private" }),
  notKept("5.2.2.7", "private beside public", { "Cache-Control": "max-age=60, private, public" }),
  { section: "5.2.2.7", promise: "private with names: those are not stored", steps: [{ says: { "Cache-Control": 'max-age=60, private="X-A"', "X-A": "1", "X-B": "1" }, gets: { headers: { "x-a": "1" } } }, { gets: { headers: { "x-a": null, "x-b": "1" } } }] },
  request("5.2.2.10", "s-maxage: never used while stale", { "Cache-Control": "max-stale=100" }, "origin", { "Cache-Control": "s-maxage=10" }),

  // Validation.
  { section: "4.3.1", promise: "with the entity tag", steps: [{ says: TAGGED }, { after: 11, from: "validation", sent: { "if-none-match": '"1"', "if-modified-since": null } }] },
  { section: "4.3.1", promise: "with the date of change", steps: [{ says: DATED }, { after: 11, from: "validation", sent: { "if-modified-since": "Wed, 31 Dec 2025 12:00:00 GMT" } }] },
  { section: "4.3.1", promise: "in place of the client's own conditions", steps: [{ says: TAGGED }, { after: 11, ask: { "If-None-Match": '"7"' }, from: "validation", sent: { "if-none-match": '"1"' } }] },
  { section: "4.3.1", promise: "what has nothing to validate is asked for anew", steps: [{ says: FRESH }, { after: 61, from: "origin", sent: { "if-none-match": null, "if-modified-since": null } }] },
  { section: "4.3.3", promise: "a whole reply takes the old one's place", steps: [{ says: TAGGED }, { after: 11, from: "origin", status: 200, says: { ...FRESH, ETag: '"2"' } }, { gets: { headers: { etag: '"2"' } } }] },
  { section: "4.3.3", promise: "also when it may not be stored", steps: [{ says: TAGGED }, { after: 11, from: "origin", status: 200, says: { "Cache-Control": "no-store" } }, { from: "origin", sent: { "if-none-match": null } }] },
  { section: "4.3.3", promise: "an error of the origin does not", steps: [{ says: TAGGED }, { after: 11, from: "origin", status: 500 }, { from: "validation" }] },
  { section: "4.3.4", promise: "a 304 makes it fresh again", steps: [{ says: TAGGED }, { after: 11, from: "validation", says: TAGGED }, { after: 9, gets: { headers: { age: "9" } } }, { after: 1, from: "validation" }] },
  { section: "4.3.4", promise: "a 304 about another entity tag says nothing: the origin is asked again", steps: [{ says: TAGGED }, { after: 11, from: "origin", says: { ETag: '"9"' } }] },
  { section: "4.3.4", promise: "tags are compared weakly", steps: [{ says: { ...TAGGED, ETag: 'W/"1"' } }, { after: 11, from: "validation", says: { ETag: '"1"' } }] },
  { section: "4.3.5", promise: "HEAD makes what is stored fresh again", steps: [{ says: TAGGED }, { after: 11, method: "HEAD", from: "origin", status: 200, says: TAGGED }, { after: 9 }] },
  { section: "4.3.5", promise: "or tells that it has changed", steps: [{ says: TAGGED }, { after: 11, method: "HEAD", from: "origin", status: 200, says: { ...TAGGED, ETag: '"2"' } }, { from: "origin", sent: { "if-none-match": null } }] },
  { section: "4.3.5", promise: "or is of another length", steps: [{ says: TAGGED }, { after: 11, method: "HEAD", from: "origin", status: 200, says: { ...TAGGED, "Content-Length": "9" } }, { from: "origin", sent: { "if-none-match": null } }] },

  // Conditions of clients.
  request("4.3.2", "If-None-Match: 304 when it has the stored one", { "If-None-Match": '"0", W/"1"' }, "store", { ...TAGGED, ...FRESH }),
  { section: "4.3.2", promise: "the 304 has what a 304 has", steps: [{ says: { ...FRESH, ETag: '"1"', "Content-Type": "a/b", Vary: "a", "Last-Modified": "Wed, 31 Dec 2025 12:00:00 GMT" } }, { ask: { "If-None-Match": '"1"' }, gets: { status: 304, headers: { etag: '"1"', vary: "a", "cache-control": "max-age=60", "content-type": null, "content-length": null, "last-modified": null, age: "1" } } }] },
  { section: "4.3.2", promise: "the whole reply when it has another", steps: [{ says: { ...FRESH, ETag: '"1"' } }, { ask: { "If-None-Match": '"2"' }, gets: { status: 200 } }] },
  { section: "4.3.2", promise: "If-None-Match: *", steps: [{ says: FRESH }, { ask: { "If-None-Match": "*" }, gets: { status: 304 } }] },
  { section: "4.3.2", promise: "a comma in a tag is part of it", steps: [{ says: { ...FRESH, ETag: '"a,b"' } }, { ask: { "If-None-Match": '"x", "a,b"' }, gets: { status: 304 } }, { ask: { "If-None-Match": '"a", "b"' }, gets: { status: 200 } }] },
  { section: "4.3.2", promise: "If-Modified-Since by Last-Modified", steps: [{ says: { ...FRESH, "Last-Modified": "Wed, 31 Dec 2025 12:00:00 GMT" } }, { ask: { "If-Modified-Since": "Wed, 31 Dec 2025 12:00:00 GMT" }, gets: { status: 304 } }, { ask: { "If-Modified-Since": "Wed, 31 Dec 2025 11:59:59 GMT" }, gets: { status: 200 } }] },
  { section: "4.3.2", promise: "If-Modified-Since by Date without one", steps: [{ says: FRESH }, { ask: { "If-Modified-Since": "Thu, 01 Jan 2026 00:00:00 GMT" }, gets: { status: 304 } }, { ask: { "If-Modified-Since": "Wed, 31 Dec 2025 23:59:59 GMT" }, gets: { status: 200 } }] },
  { section: "4.3.2", promise: "If-Modified-Since that is no date counts for nothing", steps: [{ says: FRESH }, { ask: { "If-Modified-Since": "now" }, gets: { status: 200 } }] },
  { section: "4.3.2", promise: "If-None-Match goes before If-Modified-Since", steps: [{ says: { ...FRESH, ETag: '"1"' } }, { ask: { "If-None-Match": '"2"', "If-Modified-Since": "Fri, 02 Jan 2026 00:00:00 GMT" }, gets: { status: 200 } }] },
  { section: "4.3.2", promise: "only for 200", steps: [{ says: { ...FRESH, ETag: '"1"' }, status: 404 }, { ask: { "If-None-Match": '"1"' }, gets: { status: 404 } }] },
  { section: "4.3.2", promise: "If-Match is the origin's to judge", steps: [{ says: { ...FRESH, ETag: '"1"' } }, { ask: { "If-Match": '"2"' }, from: "origin", status: 412 }] },
  { section: "4.3.2", promise: "If-Unmodified-Since too", steps: [{ says: FRESH }, { ask: { "If-Unmodified-Since": "Thu, 01 Jan 2026 00:00:00 GMT" }, from: "origin", status: 412 }] },
  { section: "4.3.2", promise: "after a validation the client's own condition is judged", steps: [{ says: TAGGED }, { after: 11, ask: { "If-None-Match": '"1"' }, from: "validation", gets: { status: 304 } }] },

  // Changes.
  ...["POST", "PUT", "PATCH", "DELETE", "FROB"].map((method): Case => ({ section: "4.4", promise: `${method} invalidates its target`, steps: [{ says: FRESH }, { method, from: "origin" }, { from: "origin" }] })),
  ...["OPTIONS", "TRACE", "HEAD"].map((method): Case => ({ section: "4.4", promise: `${method} does not`, steps: [{ says: FRESH }, { method, from: method === "HEAD" ? "store" : "origin" }, {}] })),
  { section: "4.4", promise: "a redirect does", steps: [{ says: FRESH }, { method: "POST", status: 303, from: "origin" }, { from: "origin" }] },
  { section: "4.4", promise: "an error does not", steps: [{ says: FRESH }, { method: "POST", status: 400, from: "origin" }, { method: "POST", status: 500, from: "origin" }, {}] },
  { section: "4.4", promise: "every variant of it", steps: [{ ask: { A: "1" }, says: { ...FRESH, Vary: "A" } }, { ask: { A: "2" }, from: "origin", says: { ...FRESH, Vary: "A" } }, { method: "POST", from: "origin" }, { ask: { A: "1" }, from: "origin" }] },
  { section: "4.4", promise: "what Location names", steps: [{ says: FRESH }, { method: "POST", target: "/a", says: { Location: "http://gateway.example/a/b" }, status: 201, from: "origin" }, { from: "origin" }] },
  { section: "4.4", promise: "also relative, and in another spelling", steps: [{ says: FRESH }, { method: "POST", target: "/a/c/d", says: { Location: "../%62" }, from: "origin" }, { from: "origin" }] },
  { section: "4.4", promise: "what Content-Location names", steps: [{ says: FRESH }, { method: "POST", target: "/a", says: { "Content-Location": "/a/b" }, from: "origin" }, { from: "origin" }] },
  { section: "4.4", promise: "but nothing of another host", steps: [{ target: "http://other.example/a/b", says: FRESH }, { method: "POST", says: { Location: "http://other.example/a/b" }, from: "origin" }, { target: "http://other.example/a/b" }] },
  { section: "4.4", promise: "and nothing for a Location that is none", steps: [{ says: FRESH }, { method: "POST", target: "/a", says: { Location: "http://[" }, from: "origin" }, {}] },

  // Errors of the origin (RFC 5861).
  ...[500, 502, 503, 504].map((status): Case => ({ section: "5861 4", promise: `stale-if-error: the stored reply for a ${status}`, steps: [{ says: { "Cache-Control": "max-age=10, stale-if-error=60" } }, { after: 69, from: "validation", status, gets: { status: 200 } }] })),
  { section: "5861 4", promise: "not beyond its time", steps: [{ says: { "Cache-Control": "max-age=10, stale-if-error=60" } }, { after: 71, from: "origin", status: 503 }] },
  { section: "5861 4", promise: "not for other errors", steps: [{ says: { "Cache-Control": "max-age=10, stale-if-error=60" } }, { after: 20, from: "origin", status: 404 }] },
  { section: "5861 4", promise: "also when the request asks for it", steps: [{ says: TAGGED }, { after: 20, ask: { "Cache-Control": "stale-if-error=10" }, from: "validation", status: 503, gets: { status: 200 } }] },
  { section: "5861 4", promise: "not against must-revalidate", steps: [{ says: { "Cache-Control": "max-age=10, stale-if-error=60, must-revalidate" } }, { after: 20, from: "origin", status: 503 }] },
  { section: "5861 4", promise: "not against s-maxage (RFC 9111 4.2.4)", steps: [{ says: { "Cache-Control": "s-maxage=10, stale-if-error=60" } }, { after: 20, from: "origin", status: 503 }] },
  { section: "5861 3", promise: "stale-while-revalidate: not beyond its time", steps: [{ says: { "Cache-Control": "max-age=10, stale-while-revalidate=10", ETag: '"1"' } }, { after: 21, from: "validation" }] },
];

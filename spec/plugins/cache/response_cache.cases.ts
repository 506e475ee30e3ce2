/**
 * RFC 9111 as a table: what a shared cache does with which messages, by section. It holds data only and may be used to
 * look at any cache; `response_cache.spec.ts` runs it against the plugin.
 *
 * The clock of a case begins at 2026-01-01T00:00:00Z. Every reply of the origin has a body of its own, so that an old
 * one is known.
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
   * Where the client's reply comes from: the origin, the store, or the store after the origin has been asked whether it
   * still holds.
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
  return { section, promise: `stores the reply: ${promise}`, steps: [{ says, ...more }, {}] };
}

function notKept(section: string, promise: string, says: Headers, more: Partial<Step> = {}): Case {
  return { section, promise: `does not store the reply: ${promise}`, steps: [{ says, ...more }, { from: "origin" }] };
}

function request(
  section: string,
  promise: string,
  ask: Headers,
  from: "origin" | "store" | "validation",
  stored: Headers = FRESH,
  after = 20,
): Case {
  return { section, promise, steps: [{ says: stored }, { after, ask, from }] };
}

export const CASES: readonly Case[] = [
  // Which replies are stored.
  kept("3", "max-age", FRESH),
  kept("3", "s-maxage", { "Cache-Control": "s-maxage=60" }),
  kept("3", "Expires", { Expires: "Thu, 01 Jan 2026 00:01:00 GMT" }),
  notKept("3", "no lifetime and nothing to validate", {}),
  kept("3", "an unknown status with max-age", FRESH, { status: 299 }),
  kept("3", "302 with max-age", { ...FRESH, Location: "/x" }, { status: 302 }),
  kept("3", "404 with max-age", FRESH, { status: 404 }),
  kept("3", "503 with max-age", FRESH, { status: 503 }),
  notKept("3", "a reply to POST", FRESH, { method: "POST" }),
  notKept("3", "a reply to HEAD", FRESH, { method: "HEAD" }),
  notKept("3.3", "206", { ...FRESH, "Content-Range": "bytes 0-3/10" }, { status: 206 }),
  notKept("3.3", "a reply to a request for a range", FRESH, { ask: { Range: "bytes=0-3" } }),
  {
    section: "3.3",
    promise:
      "a request for a range of a stale reply is sent to the origin with its Range and the stored validator, " +
      "and a part is not stored",
    steps: [
      { says: TAGGED },
      {
        after: 11,
        ask: { Range: "bytes=0-3" },
        from: "origin",
        status: 206,
        sent: { range: "bytes=0-3", "if-none-match": '"1"' },
      },
      { from: "validation" },
    ],
  },
  {
    section: "3.3",
    promise: "a request for a range in another unit is sent to the origin",
    steps: [{ says: FRESH }, { ask: { Range: "lines=0-3" }, from: "origin", status: 206 }, {}],
  },
  notKept("3", "304 to a condition of the client's own", FRESH, { ask: { "If-None-Match": '"1"' }, status: 304 }),
  kept("3", "200 to a condition of the client's own", FRESH, { ask: { "If-None-Match": '"0"' } }),
  kept(
    "3.1",
    "headers as they were, whatever their case and number",
    { ...FRESH, "X-Two": ["a", "b"] },
    { gets: { headers: { "x-two": "a, b" } } },
  ),
  {
    section: "3.1",
    promise: "headers that concern one proxy are not stored",
    steps: [
      { says: { ...FRESH, "Proxy-Authenticate": "Basic" } },
      { gets: { headers: { "proxy-authenticate": null } } },
    ],
  },
  {
    section: "3.1",
    promise: "headers about one caller's rate limit are not stored",
    steps: [
      { says: { ...FRESH, RateLimit: '"second";r=9;t=1', "RateLimit-Policy": '"second";q=10;w=1' } },
      { gets: { headers: { ratelimit: null, "ratelimit-policy": null } } },
    ],
  },
  {
    section: "3.2",
    promise: "a 304 updates the stored headers, but not those of the body",
    steps: [
      { says: { ...TAGGED, "X-A": "1", "X-B": "1", "Content-Length": "6" } },
      {
        after: 11,
        from: "validation",
        says: { "Cache-Control": "max-age=100", "X-A": "2", "Content-Length": "0" },
        gets: { headers: { "x-a": "2", "x-b": "1", "content-length": "6" } },
      },
      { after: 99, gets: { headers: { "x-a": "2", "x-b": "1" } } },
    ],
  },
  {
    section: "3.2",
    promise: "a 304 does not replace digests of the stored body, since its own content is empty",
    steps: [
      { says: { ...TAGGED, "Content-Digest": "sha-256=:AA==:", "Content-MD5": "AA==" } },
      {
        after: 11,
        from: "validation",
        says: { ...TAGGED, "Content-Digest": "sha-256=:BB==:", "Content-MD5": "BB==" },
        gets: { headers: { "content-digest": "sha-256=:AA==:", "content-md5": "AA==" } },
      },
    ],
  },
  {
    section: "3.2",
    promise: "a 304 does not turn a weak tag into a strong tag (compress further in has made it weak)",
    steps: [
      { says: { ...TAGGED, ETag: 'W/"1"' } },
      { after: 11, from: "validation", says: TAGGED, gets: { headers: { etag: 'W/"1"' } } },
      { gets: { headers: { etag: 'W/"1"' } } },
    ],
  },
  {
    section: "3.2",
    promise: "a 304 with no-store removes the stored reply",
    steps: [
      { says: TAGGED },
      { after: 11, from: "validation", says: { "Cache-Control": "no-store" } },
      { from: "origin", sent: { "if-none-match": null } },
    ],
  },

  // Credentials.
  notKept("3.5", "a reply to a request with Authorization", FRESH, { ask: AUTHORISED }),
  kept(
    "3.5",
    "a reply with public to a request with credentials",
    { "Cache-Control": "max-age=60, public" },
    { ask: AUTHORISED },
  ),
  kept(
    "3.5",
    "a reply to a request with Authorization, with s-maxage",
    { "Cache-Control": "s-maxage=60" },
    { ask: AUTHORISED },
  ),
  kept(
    "3.5",
    "a reply to a request with Authorization, with must-revalidate",
    { "Cache-Control": "max-age=60, must-revalidate" },
    { ask: AUTHORISED },
  ),
  notKept("3.5", "a reply to a caller whom an auth plugin knows by other means", FRESH, { identity: "alice" }),
  kept(
    "3.5",
    "a reply with public to a request with credentials",
    { "Cache-Control": "max-age=60, public" },
    { identity: "alice" },
  ),
  {
    section: "3.5",
    promise: "a reply to a client without credentials does not answer clients with credentials",
    steps: [{ says: FRESH }, { ask: AUTHORISED, from: "origin" }, { identity: "alice", from: "origin" }, {}],
  },
  {
    section: "3.5",
    promise: "a public reply to a client without credentials answers clients with credentials",
    steps: [{ says: { "Cache-Control": "public, max-age=60" } }, { ask: AUTHORISED }, { identity: "alice" }],
  },
  notKept("7.3", "a reply with Set-Cookie", { ...FRESH, "Set-Cookie": "a=1" }),
  notKept("7.3", "a reply with Set-Cookie and public", { "Cache-Control": "public, max-age=60", "Set-Cookie": "a=1" }),
  notKept(
    "7.3",
    "a reply with Set-Cookie to a request with Authorization",
    { "Cache-Control": "public, s-maxage=60", "set-cookie": "a=1" },
    { ask: AUTHORISED },
  ),
  {
    section: "7.3",
    promise: "a 304 with Set-Cookie is sent to the client that asked, and removes the stored reply",
    steps: [
      { says: TAGGED },
      {
        after: 11,
        from: "validation",
        says: { "Cache-Control": "public, max-age=100", "Set-Cookie": "a=1" },
        gets: { headers: { "set-cookie": "a=1" } },
      },
      { from: "origin", sent: { "if-none-match": null } },
    ],
  },

  // The target and Vary.
  {
    section: "2",
    promise: "another query is another target",
    steps: [
      { says: FRESH },
      { target: "/a/b?x=1", from: "origin", says: FRESH },
      { like: 1 },
      { target: "/a/b?x=1", like: 2 },
    ],
  },
  {
    section: "2",
    promise: "another host is another target",
    steps: [{ says: FRESH }, { target: "http://other.example/a/b", from: "origin" }],
  },
  {
    section: "2",
    promise: "another scheme is another target",
    steps: [{ says: FRESH }, { target: "https://gateway.example/a/b", from: "origin" }],
  },
  {
    section: "2",
    promise: "the case of the host and the default port make no difference",
    steps: [{ says: FRESH }, { target: "http://GATEWAY.example:80/a/b" }],
  },
  ...["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"].map(
    (name): Case => ({
      section: "4",
      promise:
        `a request with ${name}, which selects another target at some origins, ` +
        `is neither stored nor answered from the store`,
      steps: [
        { says: FRESH, ask: { [name]: "/x" } },
        { from: "origin", says: FRESH },
        { ask: { [name]: "/x" }, from: "origin" },
        { like: 2 },
      ],
    }),
  ),
  {
    section: "4",
    promise: "HEAD is answered with the reply that GET has stored",
    steps: [{ says: FRESH }, { method: "HEAD", gets: { headers: { "content-length": "6" } } }],
  },
  {
    section: "4.1",
    promise: "a reply answers requests with the same values of the headers that Vary names",
    steps: [
      { ask: { "Accept-Language": "de" }, says: { ...FRESH, Vary: "Accept-Language" } },
      { ask: { "Accept-Language": "de" }, like: 1 },
      { ask: { "Accept-Language": "en" }, from: "origin", says: { ...FRESH, Vary: "Accept-Language" } },
      { ask: { "Accept-Language": "de" }, like: 1 },
      { ask: { "Accept-Language": "en" }, like: 2 },
      { from: "origin" },
    ],
  },
  {
    section: "4.1",
    promise: "a reply answers a request if both requests lack the header that Vary names",
    steps: [{ says: { ...FRESH, Vary: "Accept-Language" } }, {}],
  },
  {
    section: "4.1",
    promise: "all names in Vary count, and space between members of a header does not",
    steps: [
      { ask: { A: "1", B: "2,3" }, says: { ...FRESH, Vary: ["a", "B"] } },
      { ask: { B: "2 , 3", a: "1" } },
      { ask: { A: "1", B: ["2", "3"] } },
      { ask: { A: "1" }, from: "origin" },
    ],
  },
  {
    section: "4.1",
    promise: "a header that Connection names counts as missing (9110 7.6.1)",
    steps: [
      {
        ask: { "Accept-Language": "de", Connection: "keep-alive, Accept-Language" },
        says: { ...FRESH, Vary: "Accept-Language" },
        sent: { "accept-language": null },
      },
      { ask: { "Accept-Language": "de" }, from: "origin" },
      { ask: {}, like: 1 },
    ],
  },
  notKept("4.1", "Vary: *", { ...FRESH, Vary: "*" }),
  notKept("4.1", "* among other names", { ...FRESH, Vary: "Accept, *" }),
  {
    section: "4.1",
    promise: "the newest of several matching replies is used",
    steps: [
      { ask: { A: "1" }, says: { ...FRESH, Vary: "A" } },
      { ask: { A: "1", "Cache-Control": "no-cache" }, from: "origin", says: { ...FRESH, "X-New": "yes" } },
      { ask: { A: "1" }, gets: { headers: { "x-new": "yes" } } },
    ],
  },

  // How long a reply is fresh.
  {
    section: "4.2",
    promise: "a reply is fresh while its lifetime is more than its age",
    steps: [{ says: FRESH }, { after: 59 }, { after: 1, from: "origin" }],
  },
  {
    section: "4.2.1",
    promise: "s-maxage overrides max-age",
    steps: [{ says: { "Cache-Control": "max-age=1, s-maxage=60" } }, { after: 30 }],
  },
  {
    section: "4.2.1",
    promise: "s-maxage overrides max-age even if it is less",
    steps: [{ says: { "Cache-Control": "max-age=60, s-maxage=5" } }, { after: 6, from: "origin" }],
  },
  {
    section: "4.2.1",
    promise: "max-age overrides Expires",
    steps: [{ says: { ...FRESH, Expires: "Thu, 01 Jan 2026 00:00:01 GMT" } }, { after: 30 }],
  },
  {
    section: "4.2.1",
    promise: "Expires counts from Date",
    steps: [
      { says: { Date: "Wed, 31 Dec 2025 23:59:50 GMT", Expires: "Thu, 01 Jan 2026 00:00:05 GMT" } },
      { after: 4 },
      { after: 2, from: "origin" },
    ],
  },
  notKept("4.2.1", "max-age without a number", { "Cache-Control": "max-age" }),
  notKept("4.2.1", "max-age that is no number, whatever Expires says", {
    "Cache-Control": "max-age=1h",
    Expires: "Thu, 01 Jan 2026 01:00:00 GMT",
  }),
  notKept("4.2.1", "max-age below zero", { "Cache-Control": "max-age=-60" }),
  notKept("4.2.1", "two different max-age", { "Cache-Control": ["max-age=60", "max-age=30"] }),
  kept("4.2.1", "max-age twice the same", { "Cache-Control": ["max-age=60", "max-age=60"] }),
  kept("1.2.2", "max-age beyond 2^31", { "Cache-Control": "max-age=99999999999999999999" }),
  kept("5.2", "a number in quotes", { "Cache-Control": 'max-age="60"' }),
  kept("5.2", "directives in any case", { "Cache-Control": "MaX-AgE=60" }),
  kept("5.2.3", "unknown directives, quoted commas among them", {
    "Cache-Control": 'foo="a, no-store", max-age=60, bar',
  }),
  notKept("5.2", "private behind members that are no directives", {
    "Cache-Control": 'max-age=60, "x", =, =y, private',
  }),
  kept("5.2", "max-age behind members that are no directives", { "Cache-Control": '"x", =y, max-age=60,, ' }),
  notKept("5.2", "max-age with space around its =", { "Cache-Control": "max-age = 60" }),
  notKept("5.3", "Expires: 0", { Expires: "0" }),
  notKept("5.3", "Expires that is no date", { Expires: "tomorrow" }),
  notKept("5.3", "two different Expires", {
    Expires: ["Thu, 01 Jan 2026 00:01:00 GMT", "Thu, 01 Jan 2026 00:02:00 GMT"],
  }),
  kept("5.3", "Expires in the form of RFC 850", { Expires: "Thursday, 01-Jan-26 00:01:00 GMT" }),
  kept("5.3", "Expires in the form of asctime", { Expires: "Thu Jan  1 00:01:00 2026" }),
  notKept("5.3", "a year of two digits more than 50 years ahead is past", {
    Expires: "Friday, 01-Jan-77 00:01:00 GMT",
  }),
  {
    section: "4.2.2",
    promise: "a reply without a lifetime is fresh for a tenth of the time since Last-Modified",
    steps: [
      { says: { "Last-Modified": "Wed, 31 Dec 2025 23:50:00 GMT", Date: "Thu, 01 Jan 2026 00:00:00 GMT" } },
      { after: 59 },
      { after: 1, from: "validation", sent: { "if-modified-since": "Wed, 31 Dec 2025 23:50:00 GMT" } },
    ],
  },
  notKept(
    "4.2.2",
    "no lifetime, and a status that allows no guess",
    { "Last-Modified": "Wed, 31 Dec 2025 00:00:00 GMT" },
    { status: 302 },
  ),
  kept(
    "4.2.2",
    "public, which allows to guess a lifetime for any status",
    { "Last-Modified": "Wed, 31 Dec 2025 00:00:00 GMT", "Cache-Control": "public" },
    { status: 302 },
  ),
  ...[200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501].map((status) =>
    kept(
      "4.2.2",
      `a guessed lifetime for status ${status}`,
      { "Last-Modified": "Wed, 31 Dec 2025 00:00:00 GMT" },
      { status },
    ),
  ),
  {
    section: "4.2.2",
    promise: "a Last-Modified in the future gives no lifetime",
    steps: [{ says: { "Last-Modified": "Fri, 02 Jan 2026 00:00:00 GMT" } }, { from: "validation" }],
  },
  {
    section: "4.2.2",
    promise: "default_ttl_s replaces the guessed lifetime",
    defaultTtl: 30,
    steps: [{}, { after: 29 }, { after: 1, from: "origin" }],
  },
  {
    section: "4.2.2",
    promise: "default_ttl_s does not override the lifetime that the origin states",
    defaultTtl: 30,
    steps: [{ says: { "Cache-Control": "max-age=5" } }, { after: 6, from: "origin" }],
  },
  {
    section: "4.2.2",
    promise: "default_ttl_s does not apply to statuses that allow no guess",
    defaultTtl: 30,
    steps: [{ status: 302 }, { from: "origin" }],
  },
  {
    section: "4.2.2",
    promise: "default_ttl_s does not apply to callers with credentials",
    defaultTtl: 30,
    steps: [{ identity: "alice" }, { identity: "alice", from: "origin" }],
  },

  // CDN-Cache-Control.
  kept("9213 2.2", "CDN-Cache-Control with max-age", { "CDN-Cache-Control": "max-age=60" }),
  kept("9213 2.2", "max-age in CDN-Cache-Control, whatever no-store and private in Cache-Control say", {
    "CDN-Cache-Control": "max-age=60",
    "Cache-Control": "no-store, private",
  }),
  kept("9213 2.2", "max-age in CDN-Cache-Control, whatever Expires and Pragma say", {
    "CDN-Cache-Control": "max-age=60",
    Expires: "0",
    Pragma: "no-cache",
  }),
  kept(
    "9213 2.2",
    "CDN-Cache-Control, which is sent to the client",
    { "CDN-Cache-Control": "max-age=60" },
    { gets: { headers: { "cdn-cache-control": "max-age=60" } } },
  ),
  notKept("9213 2.2", "no-store in CDN-Cache-Control, whatever Cache-Control says", {
    "CDN-Cache-Control": "no-store",
    ...FRESH,
  }),
  notKept("9213 2.2", "no-store in CDN-Cache-Control beside max-age", { "CDN-Cache-Control": "max-age=60, no-store" }),
  notKept("9213 2.2", "private in CDN-Cache-Control, whatever Cache-Control says", {
    "CDN-Cache-Control": "private",
    ...FRESH,
  }),
  notKept("9213 2.2", "max-age=0 in CDN-Cache-Control, whatever Cache-Control and Expires say", {
    "CDN-Cache-Control": "max-age=0",
    ...FRESH,
    Expires: "Thu, 01 Jan 2026 00:01:00 GMT",
  }),
  notKept("9213 2.2", "a CDN-Cache-Control without a lifetime, whatever Expires says", {
    "CDN-Cache-Control": "must-revalidate",
    Expires: "Thu, 01 Jan 2026 00:01:00 GMT",
  }),
  notKept("9213 2.2", "Set-Cookie, whatever CDN-Cache-Control says", {
    "CDN-Cache-Control": "max-age=60",
    "Set-Cookie": "a=1",
  }),
  request(
    "9213 2.2",
    "no-cache in CDN-Cache-Control asks for validation",
    {},
    "validation",
    { ...FRESH, "CDN-Cache-Control": "max-age=60, no-cache", ETag: '"1"' },
    1,
  ),
  request(
    "9213 2.2",
    "must-revalidate in CDN-Cache-Control overrides max-stale",
    { "Cache-Control": "max-stale" },
    "validation",
    { "CDN-Cache-Control": "max-age=10, must-revalidate", ETag: '"1"' },
  ),
  request(
    "9213 2.2",
    "must-revalidate in Cache-Control does not count beside CDN-Cache-Control",
    { "Cache-Control": "max-stale" },
    "store",
    { "CDN-Cache-Control": "max-age=10", "Cache-Control": "must-revalidate" },
  ),
  request("9213 2.1", "the last of two max-age in CDN-Cache-Control counts", {}, "store", {
    "CDN-Cache-Control": "max-age=10, max-age=30",
    ETag: '"1"',
  }),
  {
    section: "9213 2.2",
    promise: "CDN-Cache-Control overrides a longer max-age",
    steps: [{ says: { "CDN-Cache-Control": "max-age=5", ...FRESH } }, { after: 6, from: "origin" }],
  },
  {
    section: "9213 2.2",
    promise: "s-maxage in Cache-Control does not count beside CDN-Cache-Control",
    steps: [{ says: { "CDN-Cache-Control": "max-age=60", "Cache-Control": "s-maxage=1" } }, { after: 30 }],
  },
  {
    section: "9213 2.2",
    promise: "CDN-Cache-Control overrides default_ttl_s",
    defaultTtl: 30,
    steps: [{ says: { "CDN-Cache-Control": "max-age=5" } }, { after: 6, from: "origin" }],
  },
  {
    section: "9213 2.2",
    promise: "the Age that the origin sent counts against CDN-Cache-Control",
    steps: [{ says: { "CDN-Cache-Control": "max-age=60", Age: "50" } }, { after: 9 }, { after: 1, from: "origin" }],
  },
  {
    section: "9213 2.2",
    promise: "a reply with public in CDN-Cache-Control to a request with credentials is stored",
    steps: [{ says: { "CDN-Cache-Control": "max-age=60, public" }, ask: AUTHORISED }, { ask: AUTHORISED }],
  },
  {
    section: "9213 2.2",
    promise: "a reply with public only in Cache-Control to a request with credentials is not stored",
    steps: [
      { says: { "CDN-Cache-Control": "max-age=60", "Cache-Control": "public" }, ask: AUTHORISED },
      { ask: AUTHORISED, from: "origin" },
    ],
  },
  {
    section: "9213 2.2",
    promise: "a 304 with CDN-Cache-Control gives the stored reply its lifetime",
    steps: [
      { says: TAGGED },
      { after: 11, from: "validation", says: { "CDN-Cache-Control": "max-age=100" } },
      { after: 99 },
      { after: 1, from: "validation" },
    ],
  },
  kept("9213 2.1", "a CDN-Cache-Control that is no dictionary is ignored", {
    "CDN-Cache-Control": "no-store, &&&",
    ...FRESH,
  }),
  kept("9213 2.1", "an empty CDN-Cache-Control is ignored", { "CDN-Cache-Control": "", ...FRESH }),
  notKept("9213 2.1", "max-age in CDN-Cache-Control as a string", { "CDN-Cache-Control": 'max-age="60"', ...FRESH }),
  notKept("9213 2.1", "max-age in CDN-Cache-Control in capitals, which makes the header invalid", {
    "CDN-Cache-Control": "Max-Age=60",
  }),
  kept("9213 2.2", "headers aimed at other caches are ignored", {
    "Surrogate-Control": "no-store",
    "Cloudflare-CDN-Cache-Control": "no-store",
    ...FRESH,
  }),

  // How old a reply is.
  {
    section: "4.2.3",
    promise: "Age grows while the reply is stored",
    steps: [{ says: FRESH }, { after: 30, gets: { headers: { age: "30" } } }],
  },
  {
    section: "4.2.3",
    promise: "the Age that the origin sent counts",
    steps: [
      { says: { ...FRESH, Age: "50" } },
      { after: 9, gets: { headers: { age: "59" } } },
      { after: 1, from: "origin" },
    ],
  },
  {
    section: "4.2.3",
    promise: "an old Date makes the reply old",
    steps: [
      { says: { ...FRESH, Date: "Wed, 31 Dec 2025 23:59:10 GMT" } },
      { after: 9, gets: { headers: { age: "59" } } },
      { after: 1, from: "origin" },
    ],
  },
  {
    section: "4.2.3",
    promise: "the origin's response time is added to its Age",
    steps: [
      { says: { ...FRESH, Age: "10" }, takes: 20 },
      { after: 29, gets: { headers: { age: "59" } } },
      { from: "origin" },
    ],
  },
  {
    section: "5.1",
    promise: "the first of several members of Age counts",
    steps: [{ says: { ...FRESH, Age: "10, 50" } }, { gets: { headers: { age: "11" } } }],
  },
  {
    section: "5.1",
    promise: "an Age that is no number does not count",
    steps: [{ says: { ...FRESH, Age: "-5" } }, { gets: { headers: { age: "1" } } }],
  },
  {
    section: "5.1",
    promise: "Age is sent once",
    steps: [{ says: { ...FRESH, Age: "10" } }, { gets: { headers: { age: "11" } } }],
  },
  kept("4.2.3", "a Date in the future makes nothing younger", { ...FRESH, Date: "Thu, 01 Jan 2026 00:10:00 GMT" }, {}),
  {
    section: "9110 6.6.1",
    promise: "a reply without Date is stored with one",
    steps: [{ says: FRESH }, { gets: { headers: { date: "Thu, 01 Jan 2026 00:00:00 GMT" } } }],
  },

  // Stale replies.
  {
    section: "4.2.4",
    promise: "no stale reply is used without permission",
    steps: [{ says: TAGGED }, { after: 11, from: "validation" }],
  },
  request(
    "5.2.1.2",
    "max-stale accepts a reply that is stale for at most that time",
    { "Cache-Control": "max-stale=10" },
    "store",
    TAGGED,
    20,
  ),
  request(
    "5.2.1.2",
    "max-stale does not accept a reply that is stale for longer",
    { "Cache-Control": "max-stale=9" },
    "validation",
    TAGGED,
    20,
  ),
  request(
    "5.2.1.2",
    "max-stale without a number accepts any stale reply",
    { "Cache-Control": "max-stale" },
    "store",
    TAGGED,
    9_999,
  ),
  request("4.2.4", "must-revalidate overrides max-stale", { "Cache-Control": "max-stale" }, "validation", {
    ...TAGGED,
    "Cache-Control": "max-age=10, must-revalidate",
  }),
  request("4.2.4", "proxy-revalidate overrides max-stale", { "Cache-Control": "max-stale" }, "validation", {
    ...TAGGED,
    "Cache-Control": "max-age=10, proxy-revalidate",
  }),
  request("4.2.4", "s-maxage overrides max-stale", { "Cache-Control": "max-stale" }, "validation", {
    ...TAGGED,
    "Cache-Control": "s-maxage=10",
  }),

  // What requests ask for.
  request("5.2.1.1", "max-age accepts a reply that is no older", { "Cache-Control": "max-age=20" }, "store"),
  request("5.2.1.1", "max-age does not accept an older reply", { "Cache-Control": "max-age=19" }, "origin"),
  request("5.2.1.1", "max-age=0 asks for validation", { "Cache-Control": "max-age=0" }, "validation", {
    ...TAGGED,
    ...FRESH,
  }),
  request(
    "5.2.1.1",
    "a max-age that is no number asks for validation",
    { "Cache-Control": "max-age=x" },
    "validation",
    { ...TAGGED, ...FRESH },
  ),
  request(
    "5.2.1.3",
    "min-fresh accepts a reply that stays fresh for that time",
    { "Cache-Control": "min-fresh=40" },
    "store",
  ),
  request(
    "5.2.1.3",
    "min-fresh does not accept a reply that becomes stale earlier",
    { "Cache-Control": "min-fresh=41" },
    "origin",
  ),
  request("5.2.1.4", "no-cache asks for validation", { "Cache-Control": "no-cache" }, "validation", {
    ...TAGGED,
    ...FRESH,
  }),
  request("5.4", "Pragma: no-cache asks for validation", { Pragma: "no-cache" }, "validation", { ...TAGGED, ...FRESH }),
  request(
    "5.4",
    "Pragma: no-cache is ignored beside Cache-Control",
    { Pragma: "no-cache", "Cache-Control": "max-age=60" },
    "store",
  ),
  notKept("5.2.1.5", "no-store in the request", FRESH, { ask: { "Cache-Control": "no-store" } }),
  request(
    "5.2.1.5",
    "a request with no-store may be answered from the store",
    { "Cache-Control": "no-store" },
    "store",
  ),
  request("5.2.1.7", "only-if-cached is answered from the store", { "Cache-Control": "only-if-cached" }, "store"),
  {
    section: "5.2.1.7",
    promise: "only-if-cached gets 504 if nothing is stored",
    steps: [{ ask: { "Cache-Control": "only-if-cached" }, from: "store", gets: { status: 504 } }],
  },
  {
    section: "5.2.1.7",
    promise: "only-if-cached gets 504 if the stored reply is stale",
    steps: [{ says: TAGGED }, { after: 11, ask: { "Cache-Control": "only-if-cached" }, gets: { status: 504 } }],
  },

  // What replies ask for.
  request("5.2.2.2", "a fresh reply with must-revalidate is used", {}, "store", {
    "Cache-Control": "max-age=60, must-revalidate",
  }),
  request(
    "5.2.2.4",
    "each use of a reply with no-cache is validated",
    {},
    "validation",
    { "Cache-Control": "max-age=60, no-cache", ETag: '"1"' },
    1,
  ),
  notKept("5.2.2.4", "no-cache without anything to validate", { "Cache-Control": "max-age=60, no-cache" }),
  {
    section: "5.2.2.4",
    promise: "headers that no-cache names are not used again",
    steps: [
      { says: { "Cache-Control": 'max-age=60, no-cache="x-a, X-B"', "X-A": "1", "X-B": "1", "X-C": "1" } },
      { gets: { headers: { "x-a": null, "x-b": null, "x-c": "1" } } },
    ],
  },
  {
    section: "5.2.2.4",
    promise: "no-cache with and without names counts as no-cache without names",
    steps: [{ says: { "Cache-Control": 'max-age=60, no-cache="x-a", no-cache', ETag: '"1"' } }, { from: "validation" }],
  },
  notKept("7.3", "a reply with Set-Cookie and no-cache that names Set-Cookie", {
    "Cache-Control": 'max-age=60, no-cache="Set-Cookie"',
    "Set-Cookie": "a=1",
  }),
  notKept("5.2.2.5", "no-store", { "Cache-Control": "max-age=60, no-store" }),
  notKept("5.2.2.5", "no-store in a line of its own", { "Cache-Control": ["max-age=60", "no-store"] }),
  kept("5.2.2.3", "must-understand in place of no-store, where the status is known", {
    "Cache-Control": "max-age=60, must-understand, no-store",
  }),
  notKept(
    "5.2.2.3",
    "must-understand where the status is unknown",
    { "Cache-Control": "max-age=60, must-understand" },
    { status: 299 },
  ),
  notKept("5.2.2.7", "private", { "Cache-Control": "max-age=60, private" }),
  notKept("5.2.2.7", "private beside public", { "Cache-Control": "max-age=60, private, public" }),
  {
    section: "5.2.2.7",
    promise: "headers that private names are not stored",
    steps: [
      {
        says: { "Cache-Control": 'max-age=60, private="X-A"', "X-A": "1", "X-B": "1" },
        gets: { headers: { "x-a": "1" } },
      },
      { gets: { headers: { "x-a": null, "x-b": "1" } } },
    ],
  },
  request("5.2.2.10", "a stale reply with s-maxage is never used", { "Cache-Control": "max-stale=100" }, "origin", {
    "Cache-Control": "s-maxage=10",
  }),

  // Validation.
  {
    section: "4.3.1",
    promise: "a stale reply is validated with its entity tag",
    steps: [
      { says: TAGGED },
      { after: 11, from: "validation", sent: { "if-none-match": '"1"', "if-modified-since": null } },
    ],
  },
  {
    section: "4.3.1",
    promise: "a stale reply is validated with its Last-Modified",
    steps: [
      { says: DATED },
      { after: 11, from: "validation", sent: { "if-modified-since": "Wed, 31 Dec 2025 12:00:00 GMT" } },
    ],
  },
  {
    section: "4.3.1",
    promise: "the cache's condition replaces the client's own conditions in a validation",
    steps: [
      { says: TAGGED },
      { after: 11, ask: { "If-None-Match": '"7"' }, from: "validation", sent: { "if-none-match": '"1"' } },
    ],
  },
  {
    section: "4.3.1",
    promise: "a stale reply without a validator is fetched again",
    steps: [{ says: FRESH }, { after: 61, from: "origin", sent: { "if-none-match": null, "if-modified-since": null } }],
  },
  {
    section: "4.3.3",
    promise: "a complete reply to a validation replaces the stored reply",
    steps: [
      { says: TAGGED },
      { after: 11, from: "origin", status: 200, says: { ...FRESH, ETag: '"2"' } },
      { gets: { headers: { etag: '"2"' } } },
    ],
  },
  {
    section: "4.3.3",
    promise: "a complete reply that may not be stored removes the stored reply",
    steps: [
      { says: TAGGED },
      { after: 11, from: "origin", status: 200, says: { "Cache-Control": "no-store" } },
      { from: "origin", sent: { "if-none-match": null } },
    ],
  },
  {
    section: "4.3.3",
    promise: "an error of the origin does not replace the stored reply",
    steps: [{ says: TAGGED }, { after: 11, from: "origin", status: 500 }, { from: "validation" }],
  },
  {
    section: "4.3.4",
    promise: "a 304 makes the stored reply fresh again",
    steps: [
      { says: TAGGED },
      { after: 11, from: "validation", says: TAGGED },
      { after: 9, gets: { headers: { age: "9" } } },
      { after: 1, from: "validation" },
    ],
  },
  {
    section: "4.3.4",
    promise: "a 304 about another entity tag is ignored, and the origin is asked again",
    steps: [{ says: TAGGED }, { after: 11, from: "origin", says: { ETag: '"9"' } }],
  },
  {
    section: "4.3.4",
    promise: "a 304 without an entity tag that names another date of change is ignored, and the origin is asked again",
    steps: [
      { says: { "Cache-Control": "max-age=10", "Last-Modified": "Wed, 31 Dec 2025 12:00:00 GMT" } },
      { after: 11, from: "origin", says: { "Last-Modified": "Tue, 30 Dec 2025 12:00:00 GMT" } },
    ],
  },
  {
    section: "4.3.4",
    promise: "tags are compared weakly",
    steps: [{ says: { ...TAGGED, ETag: 'W/"1"' } }, { after: 11, from: "validation", says: { ETag: '"1"' } }],
  },
  {
    section: "4.3.5",
    promise: "a reply to HEAD makes the stored reply fresh again",
    steps: [{ says: TAGGED }, { after: 11, method: "HEAD", from: "origin", status: 200, says: TAGGED }, { after: 9 }],
  },
  {
    section: "4.3.5",
    promise: "a reply to HEAD with another entity tag removes the stored reply",
    steps: [
      { says: TAGGED },
      { after: 11, method: "HEAD", from: "origin", status: 200, says: { ...TAGGED, ETag: '"2"' } },
      { from: "origin", sent: { "if-none-match": null } },
    ],
  },
  {
    section: "4.3.5",
    promise: "a reply to HEAD with another length removes the stored reply",
    steps: [
      { says: TAGGED },
      { after: 11, method: "HEAD", from: "origin", status: 200, says: { ...TAGGED, "Content-Length": "9" } },
      { from: "origin", sent: { "if-none-match": null } },
    ],
  },

  // Conditions of clients.
  request("4.3.2", "If-None-Match with the stored tag gets 304", { "If-None-Match": '"0", W/"1"' }, "store", {
    ...TAGGED,
    ...FRESH,
  }),
  {
    section: "4.3.2",
    promise: "the 304 has the headers of a 304",
    steps: [
      {
        says: {
          ...FRESH,
          ETag: '"1"',
          "Content-Type": "a/b",
          Vary: "a",
          "Last-Modified": "Wed, 31 Dec 2025 12:00:00 GMT",
        },
      },
      {
        ask: { "If-None-Match": '"1"' },
        gets: {
          status: 304,
          headers: {
            etag: '"1"',
            vary: "a",
            "cache-control": "max-age=60",
            "content-type": null,
            "content-length": null,
            "last-modified": null,
            age: "1",
          },
        },
      },
    ],
  },
  {
    section: "4.3.2",
    promise: "If-None-Match with another tag gets the complete reply",
    steps: [{ says: { ...FRESH, ETag: '"1"' } }, { ask: { "If-None-Match": '"2"' }, gets: { status: 200 } }],
  },
  {
    section: "4.3.2",
    promise: "If-None-Match: * gets 304",
    steps: [{ says: FRESH }, { ask: { "If-None-Match": "*" }, gets: { status: 304 } }],
  },
  {
    section: "4.3.2",
    promise: "a comma in a tag is part of the tag",
    steps: [
      { says: { ...FRESH, ETag: '"a,b"' } },
      { ask: { "If-None-Match": '"x", "a,b"' }, gets: { status: 304 } },
      { ask: { "If-None-Match": '"a", "b"' }, gets: { status: 200 } },
    ],
  },
  {
    section: "4.3.2",
    promise: "If-Modified-Since is compared with Last-Modified",
    steps: [
      { says: { ...FRESH, "Last-Modified": "Wed, 31 Dec 2025 12:00:00 GMT" } },
      { ask: { "If-Modified-Since": "Wed, 31 Dec 2025 12:00:00 GMT" }, gets: { status: 304 } },
      { ask: { "If-Modified-Since": "Wed, 31 Dec 2025 11:59:59 GMT" }, gets: { status: 200 } },
    ],
  },
  {
    section: "4.3.2",
    promise: "If-Modified-Since is compared with Date if there is no Last-Modified",
    steps: [
      { says: FRESH },
      { ask: { "If-Modified-Since": "Thu, 01 Jan 2026 00:00:00 GMT" }, gets: { status: 304 } },
      { ask: { "If-Modified-Since": "Wed, 31 Dec 2025 23:59:59 GMT" }, gets: { status: 200 } },
    ],
  },
  {
    section: "4.3.2",
    promise: "an If-Modified-Since that is no date is ignored",
    steps: [{ says: FRESH }, { ask: { "If-Modified-Since": "now" }, gets: { status: 200 } }],
  },
  {
    section: "4.3.2",
    promise: "If-None-Match overrides If-Modified-Since",
    steps: [
      { says: { ...FRESH, ETag: '"1"' } },
      { ask: { "If-None-Match": '"2"', "If-Modified-Since": "Fri, 02 Jan 2026 00:00:00 GMT" }, gets: { status: 200 } },
    ],
  },
  {
    section: "4.3.2",
    promise: "conditions apply to a stored 200 only",
    steps: [
      { says: { ...FRESH, ETag: '"1"' }, status: 404 },
      { ask: { "If-None-Match": '"1"' }, gets: { status: 404 } },
    ],
  },
  {
    section: "4.3.2",
    promise: "a request with If-Match is sent to the origin",
    steps: [{ says: { ...FRESH, ETag: '"1"' } }, { ask: { "If-Match": '"2"' }, from: "origin", status: 412 }],
  },
  {
    section: "4.3.2",
    promise: "a request with If-Unmodified-Since is sent to the origin",
    steps: [
      { says: FRESH },
      { ask: { "If-Unmodified-Since": "Thu, 01 Jan 2026 00:00:00 GMT" }, from: "origin", status: 412 },
    ],
  },
  {
    section: "4.3.2",
    promise: "the client's own condition is evaluated after a validation",
    steps: [
      { says: TAGGED },
      { after: 11, ask: { "If-None-Match": '"1"' }, from: "validation", gets: { status: 304 } },
    ],
  },

  // Changes.
  ...["POST", "PUT", "PATCH", "DELETE", "FROB"].map((method): Case => ({
    section: "4.4",
    promise: `${method} invalidates its target`,
    steps: [{ says: FRESH }, { method, from: "origin" }, { from: "origin" }],
  })),
  ...["OPTIONS", "TRACE", "QUERY", "HEAD"].map((method): Case => ({
    section: "4.4",
    promise: `${method} does not invalidate its target`,
    steps: [{ says: FRESH }, { method, from: method === "HEAD" ? "store" : "origin" }, {}],
  })),
  {
    section: "4.4",
    promise: "a redirect in reply to a POST invalidates the target",
    steps: [{ says: FRESH }, { method: "POST", status: 303, from: "origin" }, { from: "origin" }],
  },
  {
    section: "4.4",
    promise: "an error in reply to a POST does not invalidate the target",
    steps: [
      { says: FRESH },
      { method: "POST", status: 400, from: "origin" },
      { method: "POST", status: 500, from: "origin" },
      {},
    ],
  },
  {
    section: "4.4",
    promise: "a POST invalidates every variant of its target",
    steps: [
      { ask: { A: "1" }, says: { ...FRESH, Vary: "A" } },
      { ask: { A: "2" }, from: "origin", says: { ...FRESH, Vary: "A" } },
      { method: "POST", from: "origin" },
      { ask: { A: "1" }, from: "origin" },
    ],
  },
  {
    section: "4.4",
    promise: "a POST invalidates the target that Location names",
    steps: [
      { says: FRESH },
      { method: "POST", target: "/a", says: { Location: "http://gateway.example/a/b" }, status: 201, from: "origin" },
      { from: "origin" },
    ],
  },
  {
    section: "4.4",
    promise: "a POST invalidates the target of a relative Location in another spelling",
    steps: [
      { says: FRESH },
      { method: "POST", target: "/a/c/d", says: { Location: "../%62" }, from: "origin" },
      { from: "origin" },
    ],
  },
  {
    section: "4.4",
    promise: "a POST invalidates the target that Content-Location names",
    steps: [
      { says: FRESH },
      { method: "POST", target: "/a", says: { "Content-Location": "/a/b" }, from: "origin" },
      { from: "origin" },
    ],
  },
  {
    section: "4.4",
    promise: "a POST does not invalidate a target of another host",
    steps: [
      { target: "http://other.example/a/b", says: FRESH },
      { method: "POST", says: { Location: "http://other.example/a/b" }, from: "origin" },
      { target: "http://other.example/a/b" },
    ],
  },
  {
    section: "4.4",
    promise: "a POST with an invalid Location does not invalidate another target",
    steps: [{ says: FRESH }, { method: "POST", target: "/a", says: { Location: "http://[" }, from: "origin" }, {}],
  },

  // Errors of the origin (RFC 5861).
  ...[500, 502, 503, 504].map((status): Case => ({
    section: "5861 4",
    promise: `stale-if-error answers with the stored reply for a ${status}`,
    steps: [
      { says: { "Cache-Control": "max-age=10, stale-if-error=60" } },
      { after: 69, from: "validation", status, gets: { status: 200 } },
    ],
  })),
  {
    section: "5861 4",
    promise: "stale-if-error does not apply after its time",
    steps: [{ says: { "Cache-Control": "max-age=10, stale-if-error=60" } }, { after: 71, from: "origin", status: 503 }],
  },
  {
    section: "5861 4",
    promise: "stale-if-error does not apply to other errors",
    steps: [{ says: { "Cache-Control": "max-age=10, stale-if-error=60" } }, { after: 20, from: "origin", status: 404 }],
  },
  {
    section: "5861 4",
    promise: "stale-if-error applies if the request asks for it",
    steps: [
      { says: TAGGED },
      {
        after: 20,
        ask: { "Cache-Control": "stale-if-error=10" },
        from: "validation",
        status: 503,
        gets: { status: 200 },
      },
    ],
  },
  {
    section: "5861 4",
    promise: "must-revalidate overrides stale-if-error",
    steps: [
      { says: { "Cache-Control": "max-age=10, stale-if-error=60, must-revalidate" } },
      { after: 20, from: "origin", status: 503 },
    ],
  },
  {
    section: "5861 4",
    promise: "s-maxage overrides stale-if-error (RFC 9111 4.2.4)",
    steps: [
      { says: { "Cache-Control": "s-maxage=10, stale-if-error=60" } },
      { after: 20, from: "origin", status: 503 },
    ],
  },
  {
    section: "5861 3",
    promise: "stale-while-revalidate does not apply after its time",
    steps: [
      { says: { "Cache-Control": "max-age=10, stale-while-revalidate=10", ETag: '"1"' } },
      { after: 21, from: "validation" },
    ],
  },
];

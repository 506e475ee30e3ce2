/**
 * The plugin kind `response_cache`: a shared cache in memory (RFC 9111), which answers GET and HEAD from what it has stored and tells
 * in Cache-Status (RFC 9211) what it did. The rules are `cache_rules.ts`, the memory is `cache_store.ts`.
 *
 * Reads of a request: the target, what Vary names, Cache-Control, Pragma, If-None-Match, If-Modified-Since, whether there are
 * credentials. Answers: a stored reply with its Age, 304 to a client that has it, 504 to `only-if-cached` where nothing is stored, else
 * what the upstream says. Also from RFC 5861: stale-while-revalidate, stale-if-error.
 */
import { hash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { integer, object, withDefault } from "../config/schema.ts";
import { Exchange, type CacheResult, type Call } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { endToEnd, hasHeader, headerValue, quotedString, type HeaderList } from "../http/headers.ts";
import { discard, problem, problemReply, type Reply } from "../http/reply.ts";
import { Fetches, type Fetch } from "./cache_fetches.ts";
import * as rules from "./cache_rules.ts";
import type { Storable, Timing, Wishes } from "./cache_rules.ts";
import { CacheStore, variantOf, type Entry } from "./cache_store.ts";
import { definePlugin, type KeptState } from "./plugin.ts";
import { Recorder, recordOf } from "./recorder.ts";

const MIB = 1024 * 1024;

const schema = object(
  {
    max_bytes: withDefault(integer({ min: 65_536, describe: "Memory for all stored replies, bodies and headers, in bytes." }), 64 * MIB),
    max_object_bytes: withDefault(integer({ min: 1, describe: "The longest body that is stored, in bytes." }), MIB),
    default_ttl_s: withDefault(
      integer({ min: 0, max: 31_536_000, describe: "How long replies are fresh that do not say it; 0: a tenth of their age since Last-Modified." }),
      0,
    ),
  },
  {
    describe: "Answers from memory what RFC 9111 allows a shared cache to store.",
    refine(value, report) {
      if (value.maxObjectBytes > value.maxBytes) report('must not be more than "max_bytes"', "max_object_bytes");
    },
  },
);

export const responseCache = definePlugin({
  name: "response_cache",
  schema,
  stores: true,
  create({ maxBytes, maxObjectBytes, defaultTtlS }, { clock, gatewayName, keep }) {
    const { store, fetches } = keep("cache", { maxBytes, defaultTtlS }, () => new Cache(maxBytes));
    const name = TOKEN.test(gatewayName) ? gatewayName : quotedString(gatewayName);
    return (next) => {
      const caching = new Caching({ next, clock, store, fetches, name, maxObjectBytes, defaultTtl: defaultTtlS * 1_000 });
      return (exchange) => caching.handle(exchange);
    };
  },
});

/** As structured fields have it (RFC 9651 §3.3.4). */
const TOKEN = /^[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*$/;

/** What stays over reloads. */
class Cache implements KeptState {
  readonly store: CacheStore;
  readonly fetches = new Fetches();

  constructor(maxBytes: number) {
    this.store = new CacheStore(maxBytes);
  }

  close(): void {
    this.store.close();
    this.fetches.close();
  }
}

interface Parts {
  readonly next: Handler;
  readonly clock: Clock;
  readonly store: CacheStore;
  readonly fetches: Fetches;
  /** In Cache-Status. */
  readonly name: string;
  readonly maxObjectBytes: number;
  readonly defaultTtl: number;
}

/** A request that may be answered from the store, and how it looked there. */
interface Task {
  readonly exchange: Exchange;
  readonly key: string;
  readonly wishes: Wishes;
  readonly authorised: boolean;
  /** Stored, but not to be used as it is. */
  readonly entry: Entry | null;
  /** Why the upstream is asked, in the words of RFC 9211 §2.2. */
  readonly fwd: "uri-miss" | "vary-miss" | "stale" | "request";
}

/** `how` as Cache-Status has it of a stored reply. */
function resultOf(how: string): CacheResult {
  if (how === "hit") return "hit";
  if (how.endsWith("collapsed")) return "collapsed";
  return how.endsWith("stale-if-error") ? "stale_if_error" : "revalidated";
}

/** How long nobody waits for others' replies from a target after some have waited in vain. */
const SHUN_MS = 60_000;

/** Shorter ones are gone into the socket at once. */
const LONG_BODY = 16 * 1024;

/** How long others wait for a body that has begun to come. */
const MOST_BODY_WAIT_MS = 5_000;

class Caching {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  handle(given: Exchange): Reply | Promise<Reply> {
    const { next } = this.#parts;
    const { method, headers } = given;
    const { notes } = given.call;
    if (given.upgrade !== null) return next(given);
    if (method !== "GET" && method !== "HEAD") {
      if (GRPC.test(headerValue(headers, "content-type") ?? "")) return next(given);
      notes.cache ??= "bypass";
      return this.#pass(given, "fwd=method", SAFE.has(method) ? null : (reply) => this.#invalidate(given, reply));
    }
    // What Connection names does not reach the upstream: its reply is none to a request that has it.
    const exchange = hasHeader(headers, "connection") ? given.with({ headers: endToEnd(headers) }) : given;
    const wishes = rules.wishesOf(exchange.headers);
    if (wishes.bypass || exchange.body !== null) {
      notes.cache ??= "bypass";
      return this.#pass(exchange, "fwd=bypass", null);
    }
    return this.#lookUp(exchange, wishes);
  }

  #lookUp(exchange: Exchange, wishes: Wishes): Reply | Promise<Reply> {
    const { store, clock } = this.#parts;
    const now = clock.now();
    const key = keyOf(exchange);
    const entry = store.find(key, audienceOf(exchange), exchange.headers);
    const authorised = wishes.authorised || exchange.identity !== null || exchange.claims !== null || isPersonal(exchange.call);
    const verdict = entry === null ? (store.varyOf(key, audienceOf(exchange)) === null ? "uri-miss" : "vary-miss") : rules.judge(entry, wishes, authorised, now);
    if (verdict === "use" || verdict === "use stale") return this.#answer(entry!, exchange, wishes, "hit");
    if (verdict === "use and renew") {
      this.#renew({ exchange, key, wishes, authorised, entry, fwd: "stale" });
      return this.#answer(entry!, exchange, wishes, "hit");
    }
    exchange.call.notes.cache ??= "miss";
    if (wishes.onlyIfCached) return this.#notStored(exchange);
    const task: Task = { exchange, key, wishes, authorised, entry, fwd: verdict };
    if (exchange.method === "HEAD") return this.#pass(exchange, this.#why(task), (reply) => this.#compare(task, reply));
    if (wishes.noStore) return this.#pass(exchange, this.#why(task), null);
    const waits = !wishes.noCache && !store.isShunned(key, now);
    const name = this.#awaitedName(key, exchange);
    const other = waits ? this.#parts.fetches.awaited(name) : undefined;
    if (other !== undefined) return this.#waitFor(other, task);
    // With conditions of the client's own, the reply may be a 304 that is of use to nobody else.
    const leads = waits && (!wishes.conditional || (entry !== null && rules.isValidatable(entry.headers)));
    return this.#ask(task, leads ? name : null, false);
  }

  /** Sends a request past the store; `look` sees the reply. */
  #pass(exchange: Exchange, how: string, look: ((reply: Reply) => void) | null): Reply | Promise<Reply> {
    const finish = (reply: Reply) => {
      look?.(reply);
      return this.#told(reply, how);
    };
    const reply = this.#parts.next(exchange);
    return reply instanceof Promise ? reply.then(finish) : finish(reply);
  }

  /** Collapses requests: this one gets what another is about to get, unless that turns out not to be for it. */
  async #waitFor(other: Fetch, task: Task): Promise<Reply> {
    const { store, clock } = this.#parts;
    const { exchange, key, wishes, authorised } = task;
    const outcome = await other.wait(exchange.call);
    // Nobody reads it; the upstream is not to be asked for that.
    if (exchange.call.aborted) return problem(exchange.call, "upstream_reset");
    const entry = store.find(key, audienceOf(exchange), exchange.headers);
    if (entry !== null && outcome === "stored" && rules.judge(entry, wishes, authorised, clock.now()) === "use") {
      return this.#answer(entry, exchange, wishes, `fwd=${task.fwd}; collapsed`);
    }
    if (entry !== null && outcome === "failed" && rules.standsIn(entry, wishes, authorised, clock.now())) {
      return this.#answer(entry, exchange, wishes, `fwd=${task.fwd}; collapsed`);
    }
    return this.#ask({ ...task, entry }, null, false);
  }

  /** Validates in the background what was used while stale; once at a time. */
  #renew(task: Task): void {
    const { fetches, store } = this.#parts;
    const name = this.#awaitedName(task.key, task.exchange);
    if (store.closed || fetches.awaited(name) !== undefined) return;
    const exchange = task.exchange.with({ method: "GET", headers: rules.withoutConditions(task.exchange.headers) });
    // Whoever fails has told the log; the next request tries again.
    this.#ask({ ...task, exchange }, name, true).then(discard, () => {});
  }

  /** Asks the upstream, by validation where there is something to validate. */
  async #ask(task: Task, awaitedAs: string | null, isBackground: boolean): Promise<Reply> {
    const { next, clock, fetches, store } = this.#parts;
    const { exchange, entry, key } = task;
    let askedAt = clock.now();
    const fetch = fetches.begin({ key, awaitedAs, client: exchange.call, isBackground, startedAt: askedAt });
    const send = (headers: HeaderList) => next(new Exchange({ ...exchange, headers, call: fetch.call }));
    const validates = entry !== null && rules.isValidatable(entry.headers);
    try {
      let reply = await send(validates ? rules.validating(exchange.headers, entry.headers) : exchange.headers);
      if (validates && reply.status === 304) {
        if (rules.confirms(reply.headers, entry.headers)) return this.#confirmed(task, entry, fetch, reply, this.#timing(askedAt));
        store.remove(entry);
        discard(reply);
        askedAt = clock.now();
        reply = await send(exchange.headers);
      }
      return this.#received(task, fetch, reply, this.#timing(askedAt));
    } catch (error) {
      fetch.end("failed");
      throw error;
    }
  }

  /** A 304: what is stored is right, and as new as this (RFC 9111 §4.3.4). */
  #confirmed(task: Task, entry: Entry, fetch: Fetch, reply: Reply, timing: Timing): Reply {
    const { store, defaultTtl } = this.#parts;
    const { exchange, wishes, authorised } = task;
    noteBack(fetch, exchange, "answered");
    discard(reply);
    const headers = rules.updated(entry.headers, reply.headers);
    const kept = rules.storable(entry.status, headers, authorised || isPersonal(fetch.call), timing, defaultTtl);
    const how = `fwd=${task.fwd}; fwd-status=304`;
    if (kept === null) {
      // With credentials the 304 says nothing of what others may get.
      if (!authorised) store.remove(entry);
      this.#unshared(fetch);
      const once = { ...entry, headers: rules.withoutAge(headers), terms: { ...entry.terms, ageThen: 0 }, cameAt: timing.cameAt };
      return this.#answer(once, exchange, wishes, how);
    }
    const renewed = entryOf(task, kept, timing, entry, entry.body);
    // What has come since is newer than what this validates.
    const stored = !fetch.isOutdated && store.holds(entry) && store.put(renewed, exchange.headers);
    if (stored && isShareable(kept)) fetch.end("stored");
    else this.#unshared(fetch);
    return this.#answer(renewed, exchange, wishes, stored ? `${how}; stored` : how);
  }

  /** A whole reply: stored if it may be, and passed on as it comes. */
  #received(task: Task, fetch: Fetch, reply: Reply, timing: Timing): Reply {
    const { store, clock, defaultTtl } = this.#parts;
    const { exchange, wishes, entry } = task;
    const authorised = task.authorised || isPersonal(fetch.call);
    const isOwnError = fetch.call.notes.code !== null || fetch.call.aborted;
    if (entry !== null && rules.isServerError(reply.status) && rules.standsIn(entry, wishes, authorised, clock.now())) {
      noteBack(fetch, exchange, "spared");
      discard(reply);
      fetch.end("failed");
      return this.#answer(entry, exchange, wishes, `fwd=${task.fwd}${isOwnError ? "" : `; fwd-status=${reply.status}`}; detail=stale-if-error`);
    }
    noteBack(fetch, exchange, "answered");
    const length = headerValue(reply.headers, "content-length");
    const expected = length === undefined ? null : Number(length);
    const kept =
      isOwnError || fetch.isOutdated || !this.#fits(reply, expected) ? null : rules.storable(reply.status, reply.headers, authorised, timing, defaultTtl);
    if (kept === null) {
      if (reply.status >= 500) fetch.end("failed");
      else this.#unshared(fetch);
      if (entry !== null && !authorised && !isOwnError && rules.supersedes(reply.status)) store.remove(entry);
      return this.#told(reply, this.#why(task));
    }
    const ttl = Math.floor((kept.terms.lifetime - kept.terms.ageThen) / 1_000);
    const passed = this.#told(reply, `${this.#why(task)}; stored; ttl=${ttl}`);
    const { body } = reply;
    if (body === null || Buffer.isBuffer(body)) {
      const stored = store.put(entryOf(task, kept, timing, reply, body === null ? null : recordOf(body)), exchange.headers);
      if (stored && isShareable(kept)) fetch.end("stored");
      else this.#unshared(fetch);
      return passed;
    }
    if (!isShareable(kept)) this.#unshared(fetch, "tell");
    const patience = clock.after(MOST_BODY_WAIT_MS, () => fetch.tell("unshared"));
    fetch.call.onAbort(() => body.destroy());
    const recorder = new Recorder(body, {
      clock,
      most: this.#parts.maxObjectBytes,
      expected,
      reserve: (bytes) => store.reserve(bytes),
      release: (bytes) => store.release(bytes),
      recorded: (record) => {
        patience.cancel();
        if (record === "broken") return fetch.end("failed");
        if (record !== "too much") this.#hold(record, exchange);
        const stored = record !== "too much" && !fetch.isOutdated && store.put(entryOf(task, kept, timing, reply, record), exchange.headers);
        if (stored) fetch.end("stored");
        else this.#unshared(fetch);
      },
      readerLeft: () => {
        fetch.leave(exchange.call);
        return fetch.isWanted;
      },
    });
    return { ...passed, body: recorder };
  }

  #fits({ headers, body }: Reply, expected: number | null): boolean {
    if (body === null) return expected === null || expected === 0;
    if (Buffer.isBuffer(body)) return body.length <= this.#parts.maxObjectBytes && (expected === null || expected === body.length);
    // Events have no end that others could wait for.
    return (expected ?? 0) <= this.#parts.maxObjectBytes && !EVENTS.test(headerValue(headers, "content-type") ?? "");
  }

  /** Those that waited ask for themselves; and for a while nobody waits, lest one after the other does. */
  #unshared(fetch: Fetch, then: "tell" | "end" = "end"): void {
    const { store, clock } = this.#parts;
    if (fetch.isShared) store.shun(fetch.options.key, clock.now() + SHUN_MS);
    fetch[then]("unshared");
  }

  /** A reply to HEAD tells whether what is stored for GET is still right (RFC 9111 §4.3.5). */
  #compare({ exchange, entry, authorised, key }: Task, reply: Reply): void {
    const { store, clock, defaultTtl } = this.#parts;
    if (entry === null || authorised || isPersonal(exchange.call) || reply.status !== 200 || entry.status !== 200) return;
    if (!store.holds(entry)) return;
    if (!rules.describes(reply.headers, entry.headers, entry.body?.length ?? 0)) return store.remove(entry);
    const timing = this.#timing(clock.now());
    const headers = rules.updated(entry.headers, reply.headers);
    const kept = rules.storable(entry.status, headers, false, timing, defaultTtl);
    if (kept === null) store.remove(entry);
    else store.put(entryOf({ exchange, key }, kept, timing, entry, entry.body), exchange.headers);
  }

  /** What an unsafe request may have changed is not true any more (RFC 9111 §4.4). */
  #invalidate(exchange: Exchange, { status, headers }: Reply): void {
    if (status < 200 || status > 399) return;
    this.#forget(keyOf(exchange));
    for (const name of ["location", "content-location"]) {
      const value = headerValue(headers, name);
      const key = value === undefined ? null : keyBeside(exchange, value);
      if (key !== null) this.#forget(key);
    }
  }

  #forget(key: string): void {
    this.#parts.store.removeAll(key);
    this.#parts.fetches.outdate(key);
  }

  #notStored(exchange: Exchange): Reply {
    const kind = { code: "not_cached", status: 504, title: "Nothing that is stored answers the request" };
    const detail = "The request asks for a stored answer (only-if-cached), and there is none that it takes.";
    return this.#told(problemReply(exchange.call, kind, { detail }), "detail=only-if-cached");
  }

  /** The stored reply, or 304 to a client that has it. */
  #answer(entry: Entry, exchange: Exchange, wishes: Wishes, how: string): Reply {
    const { notes } = exchange.call;
    // A renewal in the background, and a cache further in, have nothing more to say of this request.
    if (notes.cache === null || notes.cache === "miss") notes.cache = resultOf(how);
    const { clock, name } = this.#parts;
    const age = rules.ageOf(entry, clock.now());
    const ttl = Math.floor((entry.terms.lifetime - age) / 1_000);
    const told = ["Age", String(Math.floor(age / 1_000)), "Cache-Status", `${name}; ${how}; ttl=${ttl}; key=${keyShown(exchange)}`];
    if (wishes.conditional && rules.hasIt(exchange.headers, entry, clock.wall())) {
      return { status: 304, headers: [...rules.notModifiedHeaders(entry.headers), ...told], body: null };
    }
    const isHead = exchange.method === "HEAD";
    if (!isHead) this.#hold(entry.body, exchange);
    const headers = isHead ? rules.withBodyLength(entry.headers, entry.body) : entry.headers;
    const reason = entry.reason === undefined ? null : { reason: entry.reason };
    return { status: entry.status, ...reason, headers: [...headers, ...told], body: isHead ? null : entry.body };
  }

  /** A client that reads slowly keeps what it is sent in memory, also when others have displaced it in the store. */
  #hold(body: Buffer | null, { call }: Exchange): void {
    if (body !== null && body.length > LONG_BODY) call.onEnd(this.#parts.store.hold(body));
  }

  #told(reply: Reply, how: string): Reply {
    return { ...reply, headers: [...reply.headers, "Cache-Status", `${this.#parts.name}; ${how}`] };
  }

  #why({ fwd, exchange }: Task): string {
    return `fwd=${fwd}; key=${keyShown(exchange)}`;
  }

  /** Requests that will probably get the same reply, by what the last one varied on, have one name. */
  #awaitedName(key: string, exchange: Exchange): string {
    const audience = audienceOf(exchange);
    const vary = this.#parts.store.varyOf(key, audience);
    return `${key}\n${audience}\n${vary === null || vary.length === 0 ? "" : variantOf(vary, exchange.headers)}`;
  }

  #timing(askedAt: number): Timing {
    const { clock } = this.#parts;
    return { askedAt, cameAt: clock.now(), wall: clock.wall() };
  }
}

/** Safe, so nothing changes (RFC 9110 §9.2.1). */
const SAFE = new Set(["OPTIONS", "TRACE"]);
const GRPC = /^application\/grpc/i;
const EVENTS = /^text\/event-stream/i;

/** Whether those that wait could use it. */
function isShareable({ terms }: Storable): boolean {
  return !terms.noCache && terms.lifetime > terms.ageThen;
}

function entryOf(
  { exchange, key }: Pick<Task, "exchange" | "key">,
  { terms, headers, vary }: Storable,
  { cameAt }: Timing,
  { status, reason }: Pick<Reply, "status"> & { readonly reason?: string | undefined },
  body: Buffer | null,
): Entry {
  return { key, audience: audienceOf(exchange), vary, variant: variantOf(vary, exchange.headers), status, reason, headers, body, terms, cameAt };
}

/** What happened to the request that was sent in its stead is told of this one; an error that the client is spared is none. */
function noteBack({ call }: Fetch, exchange: Exchange, outcome: "answered" | "spared"): void {
  const { notes } = exchange.call;
  const { upstream, attempts, upstreamMs, identity, code, fault } = call.notes;
  notes.upstream = upstream;
  notes.attempts = attempts;
  notes.upstreamMs = upstreamMs;
  notes.identity ??= identity;
  exchange.call.personal ||= call.personal;
  if (outcome === "answered" && code !== null) exchange.call.fail(code, fault ?? undefined);
}

/** Whether an auth plugin, further out or further in, knows the caller. */
function isPersonal({ notes, personal }: Call): boolean {
  return personal || notes.identity !== null;
}

function audienceOf({ route }: Exchange): string {
  return route.audience ?? "";
}

/** The target as a URI, whatever the method. */
function keyOf(exchange: Exchange): string {
  const { scheme, authority, path, query } = exchange;
  return originOf(scheme, authority) + path + query + outerOf(exchange);
}

/** What a trusted proxy says of the target as its client asked for it: the upstream gets it, and writes links by it. */
function outerOf({ call, headers }: Exchange): string {
  if (!call.trustedRemote) return "";
  let outer = "";
  for (const name of OUTER) {
    const value = headerValue(headers, name);
    if (value !== undefined) outer += `\n${name}: ${value}`;
  }
  return outer;
}

const OUTER = ["x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"];

function originOf(scheme: string, authority: string): string {
  const defaultPort = scheme === "https" ? ":443" : ":80";
  const lower = authority.toLowerCase();
  return `${scheme}://${lower.endsWith(defaultPort) ? lower.slice(0, -defaultPort.length) : lower}`;
}

/** The key of a URI in a reply; null unless it is of the same origin. */
function keyBeside(exchange: Exchange, reference: string): string | null {
  const { scheme, authority, path } = exchange;
  const origin = originOf(scheme, authority);
  const base = URL.canParse(path, origin) ? new URL(path, origin) : null;
  if (base === null || !URL.canParse(reference, base.href)) return null;
  const url = new URL(reference, base);
  if (url.origin !== base.origin) return null;
  return origin + url.pathname.replace(/\/{2,}/g, "/").replace(/%[0-9a-f]{2}/gi, plainly) + url.search + outerOf(exchange);
}

/** As paths are normalised on the way in. */
function plainly(encoded: string): string {
  const character = String.fromCharCode(parseInt(encoded.slice(1), 16));
  return /[A-Za-z0-9._~-]/.test(character) ? character : encoded.toUpperCase();
}

/** The key for people to read; of the query only a digest, since Cache-Status may be logged and API keys stand there. */
function keyShown({ scheme, authority, path, query }: Exchange): string {
  return quotedString(originOf(scheme, authority) + path + (query === "" ? "" : `?${hash("sha256", query, "hex").slice(0, 12)}`));
}

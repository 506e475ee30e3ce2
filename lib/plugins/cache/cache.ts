/**
 * Answers requests with stored replies, or forwards them and stores the replies (RFC 9111 §3, §4).
 */
import type { Readable } from "node:stream";
import type { Clock } from "../../base/clock.ts";
import { Exchange, type CacheResult, type Call } from "../../http/exchange.ts";
import type { Handler } from "../../http/handler.ts";
import {
  endToEnd,
  hasHeader,
  headerValue,
  withHeader,
  withoutHeader,
  withoutHeaders,
  type HeaderList,
} from "../../http/headers.ts";
import { discard, problem, problemReply, type Reply } from "../../http/reply.ts";
import { Fetch, type Fetches } from "./fetches.ts";
import { partial, rangesFor } from "./ranges.ts";
import { Recorder, recordOf } from "./recorder.ts";
import * as rules from "./rules.ts";
import type { CacheRequest, Storable, Timing } from "./rules.ts";
import { variantOf, type CacheStore, type Entry } from "./store.ts";
import { keyOf, keyOfReference, keyShown, targetUri, type VaryBy } from "./target.ts";

export interface CacheSettings {
  readonly clock: Clock;
  /** In Cache-Status. */
  readonly name: string;
  readonly maxObjectBytes: number;
  /** In milliseconds; 0: none. */
  readonly defaultTtl: number;
  readonly varyBy: VaryBy;
}

/** What survives reloads. */
export interface CacheState {
  readonly store: CacheStore;
  readonly fetches: Fetches;
}

/** A request that may be answered from the store, and the result of the look-up. */
interface Lookup {
  readonly exchange: Exchange;
  readonly key: string;
  readonly request: CacheRequest;
  /** See `Entry`. */
  readonly changes: number;
  /** A stored reply that needs validation. */
  readonly entry: Entry | null;
  /** Why the request is forwarded (RFC 9211 §2.2). */
  readonly fwd: "uri-miss" | "vary-miss" | "stale" | "request";
}

/** After requests waited without result, how long requests for the target do not wait for one another. */
const NO_WAIT_MS = 60_000;
/** How long requests wait for a body that has started. */
const MAX_BODY_WAIT_MS = 5_000;
/** Shorter bodies are in the socket's buffer at once. */
const LONG_BODY = 16 * 1024;
/** Safe methods that are not cached: they change nothing (RFC 9110 §9.2.1, RFC 10008 §2). */
const SAFE = new Set(["OPTIONS", "TRACE", "QUERY"]);
const GRPC = /^application\/grpc/i;

export class Cache {
  readonly #next: Handler;
  readonly #store: CacheStore;
  readonly #fetches: Fetches;
  readonly #settings: CacheSettings;

  constructor(next: Handler, { store, fetches }: CacheState, settings: CacheSettings) {
    this.#next = next;
    this.#store = store;
    this.#fetches = fetches;
    this.#settings = settings;
  }

  handle(given: Exchange): Reply | Promise<Reply> {
    const { method, headers, identity, claims, call } = given;
    if (given.upgrade !== null) return this.#next(given);
    if (method !== "GET" && method !== "HEAD") {
      if (GRPC.test(headerValue(headers, "content-type") ?? "")) return this.#next(given);
      call.notes.cache ??= "bypass";
      return this.#forward(given, "fwd=method", SAFE.has(method) ? null : (reply) => this.#invalidate(given, reply));
    }
    // Headers that Connection names do not reach the upstream, so its reply must not be selected by them.
    const exchange = hasHeader(headers, "connection") ? given.with({ headers: endToEnd(headers) }) : given;
    const known = identity !== null || claims !== null || isPersonal(call);
    const request = rules.cacheRequestOf(exchange.headers, {
      known,
      trusted: call.trustedRemote,
      covers: this.#settings.varyBy.covers,
    });
    if (request.bypass || exchange.body !== null) {
      call.notes.cache ??= "bypass";
      return this.#forward(exchange, "fwd=bypass", null);
    }
    return this.#lookUp(exchange, request);
  }

  #lookUp(exchange: Exchange, request: CacheRequest): Reply | Promise<Reply> {
    const now = this.#settings.clock.now();
    const key = keyOf(exchange, request.keyed, this.#settings.varyBy);
    const changes = this.#store.changesOf(key);
    const entry = this.#store.find(key, exchange.headers);
    const hasVariants = entry !== null || this.#store.varyOf(key) !== null;
    const verdict = entry !== null ? rules.judge(entry, request, now) : hasVariants ? "vary-miss" : "uri-miss";
    if (verdict === "use" || verdict === "use stale") return this.#answer(entry!, exchange, request, "hit");
    if (verdict === "use and renew") {
      this.#renew({ exchange, key, request, changes, entry, fwd: "stale" });
      return this.#answer(entry!, exchange, request, "hit");
    }
    exchange.call.notes.cache ??= "miss";
    if (request.onlyIfCached) return this.#notStored(exchange);
    const lookup: Lookup = { exchange, key, request, changes, entry, fwd: verdict };
    if (exchange.method === "HEAD")
      return this.#forward(exchange, missOf(lookup), (reply) => this.#compare(lookup, reply));
    if (request.noStore || (request.range !== null && entry === null))
      return this.#forward(exchange, missOf(lookup), null);
    // The reply to a range may be a part, which other clients cannot use.
    const mayWait = !request.noCache && request.range === null && !this.#store.isUnshared(key, now);
    const name = this.#awaitedName(key, exchange);
    const other = mayWait ? this.#fetches.get(name) : undefined;
    if (other?.options.changes === changes) return this.#waitFor(other, lookup);
    // With the client's own conditions, the reply may be a 304, which other clients cannot use.
    const isShared = mayWait && (!request.conditional || (entry !== null && rules.isValidatable(entry.headers)));
    return this.#fetch(lookup, isShared ? name : null, false);
  }

  /** Sends a request to the upstream without storing the reply; `look` sees it. */
  #forward(exchange: Exchange, status: string, look: ((reply: Reply) => void) | null): Reply | Promise<Reply> {
    const finish = (reply: Reply) => {
      look?.(reply);
      return this.#withStatus(reply, status);
    };
    const reply = this.#next(exchange);
    return reply instanceof Promise ? reply.then(finish) : finish(reply);
  }

  /** Collapses requests: waits for the reply to an identical request, unless it turns out that it cannot be shared. */
  async #waitFor(other: Fetch, lookup: Lookup): Promise<Reply> {
    const { exchange, key, request, fwd } = lookup;
    const outcome = await other.wait(exchange.call);
    // The client has disconnected, so do not ask the upstream.
    if (exchange.call.aborted) return problem(exchange.call, "upstream_reset");
    const entry = this.#store.find(key, exchange.headers);
    const now = this.#settings.clock.now();
    const isShared = outcome === "stored" && entry !== null && rules.judge(entry, request, now) === "use";
    const isReplaced = outcome === "failed" && entry !== null && rules.replacesErrors(entry, request, now);
    if (isShared || isReplaced) return this.#answer(entry!, exchange, request, `fwd=${fwd}; collapsed`);
    return this.#fetch({ ...lookup, entry, changes: this.#store.changesOf(key) }, null, false);
  }

  /** Validates a stale reply in the background, once at a time. */
  #renew(lookup: Lookup): void {
    const name = this.#awaitedName(lookup.key, lookup.exchange);
    if (!this.#store.takes(lookup) || this.#fetches.get(name) !== undefined) return;
    const exchange = lookup.exchange.with({
      method: "GET",
      headers: withoutHeaders(lookup.exchange.headers, rules.OF_THE_CLIENT),
    });
    // A failure is logged where it happens; the next request retries.
    this.#fetch({ ...lookup, exchange }, name, true).then(discard, () => {});
  }

  /** Forwards the request, as a validation if the stored reply allows it. */
  async #fetch(lookup: Lookup, awaitedAs: string | null, isBackground: boolean): Promise<Reply> {
    const { exchange, entry, key, changes } = lookup;
    let askedAt = this.#settings.clock.now();
    const fetch = new Fetch(
      { key, awaitedAs, client: exchange.call, isBackground, startedAt: askedAt, changes },
      this.#fetches,
    );
    const send = (headers: HeaderList) => this.#next(new Exchange({ ...exchange, headers, call: fetch.call }));
    const validates = entry !== null && rules.isValidatable(entry.headers);
    try {
      let reply = await send(validates ? rules.validating(exchange.headers, entry.headers) : exchange.headers);
      if (validates && reply.status === 304) {
        if (rules.confirms(reply.headers, entry.headers))
          return this.#confirmed(lookup, entry, fetch, reply, this.#timing(askedAt));
        this.#store.remove(entry);
        discard(reply);
        askedAt = this.#settings.clock.now();
        reply = await send(exchange.headers);
      }
      return this.#received(lookup, fetch, reply, this.#timing(askedAt));
    } catch (error) {
      fetch.end("failed");
      throw error;
    }
  }

  /** Handles a 304: the stored reply is valid and as fresh as the 304 (RFC 9111 §4.3.4). */
  #confirmed(lookup: Lookup, entry: Entry, fetch: Fetch, reply: Reply, timing: Timing): Reply {
    const { exchange, request } = lookup;
    fetch.copyNotes("spared");
    discard(reply);
    const headers = rules.updated(entry.headers, reply.headers);
    const kept = rules.storable(
      entry.status,
      headers,
      request.authorised || isPersonal(fetch.call),
      timing,
      this.#impliedFor(request),
    );
    const status = `fwd=${lookup.fwd}; fwd-status=304`;
    if (kept === null) {
      // A 304 to a request with credentials does not apply to other clients.
      if (speaksFor(request, entry)) this.#store.remove(entry);
      this.#unshared(fetch);
      const once = {
        ...entry,
        headers: withoutHeader(headers, "age"),
        terms: { ...entry.terms, ageThen: 0 },
        cameAt: timing.cameAt,
      };
      return this.#answer(once, exchange, request, status);
    }
    const renewed = entryOf(lookup, kept, timing, entry, entry.body);
    // An entry that was stored in the meantime is newer than the validated entry.
    const stored = this.#store.holds(entry) && this.#store.put(renewed, exchange.headers);
    this.#settle(fetch, stored && isShareable(kept));
    return this.#answer(renewed, exchange, request, stored ? `${status}; stored` : status);
  }

  /** Handles a full reply: stores it if allowed, and forwards it while it arrives. */
  #received(lookup: Lookup, fetch: Fetch, reply: Reply, timing: Timing): Reply {
    const { exchange, request, entry } = lookup;
    const isOwnError = fetch.call.notes.code !== null || fetch.call.aborted;
    if (
      entry !== null &&
      rules.isServerError(reply.status) &&
      rules.replacesErrors(entry, request, this.#settings.clock.now())
    ) {
      fetch.copyNotes("spared");
      discard(reply);
      fetch.end("failed");
      const fwdStatus = isOwnError ? "" : `; fwd-status=${reply.status}`;
      return this.#answer(entry, exchange, request, `fwd=${lookup.fwd}${fwdStatus}; detail=stale-if-error`);
    }
    fetch.copyNotes("answered");
    const { status, headers, body } = reply;
    const length = headerValue(headers, "content-length");
    const expected = length === undefined ? null : Number(length);
    const authorised = request.authorised || isPersonal(fetch.call);
    const mayStore =
      !isOwnError && this.#store.takes(lookup) && rules.fits(reply, expected, this.#settings.maxObjectBytes);
    const kept = mayStore ? rules.storable(status, headers, authorised, timing, this.#impliedFor(request)) : null;
    if (kept === null) {
      if (status >= 500) fetch.end("failed");
      else this.#unshared(fetch);
      if (entry !== null && !authorised && speaksFor(request, entry) && !isOwnError && rules.supersedes(status))
        this.#store.remove(entry);
      return this.#withStatus(reply, missOf(lookup));
    }
    const ttl = Math.floor((kept.terms.lifetime - kept.terms.ageThen) / 1_000);
    const passed = this.#withStatus(reply, `${missOf(lookup)}; stored; ttl=${ttl}`);
    const put = (whole: Buffer | null) =>
      this.#store.put(entryOf(lookup, kept, timing, reply, whole), exchange.headers);
    if (body === null || Buffer.isBuffer(body)) {
      this.#settle(fetch, put(body === null ? null : recordOf(body)) && isShareable(kept));
      return passed;
    }
    if (!isShareable(kept)) this.#unshared(fetch, "announce");
    return { ...passed, body: this.#recording(body, fetch, exchange, expected, put) };
  }

  /** Forwards a body to its client and stores it once it is complete. */
  #recording(
    body: Readable,
    fetch: Fetch,
    exchange: Exchange,
    expected: number | null,
    put: (whole: Buffer) => boolean,
  ): Recorder {
    const patience = this.#settings.clock.after(MAX_BODY_WAIT_MS, () => fetch.announce("unshared"));
    fetch.call.onAbort(() => body.destroy());
    return new Recorder(body, {
      clock: this.#settings.clock,
      store: this.#store,
      most: this.#settings.maxObjectBytes,
      expected,
      recorded: (record) => {
        patience.cancel();
        if (record === "broken") return fetch.end("failed");
        if (record !== "too much") this.#hold(record, exchange);
        this.#settle(fetch, record !== "too much" && put(record));
      },
      readerLeft: () => {
        fetch.leave(exchange.call);
        return fetch.isWanted;
      },
    });
  }

  #settle(fetch: Fetch, isShared: boolean): void {
    if (isShared) fetch.end("stored");
    else this.#unshared(fetch);
  }

  /**
   * The waiting requests are forwarded; for a while no request waits, otherwise they would wait for one another in
   * turn.
   */
  #unshared(fetch: Fetch, then: "announce" | "end" = "end"): void {
    if (fetch.isShared) this.#store.markUnshared(fetch.options.key, this.#settings.clock.now() + NO_WAIT_MS);
    fetch[then]("unshared");
  }

  /** A reply to HEAD shows whether the stored reply to GET is still valid (RFC 9111 §4.3.5). */
  #compare(lookup: Lookup, reply: Reply): void {
    const { exchange, entry, request } = lookup;
    if (
      entry === null ||
      !speaksFor(request, entry) ||
      isPersonal(exchange.call) ||
      reply.status !== 200 ||
      entry.status !== 200
    )
      return;
    if (!this.#store.holds(entry)) return;
    if (!rules.describes(reply.headers, entry.headers, entry.body?.length ?? 0)) return this.#store.remove(entry);
    const timing = this.#timing(this.#settings.clock.now());
    const kept = rules.storable(
      entry.status,
      rules.updated(entry.headers, reply.headers),
      false,
      timing,
      this.#impliedFor(request),
    );
    if (kept === null) this.#store.remove(entry);
    else this.#store.put(entryOf(lookup, kept, timing, entry, entry.body), exchange.headers);
  }

  /** Drops entries that an unsafe request may have changed (RFC 9111 §4.4). */
  #invalidate(exchange: Exchange, { status, headers }: Reply): void {
    if (status < 200 || status > 399) return;
    const references = ["location", "content-location"].map((name) =>
      keyOfReference(exchange, headerValue(headers, name)),
    );
    for (const target of [targetUri(exchange), ...references]) if (target !== null) this.#store.change(target);
  }

  #notStored(exchange: Exchange): Reply {
    const kind = { code: "not_cached", status: 504, title: "No stored reply answers the request" };
    const detail = "The request asks for a stored reply (only-if-cached), and there is none that it accepts.";
    return this.#withStatus(problemReply(exchange.call, kind, { detail }), "detail=only-if-cached");
  }

  /** The stored reply, the ranges of it that the client asks for, or 304 to a client that has it. */
  #answer(entry: Entry, exchange: Exchange, request: CacheRequest, status: string): Reply {
    const { notes } = exchange.call;
    // A background renewal or a later cache must not change the notes of this request.
    if (notes.cache === null || notes.cache === "miss") notes.cache = resultOf(status);
    const age = rules.ageOf(entry, this.#settings.clock.now());
    const ttl = Math.floor((entry.terms.lifetime - age) / 1_000);
    const cacheStatus = `${this.#settings.name}; ${status}; ttl=${ttl}; key=${keyShown(exchange)}`;
    const added = ["Age", String(Math.floor(age / 1_000)), "Cache-Status", cacheStatus];
    const wall = this.#settings.clock.wall();
    if (request.conditional && rules.isNotModified(exchange.headers, entry, wall)) {
      return { status: 304, headers: [...rules.notModifiedHeaders(entry.headers), ...added], body: null };
    }
    const { status: code, headers, body } = entry;
    const reason = entry.reason === undefined ? null : { reason: entry.reason };
    if (exchange.method === "HEAD") {
      const described = body === null ? headers : withHeader(headers, "Content-Length", String(body.length));
      return { status: code, ...reason, headers: [...described, ...added], body: null };
    }
    const ranges = rangesFor(entry, request.range, exchange.headers, wall);
    if (ranges?.length === 0) return this.#unsatisfiable(exchange, body!.length, added);
    this.#hold(body, exchange);
    if (ranges === null) return { status: code, ...reason, headers: [...headers, ...added], body };
    const part = partial(headers, body!, ranges);
    return { ...part, headers: [...part.headers, ...added] };
  }

  #unsatisfiable(exchange: Exchange, length: number, added: HeaderList): Reply {
    const kind = { code: "range_not_satisfiable", status: 416, title: "No requested range is within the content" };
    const detail = `The content has ${length} bytes, and every range begins beyond them.`;
    return problemReply(exchange.call, kind, { detail, headers: ["Content-Range", `bytes */${length}`, ...added] });
  }

  /** Counts a body while a slow client reads it, even if it is no longer stored. */
  #hold(body: Buffer | null, { call }: Exchange): void {
    if (body !== null && body.length > LONG_BODY) call.onEnd(this.#store.hold(body));
  }

  #withStatus(reply: Reply, status: string): Reply {
    return { ...reply, headers: [...reply.headers, "Cache-Status", `${this.#settings.name}; ${status}`] };
  }

  /** Requests that will probably get the same reply, by the Vary of the last reply, share one key. */
  #awaitedName(key: string, exchange: Exchange): string {
    return `${key}\n${variantOf(this.#store.varyOf(key) ?? [], exchange.headers)}`;
  }

  /** See `storable`. */
  #impliedFor({ mayImply }: CacheRequest): number | null {
    return mayImply ? this.#settings.defaultTtl : null;
  }

  #timing(askedAt: number): Timing {
    return { askedAt, cameAt: this.#settings.clock.now(), wall: this.#settings.clock.wall() };
  }
}

/** Result for metrics and logs, by the verdict on a stored reply. */
function resultOf(status: string): CacheResult {
  if (status === "hit") return "hit";
  if (status.endsWith("collapsed")) return "collapsed";
  return status.endsWith("stale-if-error") ? "stale_if_error" : "revalidated";
}

function missOf({ fwd, exchange }: Lookup): string {
  return `fwd=${fwd}; key=${keyShown(exchange)}`;
}

/**
 * Whether a reply to this request tells that a stored one is outdated: one to a request with credentials may be for it
 * alone.
 */
function speaksFor({ authorised, mayImply }: CacheRequest, { terms }: Entry): boolean {
  return !authorised && (mayImply || !terms.isImplied);
}

/** Whether waiting requests could use the reply. */
function isShareable({ terms }: Storable): boolean {
  return !terms.noCache && terms.lifetime > terms.ageThen;
}

type Head = Pick<Entry, "status"> & Partial<Pick<Entry, "reason">>;

function entryOf(
  { exchange, key, changes }: Lookup,
  kept: Storable,
  { cameAt }: Timing,
  { status, reason }: Head,
  body: Buffer | null,
): Entry {
  const { headers, service, route } = exchange;
  const place = { service: service.name, route: route.name };
  return { ...kept, ...place, key, variant: variantOf(kept.vary, headers), status, reason, body, cameAt, changes };
}

/** Whether any auth plugin, earlier or later, has identified the caller. */
function isPersonal({ notes, personal }: Call): boolean {
  return personal || notes.identity !== null;
}

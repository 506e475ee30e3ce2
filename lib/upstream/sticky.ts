/**
 * Sticky sessions: a signed cookie names the upstream that answered a client, and the client's next requests go there
 * while it is healthy.
 */
import { createHmac, randomFillSync } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { findCookie } from "../http/cookies.ts";
import type { Exchange, ServiceName } from "../http/exchange.ts";
import { givenPrefix } from "../http/given_origin.ts";
import type { Handler } from "../http/handler.ts";
import type { Reply } from "../http/reply.ts";
import type { Picker } from "./attempts.ts";
import type { Peer } from "./upstream_set.ts";
import { healthyOf } from "./usable.ts";

export { fields } from "../config/sticky.ts";

export interface StickyOptions {
  readonly service: ServiceName;
  /** All upstreams of the service, also those with weight 0. */
  readonly peers: readonly Peer[];
  /** Those that had another id before, by that. */
  readonly former: ReadonlyMap<string, Peer>;
  /** Name of the cookie. */
  readonly cookie: string;
  /** How long a cookie holds, in seconds; 0: as long as the browser keeps it. */
  readonly ttlS: number;
  /** Signs the cookies. Gateways with the same key accept each other's. */
  readonly key: string | Uint8Array;
  /** What was signed for other sets of the service's upstreams, with the same key: a set takes over what it needs. */
  readonly signed: SignedNames;
  readonly clock: Pick<Clock, "wall">;
}

/** The names of upstreams in cookies, by term, and by the id of the upstream. */
export type SignedNames = Map<number, ReadonlyMap<string, string>>;

/** A time to live has this many terms: a cookie ends with a term, and so up to a 32nd of its time late. */
const TERMS = 32;

/** Of one request: a cookie whose term is new has the names of all upstreams signed. A client has one, or very few. */
const MAX_COOKIES = 4;

/** 128 bits of a signature, as base64url without padding. */
const SIGNATURE_BYTES = 16;

/** The names of all upstreams in cookies that end with one term. */
interface Term {
  readonly peers: ReadonlyMap<string, Peer>;
  /** By their former names: what clients have from then leads to them, and the next reply has the present name. */
  readonly former: ReadonlyMap<string, Peer>;
  /** By the id of the upstream. */
  readonly names: ReadonlyMap<string, string>;
}

export const KEY_BYTES = 32;

/** A random key for sessions without a secret of their own. `memory`: of all threads, as long as the gateway. */
export function drawnKey(memory: ArrayBufferLike): Uint8Array {
  const key = new Uint8Array(memory);
  // The main thread compiles a configuration before its workers do: they find the key drawn.
  if (key.every((byte) => byte === 0)) randomFillSync(key);
  return key;
}

export class Sticky {
  readonly #options: StickyOptions;
  /** The terms that have not ended, by number. Without a time to live there is one term, number 0. */
  readonly #terms = new Map<number, Term>();
  readonly #termMs: number;
  /** The path of the cookie, without what proxies have taken from it. */
  readonly #path: string;
  /** Everything behind it. */
  readonly #attributes: string;
  readonly #read = (value: string): Peer | null => this.#peerOf(value);
  readonly #readPresent = (value: string): Peer | null => this.#termOf(value)?.peers.get(value) ?? null;

  constructor(options: StickyOptions) {
    const { service, ttlS } = options;
    this.#options = options;
    this.#termMs = Math.ceil((ttlS * 1000) / TERMS);
    const age = ttlS === 0 ? "" : `; Max-Age=${ttlS}`;
    this.#path = cookiePath(service.basePath);
    this.#attributes = `${age}; HttpOnly; SameSite=Lax`;
  }

  /**
   * Asks `next` for requests without a cookie that names a healthy upstream, and for retries. Such an upstream may have
   * weight 0.
   */
  picker(next: Picker): Picker {
    return {
      pick: (exchange, tried) => (tried.length === 0 ? this.session(exchange) : null) ?? next.pick(exchange, tried),
    };
  }

  /**
   * The upstream that the request's cookie names; null without a valid one, and if the upstream is not healthy, or
   * ejected, or a backup that is not needed any more.
   */
  session(exchange: Exchange): Peer | null {
    const peer = this.#named(exchange, this.#read);
    if (peer === null || !peer.health.usable || peer.takenOut?.state === "eject") return null;
    // The sessions of a backup end when another upstream is back.
    return peer.isBackup && healthyOf(this.#options.peers).some(({ rank }) => rank < peer.rank) ? null : peer;
  }

  /**
   * Adds the cookie to replies of an upstream that the client's cookie does not name. Replies of the gateway itself get
   * none.
   */
  handler(next: Handler): Handler {
    return (exchange) => {
      const { code } = exchange.call.notes;
      const reply = next(exchange);
      return reply instanceof Promise
        ? reply.then((later) => this.#withCookie(exchange, later, code))
        : this.#withCookie(exchange, reply, code);
    };
  }

  #withCookie(exchange: Exchange, reply: Reply, codeBefore: string | null): Reply {
    const { code, upstream } = exchange.call.notes;
    if (upstream === null || code !== codeBefore || this.#named(exchange, this.#readPresent)?.id === upstream)
      return reply;
    const number = this.#termMs === 0 ? 0 : this.#current() + TERMS + 1;
    const value = this.#term(number).names.get(upstream)!;
    const secure = exchange.scheme === "https" ? "; Secure" : "";
    const path = givenPrefix(exchange) + this.#path || "/";
    const cookie = `${this.#options.cookie}=${value}; Path=${path}${this.#attributes}${secure}`;
    return { ...reply, headers: [...reply.headers, "Set-Cookie", cookie] };
  }

  /** The upstream of the first valid cookie of the first four; null without one. */
  #named({ headers }: Exchange, read: (value: string) => Peer | null): Peer | null {
    return findCookie(headers, this.#options.cookie, read, MAX_COOKIES);
  }

  #peerOf(value: string): Peer | null {
    const term = this.#termOf(value);
    return term?.peers.get(value) ?? term?.former.get(value) ?? null;
  }

  /** Null: the cookie has ended, or is none. */
  #termOf(value: string): Term | null {
    if (this.#termMs === 0) return this.#term(0);
    const number = Number.parseInt(value, 36);
    const current = this.#current();
    // No gateway writes later terms, unless its clock is ahead by a whole time to live: the number of tables stays
    // bounded.
    return number > current && number <= current + 2 * TERMS ? this.#term(number) : null;
  }

  #current(): number {
    return Math.floor(this.#options.clock.wall() / this.#termMs);
  }

  /**
   * Made when first asked for: signing takes longer than all else about a cookie, and so is not done for each request.
   */
  #term(number: number): Term {
    const known = this.#terms.get(number);
    if (known !== undefined) return known;
    const { peers, former, service, key, signed } = this.#options;
    const before = signed.get(number);
    const end = this.#termMs === 0 ? "" : `${number.toString(36)}.`;
    const nameOf = (id: string) => before?.get(id) ?? end + signature(key, [service.name, id, number]);
    const ids = [...peers.map(({ id }) => id), ...former.keys()];
    const names = new Map(ids.map((id) => [id, nameOf(id)]));
    const byName = (all: Iterable<readonly [string, Peer]>) =>
      new Map(Array.from(all, ([id, peer]) => [names.get(id)!, peer]));
    const term = { names, peers: byName(peers.map((peer) => [peer.id, peer] as const)), former: byName(former) };
    for (const terms of [this.#terms, signed])
      for (const other of terms.keys()) if (other <= this.#current()) terms.delete(other);
    this.#terms.set(number, term);
    signed.set(number, names);
    return term;
  }
}

function signature(key: string | Uint8Array, content: readonly (string | number)[]): string {
  return createHmac("sha256", key)
    .update(JSON.stringify(content))
    .digest()
    .subarray(0, SIGNATURE_BYTES)
    .toString("base64url");
}

/**
 * The longest part of a base_path that is the same in every request: "/shop" of "/shop/{tenant}"; "" if there is none.
 */
function cookiePath(basePath: string): string {
  return PLAIN_SEGMENTS.exec(basePath)![0];
}

/** Segments that browsers and clients write in one way only. */
const PLAIN_SEGMENTS = /^(?:\/[\w.~-]+(?=\/|$))*/;

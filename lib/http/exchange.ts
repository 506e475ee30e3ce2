/**
 * One request as plugins and forwarders see it: read-only, changed by passing a changed copy on.
 */
import { Readable } from "node:stream";
import { messageOf, type ErrorCode } from "../base/errors.ts";
import { byteStream } from "./body.ts";
import type { CertificateReader } from "./client_certificate.ts";
import { hasHeader, headerProblem, type HeaderList } from "./headers.ts";
import type { OwnBodyOf } from "./own_body.ts";
import type { Span } from "./span.ts";

/** The parts of an Exchange; all of them may be replaced with `exchange.with({ … })`, except `call` and `target`. */
export interface ExchangeParts {
  /** The state shared by all copies: identity of the request, its end, and notes for the log. */
  readonly call: Call;
  /** As received; upper case for the standard methods. */
  readonly method: string;
  /**
   * The request target byte for byte as the client sent it ("/p/%73igned?x"; over HTTP/2 `:path`), for signatures;
   * `path` is normalised.
   */
  readonly target: string;
  /** "1.0", "1.1" or "2.0": the protocol of the client. */
  readonly httpVersion: string;
  /** "https" when the client's connection to the gateway (or to a trusted proxy before it) is encrypted. */
  readonly scheme: "http" | "https";
  /** Host and port as the client wrote them, from the target or the Host header; "" when HTTP/1.0 sent none. */
  readonly authority: string;
  /** The whole normalised path, base_path included. The path that matched is forwarded unchanged. */
  readonly path: string;
  /** The part below the service's base_path: the path that the upstream gets. Starts with "/". */
  readonly upstreamPath: string;
  /** The query as received, "?" included; "" when there is none. */
  readonly query: string;
  readonly headers: HeaderList;
  /** Values of the placeholders in the matched pattern, percent-encoded as they are forwarded. */
  readonly params: Readonly<Record<string, string>>;
  /** The right-most address that no trusted proxy vouches for (see `global.trusted_proxies`). */
  readonly clientAddress: string;
  readonly service: ServiceName;
  readonly route: RouteName;
  /** The identity of the caller, set by an auth plugin; null before. */
  readonly identity: string | null;
  /** The claims of the caller's token by name, set by an auth plugin that has verified it; null before. */
  readonly claims: Readonly<Record<string, unknown>> | null;
  /** The groups that the caller's token names, set by an auth plugin that has verified it; see `groupsOf`. */
  readonly groups: readonly string[];
  /**
   * The unread body; null when the message has none. A handler that answers without reading it leaves it alone: the
   * server discards it.
   */
  readonly body: Readable | null;
  /** Trailers of the request; complete once the body has ended. */
  readonly trailers: () => HeaderList;
  /** The protocol the client wishes to switch to, "websocket"; null for ordinary requests. */
  readonly upgrade: string | null;
}

export interface ServiceName {
  readonly name: string;
  readonly basePath: string;
}

export interface RouteName {
  readonly name: string;
  readonly path: string;
  /**
   * Cache partition: equal only for the same route with the same guards. A reply stored under one audience is never
   * served to another.
   * Empty if no plugin of the route stores replies.
   */
  readonly audience?: string;
  /**
   * The request headers that plugins of the route read, set or remove, and those that `match` of any route reads, see
   * `dashed`: upstreams get none of them as trailers. Absent: there are neither plugins nor `match`.
   */
  readonly ownHeaders?: ReadonlySet<string> | undefined;
  /** The callers of the configuration; absent: it has none. */
  readonly callers?: { groupsOf(identity: string | null, ofToken: readonly string[]): readonly string[] } | undefined;
}

/** All groups of the caller: those of its token, and those that `callers` has under its identity. */
export function groupsOf({
  groups,
  identity,
  route: { callers },
}: Pick<ExchangeParts, "groups" | "identity" | "route">): readonly string[] {
  return callers === undefined ? groups : callers.groupsOf(identity, groups);
}

/**
 * What replaces all that earlier plugins have said of the caller, for a plugin that identifies by a name alone: a name
 * never keeps the groups of another one's token.
 */
export function callerNamed(identity: string) {
  return { identity, claims: null, groups: NO_GROUPS };
}

const NO_GROUPS: readonly string[] = Object.freeze([]);

export interface Exchange extends ExchangeParts {}

export class Exchange {
  constructor(parts: ExchangeParts) {
    const own = this as { -readonly [Part in keyof ExchangeParts]: ExchangeParts[Part] };
    // Written out, so that every Exchange has one hidden class and reads of it stay monomorphic.
    own.call = parts.call;
    own.method = parts.method;
    own.target = parts.target;
    own.httpVersion = parts.httpVersion;
    own.scheme = parts.scheme;
    own.authority = parts.authority;
    own.path = parts.path;
    own.upstreamPath = parts.upstreamPath;
    own.query = parts.query;
    own.headers = parts.headers;
    own.params = parts.params;
    own.clientAddress = parts.clientAddress;
    own.service = parts.service;
    own.route = parts.route;
    own.identity = parts.identity;
    own.claims = parts.claims;
    own.groups = parts.groups;
    own.body = parts.body;
    own.trailers = parts.trailers;
    own.upgrade = parts.upgrade;
  }

  /**
   * A copy with some parts replaced: `next(exchange.with({ headers }))`. An `identity` is noted for the log. Throws a
   * `TypeError` for headers that cannot be sent.
   */
  with(changes: Partial<Omit<ExchangeParts, "call" | "target">>): Exchange {
    const problem = changes.headers === undefined ? null : headerProblem(changes.headers, this.headers);
    if (problem !== null) throw new TypeError(problem);
    // Assigned over a copy: spread into one, the parts are gathered twice, which takes three times as long.
    const copy = Object.assign(new Exchange(this), changes);
    if (changes.identity !== undefined) this.call.notes.identity = changes.identity;
    // A body made by a plugin: all its readers expect bytes.
    if (changes.body instanceof Readable) (copy as { body: Readable | null }).body = byteStream(changes.body);
    return copy;
  }

  /** The id in X-Request-Id, in problem documents and in the logs. */
  get requestId(): string {
    return this.call.id;
  }

  /** Aborted when the client disconnects or the gateway cancels the request. */
  get signal(): AbortSignal {
    return this.call.signal;
  }
}

/** Counts requests; chosen once the route is known. */
export interface Meter {
  /** Requests that are not over. */
  inFlight: number;
  /** A request is over, `ms` after its head had arrived. */
  ended(method: string, notes: Notes, ms: number): void;
}

/** Adds up the requests and the time of a plugin instance. */
export interface PluginTime {
  readonly name: string;
  requests: number;
  /** Those that the plugin answered itself. */
  answered: number;
  /** In milliseconds. */
  ms: number;
}

/** The result of `response_cache` for a request; "bypass": it was not looked up in the store. */
export type CacheResult = "hit" | "collapsed" | "revalidated" | "stale_if_error" | "miss" | "bypass";

/** The data about an exchange for logs and metrics, filled in while it runs. */
export class Notes {
  /** The innermost span that the request is in; null where requests are not traced. */
  span: Span | null = null;
  /** The route's own; null before a route is found. */
  meter: Meter | null = null;
  /** Whether the request gets a log line, by the configuration in force when it arrived. */
  logged = false;
  /** Names the configuration that decides on the request. */
  digest = "";
  service: string | null = null;
  route: string | null = null;
  /** The route's path with its service's base_path before it, as a pattern: "/shop/items/{id}". */
  pattern: string | null = null;
  /** Whether its time counts: not for an event stream, which lasts as long as somebody listens. */
  isTimed = true;
  /** Status of the reply; null until one is sent. */
  status: number | null = null;
  /** Code of the error the gateway itself answered with. */
  code: string | null = null;
  /**
   * Of a refusal by a plugin: the member of its `config` that has decided, such as "limit_min"; null: none alone has.
   */
  rule: string | null = null;
  /** Id of the upstream that was asked, or null when none was. */
  upstream: string | null = null;
  /** The path that it was asked for. */
  upstreamPath: string | null = null;
  /** How many times an upstream was tried. */
  attempts = 0;
  /** The last attempt that has finished, and those before it; null also where nobody asks for them. */
  tried: {
    readonly upstream: string;
    readonly status: number | null;
    /** `clock.now()` at its start. */
    readonly from: number;
    readonly ms: number;
    readonly before: Notes["tried"];
  } | null = null;
  /** Whether the last attempt failed for a reason that says nothing about its upstream. */
  isExcused = false;
  /** Milliseconds of all finished attempts, each up to the response head; null before the first has finished. */
  upstreamMs: number | null = null;
  /** `clock.now()` at the start of the current attempt; null when there is none. */
  askedAt: number | null = null;
  /**
   * `clock.now()` when the outermost plugin returned the reply; null before, if no route matched, and if nothing uses
   * it.
   */
  answeredAt: number | null = null;
  /** The plugin that has answered, or has the request now; null: it has been sent to an upstream, or met no plugin. */
  by: { readonly name: string; readonly scope: { readonly key: string; readonly path: string } } | null = null;
  /** The plugin that has the request now, where its time is counted, and `clock.now()` when it got it. */
  plugin: PluginTime | null = null;
  pluginFrom = 0;
  /** The plugin (`Scope.key`) that last held the request for `HELD_MS` or longer, and those before it. */
  held: {
    readonly plugin: string;
    readonly from: number;
    readonly ms: number;
    readonly before: Notes["held"];
  } | null = null;
  /** By the last cache that was asked; null where none was. */
  cache: CacheResult | null = null;
  /** Bytes received of the request body, or from the client of a tunnel; null before counting starts. */
  received: number | null = null;
  /**
   * Bytes of the reply's body, or of a tunnel, that were handed to the client's connection, without framing; null where
   * there was no reply.
   */
  sent: number | null = null;
  /** The identity of the caller, from an auth plugin. */
  identity: string | null = null;
  /**
   * Of a request that the plugin kind `mcp` has read: the method, and the name of the tool or prompt, as the client
   * wrote them; null: it has read none, or there is no name.
   */
  mcp: { readonly method: string; readonly name: string | null } | null = null;
  /** The cause of the error, for the log only. */
  fault: string | null = null;
}

/** Only a plugin that takes longer costs an object. */
const HELD_MS = 0.1;

/** Ends the time of the plugin that has the request (`by`), if there is one. */
export function stopPluginTime(notes: Notes, now: number): void {
  const { plugin, pluginFrom: from, by } = notes;
  if (plugin === null) return;
  const ms = now - from;
  plugin.ms += ms;
  notes.plugin = null;
  // A fetch of a cache has no plugin of its own.
  if (ms >= HELD_MS && by !== null) notes.held = { plugin: by.scope.key, from, ms, before: notes.held };
}

export function noCertificate(): null {
  return null;
}

export interface CallOptions extends Pick<Call, "id" | "remoteAddress" | "trustedRemote" | "startedAt"> {
  /** Reads the certificate of the client's connection; default: there is none. */
  readonly certificate?: CertificateReader;
  /** Default null. */
  readonly tlsVersion?: string | null;
  readonly tlsCipher?: string | null;
  readonly tlsGroup?: string | null;
  readonly inform: (status: number, headers: HeaderList) => void;
}

/**
 * The state shared by every copy of one Exchange. Created by the server; ends when the reply was sent or the client has
 * disconnected.
 */
export class Call {
  readonly id: string;
  /** Address of the other end of the connection, which may be a trusted proxy. */
  readonly remoteAddress: string;
  /** Whether `remoteAddress` is in `global.trusted_proxies`: its statements about earlier hops are trusted. */
  readonly trustedRemote: boolean;
  /** `clock.now()` when the request head had arrived. */
  readonly startedAt: number;
  readonly notes = new Notes();
  /**
   * Set by auth plugins that accept a credential without an identity: the reply is for that caller alone. An identity
   * implies the same.
   */
  personal = false;
  /** The DPoP proof that an auth plugin has accepted for this request: it counts once. */
  proof: string | null = null;
  /**
   * The deadline for sending the whole reply, body included, on the monotonic clock; 0: no deadline. Set when the
   * request is sent to an upstream (`timeouts.total_ms`); limits the time a client has to read the rest after the
   * upstream has finished.
   */
  endsAt = 0;
  /**
   * Until when the gateway waited for the client to read more of its reply: monotonic, Infinity while it waits. Silence
   * of the upstream does not count until then.
   */
  heldUpTill = -Infinity;
  /**
   * Requests with the same key have one share of the requests in flight and of an upstream's connections
   * (`limits.max_client_share`): an IPv4 address, or the /64 of an IPv6 address. "": no limit, for a trusted proxy that
   * names no client.
   */
  holder = "";
  /**
   * The value returned by the innermost handler so far: a plugin that returns the same value only passed it on
   * (`plugins/chain.ts`).
   */
  passed: unknown = NOTHING;
  /** Null: the configuration has no own bodies for errors. */
  ownBody: OwnBodyOf | null = null;
  /** The client's certificate on this connection (not through a proxy), or null when it has presented none. */
  readonly certificate: CertificateReader;
  /** Of this connection (not of one through a proxy): "TLSv1.3"; null without TLS. */
  readonly tlsVersion: string | null;
  /** By OpenSSL's name; null without TLS. */
  readonly tlsCipher: string | null;
  /** For key exchange; null: it is not known. */
  readonly tlsGroup: string | null;
  readonly #inform: (status: number, headers: HeaderList) => void;
  #state: "open" | "aborted" | "closed" = "open";
  #listeners: (() => void)[] | null = null;
  #endings: (() => void)[] | null = null;
  #controller: AbortController | null = null;

  constructor(options: CallOptions) {
    this.id = options.id;
    this.remoteAddress = options.remoteAddress;
    this.trustedRemote = options.trustedRemote;
    this.startedAt = options.startedAt;
    this.#inform = options.inform;
    this.certificate = options.certificate ?? noCertificate;
    this.tlsVersion = options.tlsVersion ?? null;
    this.tlsCipher = options.tlsCipher ?? null;
    this.tlsGroup = options.tlsGroup ?? null;
  }

  /**
   * Sends an informational response (RFC 9110 §15.2: 100, 102 to 199) ahead of the reply; does nothing once that has
   * begun. As a hint, one that HTTP cannot carry is dropped.
   */
  inform(status: number, headers: HeaderList): void {
    // The connection may be serving the next request by now.
    if (this.#state !== "open") return;
    try {
      // 101 is no hint but the end of HTTP on its connection; one with a length would promise a body.
      const isHint = Number.isInteger(status) && status >= 100 && status < 200 && status !== 101;
      if (
        isHint &&
        headerProblem(headers) === null &&
        !hasHeader(headers, "content-length") &&
        !hasHeader(headers, "transfer-encoding")
      )
        this.#inform(status, headers);
    } catch {
      // Its connection is at its end.
    }
  }

  /** True once the client has disconnected before its reply was complete. */
  get aborted(): boolean {
    return this.#state === "aborted";
  }

  /**
   * Calls `run` when the client disconnects before its reply is complete; at once if it already has. Cheaper than
   * `signal`.
   */
  onAbort(run: () => void): void {
    if (this.#state === "aborted") run();
    else if (this.#state === "open") (this.#listeners ??= []).push(run);
  }

  /** Calls `run` when the reply was sent or the client has disconnected; at once if that is so already. */
  onEnd(run: () => void): void {
    if (this.#state === "open") (this.#endings ??= []).push(run);
    else run();
  }

  /** For `fetch` and the like, in plugins; made when first asked for. */
  get signal(): AbortSignal {
    if (this.#controller !== null) return this.#controller.signal;
    const controller = (this.#controller = new AbortController());
    this.onAbort(() => controller.abort());
    return controller.signal;
  }

  /** Called by the server: the client has disconnected. Later calls do nothing. */
  abort(): void {
    if (this.#state !== "open") return;
    this.#state = "aborted";
    this.#runAll(this.#listeners);
    this.#end();
  }

  /** Called by the server: the reply was sent, nothing can abort it any more. */
  close(): void {
    if (this.#state === "open") this.#state = "closed";
    this.#end();
  }

  #end(): void {
    const endings = this.#endings;
    this.#listeners = this.#endings = null;
    this.passed = NOTHING;
    this.#runAll(endings);
  }

  /** Catches errors of listeners: an uncaught error would end the process and skip the remaining listeners. */
  #runAll(listeners: readonly (() => void)[] | null): void {
    if (listeners === null) return;
    for (const run of listeners) {
      try {
        run();
      } catch (error) {
        this.notes.fault ??= `a plugin's end-of-request callback failed: ${messageOf(error)}`;
      }
    }
  }

  /**
   * Notes the gateway's own error for the log; `why` and `rule` never reach the client. Nothing counts as one after the
   * client has disconnected.
   */
  fail(code: ErrorCode | (string & {}), why?: string, rule: string | null = null): void {
    if (this.#state === "aborted") return;
    this.notes.code = code;
    this.notes.rule = rule;
    if (why !== undefined) this.notes.fault = why;
  }
}

/** A value that no handler can return. */
const NOTHING = Object.freeze({});

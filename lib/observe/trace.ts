/**
 * The gateway's part in traces: one span for each request it receives, within it one for each plugin instance, and one for each try of an
 * upstream; named as OpenTelemetry's conventions for HTTP have it. Which traces are recorded is `sampling.ts`, sending them is `otlp.ts`.
 *
 * A trace that is not recorded costs its id, and one for each `traceparent` that is sent. Whatever is told of a request is without
 * credentials that can be known.
 */
import { ERRORS, Fault, type ErrorCode } from "../base/errors.ts";
import type { Clock } from "../base/clock.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import type { Call, Exchange, Notes, Span, TracedUpstream, TrySpan } from "../http/exchange.ts";
import type { Middleware } from "../http/handler.ts";
import { headerValue } from "../http/headers.ts";
import { redacted, redactedPath } from "../http/redact.ts";
import type { Reply } from "../http/reply.ts";
import { pathOf } from "./access_line.ts";
import { createIds, type Ids } from "./ids.ts";
import { METHODS } from "./metrics.ts";
import type { Sampler } from "./sampling.ts";
import { attributesText, keyOf, spanText, type FinishedSpan } from "./span_json.ts";
import { parentOf, tracestateOf, type RemoteParent } from "./traceparent.ts";

/** Which plugin instance a span is of. */
export interface TracedPlugin {
  readonly name: string;
  readonly scope: { readonly level: string; readonly id: string | null };
}

export interface TracerOptions {
  readonly clock: Clock;
  readonly sampler: Sampler;
  /** Gets the spans that are over. */
  readonly sink: SpanSink;
  readonly ids?: Ids;
}

export interface SpanSink {
  /** Whether it takes no more at the moment: what comes all the same is counted as lost. */
  readonly isFull: boolean;
  /** `text` is empty where `isFull` made it pointless to spell it. */
  add(text: string): void;
}

export class Tracer {
  readonly #options: TracerOptions;
  readonly #ids: Ids;

  constructor(options: TracerOptions) {
    this.#options = options;
    this.#ids = options.ids ?? createIds();
  }

  /** A request has come: its trace is continued, or one begins. */
  begin(request: RequestFacts): void {
    const { clock, sampler, sink } = this.#options;
    const ids = this.#ids;
    const parent = parentOf(request.headers);
    const traceId = parent === null ? ids.trace() : parent.traceId;
    // What tracestate says is said of the trace that traceparent names, and of no other (W3C Trace Context §3.3).
    const tracestate = parent === null ? null : tracestateOf(request.headers);
    request.call.notes.span = sampler(parent, traceId)
      ? new RequestSpan(request, parent, { traceId, tracestate, offsetMs: clock.wall() - clock.now(), ids, sink })
      : new UnrecordedSpan(traceId, tracestate, ids);
  }

  /** The request is over, or has become a WebSocket, which is no request any more. Called again, does nothing. */
  end({ span }: Notes): void {
    if (span instanceof RecordedSpan) span.request.end(this.#options.clock.now());
  }

  /** Puts the time in a plugin, and in all that is further in, into a span. What passes through stays as it is. */
  spanned(plugin: TracedPlugin, middleware: Middleware): Middleware {
    const { clock } = this.#options;
    const { name, scope } = plugin;
    const attributes = [KEYS["edge_gateway.plugin"], name, KEYS["edge_gateway.plugin.level"], scope.level, KEYS["edge_gateway.plugin.id"], scope.id];
    const about: About = { name: `plugin ${name}`, attributes };
    return (next) => {
      const handler = middleware(next);
      if (typeof handler !== "function") return handler;
      return (exchange) => {
        const { notes } = exchange.call;
        const outer = notes.span;
        if (!(outer instanceof RecordedSpan)) return handler(exchange);
        const span = new PluginSpan(about, outer, clock.now());
        notes.span = span;
        let returned: Reply | Promise<Reply>;
        try {
          returned = handler(exchange);
        } catch (error) {
          notes.span = outer;
          span.ended(error, clock.now());
          throw error;
        }
        if (!(returned instanceof Promise)) {
          notes.span = outer;
          span.ended(null, clock.now());
          return returned;
        }
        const over = (error: unknown) => {
          notes.span = outer;
          span.ended(error, clock.now());
        };
        returned.then(() => over(null), over);
        return returned;
      };
    };
  }
}

/** What is said of every span of a plugin instance. */
interface About {
  readonly name: string;
  readonly attributes: readonly (string | null)[];
}

/** In the place of all spans of a request that is not recorded: nobody is told which was which. */
class UnrecordedSpan implements TrySpan {
  readonly traceId: string;
  readonly tracestate: string | null;
  readonly #ids: Ids;

  constructor(traceId: string, tracestate: string | null, ids: Ids) {
    this.traceId = traceId;
    this.tracestate = tracestate;
    this.#ids = ids;
  }

  /** Each time with another parent id: every try has its own. */
  get traceparent(): string {
    return `00-${this.traceId}-${this.#ids.span()}-00`;
  }

  try(): TrySpan {
    return this;
  }

  ended(): void {}
}

/** What all spans of one request have in common. */
interface Trace {
  readonly traceId: string;
  readonly tracestate: string | null;
  /** Between the clock's two hands, so that a span cannot end before it began, and none is longer than what is around it. */
  readonly offsetMs: number;
  readonly ids: Ids;
  readonly sink: SpanSink;
}

/** One that is recorded. */
abstract class RecordedSpan implements Span {
  readonly trace: Trace;
  readonly id: string;
  readonly #parentId: string | null;
  readonly #startedAt: number;
  /** Whose span it is in. */
  protected readonly parent: FinishedSpan["parent"] = "local";
  /** The span of the request itself. */
  abstract readonly request: RequestSpan;

  constructor(trace: Trace, parentId: string | null, startedAt: number) {
    this.trace = trace;
    this.id = trace.ids.span();
    this.#parentId = parentId;
    this.#startedAt = startedAt;
  }

  get traceId(): string {
    return this.trace.traceId;
  }

  get traceparent(): string {
    return `00-${this.trace.traceId}-${this.id}-01`;
  }

  get tracestate(): string | null {
    return this.trace.tracestate;
  }

  try(exchange: Exchange, upstream: TracedUpstream, resends: number, now: number): TrySpan {
    return new UpstreamSpan(this, { exchange, upstream, resends }, now);
  }

  protected tell(name: string, kind: FinishedSpan["kind"], attributes: string, error: string | null, now: number): void {
    const { traceId, tracestate, offsetMs, sink } = this.trace;
    sink.add(
      spanText({
        traceId,
        tracestate,
        spanId: this.id,
        parentId: this.#parentId,
        parent: this.parent,
        name,
        kind,
        startMs: offsetMs + this.#startedAt,
        endMs: offsetMs + now,
        attributes,
        status: error === null ? "unset" : "error",
      }),
    );
  }
}

class RequestSpan extends RecordedSpan {
  readonly request = this;
  protected override readonly parent: FinishedSpan["parent"];
  readonly #request: RequestFacts;
  #isOver = false;

  constructor(request: RequestFacts, parent: RemoteParent | null, trace: Trace) {
    super(trace, parent === null ? null : parent.spanId, request.call.startedAt);
    this.#request = request;
    this.parent = parent === null ? "local" : "remote";
  }

  end(now: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.trace.sink.isFull) return this.trace.sink.add("");
    const { notes } = this.#request.call;
    const error = errorOf(this.#request.call);
    this.tell(nameOf(this.#request), "server", requestAttributes(this.#request, error), error !== null && isOurs(notes, error) ? error : null, now);
  }
}

class PluginSpan extends RecordedSpan {
  readonly request: RequestSpan;
  readonly #about: About;

  constructor(about: About, outer: RecordedSpan, now: number) {
    super(outer.trace, outer.id, now);
    this.request = outer.request;
    this.#about = about;
  }

  /** `error`: what the plugin threw, or what came through it; else null. */
  ended(error: unknown, now: number): void {
    if (this.trace.sink.isFull) return this.trace.sink.add("");
    const { name, attributes } = this.#about;
    const type = error === null ? null : error instanceof Fault ? error.code : error instanceof Error ? error.name : "_OTHER";
    this.tell(name, "internal", attributesText(type === null ? attributes : [...attributes, KEYS["error.type"], type]), type, now);
  }
}

interface Try {
  readonly exchange: Exchange;
  readonly upstream: TracedUpstream;
  readonly resends: number;
}

class UpstreamSpan extends RecordedSpan implements TrySpan {
  readonly request: RequestSpan;
  readonly #try: Try;

  constructor(outer: RecordedSpan, made: Try, now: number) {
    super(outer.trace, outer.id, now);
    this.request = outer.request;
    this.#try = made;
  }

  ended(status: number | null, error: string | null, now: number): void {
    if (this.trace.sink.isFull) return this.trace.sink.add("");
    // To whoever asked, an answer that says that he was wrong is a failure, too.
    const type = error ?? (status !== null && status >= 400 ? String(status) : null);
    this.tell(knownMethod(this.#try.exchange.method) ?? "HTTP", "client", tryAttributes(this.#try, status, type), type, now);
  }
}

/** `GET /shop/items/{id}`: of few kinds, whatever clients ask for. */
function nameOf({ method, call }: RequestFacts): string {
  const first = knownMethod(method) ?? "HTTP";
  return call.notes.pattern === null ? first : `${first} ${call.notes.pattern}`;
}

function requestAttributes({ call, method, target, httpVersion, scheme, authority, clientAddress, headers }: RequestFacts, error: string | null): string {
  const { notes } = call;
  const question = target.indexOf("?");
  const [address, port] = hostAndPort(authority, scheme);
  return attributesText([
    KEYS["http.request.method"], knownMethod(method) ?? "_OTHER",
    KEYS["http.request.method_original"], originalOf(method),
    KEYS["url.scheme"], scheme,
    KEYS["url.path"], short(redactedPath(pathOf(target))),
    KEYS["url.query"], question < 0 ? null : short(redacted(target.slice(question)).slice(1)) || null,
    KEYS["http.route"], notes.pattern,
    KEYS["http.response.status_code"], notes.status,
    KEYS["server.address"], address,
    KEYS["server.port"], port,
    KEYS["client.address"], clientAddress,
    KEYS["network.peer.address"], call.remoteAddress,
    KEYS["network.protocol.version"], httpVersion === "2.0" ? "2" : httpVersion,
    KEYS["user_agent.original"], shortOrNull(headerValue(headers, "user-agent")),
    KEYS["error.type"], error,
    KEYS["edge_gateway.request_id"], call.id,
    KEYS["edge_gateway.service"], notes.service,
    KEYS["edge_gateway.route"], notes.route,
    KEYS["edge_gateway.code"], notes.code,
  ]);
}

function tryAttributes({ exchange, upstream, resends }: Try, status: number | null, error: string | null): string {
  const { protocol } = upstream.pool.options;
  const scheme = protocol === "https" || protocol === "h2" ? "https" : "http";
  return attributesText([
    KEYS["http.request.method"], knownMethod(exchange.method) ?? "_OTHER",
    KEYS["http.request.method_original"], originalOf(exchange.method),
    KEYS["url.full"], short(`${scheme}://${upstream.authority}${redactedPath(exchange.upstreamPath)}${redacted(exchange.query)}`),
    KEYS["server.address"], upstream.host,
    KEYS["server.port"], upstream.port,
    KEYS["network.protocol.version"], protocol === "h2" || protocol === "h2c" ? "2" : "1.1",
    KEYS["http.response.status_code"], status,
    KEYS["http.request.resend_count"], resends === 0 ? null : resends,
    KEYS["error.type"], error,
    KEYS["edge_gateway.upstream"], upstream.id,
  ]);
}

/** Clients make methods up: only those that are known stand for themselves. */
function originalOf(method: string): string | null {
  return knownMethod(method) === null ? short(method) : null;
}

function knownMethod(method: string): string | null {
  return METHODS.includes(method) ? method : null;
}

/** What went wrong, in few words: the gateway's own code, or the status; null where the request was answered, if only by saying why not. */
function errorOf({ notes: { status, code }, aborted }: Call): string | null {
  if (status !== null && status >= 500) return code ?? String(status);
  if (status !== null && status >= 400) return null;
  return code ?? (aborted ? "client_closed" : null);
}

function isOurs({ status }: Notes, error: string): boolean {
  return (status !== null && status >= 500) || (error !== "client_closed" && ERRORS[error as ErrorCode]?.side !== "client");
}

/** `[2001:db8::1]:8443` is the address and its port; where none is named, the scheme's own. */
function hostAndPort(authority: string, scheme: "http" | "https"): [address: string | null, port: number | null] {
  if (authority === "") return [null, null];
  const colon = authority.lastIndexOf(":");
  const hasPort = colon > authority.lastIndexOf("]");
  const host = hasPort ? authority.slice(0, colon) : authority;
  const port = hasPort && colon < authority.length - 1 ? Number(authority.slice(colon + 1)) : scheme === "https" ? 443 : 80;
  return [short(host.startsWith("[") ? host.slice(1, -1) : host), Number.isInteger(port) ? port : null];
}

function short(text: string): string {
  return text.length <= MOST_CHARACTERS ? text : text.slice(0, MOST_CHARACTERS);
}

function shortOrNull(text: string | undefined): string | null {
  return text === undefined ? null : short(text);
}

/** Of one attribute; what is longer is cut off, after what is secret has gone. */
const MOST_CHARACTERS = 1024;

/** What is said of spans, by the names of OpenTelemetry's conventions, and by names of our own where those have none. */
const NAMES = [
  "edge_gateway.plugin", "edge_gateway.plugin.level", "edge_gateway.plugin.id", "error.type",
  "http.request.method", "http.request.method_original", "url.scheme", "url.path",
  "url.query", "http.route", "http.response.status_code", "server.address",
  "server.port", "client.address", "network.peer.address", "network.protocol.version",
  "user_agent.original", "edge_gateway.request_id", "edge_gateway.service", "edge_gateway.route",
  "edge_gateway.code", "url.full", "http.request.resend_count", "edge_gateway.upstream",
] as const;

const KEYS = Object.fromEntries(NAMES.map((name) => [name, keyOf(name)])) as Readonly<Record<(typeof NAMES)[number], string>>;

/**
 * The gateway's spans: one for each request, and within it one for each plugin instance and one for each try of an
 * upstream, with the names of OpenTelemetry's HTTP conventions. Known credentials are removed.
 *
 * A trace that is not recorded costs its id, and a span id for each `traceparent` that is sent.
 */
import { METHODS } from "../base/http_grammar.ts";
import { ERRORS, Fault, type ErrorCode } from "../base/errors.ts";
import type { Clock } from "../base/clock.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import type { Call, Notes } from "../http/exchange.ts";
import type { Middleware } from "../http/handler.ts";
import { headerValue } from "../http/headers.ts";
import { redactedPath } from "../http/redact.ts";
import { redacted } from "../http/redact_query.ts";
import type { Reply } from "../http/reply.ts";
import type { Span, TracedRequest, TracedUpstream, TrySpan } from "../http/span.ts";
import { loggedHost, pathOf, short } from "./access_line.ts";
import type { Sampler } from "./sampling.ts";
import { attributesText, spanText, type FinishedSpan } from "./span_json.ts";
import { createIds, parentOf, tracestateOf, type Ids, type RemoteParent } from "./trace_context.ts";

interface TracerOptions {
  readonly clock: Clock;
  readonly sampler: Sampler;
  /** Receives finished spans. */
  readonly sink: SpanSink;
  readonly ids?: Ids;
  /** See `Tools`. */
  readonly secretParameters?: ReadonlySet<string> | undefined;
}

export interface SpanSink {
  /** Spans that are added now are lost, and counted. */
  readonly isFull: boolean;
  /** `text` may be empty while `isFull`. */
  add(text: string): void;
}

export class Tracer {
  readonly #options: TracerOptions;
  readonly #ids: Ids;

  constructor(options: TracerOptions) {
    this.#options = options;
    this.#ids = options.ids ?? createIds();
  }

  /** A request has arrived: continues its trace, or begins one. */
  begin(request: RequestFacts): void {
    const { clock, sampler, sink, secretParameters } = this.#options;
    const ids = this.#ids;
    const parent = parentOf(request.headers);
    const traceId = parent === null ? ids.trace() : parent.traceId;
    // Without a valid traceparent, tracestate has no meaning (W3C Trace Context §3.3).
    const tracestate = parent === null ? null : tracestateOf(request.headers);
    request.call.notes.span = sampler(parent, traceId)
      ? new RequestSpan(request, parent, {
          traceId,
          tracestate,
          offsetMs: clock.wall() - clock.now(),
          ids,
          sink,
          secretParameters,
        })
      : new UnrecordedSpan(traceId, tracestate, ids);
  }

  /** The request is over, or has become a WebSocket. May be called again. */
  end({ span }: Notes): void {
    if (span instanceof RecordedSpan) span.endRequest(this.#options.clock.now());
  }

  /** Wraps a plugin instance so that a span covers its time, inner plugins included. */
  spanned(
    { name, scope }: { readonly name: string; readonly scope: { readonly level: string; readonly id: string | null } },
    middleware: Middleware,
  ): Middleware {
    const { clock } = this.#options;
    const attributes = [
      "edge_gateway.plugin",
      name,
      "edge_gateway.plugin.level",
      scope.level,
      "edge_gateway.plugin.id",
      scope.id,
    ];
    return (next) => {
      const handler = middleware(next);
      if (typeof handler !== "function") return handler;
      return (exchange) => {
        const { notes } = exchange.call;
        const outer = notes.span;
        if (!(outer instanceof RecordedSpan)) return handler(exchange);
        const span = new RecordedSpan(outer.trace, outer, clock.now());
        notes.span = span;
        /** `error`: the value that the plugin threw or let through; else null. */
        const ended = (error: unknown) => {
          notes.span = outer;
          if (span.isLost()) return;
          const type =
            error === null
              ? null
              : error instanceof Fault
                ? error.code
                : error instanceof Error
                  ? error.name
                  : "_OTHER";
          span.finish(
            `plugin ${name}`,
            "internal",
            attributesText([...attributes, "error.type", type]),
            type !== null,
            clock.now(),
          );
        };
        let returned: Reply | Promise<Reply>;
        try {
          returned = handler(exchange);
        } catch (error) {
          ended(error);
          throw error;
        }
        if (returned instanceof Promise) returned.then(() => ended(null), ended);
        else ended(null);
        return returned;
      };
    };
  }
}

/** Stands for all spans of a request that is not recorded. */
class UnrecordedSpan implements TrySpan {
  readonly traceId: string;
  readonly spanId = null;
  readonly tracestate: string | null;
  readonly #ids: Ids;

  constructor(traceId: string, tracestate: string | null, ids: Ids) {
    this.traceId = traceId;
    this.tracestate = tracestate;
    this.#ids = ids;
  }

  /** Has another parent id each time: every try has its own. */
  get traceparent(): string {
    return `00-${this.traceId}-${this.#ids.span()}-00`;
  }

  try(): TrySpan {
    return this;
  }

  ended(): void {}
}

/** The data shared by the spans of one request. */
interface Trace extends Pick<TracerOptions, "sink" | "secretParameters"> {
  readonly traceId: string;
  readonly tracestate: string | null;
  /**
   * From the monotonic clock to the wall clock: fixed, so that no span ends before it begins or exceeds the span around
   * it.
   */
  readonly offsetMs: number;
  readonly ids: Ids;
}

class RecordedSpan implements Span {
  readonly trace: Trace;
  readonly spanId: string;
  readonly #outer: RecordedSpan | RemoteParent | null;
  readonly #startedAt: number;

  constructor(trace: Trace, outer: RecordedSpan | RemoteParent | null, startedAt: number) {
    this.trace = trace;
    this.spanId = trace.ids.span();
    this.#outer = outer;
    this.#startedAt = startedAt;
  }

  /** Ends the span of the request that this one is in. */
  endRequest(now: number): void {
    if (this.#outer instanceof RecordedSpan) this.#outer.endRequest(now);
  }

  get traceId(): string {
    return this.trace.traceId;
  }

  get traceparent(): string {
    return `00-${this.trace.traceId}-${this.spanId}-01`;
  }

  get tracestate(): string | null {
    return this.trace.tracestate;
  }

  try(exchange: TracedRequest, upstream: TracedUpstream, resends: number, now: number): TrySpan {
    return new UpstreamSpan(this, { exchange, upstream, resends }, now);
  }

  /** Whether the sink has no room for it, which is then counted: its text need not be made. */
  isLost(): boolean {
    const { sink } = this.trace;
    if (!sink.isFull) return false;
    sink.add("");
    return true;
  }

  finish(name: string, kind: FinishedSpan["kind"], attributes: string, isError: boolean, now: number): void {
    const { traceId, tracestate, offsetMs, sink } = this.trace;
    const parent = this.#outer === null || this.#outer instanceof RecordedSpan ? "local" : "remote";
    const startMs = offsetMs + this.#startedAt;
    const endMs = offsetMs + now;
    const status = isError ? "error" : "unset";
    sink.add(
      spanText({
        traceId,
        tracestate,
        spanId: this.spanId,
        parentId: this.#outer?.spanId ?? null,
        parent,
        name,
        kind,
        startMs,
        endMs,
        attributes,
        status,
      }),
    );
  }
}

class RequestSpan extends RecordedSpan {
  readonly #facts: RequestFacts;
  #isOver = false;

  constructor(facts: RequestFacts, parent: RemoteParent | null, trace: Trace) {
    super(trace, parent, facts.call.startedAt);
    this.#facts = facts;
  }

  override endRequest(now: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.isLost()) return;
    const { call } = this.#facts;
    const error = errorOf(call);
    this.finish(
      nameOf(this.#facts),
      "server",
      requestAttributes(this.#facts, error, this.trace),
      error !== null && isOurs(call.notes, error),
      now,
    );
  }
}

interface Try {
  readonly exchange: TracedRequest;
  readonly upstream: TracedUpstream;
  readonly resends: number;
}

class UpstreamSpan extends RecordedSpan implements TrySpan {
  readonly #try: Try;

  constructor(outer: RecordedSpan, made: Try, now: number) {
    super(outer.trace, outer, now);
    this.#try = made;
  }

  ended(status: number | null, error: string | null, now: number): void {
    if (this.isLost()) return;
    // For a client, a 4xx is an error too.
    const type = error ?? (status !== null && status >= 400 ? String(status) : null);
    this.finish(
      knownMethod(this.#try.exchange.method) ?? "HTTP",
      "client",
      tryAttributes(this.#try, status, type, this.trace),
      type !== null,
      now,
    );
  }
}

/** `GET /shop/items/{id}`: few different names, whatever clients ask for. */
function nameOf({ method, call }: RequestFacts): string {
  const first = knownMethod(method) ?? "HTTP";
  return call.notes.pattern === null ? first : `${first} ${call.notes.pattern}`;
}

function requestAttributes(facts: RequestFacts, error: string | null, { secretParameters }: Trace): string {
  const { call, method, target, httpVersion, scheme, clientAddress, headers } = facts;
  const { notes } = call;
  const question = target.indexOf("?");
  const agent = headerValue(headers, "user-agent");
  const [address, port] = hostAndPort(loggedHost(facts), scheme);
  return attributesText([
    "http.request.method",
    knownMethod(method) ?? "_OTHER",
    "http.request.method_original",
    originalOf(method),
    "url.scheme",
    scheme,
    "url.path",
    attribute(redactedPath(pathOf(target))),
    "url.query",
    question < 0 ? null : attribute(redacted(target.slice(question), secretParameters).slice(1)) || null,
    "http.route",
    notes.pattern,
    "http.response.status_code",
    notes.status,
    "server.address",
    address,
    "server.port",
    port,
    "client.address",
    clientAddress,
    "network.peer.address",
    call.remoteAddress,
    "network.protocol.version",
    httpVersion === "2.0" ? "2" : httpVersion,
    "user_agent.original",
    agent === undefined ? null : attribute(agent),
    "error.type",
    error,
    "edge_gateway.request_id",
    call.id,
    "edge_gateway.service",
    notes.service,
    "edge_gateway.route",
    notes.route,
    "edge_gateway.code",
    notes.code,
  ]);
}

function tryAttributes(
  { exchange, upstream, resends }: Try,
  status: number | null,
  error: string | null,
  { secretParameters }: Trace,
): string {
  const { protocol } = upstream.pool.options;
  const scheme = protocol === "https" || protocol === "h2" ? "https" : "http";
  return attributesText([
    "http.request.method",
    knownMethod(exchange.method) ?? "_OTHER",
    "http.request.method_original",
    originalOf(exchange.method),
    "url.full",
    attribute(
      `${scheme}://${upstream.authority}${redactedPath(exchange.upstreamPath)}` +
        `${redacted(exchange.query, secretParameters)}`,
    ),
    "server.address",
    upstream.host,
    "server.port",
    upstream.port,
    "network.protocol.version",
    protocol === "h2" || protocol === "h2c" ? "2" : "1.1",
    "http.response.status_code",
    status,
    "http.request.resend_count",
    resends === 0 ? null : resends,
    "error.type",
    error,
    "edge_gateway.upstream",
    upstream.id,
  ]);
}

/** Clients can invent methods: an unknown one is an attribute, and not part of a name. */
function originalOf(method: string): string | null {
  return knownMethod(method) === null ? attribute(method) : null;
}

export function knownMethod(method: string): string | null {
  return METHODS.includes(method) ? method : null;
}

/** The gateway's own code, or the status; null where the request was answered with a status below 500. */
function errorOf({ notes: { status, code }, aborted }: Call): string | null {
  if (status !== null && status >= 500) return code ?? String(status);
  if (status !== null && status >= 400) return null;
  return code ?? (aborted ? "client_closed" : null);
}

function isOurs({ status }: Notes, error: string): boolean {
  return (
    (status !== null && status >= 500) || (error !== "client_closed" && ERRORS[error as ErrorCode]?.side !== "client")
  );
}

/** `[2001:db8::1]:8443` is an address and its port; the default is the port of the scheme. */
export function hostAndPort(
  authority: string | null,
  scheme: "http" | "https",
): [address: string | null, port: number | null] {
  if (authority === null) return [null, null];
  const colon = authority.lastIndexOf(":");
  const hasPort = colon > authority.lastIndexOf("]");
  const host = hasPort ? authority.slice(0, colon) : authority;
  const port =
    hasPort && colon < authority.length - 1 ? Number(authority.slice(colon + 1)) : scheme === "https" ? 443 : 80;
  return [host.startsWith("[") ? host.slice(1, -1) : host, Number.isInteger(port) ? port : null];
}

/** Of one attribute. Longer values are cut, after secrets have been removed. */
const MAX_CHARACTERS = 1024;

function attribute(text: string): string {
  return short(text, MAX_CHARACTERS);
}

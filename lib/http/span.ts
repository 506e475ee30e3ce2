/**
 * What the data path tells a trace, where requests are traced.
 */

/** A span of a trace: the operations that follow belong to it. */
export interface Span {
  /** 32 hexadecimal digits, in lower case. */
  readonly traceId: string;
  /** 16 hexadecimal digits, in lower case; null: the trace is not recorded. */
  readonly spanId: string | null;
  /** The `traceparent` sent to an upstream within this span (W3C Trace Context §3.2). */
  readonly traceparent: string;
  /** And as `tracestate`; null where there is none. */
  readonly tracestate: string | null;
  /** A try of an upstream begins, `resends` tries after the first, at `now`. */
  try(exchange: TracedRequest, upstream: TracedUpstream, resends: number, now: number): TrySpan;
}

export interface TrySpan extends Span {
  /** The head of the answer is there, or there will be none: `error` is the code of the fault then. */
  ended(status: number | null, error: string | null, now: number): void;
}

export interface TracedRequest {
  readonly method: string;
  readonly upstreamPath: string;
  readonly query: string;
}

export interface TracedUpstream {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  /** As in the Host header. */
  readonly authority: string;
  readonly pool: { readonly options: { readonly protocol: "http" | "https" | "h2" | "h2c" } };
}

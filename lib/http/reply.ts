/**
 * Defines the reply to an exchange, and the format of the gateway's own errors (RFC 9457).
 */
import type { Duplex, Readable } from "node:stream";
import { ERRORS, Fault, ignore, messageOf, type ErrorCode } from "../base/errors.ts";
import type { Call } from "./exchange.ts";
import type { HeaderList } from "./headers.ts";
import type { ErrorText, OwnReply } from "./own_body.ts";

export interface Reply {
  /** 200–599, or 101 together with `tunnel`. */
  readonly status: number;
  /** Of an error: the status that the client gets instead, as `errors` of the configuration says. */
  readonly sentAs?: number;
  /** Reason phrase as the upstream gave it; HTTP/1 only. */
  readonly reason?: string;
  /** End-to-end headers; the server adds the framing beyond Content-Length. */
  readonly headers: HeaderList;
  /** X-Request-Id, if the reply comes from a server whose log and documents have another id; default: the call's. */
  readonly requestId?: string | undefined;
  /**
   * A stream must yield bytes or text, as many bytes as Content-Length states if there is one; otherwise it is broken
   * off.
   */
  readonly body: Buffer | Readable | null;
  /** Trailers, complete once the body has ended; sent where the client's protocol can carry them. */
  readonly trailers?: () => HeaderList;
  /** The upstream's side of an upgraded connection: after the 101 every byte passes both ways. */
  readonly tunnel?: Tunnel;
}

export interface Tunnel {
  readonly socket: Duplex;
  /** Bytes that arrived behind the upstream's 101. */
  readonly head: Buffer;
  /** Milliseconds without a byte either way after which the tunnel is closed. */
  readonly idleMs: number;
}

/**
 * Discards a Reply that will not be sent, and frees its resources (an unread body holds its pooled connection for
 * ever). Never throws.
 */
export function discard(reply: Reply): void {
  giveUp(reply, "body");
  giveUp(reply, "tunnel");
}

/** A plugin's stream may fail as it is destroyed, at once or later: without a listener that would end the process. */
function giveUp(reply: Reply, member: "body" | "tunnel"): void {
  try {
    const stream = member === "body" ? reply.body : reply.tunnel?.socket;
    if (stream === null || stream === undefined || Buffer.isBuffer(stream)) return;
    if (stream.listenerCount("error") === 0) stream.on("error", ignore);
    stream.destroy();
  } catch {
    // A plugin's stream that throws here frees itself or nothing.
  }
}

export interface ProblemOptions {
  /** For the client to read: what happened and what to do. Nothing about the inside of the gateway. */
  readonly detail?: string;
  readonly headers?: HeaderList;
  /** For the log only. */
  readonly why?: string;
  /** For log and decisions only: the member of the plugin's `config` that has decided, such as "limit_min". */
  readonly rule?: string | undefined;
  /** Members of the document beside the usual ones (RFC 9457 §3.2). */
  readonly members?: object;
}

/** A reply with a problem document for an error of the table. */
export function problem(call: Call, code: ErrorCode, options: ProblemOptions = {}): Reply {
  const kind = ERRORS[code];
  return problemReply(call, { code, status: kind.status, title: kind.title }, options);
}

/**
 * Whether a plugin threw because of the client, the upstream or the load: a plugin that reads a body meets its limits,
 * and its early end.
 */
export function isForeignFault(error: unknown): error is Fault {
  return error instanceof Fault && error.code !== "internal";
}

/** Returns the reply for a thrown error: a fault that is not of our code, else a 500 that does not name the cause. */
export function faultReply(call: Call, error: unknown): Reply {
  return problem(call, isForeignFault(error) ? error.code : "internal", { why: messageOf(error) });
}

/** A problem document whose code is not in the table: for plugins with codes of their own. */
export function problemReply(call: Call, kind: ErrorText, options: ProblemOptions = {}): Reply {
  call.fail(kind.code, options.why, options.rule);
  return errorReply(kind, call, options);
}

export function errorReply(
  kind: ErrorText,
  { id, ownBody }: Pick<Call, "id" | "ownBody">,
  options: ProblemOptions,
): OwnReply {
  return ownBody?.(kind, id, options) ?? documentReply(kind, id, options);
}

export function documentReply(kind: ErrorText, id: string, options: ProblemOptions): OwnReply {
  const body = problemDocument(kind, id, options.detail, options.members);
  const described = ["Content-Type", "application/problem+json", "Content-Length", String(body.length)];
  return { status: kind.status, headers: [...described, ...(options.headers ?? [])], body };
}

/** With the status that the client gets: plugins and breakers have seen that of the error. For calls with `ownBody`. */
export function asSent(reply: Reply): Reply {
  const { sentAs } = reply;
  return sentAs === undefined ? reply : { ...reply, status: sentAs };
}

/**
 * The bytes of a problem document: `type`, `title`, `status`, `detail`, `code`, `request_id`, and further members (RFC
 * 9457 §3).
 */
export function problemDocument(kind: ErrorText, requestId: string, detail = detailBy(kind), members?: object): Buffer {
  const { code, status, title } = kind;
  return Buffer.from(
    JSON.stringify({ type: "about:blank", title, status, detail, code, request_id: requestId, ...members }) + "\n",
  );
}

/** The title as a sentence. */
export function detailBy({ title }: ErrorText): string {
  return title.replace(/[^.!?]$/, "$&.");
}

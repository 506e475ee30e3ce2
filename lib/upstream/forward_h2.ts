/**
 * Sends one exchange to one peer over HTTP/2, one stream for each try, and gives its answer as a Reply: streaming both ways, with the
 * three deadlines of the service. Sessions are `sessions.ts`; choosing the peer and turning faults into replies is `attempts.ts`.
 */
import http2, { type ClientHttp2Session, type ClientHttp2Stream, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import type { Clock, Timer } from "../base/clock.ts";
import { Fault, type ErrorCode } from "../base/errors.ts";
import { pump, sinkOf, type PumpEnd } from "../http/body.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import { isClosed, keepOpenUntilRead, resetStream, detectTruncatedBody } from "../http/h2_streams.ts";
import { h2Fields } from "../http/h2_fields.ts";
import { endToEnd, hasToken, headerValue, headerValues, withoutHeader, type HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { deadlines } from "./deadlines.ts";
import type { Destination } from "./destination.ts";
import { Unsent } from "./faults.ts";
import { requestHead } from "./request_head.ts";
import { informationHeaders, switchHeaders } from "./response_head.ts";
import type { Session, Sessions } from "./sessions.ts";
import { trailerFields } from "./trailers.ts";
import { clientGone, connectTimeLeft, DRAIN_MS, isReplayable, newTry, type ForwardOptions, type Try } from "./try.ts";
import { overdueUpload, stalledReply, stalledUpload } from "./upload.ts";
import { isWebsocketKey, websocketAccept } from "./websocket.ts";

const { NGHTTP2_CANCEL, NGHTTP2_FLAG_END_STREAM, NGHTTP2_PROTOCOL_ERROR, NGHTTP2_REFUSED_STREAM } = http2.constants;

/** Most that nghttp2 reckons with for packing a field, and a list. */
const FIELD_BYTES = 12;
const LIST_BYTES = 32;

/** As `forward` of `forward.ts`. */
export async function forwardH2(exchange: Exchange, to: Destination<Sessions>, options: ForwardOptions, endsAt: number): Promise<Reply> {
  const one = newTry(exchange, to, options, endsAt);
  const { call } = exchange;
  // A plugin may have taken longer than the client cared to wait.
  if (call.aborted) throw clientGone();
  if (exchange.upgrade !== null && exchange.httpVersion !== "2.0" && !isWebsocketKey(headerValues(exchange.headers, "sec-websocket-key"))) {
    // Over HTTP/2 there is no key: the upstream cannot look at it, and it is we who answer it.
    return problem(call, "bad_request", { detail: "A request for a WebSocket needs one Sec-WebSocket-Key of 16 bytes in base64." });
  }
  const first = await lease(one, null);
  try {
    return await sendIfTaken(one, first);
  } catch (fault) {
    if (!(fault instanceof Unserved) || call.aborted) throw fault;
    return sendIfTaken(one, await lease(one, first));
  }
}

/** The peer says that it has not looked at the request, or an idle connection broke as it was used; and the request can be sent again. */
class Unserved extends Unsent {}

/**
 * A lease on a session whose peer has said what it takes: how many streams, and whether WebSockets. More sent at once would be refused,
 * or wait in node behind the others while another connection could have them.
 */
async function lease(one: Try<Sessions>, except: Session | null): Promise<Session> {
  const { pool } = one.to;
  const { call } = one.exchange;
  for (let full = except; ; ) {
    const session = pool.tryLease(full) ?? pool.tryLease() ?? (await pool.waitForLease(connectTimeLeft(one), (run) => call.onAbort(run)));
    if (!session.isSettled) await within(session.settled, session, call, connectTimeLeft(one), one.options.clock);
    if (!session.isOverfull) return session;
    session.release();
    full = session;
  }
}

function within(usable: Promise<unknown>, session: Session, call: Call, ms: number, clock: Clock): Promise<void> {
  return new Promise((resolve, reject) => {
    let over = false;
    const giveUp = (fault: Fault) => {
      if (over) return;
      over = true;
      timer.cancel();
      session.release();
      reject(fault);
    };
    const timer = clock.after(ms, () => {
      session.isOverdue = true;
      giveUp(new Unsent("upstream_timeout", `no connection within ${ms} ms`));
    });
    usable.then(() => {
      if (over) return;
      over = true;
      timer.cancel();
      resolve();
    }, giveUp);
    call.onAbort(() => {
      if (!over) giveUp(clientGone());
    });
  });
}

/** A peer that has not said that it takes an extended CONNECT must not be sent one (RFC 8441 §3). */
function sendIfTaken(one: Try<Sessions>, session: Session): Reply | Promise<Reply> {
  const { exchange } = one;
  if (exchange.upgrade === null || session.takesWebSockets) return send(one, session);
  session.release();
  return problem(exchange.call, "upstream_invalid", {
    detail: "The service behind this route is reached over HTTP/2 and takes no WebSockets there.",
    why: "the upstream's SETTINGS do not allow extended CONNECT (RFC 8441)",
  });
}

/** One try on one stream. The lease ends with the stream. */
function send({ exchange, to, options, tryEndsAt, endsAt }: Try<Sessions>, session: Session): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { call, body } = exchange;
    let phase: "sending" | "waiting" | "receiving" | "over" = "sending";
    let timer: Timer | null = null;
    let trailers: HeaderList = [];
    // The client holds its body back until the upstream asks for it; cleared by the upstream's 100.
    let awaitsContinue = false;
    // What had come from the peer when the whole request was out.
    let heard = -1;
    let stopUpload = ignore;
    let stream: ClientHttp2Stream;
    let mayTrail: boolean;
    let bodyLength = Infinity;
    try {
      const head = requestHead(exchange, to, options);
      awaitsContinue = body !== null && hasToken(headerValue(exchange.headers, "expect"), "100-continue");
      const fields = requestFields(exchange, to, head.headers);
      if (listBytes(fields) > MAX_HEAD_BYTES) {
        session.release();
        return resolve(problem(call, "headers_too_large", { detail: HEAD_TOO_LARGE, why: "nghttp2 sends no more than 64 KiB in one head" }));
      }
      if (head.framing === "length") bodyLength = Number(headerValue(head.headers, "content-length"));
      // A body of stated length has trailers only where the client speaks HTTP/2 too; asking for them costs a frame.
      mayTrail = head.framing === "chunked" || (head.framing === "length" && exchange.httpVersion === "2.0");
      stream = open(session.http2!, fields, { endStream: body === null && exchange.upgrade === null, waitForTrailers: mayTrail });
    } catch (error) {
      session.release();
      if (error instanceof Unserved) session.leave();
      return reject(error instanceof Fault ? error : new Fault("internal", "the request could not be written", error));
    }
    detectTruncatedBody(stream);

    const arm = (ms: number, run: () => void) => {
      timer?.cancel();
      timer = options.clock.after(ms, run);
    };
    const fail = (fault: Fault) => {
      if (phase === "over") return;
      const delivered = phase === "receiving";
      phase = "over";
      timer?.cancel();
      bounds.over();
      stopUpload();
      if (fault.code === "upstream_timeout") session.doubt(heard);
      resetStream(stream, NGHTTP2_CANCEL);
      if (delivered) {
        stream.destroy(fault);
        if (!call.aborted) to.broken(fault);
        return;
      }
      stream.destroy();
      reject(fault);
    };
    const bounds = deadlines(options.clock, tryEndsAt, endsAt, (fault) => fail(phase === "sending" ? overdueUpload(stream, awaitsContinue, fault) : fault));
    const awaitResponse = () => {
      if (phase !== "sending") return;
      phase = "waiting";
      heard = session.heard;
      arm(options.responseMs, () => fail(new Fault("upstream_timeout", `no response within ${options.responseMs} ms`)));
    };

    /** The response is whole: an upload that goes on must not hold the lease for long. */
    const giveUpUpload = () => {
      if (stream.writableEnded || phase !== "receiving") return;
      arm(DRAIN_MS, () => {
        phase = "over";
        bounds.over();
        stopUpload();
        resetStream(stream, NGHTTP2_CANCEL);
      });
    };

    /** The client has its reply, and nobody reads this one: to node, which has stopped its own timeout, the stream would never end. */
    const watchUnread = () => {
      const isRead = () => stream.readableDidRead || stream.readableFlowing !== null;
      if (phase !== "receiving" || call.aborted || isRead()) return;
      arm(options.idleMs, () => {
        if (isRead()) return;
        phase = "over";
        bounds.over();
        stream.destroy();
      });
    };

    stream.once("finish", awaitResponse);
    stream.setTimeout(options.idleMs);
    stream.on("timeout", () => {
      if (phase === "sending") {
        fail(stalledUpload(stream, awaitsContinue, options.idleMs));
      } else if (phase === "receiving") {
        fail(stalledReply(stream.readableLength, options.idleMs));
      }
    });
    stream.on("headers", (_fields: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => {
      if (phase === "over") return;
      const status = Number(raw[1]);
      if (status === 100) awaitsContinue = false;
      call.inform(status, informationHeaders(status, raw.slice(2)));
    });
    stream.once("response", (_fields: IncomingHttpHeaders, flags: number, raw: readonly string[]) => {
      if (phase === "over") return;
      timer?.cancel();
      bounds.headArrived();
      // Whoever gives the body up has cancelled the request: node's own way would say that nothing was wrong.
      cancelWhenDestroyed(stream, () => (phase = "over"));
      if (exchange.upgrade !== null && isSuccess(Number(raw[1]))) {
        phase = "over";
        bounds.over();
        return resolve(switchReply(exchange, stream, raw, options));
      }
      phase = "receiving";
      heard = -1;
      // A refused WebSocket is an answered request: nothing more follows on it.
      if (exchange.upgrade !== null) stream.end();
      if (body !== null) stream.once("end", giveUpUpload);
      call.onEnd(watchUnread);
      resolve(replyOf(exchange, stream, (flags & NGHTTP2_FLAG_END_STREAM) !== 0, raw, options.viaName, () => trailerFields(trailers)));
    });
    stream.once("trailers", (_fields: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => {
      trailers = raw;
    });
    stream.on("error", (error: NodeJS.ErrnoException) => {
      // A connection can carry 2^30 requests (RFC 9113 §5.1.1).
      if (error.code === "ERR_HTTP2_OUT_OF_STREAMS") session.leave();
      if (phase !== "over") fail(faultOf(error, stream, session, phase, exchange));
    });
    stream.once("close", () => {
      stopUpload();
      session.release();
      timer?.cancel();
      bounds.over();
      if (phase === "receiving") {
        phase = "over";
        // Neither a reset of some codes nor the end of the connection is an error to node.
        if (!stream.readableEnded && !call.aborted) to.broken(new Fault("upstream_reset", "the stream ended in the middle of a response"));
      }
      // A reset that node does not take for an error: CANCEL, or NO_ERROR.
      if (phase !== "over") fail(faultOf(null, stream, session, phase, exchange));
    });
    call.onAbort(() => {
      if (phase !== "over") fail(clientGone());
    });

    if (body === null) return awaitResponse();
    if (call.aborted) return;
    if (mayTrail) {
      stream.once("wantTrailers", () => {
        try {
          stream.sendTrailers(h2Fields(trailerFields(exchange.trailers())) ?? {});
        } catch (error) {
          fail(new Fault("internal", "the request's trailers could not be written", error));
        }
      });
    }
    const end: PumpEnd = {
      done: () => void stream.end(),
      broken: (cause) => fail(cause instanceof Fault ? cause : new Fault("bad_request", "the request body broke off", cause)),
    };
    stopUpload = pump(body, sinkOf(stream), end, bodyLength);
  });
}

function open(session: ClientHttp2Session, fields: OutgoingHttpHeaders, options: http2.ClientSessionRequestOptions): ClientHttp2Stream {
  // Between the lease and now. Newer Nodes would say so later, by an error of the stream, when part of the body may be gone.
  if (session.closed || session.destroyed) throw new Unserved("upstream_reset", "the connection has ended");
  return session.request(fields, options);
}

/** Throws when a header cannot be written. */
function requestFields(exchange: Exchange, to: Destination<Sessions>, list: HeaderList): OutgoingHttpHeaders {
  const fields = Object.create(null) as OutgoingHttpHeaders;
  fields[":method"] = exchange.method;
  fields[":scheme"] = to.pool.options.protocol === "h2" ? "https" : "http";
  fields[":authority"] = headerValue(list, "host");
  fields[":path"] = exchange.upstreamPath + exchange.query;
  if (h2Fields(list, fields) === null) throw new Fault("internal", "a header of the request cannot be written");
  delete fields["host"];
  if (exchange.upgrade !== null) {
    // RFC 8441 §4, §5: what an HTTP/1.1 upgrade says with GET, without its key.
    fields[":method"] = "CONNECT";
    fields[":protocol"] = exchange.upgrade;
    delete fields["sec-websocket-key"];
    delete fields["content-length"];
  }
  if (hasToken(headerValue(list, "te"), "trailers")) fields["te"] = "trailers";
  return fields;
}

/** Beyond that node sends nothing, and gives up the connection: what nghttp2 takes a head for before it has packed it. */
const MAX_HEAD_BYTES = 64 * 1024 - LIST_BYTES;
const HEAD_TOO_LARGE = "The service behind this route is reached over HTTP/2, where a request's header fields may have 64 KiB together.";

function listBytes(fields: OutgoingHttpHeaders): number {
  let bytes = 0;
  for (const name in fields) {
    const value = fields[name];
    if (typeof value === "string") bytes += name.length + value.length + FIELD_BYTES;
    else if (Array.isArray(value)) for (const each of value) bytes += name.length + each.length + FIELD_BYTES;
  }
  return bytes;
}

/** The response as a Reply whose body is the stream itself, unread. */
function replyOf(
  exchange: Exchange,
  stream: ClientHttp2Stream,
  ended: boolean,
  raw: readonly string[],
  viaName: string,
  trailers: () => HeaderList,
): Reply {
  const status = Number(raw[1]);
  let headers: HeaderList = endToEnd(raw.slice(2));
  if (status === 204) headers = withoutHeader(headers, "content-length");
  const empty = ended || exchange.method === "HEAD" || status === 204 || status === 304;
  // An empty body is still a body where trailers may follow it: gRPC errors come so. Read to its end although it has none: the stream is over only then.
  if (empty) stream.resume();
  else keepOpenUntilRead(stream);
  return { status, headers: [...headers, "Via", `2.0 ${viaName}`], body: empty ? null : stream, trailers };
}

/** The answer to an extended CONNECT as the one to an upgrade: the stream carries what a socket would. */
function switchReply(exchange: Exchange, stream: ClientHttp2Stream, raw: readonly string[], { viaName, idleMs }: ForwardOptions): Reply {
  const headers = [...withoutHeader(endToEnd(raw.slice(2)), "sec-websocket-accept"), "Via", `2.0 ${viaName}`];
  if (exchange.httpVersion !== "2.0") headers.push("Sec-WebSocket-Accept", websocketAccept(headerValue(exchange.headers, "sec-websocket-key")!));
  return { status: 101, headers: switchHeaders(exchange.upgrade!, headers), body: null, tunnel: { socket: stream, head: NOTHING, idleMs } };
}

/** Any of them answers a CONNECT with a tunnel (RFC 9113 §8.5). */
function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

const NOTHING = Buffer.alloc(0);

/** `givenUp` is called when it was us, not what node makes of the peer's doings. */
function cancelWhenDestroyed(stream: ClientHttp2Stream, givenUp: () => void): void {
  const { destroy } = stream;
  stream.destroy = (error?: Error) => {
    if (error === undefined && !isClosed(stream) && !stream.destroyed) givenUp();
    resetStream(stream, NGHTTP2_CANCEL);
    return destroy.call(stream, error);
  };
}

function faultOf(error: Error | null, stream: ClientHttp2Stream, session: Session, phase: string, exchange: Exchange): Fault {
  const { rstCode } = stream;
  const why = error?.message ?? `the upstream reset the stream (code ${rstCode})`;
  if (phase !== "receiving") {
    // RFC 9113 §8.7: what was refused, or is beyond a GOAWAY, has not been processed, whatever the method.
    const unseen = rstCode === NGHTTP2_REFUSED_STREAM || stream.id === undefined || stream.id > session.lastStream;
    // Without a word from the peer, only on a connection that had served before, as in HTTP/1.
    const stale = stream.id !== 1 && session.http2!.destroyed && isReplayable(exchange);
    // A body is on its way: only who has kept it can send it again.
    if (unseen || stale) return new (exchange.body === null ? Unserved : Unsent)("upstream_reset", why, error ?? undefined);
  }
  // Why the session was given up is said by a fault of its own.
  return error instanceof Fault ? error : new Fault(codeOf(error, rstCode), why, error ?? undefined);
}

function codeOf(error: (Error & { code?: string }) | null, rstCode: number | undefined): ErrorCode {
  // Both are said by node's own reading of what came, too: what it could not understand is no HTTP.
  return rstCode === NGHTTP2_PROTOCOL_ERROR || error?.code === "ERR_HTTP2_ERROR" ? "upstream_invalid" : "upstream_reset";
}

function ignore(): void {}

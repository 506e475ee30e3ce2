/**
 * Sends one exchange to one peer over `node:http` and gives its answer as a Reply: streaming both ways, with the three deadlines of
 * the service. Choosing the peer and turning faults into replies is `attempts.ts`.
 */
import http, { type ClientRequest, type IncomingMessage } from "node:http";
import https from "node:https";
import type { Socket } from "node:net";
import type { Duplex, Readable } from "node:stream";
import type { Timer } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import { pump, type PumpEnd, type Sink } from "../http/body.ts";
import type { Exchange } from "../http/exchange.ts";
import { hasToken, headerValue, pairs } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { deadlines } from "./deadlines.ts";
import type { Destination } from "./destination.ts";
import { Unsent } from "./faults.ts";
import type { Pool } from "./pool.ts";
import { requestHead, type RequestHead } from "./request_head.ts";
import { connectFailure } from "./addresses.ts";
import { informationHeaders, invalidity, replyHeaders, replyOf, switchHeaders } from "./response_head.ts";
import { MAX_RESPONSE_HEAD_BYTES } from "./response_parser.ts";
import { trailerFields } from "./trailers.ts";
import { clientGone, DRAIN_MS, faultCode, isStale, newTry, sendAgain, underLease, type ForwardOptions, type Try } from "./try.ts";
import { overdueUpload, stalledReply, stalledUpload } from "./upload.ts";

/**
 * Resolves with the peer's final response, whose body has to be read or destroyed; rejects with a `Fault`. Informational responses
 * go to the client as they come. When the client goes away, so does the request; when `endsAt` (monotonic; 0: never) comes, whatever is
 * under way breaks off.
 */
export function forward(exchange: Exchange, peer: Destination<Pool>, options: ForwardOptions, endsAt: number): Promise<Reply> {
  return underLease(newTry(exchange, peer, options, endsAt), send);
}

/** One try on one connection. The lease it was given ends when the connection is free again. */
function send(one: Try<Pool>): Promise<Reply> {
  const { exchange, to: peer, options, tryEndsAt, endsAt } = one;
  return new Promise((resolve, reject) => {
    const { call } = exchange;
    const { pool } = peer;
    let phase: "connecting" | "sending" | "waiting" | "receiving" | "over" = "connecting";
    let timer: Timer | null = null;
    let socket: Socket | null = null;
    let bytesBefore = 0;
    let response: IncomingMessage | null = null;
    let leaseHeldBy: "request" | "tunnel" = "request";
    // The client holds its body back until the upstream asks for it; cleared by the upstream's 100.
    let awaitsContinue = false;
    let stopUpload = ignore;
    let head: RequestHead;
    let request: ClientRequest;
    try {
      head = requestHead(exchange, peer, options);
      awaitsContinue = exchange.body !== null && hasToken(headerValue(exchange.headers, "expect"), "100-continue");
      request = (pool.options.protocol === "https" ? https : http).request({
        agent: pool.agent,
        host: peer.host,
        port: peer.port,
        method: exchange.method,
        path: exchange.upstreamPath + exchange.query,
        headers: head.headers as string[],
        setHost: false,
        timeout: options.idleMs,
        maxHeaderSize: MAX_RESPONSE_HEAD_BYTES,
      });
    } catch (error) {
      pool.release();
      reject(new Fault("internal", "the request could not be written", error));
      return;
    }

    // Beyond node's default of 1000, headers vanish without a word; their size is bounded all the same.
    request.maxHeadersCount = 0;
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
      if (delivered) {
        response?.destroy(fault);
        if (!call.aborted) peer.broken(fault);
      }
      request.destroy();
      if (!delivered) reject(fault);
    };
    const bounds = deadlines(options.clock, tryEndsAt, endsAt, (fault) => {
      if (phase === "connecting") fail(new Unsent(fault.code, fault.message));
      else fail(phase === "sending" ? overdueUpload(request, awaitsContinue, fault) : fault);
    });
    const awaitResponse = () => {
      if (phase !== "connecting" && phase !== "sending") return;
      phase = "waiting";
      arm(options.responseMs, () => fail(new Fault("upstream_timeout", `no response within ${options.responseMs} ms`)));
    };
    const connected = () => {
      if (phase !== "connecting") return;
      timer?.cancel();
      phase = "sending";
      if (exchange.body !== null) sendBody(exchange.body);
      else if (head.framing === "none" || request.writableFinished) awaitResponse();
    };
    // Not before there is a connection: a body nobody has read from can still be sent elsewhere, however long it is.
    const sendBody = (body: Readable) => {
      // Behind a whole response node no longer tells the request that its socket has drained.
      const sink: Sink = { write: (chunk) => request.write(chunk), onceDrained: (run) => void socket!.once("drain", run) };
      const length = head.framing === "length" ? Number(headerValue(head.headers, "content-length")) : Infinity;
      const end: PumpEnd = {
        done() {
          try {
            if (head.framing === "chunked") request.addTrailers(pairs(trailerFields(exchange.trailers())));
          } catch (error) {
            return fail(new Fault("internal", "the request's trailers could not be written", error));
          }
          request.end();
        },
        broken: (cause) => fail(cause instanceof Fault ? cause : new Fault("bad_request", "the request body broke off", cause)),
      };
      stopUpload = pump(body, sink, end, length);
      // By the next tick a small body that came with the head is in the same write; a slow one must not hold the head back.
      process.nextTick(() => {
        if (!request.writableEnded && !request.destroyed) request.write(NOTHING);
      });
    };

    request.once("socket", (assigned: Socket) => {
      socket = assigned;
      bytesBefore = assigned.bytesRead;
      // Not the request's own event, which comes once only: it may have come while the response was awaited.
      assigned.on("timeout", silent);
      request.once("close", () => assigned.removeListener("timeout", silent));
      if (request.reusedSocket || !assigned.connecting) return connected();
      arm(options.connectMs, () => fail(new Unsent("upstream_timeout", `no connection within ${options.connectMs} ms`)));
      assigned.once(pool.options.protocol === "https" ? "secureConnect" : "connect", connected);
    });
    request.on("finish", () => {
      if (phase === "sending") awaitResponse();
    });
    const silent = () => {
      if (phase === "sending") {
        fail(stalledUpload(request, awaitsContinue, options.idleMs));
      } else if (phase === "receiving") {
        fail(stalledReply(response!.readableLength, options.idleMs));
      }
    };
    request.on("information", (info) => {
      if (phase === "over") return;
      if (info.statusCode === 100) awaitsContinue = false;
      call.inform(info.statusCode, informationHeaders(info.statusCode, info.rawHeaders));
    });
    request.once("response", (received: IncomingMessage) => {
      if (phase === "over") return void received.destroy();
      const invalid = invalidity(received);
      if (invalid !== null) return fail(new Fault("upstream_invalid", invalid));
      phase = "receiving";
      timer?.cancel();
      bounds.headArrived();
      response = received;
      // Whether the upstream goes on with HTTP behind a refused upgrade is its own guess: the connection is not used again.
      if (exchange.upgrade !== null) pool.leave(socket!);
      const unguard = guardEnd(socket!, received);
      request.once("close", unguard);
      received.once("end", () => {
        if (!request.writableFinished && phase === "receiving") arm(DRAIN_MS, () => void request.destroy());
      });
      resolve(replyOf(exchange, received, options.viaName, received, () => trailerFields(received.rawTrailers)));
    });
    request.once("upgrade", (received: IncomingMessage, upgraded: Duplex, behind: Buffer) => {
      leaseHeldBy = "tunnel";
      upgraded.once("close", () => pool.release());
      upgraded.on("error", ignore);
      if (phase === "over" || exchange.upgrade === null || !hasToken(headerValue(received.rawHeaders, "upgrade"), exchange.upgrade)) {
        upgraded.destroy();
        return fail(new Fault("upstream_invalid", "the upstream switched to a protocol nobody asked for"));
      }
      if (head.accept !== null && headerValue(received.rawHeaders, "sec-websocket-accept") !== head.accept) {
        upgraded.destroy();
        return fail(new Fault("upstream_invalid", "the upstream's Sec-WebSocket-Accept does not fit the key"));
      }
      phase = "over";
      timer?.cancel();
      bounds.over();
      resolve({
        status: 101,
        headers: switchHeaders(exchange.upgrade, replyHeaders(received, options.viaName)),
        body: null,
        tunnel: { socket: upgraded, head: behind, idleMs: options.idleMs },
      });
    });
    request.on("error", (error: NodeJS.ErrnoException) => {
      // The answer is whole: what goes wrong behind it (the rest of an upload nobody reads any more, stray bytes) is not the client's.
      if (response?.complete === true) return;
      // Given up by ourselves, a kept connection breaks as a dead one does: sent again, the request would be nobody's.
      if (phase === "over") return;
      const silent = response === null && (socket === null || socket.bytesRead === bytesBefore);
      // Whoever waits for the answer waits for the second one: that the first has failed is news to nobody.
      if (silent && isStale(one, request.reusedSocket ? "reused" : "fresh", error)) resolve(sendAgain(one, send));
      fail(new Fault(faultCode(error, phase === "connecting"), connectFailure(error), error));
    });
    request.once("close", () => {
      stopUpload();
      timer?.cancel();
      bounds.over();
      if (leaseHeldBy === "request") pool.release();
      if (phase === "receiving") {
        phase = "over";
        // Node says it of the response alone when the connection ends in good order, but too early.
        const cut = response?.errored as NodeJS.ErrnoException | null | undefined;
        if (cut?.code === "ECONNRESET" && !call.aborted) peer.broken(new Fault("upstream_reset", "the connection closed in the middle of a response", cut));
      }
      // A request given up before it had a socket ends without an error of its own.
      if (phase !== "over") fail(new Fault("upstream_reset", "the connection closed before a response"));
    });
    call.onAbort(() => {
      if (phase !== "over") fail(clientGone());
    });

    if (exchange.body === null || call.aborted) request.end();
  });
}

/**
 * Closes the connection when bytes come behind the end of its response: they answer no question, and part of them, left over when
 * the connection is used again, would be read as somebody else's answer. Node drops them unseen until the body has been read; once
 * the connection is idle, the pool watches. Returns what ends the watch.
 */
function guardEnd(socket: Socket, response: IncomingMessage): () => void {
  // Node's parser has a chunk before this listener has it, so `complete` is only telling as it was before the chunk.
  let over = false;
  const look = () => {
    if (over) socket.destroy();
    over = response.complete;
  };
  process.nextTick(() => {
    over = response.complete;
  });
  socket.on("data", look);
  return () => socket.removeListener("data", look);
}

/** Sends the head by itself; `flushHeaders` would encode its Latin-1 bytes as UTF-8. */
const NOTHING = Buffer.alloc(0);

function ignore(): void {}

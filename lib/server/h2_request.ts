/**
 * Serves one request over HTTP/2: receives it, has it answered, and gives it up when it arrives too slowly or its
 * client resets it.
 */
import http2, { type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
// Node's own function: see `base/event_loop.ts`.
import { setImmediate } from "node:timers";
import { entry } from "../base/event_loop.ts";
import { cancelWhenDestroyed, resetStream } from "../http/h2_streams.ts";
import { headerValue } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { answer } from "./client_reply.ts";
import { receiveStream } from "./h2_receive.ts";
import { respondStream, watchReply } from "./h2_respond.ts";
import { NOTHING, type Http1Options, type Responder } from "./http1.ts";
import type { StreamUser } from "./h2_sessions.ts";
import { isLive, UploadPace, type Limits } from "./limits.ts";
import type { Inbound } from "./inbound.ts";

const { NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR } = http2.constants;

export interface H2RequestOptions extends Http1Options {
  readonly newReplies: NewReplies;
}

/**
 * Small replies that have just been written whole. Node gives them to the system at the end of the round, and learns at
 * the end of the next one that they were taken: only what is left of them then is watched.
 */
export class NewReplies {
  #written: H2Request[] = [];
  #leaving: H2Request[] = [];

  add(request: H2Request): void {
    if (this.#written.push(request) === 1 && this.#leaving.length === 0) setImmediate(this.#endRound);
  }

  readonly #endRound = entry("the end of a round", () => {
    const left = this.#leaving;
    this.#leaving = this.#written;
    this.#written = [];
    if (this.#leaving.length > 0) setImmediate(this.#endRound);
    for (const request of left) request.settle();
  });
}

export class H2Request implements Responder, StreamUser {
  readonly #stream: ServerHttp2Stream;
  readonly #inbound: Inbound;
  readonly #server: H2RequestOptions;
  readonly #onReset: () => void;
  #state: "open" | "tunnel" | "given up" = "open";

  /**
   * `block` is node's flat header list; `onReset` is called when the client resets the request before it was answered.
   */
  constructor(
    server: H2RequestOptions,
    stream: ServerHttp2Stream,
    block: readonly string[],
    endOfStream: boolean,
    socket: Socket,
    onReset: () => void,
  ) {
    const rules = server.receiving();
    this.#stream = stream;
    this.#inbound = receiveStream(stream, block, endOfStream, server.connectionOf(socket), rules);
    this.#server = server;
    this.#onReset = onReset;
    if (this.#inbound.body !== null) this.#watchUpload(rules.limits);
  }

  /** As `StreamUser`. */
  begin(): void {
    answer(this.#inbound, this, this.#server);
  }

  /**
   * As `StreamUser`. Before the `end` that node emits for the body of a stream that is reset: half a request must not
   * be treated as complete.
   */
  aborted(): void {
    this.#inbound.call.abort();
  }

  /** Watches over the rest of a reply that the system or the client did not take at once. */
  settle(): void {
    if (this.#stream.writableLength === 0 || this.#stream.destroyed || this.#state === "given up") return;
    watchReply(this.#stream, this.#inbound.call, this.#server.delivery, this.#giveUp).ended();
  }

  /** As `Responder`. */
  send(reply: Reply): void {
    const { call } = this.#inbound;
    const { delivery } = this.#server;
    const sent = respondStream(this.#stream, this.#inbound, reply, delivery, this.#giveUp);
    if (sent === "unwatched") this.#server.newReplies.add(this);
    if (sent !== "tunnel") return;
    this.#state = sent;
    call.close();
    cancelWhenDestroyed(this.#stream);
    this.#server.join(this.#stream, NOTHING, reply.tunnel!, call.notes, delivery);
  }

  /** As `Responder`. */
  giveUp(): void {
    this.#giveUp(NGHTTP2_INTERNAL_ERROR);
  }

  readonly #giveUp = (code: number): void => {
    this.#state = "given up";
    resetStream(this.#stream, code);
  };

  /** As `StreamUser`. */
  closed(): void {
    const { call } = this.#inbound;
    if (this.#state === "tunnel" || this.#isAnswered()) {
      call.close();
    } else {
      call.abort();
      if (this.#state === "open") this.#onReset();
    }
    this.#server.ended(this.#inbound);
  }

  /**
   * Whether the whole reply was sent. Node ends the writing side of a stream by itself where the client resets it
   * (`aborted` shows that), and at once for a HEAD (`headersSent` shows that). It does not finish that side where
   * END_STREAM left with the last bytes and the client's side has ended.
   */
  #isAnswered(): boolean {
    const { headersSent, writableEnded, writableLength, aborted, rstCode } = this.#stream;
    return headersSent && writableEnded && writableLength === 0 && !aborted && rstCode === NGHTTP2_NO_ERROR;
  }

  /** Holds the body to `min_body_bytes_per_s` and the request to `request_timeout`, until the stream closes. */
  #watchUpload({ minBodyBytesPerS, requestTimeoutMs }: Limits): void {
    const stream = this.#stream;
    const {
      headers,
      call: { notes },
    } = this.#inbound;
    if (minBodyBytesPerS > 0) {
      const expectsContinue = headerValue(headers, "expect") !== undefined;
      const pace = new UploadPace(minBodyBytesPerS);
      const endLooks = this.#server.deadlines.everySecond((_now, elapsedMs) => {
        // Unread bodies of other streams do not hold this one back: node returns the connection's window as bytes
        // arrive.
        if (stream.readableFlowing !== true || isWhole(stream) || (expectsContinue && !isContinued(stream))) return;
        if ((stream.headersSent && isLive(headers)) || !pace.isTooSlow(notes.received ?? 0, elapsedMs)) return;
        endLooks();
        this.#tooSlow("the body arrives too slowly");
      });
      stream.once("close", endLooks);
    }
    if (requestTimeoutMs > 0) {
      const timer = this.#server.clock.after(requestTimeoutMs, () => {
        if (!isWhole(stream)) this.#tooSlow(`the request was not whole after ${requestTimeoutMs} ms`);
      });
      stream.once("close", () => timer.cancel());
    }
  }

  #tooSlow(why: string): void {
    const { call } = this.#inbound;
    if (!this.#stream.headersSent) {
      this.send(problem(call, "request_timeout", { detail: "The request did not arrive in time.", why }));
      return call.abort();
    }
    // A complete reply: its end signals the client that the rest of the request body is not read.
    if (this.#stream.writableEnded) return;
    call.fail("request_timeout", why);
    this.#giveUp(NGHTTP2_CANCEL);
  }
}

/** Whether the client has sent its END_STREAM. */
function isWhole(stream: ServerHttp2Stream): boolean {
  return stream.destroyed || stream.state.remoteClose === 1;
}

function isContinued({ sentInfoHeaders }: ServerHttp2Stream): boolean {
  return sentInfoHeaders?.some((fields) => fields[":status"] === 100) === true;
}

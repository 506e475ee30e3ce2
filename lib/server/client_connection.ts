/**
 * Serves one HTTP/1 connection of a client by our own codec: reads one request at a time, has it answered, and sends the reply, a small one
 * at the end of a round of the event loop, a stream as it arrives.
 *
 * ```
 *         head is read            send()             all is written             the system has taken it
 *   idle ─────────────► waiting ─┬──────► ready ─────┬────────────► flushing ─┬────────────► idle ─► the next request
 *                          │     └──────► streaming ─┘                        ├► discarding ─► idle (the rest of an upload arrives)
 *                          └► over (WebSocket)                                └► over (the last reply)
 * ```
 *
 * Every phase also ends in "over" when the client disconnects, sends invalid HTTP, or exceeds a deadline. Requests that arrive while
 * another one is in progress (pipelining, RFC 9112 §9.3.2) wait as bytes; beyond 64 KiB the socket is not read (`#wantsBytes`).
 */
import { randomUUID } from "node:crypto";
import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { entry } from "../base/event_loop.ts";
import { ERRORS, ignore } from "../base/errors.ts";
import { writeChunk } from "../http/body.ts";
import { Delivery } from "../http/delivery.ts";
import type { HeaderList } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import { bodyToSend, dateLine, framingOf, lastChunk, replyText, replyTrailers, sendableReply, statedLength, type BodyFraming } from "./client_reply.ts";
import { clientErrorDetail, head, KEEP_ALIVE_MS, refuseBare, type Http1, type Http1Options, type Responder } from "./http1.ts";
import { isLive, UploadPace, type Limits } from "./limits.ts";
import { breakOff, endSoon, MAX_DISCARD_MS, MAX_DISCARDED_PER_S, MAX_QUIET_MS } from "./linger.ts";
import type { Refusal } from "./framing.ts";
import { receiveHead, type ConnectionFacts, type Inbound, type RequestHead } from "./receive.ts";
import { RequestBody } from "./request_body.ts";
import { Pieces, RequestParser, type RequestSink } from "./request_parser.ts";

type Phase = "idle" | "waiting" | "ready" | "streaming" | "flushing" | "discarding" | "over";

/** Whether the connection ends with the reply, and who wants that; "lost": where the next request begins is not known. */
type Ending = "no" | "asked" | "decided" | "lost";

export function createWireHttp1(server: Http1Options): Http1 {
  const connections = new Set<ClientConnection>();
  return {
    serve(socket) {
      const connection = new ClientConnection(socket, server);
      connections.add(connection);
      socket.once("close", () => connections.delete(connection));
      server.drain.postpone();
    },
    endIdle() {
      for (const connection of connections) connection.endIfIdle();
    },
  };
}

class ClientConnection implements RequestSink, Responder {
  readonly #socket: Socket;
  readonly #server: Http1Options;
  readonly #connection: ConnectionFacts;
  readonly #parser = new RequestParser(this);
  #phase: Phase = "idle";
  /** `clock.now()` since when we wait for the client: for a request, or for the rest of one. */
  #since: number;
  #hasServed = false;
  /** Bytes that are incomplete, or belong to the next request; and how many nobody wanted since the last look. */
  #rest: Buffer | null = null;
  #discarded = 0;
  readonly #pieces = new Pieces();
  /** False once a part of the current request head waits for the rest. */
  #isHeadNew = true;
  #isReading = false;

  // The current request.
  #inbound: Inbound | null = null;
  #limits: Limits;
  #ending: Ending = "no";
  /** Whether the client sends its body unasked, or has been asked for it (RFC 9110 §10.1.1). */
  #isContinued = true;
  /** The body while it arrives; null where there is none, or all of it came with the head. */
  #body: RequestBody | null = null;
  /** Null where `min_body_bytes_per_s` does not apply. */
  #pace: UploadPace | null = null;

  // Its reply: what is unsent (the head, with a small body appended; then a larger body), and what was lent for it.
  #text = "";
  #bytes: Buffer | null = null;
  #lent: LentBody | null = null;
  /** Cuts off a client that does not read the reply; null while no reply waits for its client. */
  #delivery: Delivery | null = null;

  constructor(socket: Socket, server: Http1Options) {
    this.#socket = socket;
    this.#server = server;
    this.#since = server.clock.now();
    this.#limits = server.receiving().limits;
    this.#connection = server.connectionOf(socket);
    socket.on("data", this.#onData).on("end", this.#onEnd).on("close", this.#onClose).on("error", ignore);
    socket.once("close", server.deadlines.everySecond((now, elapsedMs) => this.#look(now, elapsedMs)));
  }

  // Reading.

  readonly #onData = (chunk: Buffer): void => {
    if (this.#phase === "over") return;
    const all = this.#rest === null ? chunk : this.#pieces.joined(this.#rest, chunk);
    this.#rest = null;
    if (this.#inbound === null || !this.#parser.isOver) return this.#read(all);
    this.#hold(all);
    this.readOn();
  };

  /** Keeps bytes that are incomplete or behind the current request, unless no request behind it is served. */
  #hold(bytes: Buffer): void {
    const isServed = this.#ending === "no" || !this.#parser.isOver || this.#inbound!.upgrade !== null;
    if (isServed) return void (this.#rest = bytes);
    this.#discarded += bytes.length;
    if (this.#ending === "asked") this.#ending = "decided";
  }

  /** Whether more bytes are to be read: of a request that has not arrived, or of later ones as long as few wait. */
  get #wantsBytes(): boolean {
    if (this.#discarded > MAX_DISCARDED_PER_S) return false;
    if (this.#parser.isOver) return this.#rest === null || this.#rest.length <= MAX_AHEAD_BYTES;
    return this.#body === null || this.#body.wantsBytes;
  }

  /** Reads or pauses the socket, as the state asks for; also called by the body, as its reader has room again or wants no more. */
  readOn(): void {
    const socket = this.#socket;
    if (this.#phase === "over" || this.#wantsBytes !== socket.isPaused()) return;
    if (socket.isPaused()) socket.resume();
    else socket.pause();
  }

  #read(chunk: Buffer): void {
    this.#isReading = true;
    let rest = chunk;
    let used: number;
    do {
      if (this.#phase === "idle" && this.#parser.isOver) {
        this.#parser.next();
        this.#isHeadNew = true;
      }
      const { limits, underscores } = this.#server.receiving();
      this.#limits = limits;
      used = this.#parser.read(rest, limits, underscores);
      rest = used === rest.length ? NOTHING : rest.subarray(used);
      // A reply may have been sent meanwhile.
    } while (used >= 0 && rest.length > 0 && this.#phase === "idle" && this.#parser.isOver);
    this.#isReading = false;
    if (used < 0) return this.#refuse(this.#parser.fault!);
    if (this.#phase === "over") return;
    if (this.#phase === "idle") {
      // Each further part of a head must not extend its deadline.
      if (rest.length === 0 || this.#isHeadNew) this.#since = this.#server.clock.now();
      this.#isHeadNew = false;
    }
    if (rest.length > 0) this.#hold(rest);
    if (this.#rest === null) this.#pieces.forget();
    this.readOn();
    // Bytes after an upgrade request are not HTTP, and are kept for the tunnel.
    if (this.#phase === "waiting" && this.#inbound!.upgrade !== null) this.#server.answer(this.#inbound!, this);
  }

  /** As `RequestSink`. */
  head(head: RequestHead, whole: Buffer | null): void {
    const { framing } = head;
    this.#isContinued = framing.expects === "nothing";
    const body = this.#parser.isOver ? null : new RequestBody(this, this.#limits.maxBodyBytes);
    this.#body = body;
    const content = body ?? (whole === null ? null : new LentBody(whole, ignore));
    // Not the parser's trailers: it may be reading the next request by then.
    const trailers = body === null ? null : () => body.trailers;
    const inbound = receiveHead(head, this.#connection, content, trailers, this.#server.receiving(), this.#inform);
    this.#inbound = inbound;
    // Bytes after an upgrade request are not HTTP, even if the upgrade is refused.
    const isReadable = inbound.refusal === null && inbound.upgrade === null;
    this.#ending = !isReadable ? "lost" : framing.isPersistent ? "no" : "asked";
    this.#phase = "waiting";
    const { minBodyBytesPerS } = this.#limits;
    this.#pace = body === null || minBodyBytesPerS === 0 ? null : new UploadPace(minBodyBytesPerS);
    if (body !== null && this.#isHeadNew) this.#since = inbound.call.startedAt;
    if (inbound.upgrade === null) this.#server.answer(inbound, this);
  }

  body(bytes: Buffer): void {
    if (this.#body?.destroyed === true) this.#discarded += bytes.length;
    this.#body?.arrived(bytes, this.#server.clock.now());
  }

  ended(): void {
    if (this.#phase === "discarding") {
      this.#idle();
      this.#server.drain.postpone();
    } else if (this.#body !== null) {
      this.#body.trailers = this.#parser.trailers;
      this.#body.push(null);
    }
  }

  // Replying.

  /** As `Responder`. */
  send(given: Reply): void {
    const inbound = this.#inbound;
    if (inbound === null || this.#phase !== "waiting") return discard(given);
    const { call, upgrade } = inbound;
    const isSwitch = upgrade !== null && given.tunnel !== undefined;
    const reply = sendableReply(call, inbound.headers, given);
    const body = bodyToSend(inbound.method, reply, true);
    const framing = framingOf(inbound, reply, body);
    // A client that waits for 100 (Continue) may send its body later or never: where its next request begins is not known.
    const isAmbiguous = !this.#isContinued && !this.#parser.isOver;
    if (isAmbiguous) this.#ending = "lost";
    else if (this.#ending === "no" && (framing === "until close" || this.#server.drain.isLeaving)) this.#ending = "decided";
    const connection = isSwitch ? UPGRADE : this.#ending === "no" ? KEEP_ALIVE : CLOSE;
    let text: string;
    try {
      text = replyText(reply, reply.requestId ?? call.id, framing, connection, dateLine(this.#server.clock.wall()));
    } catch (error) {
      discard(reply);
      return this.send(problem(call, "internal", { why: (error as Error).message }));
    }
    if (isSwitch) return this.#openTunnel(text, reply, inbound);
    call.notes.status = reply.status;
    const lent = body instanceof LentBody && body.isUntouched ? body : null;
    const whole = lent?.lend() ?? body;
    if (whole === null) discard(reply);
    else if (!Buffer.isBuffer(whole)) return this.#stream(inbound, reply, text, whole, framing);
    else if (lent === null && whole.length <= TEXT_BODY_BYTES) text += whole.toString("latin1");
    else this.#bytes = whole;
    this.#text = text;
    call.notes.sent = whole === null ? 0 : whole.length;
    this.#phase = "ready";
    if (lent === null) return this.#server.writeBatch.add(this.#sendReady);
    // At once: much of it is still in the processor's cache, and its memory can be reused.
    this.#lent = lent;
    this.#sendReady();
  }

  readonly #sendReady = (): void => {
    // The client may have disconnected meanwhile.
    if (this.#phase !== "ready") return;
    const socket = this.#socket;
    const text = this.#text;
    const bytes = this.#bytes;
    this.#text = "";
    this.#bytes = null;
    if (bytes !== null) socket.cork();
    socket.write(text, "latin1");
    if (bytes !== null) {
      socket.write(bytes);
      socket.uncork();
    }
    this.#written();
  };

  #stream({ call }: Inbound, reply: Reply, head: string, body: Readable, framing: BodyFraming): void {
    const socket = this.#socket;
    call.notes.sent = 0;
    this.#phase = "streaming";
    // The first bytes of the body are sent with the head if they have arrived; the head does not wait for a body that has not arrived yet.
    socket.cork();
    socket.write(head, "latin1");
    this.#server.writeBatch.add(() => socket.uncork());
    const isChunked = framing === "chunked";
    const to = isChunked ? { write: (chunk: Buffer) => writeChunk(socket, chunk), once: (event: "drain", run: () => void) => socket.once(event, run) } : socket;
    const delivery = new Delivery(call, { to, outlet: socket, cut: () => breakOff(socket, framing === "until close") }, this.#server.delivery);
    this.#delivery = delivery;
    delivery.stream(body, statedLength(reply.headers), () => {
      if (this.#phase !== "streaming") return;
      if (isChunked) socket.write(lastChunk(replyTrailers(call, reply)), "latin1");
      delivery.ended();
      this.#written();
    });
  }

  /** All of the reply has been given to the socket. */
  #written(): void {
    this.#phase = "flushing";
    if (this.#socket.writableLength === 0) this.#sent();
    else this.#socket.write(NOTHING, this.#onFlushed);
  }

  readonly #onFlushed = (error?: Error | null): void => {
    if (this.#phase === "flushing" && (error === undefined || error === null)) this.#sent();
  };

  #sent(): void {
    const inbound = this.#inbound!;
    this.#inbound = this.#delivery = null;
    this.#lent?.giveBack();
    this.#lent = null;
    this.#hasServed = true;
    inbound.call.close();
    this.#server.ended(inbound);
    // Its client does not know of a drain that began meanwhile.
    if (this.#server.drain.isLeaving) this.#server.drain.postpone();
    if (this.#ending !== "no") return this.#end();
    if (this.#parser.isOver) return this.#idle();
    this.#phase = "discarding";
    this.#since = this.#server.clock.now();
    // The reader of the body may hold a connection to the upstream while it waits for the rest.
    this.#body!.destroy();
    this.readOn();
  }

  #openTunnel(head: string, { status, tunnel }: Reply, { call }: Inbound): void {
    const socket = this.#socket;
    socket.write(head, "latin1");
    call.notes.status = status;
    call.close();
    this.#phase = "over";
    socket.off("data", this.#onData).off("end", this.#onEnd);
    this.#server.join(socket, this.#rest ?? NOTHING, tunnel!, call.notes);
    socket.resume();
  }

  #idle(): void {
    this.#phase = "idle";
    this.#body = null;
    if (this.#isReading) return;
    // Not at once: a client that pipelines could nest this call without limit.
    if (this.#rest !== null) process.nextTick(this.#readRest);
    else this.#since = this.#server.clock.now();
    this.readOn();
  }

  readonly #readRest = entry("pipelined bytes", () => {
    const rest = this.#rest;
    if (this.#phase !== "idle" || rest === null) return;
    this.#rest = null;
    this.#read(rest);
  });

  readonly #inform = (status: number, headers: HeaderList): void => {
    if (this.#phase !== "waiting") return;
    const socket = this.#socket;
    if (status === 100) {
      if (!this.#isContinued) socket.write("HTTP/1.1 100 Continue\r\n\r\n", "latin1");
      this.#isContinued = true;
    } else if (this.#inbound!.httpVersion !== "1.0" && !socket.writableNeedDrain) {
      // To no client that is behind with reading: an upstream could send such hints without end.
      socket.write(head(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}`, headers), "latin1");
    }
  };

  giveUp(): void {
    this.#socket.destroy();
  }

  /** Looks at the deadlines of this connection, about once a second. */
  #look(now: number, elapsedMs: number): void {
    this.#discarded = 0;
    this.readOn();
    const { headersTimeoutMs, requestTimeoutMs } = this.#limits;
    const waited = now - this.#since;
    const isLate = requestTimeoutMs > 0 && waited >= requestTimeoutMs;
    if (this.#phase === "idle") {
      const isKept = this.#rest === null && this.#hasServed;
      if (isKept && waited >= KEEP_ALIVE_MS) this.#socket.destroy();
      else if (!isKept && (isLate || waited >= headersTimeoutMs)) this.#refuse({ code: "request_timeout", detail: "the head did not arrive in time" });
    } else if (this.#phase === "discarding") {
      if (waited >= MAX_DISCARD_MS || Math.min(waited, now - this.#body!.arrivedAt) >= MAX_QUIET_MS) this.#socket.destroy();
    } else if (this.#phase !== "over") {
      if (isLate && !this.#parser.isOver) return this.#tooLate("the request did not arrive in time");
      if (this.#isTooSlow(now, elapsedMs)) return this.#tooLate("the body arrives too slowly");
      if (this.#phase === "flushing" && this.#delivery === null) this.#watchClient();
      if (!this.#wantsBytes) this.#lookForClient(now);
    }
  }

  #isTooSlow(now: number, elapsedMs: number): boolean {
    const { call, headers } = this.#inbound!;
    if (this.#pace === null || this.#parser.isOver || !this.#isContinued || this.#socket.isPaused()) return false;
    // Once the reply has begun, both may be parts of a conversation.
    const isAwaited = this.#body!.readableFlowing === true && (this.#phase === "waiting" || !isLive(headers));
    return isAwaited && this.#pace.isTooSlow(this.#body!.received, Math.min(elapsedMs, now - call.startedAt));
  }

  /** Gives a reply that the client has not read at once a deadline. */
  #watchClient(): void {
    const socket = this.#socket;
    this.#delivery = new Delivery(this.#inbound!.call, { to: socket, outlet: socket, cut: () => void socket.destroy() }, this.#server.delivery);
    this.#delivery.ended();
  }

  /**
   * A socket that is not read does not report that its client has left. Behind a request that takes long, the rest of what is pipelined is
   * discarded, and the connection ends with the reply: the client may repeat it (RFC 9112 §9.3.2). Elsewhere the empty write reports a reset.
   */
  #lookForClient(now: number): void {
    const { call, upgrade } = this.#inbound!;
    if (this.#phase !== "waiting" || !this.#parser.isOver || upgrade !== null) {
      if (this.#socket.writableLength === 0) this.#socket.write(NOTHING);
    } else if (now - call.startedAt >= MAX_UNREAD_MS) {
      this.#ending = "decided";
      this.#rest = null;
      this.readOn();
    }
  }

  /** Closes the connection if it is idle; a request that has begun to arrive may finish. */
  endIfIdle(): void {
    if (this.#phase !== "idle" || this.#rest !== null) return;
    if (this.#hasServed || this.#connection.encrypted || this.#socket.bytesRead === 0) this.#socket.destroy();
  }

  #tooLate(detail: string): void {
    // A reply that is ready is sent; the rest of the upload is discarded then.
    if (this.#phase === "ready") return this.#server.writeBatch.now();
    this.#refuse({ code: "request_timeout", detail });
  }

  /** Refuses a request that cannot be read or does not arrive; the client gets the reason where no reply has begun. */
  #refuse({ code, detail }: Refusal): void {
    const socket = this.#socket;
    // Replies to earlier requests are sent first.
    if (this.#phase === "ready") this.#server.writeBatch.now();
    const inbound = this.#inbound;
    if (this.#phase !== "idle" && this.#phase !== "waiting") {
      inbound?.call.fail(code, detail);
      return void socket.destroy();
    }
    this.#phase = "over";
    const requestId = inbound?.call.id ?? randomUUID();
    if (inbound !== null) {
      inbound.call.fail(code, detail);
      inbound.call.notes.status = ERRORS[code].status;
      inbound.call.abort();
      this.#body?.destroy(new Error(detail));
    }
    this.#server.log.debug("a request could not be read", { request_id: requestId, code, error: detail });
    refuseBare(socket, code, { requestId, clock: this.#server.clock, detail: clientErrorDetail(code, this.#limits) });
  }

  /** Closes the connection after the last reply. */
  #end(): void {
    this.#phase = "over";
    const socket = this.#socket;
    // Closing with unread input sends a reset, and the client may lose a reply that it has not read yet (RFC 9112 §9.6).
    if (this.#ending === "asked" && this.#parser.isOver && this.#rest === null) return void socket.end(() => socket.destroy());
    this.#body?.destroy();
    // Behind a whole request, only requests that the client sent before it learned of the end can follow.
    endSoon(socket, this.#server.clock, this.#parser.isOver && this.#ending !== "lost" ? MAX_CROSSING_MS : undefined);
  }

  /** The client has ended its side, which counts as a disconnect. */
  readonly #onEnd = (): void => {
    // Over TLS the client's end often arrives with its request: flush ready replies first.
    this.#server.writeBatch.now();
    if (this.#phase === "over") return;
    if (this.#phase === "flushing") return void (this.#ending = "decided");
    // A client that has ended only its own side can still read why its request is refused.
    const isIncomplete = !this.#parser.isOver && (this.#phase === "waiting" || (this.#phase === "idle" && this.#rest !== null));
    if (isIncomplete) {
      this.#inbound?.call.abort();
      return this.#refuse({ code: "bad_request", detail: "the connection ended before the request did" });
    }
    if (this.#phase !== "idle") return void this.#socket.destroy();
    this.#phase = "over";
    this.#socket.end(() => this.#socket.destroy());
  };

  readonly #onClose = (): void => {
    const inbound = this.#inbound;
    this.#phase = "over";
    this.#inbound = this.#rest = null;
    if (inbound === null) return;
    inbound.call.abort();
    this.#body?.destroy(new Error("the client disconnected"));
    this.#server.ended(inbound);
  };
}

/** Most bytes of later requests that are read during the current request. */
const MAX_AHEAD_BYTES = 64 * 1024;
/** How long the current request may take, in milliseconds, while more than that waits behind it. */
const MAX_UNREAD_MS = 1_000;
/** How long requests that cross the last reply on their way are discarded, in milliseconds: a drain waits for it. */
const MAX_CROSSING_MS = 1_000;
/** Up to this size a body is sent as text, in one write with its head: copying it twice costs less than a second buffer. */
const TEXT_BODY_BYTES = 4096;
const CLOSE = "Connection: close\r\n";
const KEEP_ALIVE = `Connection: keep-alive\r\nKeep-Alive: timeout=${KEEP_ALIVE_MS / 1000}\r\n`;
const UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
const NOTHING = Buffer.alloc(0);

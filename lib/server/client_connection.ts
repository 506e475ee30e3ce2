/**
 * Serves one HTTP/1 connection of a client by our own codec: reads one request at a time, has it answered, and sends
 * the reply, a small one at the end of a round of the event loop, a stream as it arrives.
 *
 * ```
 *         head is read            send()             all is written             the system has taken it
 *   idle ─────────────► waiting ─┬──────► ready ─────┬────────────► flushing ─┬► idle ─► the next request
 *                          │     └──────► streaming ─┘                        ├► discarding ─► idle: the upload ended
 *                          └► over: a WebSocket                               └► over: it was the last reply
 * ```
 *
 * Every phase also ends in "over" when the client disconnects, sends invalid HTTP, or exceeds a deadline. Requests that
 * arrive while another one is in progress (pipelining, RFC 9112 §9.3.2) wait as bytes; beyond 64 KiB the socket is not
 * read (`#wantsBytes`).
 */
import { Socket } from "node:net";
import { entry, listenerFailed, Pieces, writeText, type ReadyWrite } from "../base/event_loop.ts";
import { ignore } from "../base/errors.ts";
import { Delivery } from "../http/delivery.ts";
import type { HeaderList } from "../http/headers.ts";
import { LentBody, lentCopy } from "../http/lent_body.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import { answer, bodyToSend, dateLine, framingOf, replyText, sendableReply, streamReply } from "./client_reply.ts";
import {
  CLOSE,
  CUT_OFF,
  KEEP_ALIVE,
  KEEP_ALIVE_MS,
  LATE_HEAD,
  NOTHING,
  refuseUnread,
  UPGRADE,
  writeInformation,
  type Http1Options,
  type Responder,
} from "./http1.ts";
import { isLive } from "./limits.ts";
import { endSoon, MAX_DISCARD_MS, MAX_DISCARDED_PER_S, MAX_QUIET_MS } from "./linger.ts";
import { receiveHead, type ConnectionFacts, type Inbound, type ReceiveOptions } from "./inbound.ts";
import { RequestBody } from "./request_body.ts";
import { RequestParser, requestLineOf, type RequestRefusal, type RequestSink } from "./request_head.ts";

type Phase = "idle" | "waiting" | "ready" | "streaming" | "flushing" | "discarding" | "over";

/**
 * Whether the connection ends with the reply, and who wants that; "lost": where the next request begins is not known.
 */
type Ending = "no" | "asked" | "decided" | "lost";

export class ClientConnection implements RequestSink, Responder, ReadyWrite {
  readonly #socket: Socket;
  readonly #server: Http1Options;
  readonly #connection: ConnectionFacts;
  readonly #parser = new RequestParser(this);
  #phase: Phase = "idle";
  /** `clock.now()` since when we wait for the client: for a request, or for the rest of one. */
  #since: number;
  #hasServed = false;
  /** Bytes that are incomplete or belong to the next request, and how many nobody wanted since the last look. */
  #rest: Buffer | null = null;
  #discarded = 0;
  readonly #pieces = new Pieces();
  /** False once a part of the current request head waits for the rest. */
  #isHeadNew = true;
  #inbound: Inbound | null = null;
  /** The rules in force at the last read. */
  #rules: ReceiveOptions;
  #ending: Ending = "no";
  /** Whether the client sends its body unasked, or has been asked for it (RFC 9110 §10.1.1). */
  #isContinued = true;
  /** The body while it arrives; null where there is none, or all of it came with the head. */
  #body: RequestBody | null = null;

  // The unsent reply: its head, with a small body appended; a larger body; and what that was lent from.
  #text = "";
  #bytes: Buffer | null = null;
  #lent: LentBody | null = null;
  /** Cuts off a client that does not read the reply; null while no reply waits for its client. */
  #delivery: Delivery | null = null;

  constructor(socket: Socket, server: Http1Options) {
    this.#socket = socket;
    this.#server = server;
    this.#since = server.clock.now();
    this.#rules = server.receiving();
    this.#connection = server.connectionOf(socket);
    if (socket instanceof SharingSocket) socket.reader = this;
    socket.on("data", this.received).on("end", this.#onEnd).on("close", this.#onClose).on("error", ignore);
    socket.once(
      "close",
      server.deadlines.everySecond((now, elapsedMs) => this.#look(now, elapsedMs)),
    );
    server.drain.add(this);
  }

  readonly received = (chunk: Buffer): void => {
    if (this.#phase === "over") return;
    this.#rest = this.#rest === null ? chunk : this.#pieces.joined(this.#rest, chunk);
    this.#read();
  };

  /** Whether more bytes are to be read: of a request that has not arrived, or of later ones as long as few wait. */
  get #wantsBytes(): boolean {
    if (this.#discarded > MAX_DISCARDED_PER_S) return false;
    if (this.#parser.isOver) return this.#rest === null || this.#rest.length <= MAX_AHEAD_BYTES;
    return this.#body === null || this.#body.wantsBytes;
  }

  /**
   * Reads or pauses the socket, as the state asks for; also called by the body, as its reader has room again or wants
   * no more.
   */
  readOn(): void {
    const socket = this.#socket;
    if (this.#phase === "over" || this.#wantsBytes !== socket.isPaused()) return;
    if (socket.isPaused()) socket.resume();
    else socket.pause();
  }

  /** Reads what waits, up to the end of a request that is not answered yet. */
  #read(): void {
    const before = this.#inbound;
    while (this.#rest !== null && this.#phase !== "over" && (this.#inbound === null || !this.#parser.isOver)) {
      if (this.#parser.isOver) this.#isHeadNew = true;
      const bytes = this.#rest;
      this.#rest = null;
      this.#rules = this.#server.receiving();
      const used = this.#parser.read(bytes, this.#rules.limits, this.#rules.underscores);
      if (used < 0) return this.#refuse(this.#parser.fault!, bytes);
      const isHead = this.#parser.head !== null;
      if (isHead) this.#begin();
      if (used < bytes.length) this.#rest = bytes.subarray(used);
      if (!isHead && !this.#parser.isOver) break;
    }
    if (this.#phase === "over") return;
    if (this.#phase === "idle") {
      // Each further part of a head must not extend its deadline.
      if (this.#rest === null || this.#isHeadNew) this.#since = this.#server.clock.now();
      this.#isHeadNew = false;
    }
    if (this.#rest !== null && this.#ending !== "no" && this.#parser.isOver && this.#inbound!.upgrade === null) {
      // No request behind this one is served.
      this.#discarded += this.#rest.length;
      this.#rest = null;
      if (this.#ending === "asked") this.#ending = "decided";
    }
    const rest = this.#rest;
    if (rest !== null) this.#rest = ownCopy(rest);
    if (rest === null || this.#rest !== rest) this.#pieces.forget();
    this.readOn();
    // Bytes after an upgrade request are not HTTP, and are kept for the tunnel.
    if (this.#phase === "waiting" && this.#inbound !== before && this.#inbound!.upgrade !== null)
      answer(this.#inbound!, this, this.#server);
  }

  /** The parser has read a head: the request begins. */
  #begin(): void {
    const parser = this.#parser;
    const head = parser.head!;
    const { whole } = parser;
    parser.head = parser.whole = null;
    this.#isContinued = head.framing.expects === "nothing";
    const body = (this.#body = parser.isOver ? null : new RequestBody(this, this.#rules.limits));
    const content = body ?? (whole === null ? null : lentCopy(whole));
    // Not the parser's trailers: it may be reading the next request by then.
    const trailers = body === null ? null : () => body.trailers;
    const inbound = (this.#inbound = receiveHead(head, this.#connection, content, trailers, this.#rules, this.#inform));
    // Bytes after an upgrade request are not HTTP, even if the upgrade is refused.
    this.#ending =
      inbound.refusal !== null || inbound.upgrade !== null ? "lost" : head.framing.isPersistent ? "no" : "asked";
    this.#phase = "waiting";
    if (body !== null && this.#isHeadNew) this.#since = inbound.call.startedAt;
    if (whole !== null) inbound.call.notes.received = whole.length;
    if (inbound.upgrade === null) answer(inbound, this, this.#server);
  }

  body(bytes: Buffer): void {
    this.#discarded += this.#body!.arrived(ownCopy(bytes), this.#server.clock.now());
    if (this.#inbound !== null) this.#inbound.call.notes.received = this.#body!.received;
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

  send(given: Reply): void {
    const inbound = this.#inbound;
    if (inbound === null || this.#phase !== "waiting") return discard(given);
    const { call, upgrade } = inbound;
    const isSwitch = upgrade !== null && given.tunnel !== undefined;
    const reply = sendableReply(call, given);
    const body = bodyToSend(inbound.method, reply);
    const framing = framingOf(inbound, reply, body);
    // A client that waits for 100 (Continue) may send its body later or never: where its next request begins is not
    // known.
    if (!this.#isContinued && !this.#parser.isOver) this.#ending = "lost";
    else if (this.#ending === "no" && (framing === "until close" || this.#server.drain.isLeaving))
      this.#ending = "decided";
    let text: string;
    try {
      const connection = isSwitch ? UPGRADE : this.#ending === "no" ? KEEP_ALIVE : CLOSE;
      text = replyText(reply, reply.requestId ?? call.id, framing, connection, dateLine(this.#server.clock.wall()));
    } catch (error) {
      discard(reply);
      return this.send(problem(call, "internal", { why: (error as Error).message }));
    }
    if (isSwitch) return this.#openTunnel(text, reply, inbound);
    call.notes.status = reply.status;
    const lent = body instanceof LentBody ? body.lend() : null;
    const whole = lent ?? body;
    if (whole === null) discard(reply);
    else if (!Buffer.isBuffer(whole)) {
      this.#phase = "streaming";
      this.#delivery = streamReply(this.#socket, this.#server, { call, reply, text, body: whole, framing }, () =>
        this.#written(),
      );
      return;
    } else if (lent === null && whole.length <= TEXT_BODY_BYTES) text += whole.toString("latin1");
    else this.#bytes = whole;
    this.#text = text;
    call.notes.sent = whole === null ? 0 : whole.length;
    this.#phase = "ready";
    if (lent === null) return this.#server.writeBatch.add(this);
    // At once: much of it is still in the processor's cache, and its memory can be reused.
    this.#lent = body as LentBody;
    this.writeNow();
  }

  writeNow(): void {
    // The client may have disconnected meanwhile.
    if (this.#phase !== "ready") return;
    const socket = this.#socket;
    // Over TLS Node learns later that the system took a write: the write itself tells, as an empty one behind it is
    // another system call.
    const flushed = this.#connection.encrypted ? this.#onFlushed : undefined;
    if (this.#bytes === null && socket instanceof SharingSocket) writeText(socket, this.#text);
    else if (this.#bytes === null) socket.write(this.#text, "latin1", flushed);
    else {
      socket.cork();
      socket.write(this.#text, "latin1");
      socket.write(this.#bytes, flushed);
      socket.uncork();
    }
    this.#text = "";
    this.#bytes = null;
    if (flushed === undefined) this.#written();
    else this.#phase = "flushing";
  }

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
    this.#lent?.giveBack();
    this.#inbound = this.#delivery = this.#lent = null;
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
    socket.off("data", this.received).off("end", this.#onEnd);
    this.#server.join(toOwnReads(socket), this.#rest ?? NOTHING, tunnel!, call.notes, this.#server.delivery);
    socket.resume();
  }

  #idle(): void {
    this.#phase = "idle";
    this.#body = null;
    // Not at once: a client that pipelines could nest this call without limit.
    if (this.#rest !== null) process.nextTick(this.#readRest);
    else this.#since = this.#server.clock.now();
    this.readOn();
  }

  readonly #readRest = entry("pipelined bytes", () => {
    if (this.#phase === "idle" && this.#rest !== null) this.#read();
  });

  readonly #inform = (status: number, headers: HeaderList): void => {
    if (this.#phase !== "waiting") return;
    if (status !== 100) return writeInformation(this.#socket, this.#inbound!.httpVersion, status, headers);
    if (!this.#isContinued) this.#socket.write("HTTP/1.1 100 Continue\r\n\r\n", "latin1");
    this.#isContinued = true;
  };

  readonly giveUp = (): void => void this.#socket.destroy();

  /** Looks at the deadlines of this connection, about once a second. */
  #look(now: number, elapsedMs: number): void {
    this.#discarded = 0;
    this.readOn();
    const { headersTimeoutMs, requestTimeoutMs } = this.#rules.limits;
    const waited = now - this.#since;
    const isLate = requestTimeoutMs > 0 && waited >= requestTimeoutMs;
    if (this.#phase === "idle") {
      const isKept = this.#rest === null && this.#hasServed;
      if (isKept && waited >= KEEP_ALIVE_MS) this.#socket.destroy();
      else if (!isKept && (isLate || waited >= headersTimeoutMs)) this.#refuse(LATE_HEAD);
    } else if (this.#phase === "discarding") {
      if (waited >= MAX_DISCARD_MS || Math.min(waited, now - this.#body!.arrivedAt) >= MAX_QUIET_MS)
        this.#socket.destroy();
    } else if (this.#phase !== "over") {
      if (!this.#parser.isOver && (isLate || this.#isTooSlow(now, elapsedMs))) {
        // A reply that is ready is sent; the rest of the upload is discarded then.
        if (this.#phase === "ready") return this.#server.writeBatch.now();
        return this.#refuse({
          code: "request_timeout",
          detail: isLate ? "the request did not arrive in time" : "the body arrives too slowly",
        });
      }
      if (this.#phase === "flushing" && this.#delivery === null) {
        // The client has not read the reply at once.
        this.#delivery = new Delivery(this.#inbound!.call, this.#socket, this.#server.delivery, this.giveUp);
        this.#delivery.ended();
      }
      if (this.#wantsBytes) return;
      const { call, upgrade } = this.#inbound!;
      if (this.#phase !== "waiting" || !this.#parser.isOver || upgrade !== null) {
        // A socket that is not read does not report that its client has left; an empty write reports a reset.
        if (this.#socket.writableLength === 0) this.#socket.write(NOTHING);
      } else if (now - call.startedAt >= MAX_UNREAD_MS) {
        // The rest of what is pipelined is discarded, and the connection ends with the reply: the client may repeat it
        // (RFC 9112 §9.3.2).
        this.#ending = "decided";
        this.#rest = null;
        this.readOn();
      }
    }
  }

  #isTooSlow(now: number, elapsedMs: number): boolean {
    const { call, headers } = this.#inbound!;
    if (!this.#isContinued || this.#socket.isPaused()) return false;
    // Once the reply has begun, both may be parts of a conversation.
    return (
      (this.#phase === "waiting" || !isLive(headers)) &&
      this.#body!.isTooSlow(Math.min(elapsedMs, now - call.startedAt))
    );
  }

  /** Closes the connection if it is idle; a request that has begun to arrive may finish. */
  endIdle(): void {
    if (this.#phase !== "idle" || this.#rest !== null) return;
    if (this.#hasServed || this.#connection.encrypted || this.#socket.bytesRead === 0) this.#socket.destroy();
  }

  /**
   * Refuses a request that cannot be read or does not arrive; the client gets the reason where no reply has begun.
   * `head`: what has arrived of it.
   */
  #refuse(refusal: RequestRefusal, head = this.#rest): void {
    const { code, detail } = refusal;
    // Replies to earlier requests are sent first.
    if (this.#phase === "ready") this.#server.writeBatch.now();
    const inbound = this.#inbound;
    if (this.#phase !== "idle" && this.#phase !== "waiting") {
      inbound?.call.fail(code, detail);
      return this.giveUp();
    }
    this.#phase = "over";
    if (inbound === null) {
      const line = head === null || code === "uri_too_long" ? null : requestLineOf(head);
      return refuseUnread(toOwnReads(this.#socket), this.#server, refusal, { line });
    }
    const { call } = inbound;
    // A client that has disconnected gets no reply, although one that has ended only its own side may read it.
    if (refusal !== CUT_OFF) call.fail(code, detail);
    refuseUnread(toOwnReads(this.#socket), this.#server, refusal, { call });
    call.abort();
    this.#body?.destroy(new Error(detail));
  }

  /** Closes the connection after the last reply. */
  #end(): void {
    this.#phase = "over";
    const socket = this.#socket;
    // Closing with unread input sends a reset, and the client may lose a reply that it has not read yet (RFC 9112
    // §9.6).
    if (this.#ending === "asked" && this.#parser.isOver && this.#rest === null)
      return void socket.end(() => socket.destroy());
    this.#body?.destroy();
    // Behind a whole request, only requests that the client sent before it learned of the end can follow.
    endSoon(
      toOwnReads(socket),
      this.#server.clock,
      this.#parser.isOver && this.#ending !== "lost" ? MAX_CROSSING_MS : undefined,
    );
  }

  /** The client has ended its side, which counts as a disconnect. */
  readonly #onEnd = (): void => {
    // Over TLS the client's end often arrives with its request: flush ready replies first.
    this.#server.writeBatch.now();
    if (this.#phase === "over") return;
    if (this.#phase === "flushing") return void (this.#ending = "decided");
    // A client that has ended only its own side can still read why its request is refused.
    if (!this.#parser.isOver && (this.#phase === "waiting" || (this.#phase === "idle" && this.#rest !== null)))
      return this.#refuse(CUT_OFF);
    if (this.#phase !== "idle") return this.giveUp();
    this.#phase = "over";
    this.#socket.end(() => this.#socket.destroy());
  };

  readonly #onClose = (): void => {
    const inbound = this.#inbound;
    this.#server.drain.remove(this);
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
/**
 * Up to this size a body is sent as text, in one write with its head: copying it twice costs less than a second buffer.
 */
const TEXT_BODY_BYTES = 4096;

/** As much as Node reads at a time. */
const READ_BYTES = 64 * 1024;
/**
 * What all plain connections are read into: memory of its own for each read costs 2 µs of processor time, a fifteenth
 * of a small request.
 */
const READ_MEMORY = Buffer.allocUnsafeSlow(READ_BYTES);

/** A plain connection whose bytes the next read of any connection overwrites, as long as it has a `reader`. */
class SharingSocket extends Socket {
  reader: ClientConnection | null = null;

  /** Returns false if nothing more is to be read for now. */
  arrived(bytes: Buffer): boolean {
    if (this.reader === null) return this.push(Buffer.from(bytes));
    try {
      this.reader.received(bytes);
    } catch (error) {
      listenerFailed([this, "data"], error);
    }
    return true;
  }
}

/**
 * Moves the connection of a socket that was accepted in this turn to one that reads into this memory once it has a
 * `ClientConnection`. Returns the same socket where Node has no handle to give.
 */
export function toSharedReads(accepted: Socket): Socket {
  const holder = accepted as unknown as { _handle: unknown };
  const handle = holder._handle;
  if (handle === null || handle === undefined) return accepted;
  holder._handle = null;
  // Node's documentation has `onread`, and not `handle`: `spec/node_assumptions.spec.ts`.
  const callback = (bytes: number) => socket.arrived(READ_MEMORY.subarray(0, bytes));
  const socket: SharingSocket = new SharingSocket({
    handle,
    allowHalfOpen: true,
    readable: true,
    writable: true,
    onread: { buffer: READ_MEMORY, callback },
  } as object);
  // An idle connection would cost a quarter more memory with it.
  accepted.destroy();
  return socket;
}

/** From now on the socket reads into memory of its own, as any other stream does. */
function toOwnReads(socket: Socket): Socket {
  if (socket instanceof SharingSocket) socket.reader = null;
  return socket;
}

/**
 * Bytes that have been read, to be kept: copied if the next read would overwrite them, or if they would hold many times
 * as much memory.
 */
function ownCopy(bytes: Buffer): Buffer {
  return bytes.buffer === READ_MEMORY.buffer || bytes.buffer.byteLength > Math.max(READ_BYTES, 8 * bytes.length)
    ? Buffer.from(bytes)
    : bytes;
}

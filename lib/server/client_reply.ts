/**
 * Writes replies to an HTTP/1 client of our own codec: small ones at the end of a round of the event loop, streams as they come.
 *
 * ```
 *   none ─┬► ready ─────┬► flushing ─► none (the system has taken all of it)
 *         └► streaming ─┘
 * ```
 */
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import type { WriteBatch } from "../base/write_batch.ts";
import { writeChunk } from "../http/body.ts";
import type { Call } from "../http/exchange.ts";
import { LentBody } from "../http/lent_body.ts";
import { discard, type Reply } from "../http/reply.ts";
import { Delivery, type DeliveryOptions } from "./delivery.ts";
import { breakOff } from "./linger.ts";
import { replyTrailers, statedLength } from "./reply_checks.ts";
import { lastChunk, type BodyFraming } from "./reply_text.ts";

export interface ReplyWriterOptions {
  readonly writeBatch: WriteBatch;
  readonly delivery: DeliveryOptions;
}

export class ReplyWriter {
  state: "none" | "ready" | "streaming" | "flushing" = "none";
  readonly #socket: Socket;
  readonly #options: ReplyWriterOptions;
  readonly #sent: () => void;
  #call: Call | null = null;
  /** What waits to be sent: the head, with a small body behind it; then a larger body. */
  #text = "";
  #bytes: Buffer | null = null;
  /** Cuts off a client that does not take the reply; null while there is no reason to look. */
  #delivery: Delivery | null = null;
  #lent: LentBody | null = null;

  /** `sent` is called when a reply has left. */
  constructor(socket: Socket, options: ReplyWriterOptions, sent: () => void) {
    this.#socket = socket;
    this.#options = options;
    this.#sent = sent;
  }

  /** Sends `head` and `body`, which is what is to be sent of the body of `reply`. */
  send(call: Call, reply: Reply, head: string, body: Reply["body"], framing: BodyFraming): void {
    this.#call = call;
    call.notes.status = reply.status;
    call.notes.sent = 0;
    if (body !== null && !Buffer.isBuffer(body)) {
      if (body instanceof LentBody && body.isUntouched) this.#sendLent(call, head, body);
      else this.#stream(call, reply, head, body, framing);
      return;
    }
    this.#text = head;
    if (body === null) discard(reply);
    else {
      call.notes.sent = body.length;
      if (body.length <= TEXT_BODY_BYTES) this.#text += body.toString("latin1");
      else this.#bytes = body;
    }
    this.state = "ready";
    this.#options.writeBatch.add(this.#sendReady);
  }

  readonly #sendReady = (): void => {
    // The client may have disconnected meanwhile.
    if (this.state !== "ready") return;
    const text = this.#text;
    const bytes = this.#bytes;
    this.#text = "";
    this.#bytes = null;
    if (bytes === null) this.#socket.write(text, "latin1");
    else this.#writeBoth(text, bytes);
    this.#written();
  };

  #writeBoth(head: string, body: Buffer): void {
    const socket = this.#socket;
    socket.cork();
    socket.write(head, "latin1");
    socket.write(body);
    socket.uncork();
  }

  /** At once: much of it is still in the processor's cache, and its memory is wanted back. */
  #sendLent(call: Call, head: string, body: LentBody): void {
    this.#lent = body;
    call.notes.sent = body.byteLength;
    this.#writeBoth(head, body.lend());
    this.#written();
  }

  #stream(call: Call, reply: Reply, head: string, body: Readable, framing: BodyFraming): void {
    const socket = this.#socket;
    this.state = "streaming";
    // The first of the body goes with the head where it is there already; a body that is still to come does not hold the head back.
    socket.cork();
    socket.write(head, "latin1");
    this.#options.writeBatch.add(() => socket.uncork());
    const isChunked = framing === "chunked";
    const to = isChunked ? { write: (chunk: Buffer) => writeChunk(socket, chunk), once: (event: "drain", run: () => void) => socket.once(event, run) } : socket;
    const delivery = new Delivery(call, { to, outlet: socket, cut: () => breakOff(socket, framing === "until close") }, this.#options.delivery);
    this.#delivery = delivery;
    delivery.stream(body, statedLength(reply.headers), () => {
      if (this.state !== "streaming") return;
      if (isChunked) socket.write(lastChunk(replyTrailers(call, reply)), "latin1");
      delivery.ended();
      this.#written();
    });
  }

  /** All of the reply has been given to the socket. */
  #written(): void {
    this.state = "flushing";
    if (this.#socket.writableLength === 0) this.#done();
    else this.#socket.write(NOTHING, this.#onFlushed);
  }

  readonly #onFlushed = (error?: Error | null): void => {
    if (this.state === "flushing" && (error === undefined || error === null)) this.#done();
  };

  #done(): void {
    this.state = "none";
    this.#call = null;
    this.#delivery = null;
    this.#lent?.giveBack();
    this.#lent = null;
    this.#sent();
  }

  /** Gives a reply that the client has not read at once a deadline. */
  watchClient(): void {
    const socket = this.#socket;
    if (this.state !== "flushing" || this.#delivery !== null) return;
    this.#delivery = new Delivery(this.#call!, { to: socket, outlet: socket, cut: () => void socket.destroy() }, this.#options.delivery);
    this.#delivery.ended();
  }

  /** The connection has ended: nothing more is written. */
  close(): void {
    this.state = "none";
  }
}

/** Up to this size a body is sent as text, in one write with its head: copying it twice costs less than a second buffer. */
const TEXT_BODY_BYTES = 4096;
const NOTHING = Buffer.alloc(0);

/**
 * Sends bytes to a side that may read slowly: ends it when it reads too little for too long. The body of one reply, for
 * every protocol, which also ends when the time for its exchange is over.
 *
 * ```
 *              the system takes no more, or all is written and some of it is unread
 *   writing ─────────────────────────────────────────────────────────────────────────► waiting
 *      ▲                                                                                 │
 *      ├──────────────────────── "drain": the system has taken all ──────────────────────┤
 *      └─► ended: all is written, and was taken                                          ├─► cut: request_timeout:
 *                                                                                        │   nothing was taken for
 *                                                                                        │   `idleMs`, or too little
 *                                                                                        └─► cut: upstream_timeout:
 *                                                                                            the exchange is over
 * ```
 *
 * While it waits, each byte that the system takes adds to the time left (`#aheadMs`), and waiting takes from it. A
 * source that breaks off cuts the reply in every state.
 */
import type { Http2Stream } from "node:http2";
import { Socket } from "node:net";
import type { Duplex, Readable } from "node:stream";
import type { Clock, DeadlineTimer, HasDeadline } from "../base/clock.ts";
import { Fault, ignore } from "../base/errors.ts";
import { pump, type Sink } from "./body.ts";
import type { Call } from "./exchange.ts";

/**
 * A side that reads so much is never ended for its slowness, unless more is asked of it. The system hides what is read:
 * it takes megabytes ahead, and then nothing more until a third of its buffer is free again.
 */
const STEADY_BYTES_PER_S = 2000;
/**
 * Most that is read between two moments at which the system takes more: by Linux's defaults 1.8 MB (`net.ipv4.tcp_wmem`
 * / 3 + `tcp_rmem` / 16).
 */
const MAX_HIDDEN_BYTES = 2 * 1024 * 1024;

export interface DeliveryOptions {
  readonly clock: Clock;
  /** The deadlines of all deliveries of a listener. */
  readonly watch: DeadlineTimer;
  /**
   * Milliseconds that a side may leave everything unread, whether or not all has been written: beyond the time in which
   * one that reads 2000 bytes a second would still be reading what the system took.
   */
  readonly idleMs: number;
  /** The least it has to read on average, in bytes a second, after the first `idleMs`; 0: no such limit. Asked once. */
  readonly leastBytesPerS: () => number;
}

/** One direction of a connection or stream, and how far its other end keeps up. */
export class PacedSink implements Sink, HasDeadline {
  index = -1;
  protected readonly outlet: Duplex;
  readonly #to: Sink;
  readonly #options: DeliveryOptions;
  readonly #handed: () => number;
  readonly #tooSlow: (why: string) => void;
  readonly #leastBytesPerS: number;
  readonly #steadyBytesPerMs: number;
  /** How long the other end may go on as it does now: each byte adds to it, waiting takes from it. */
  #aheadMs: number;
  /** When an end that reads steadily will have read all that was taken. */
  #readBy = -Infinity;
  /** Since when it has been waited for, up to which moment that was counted; Infinity while it is not. */
  #waitsFrom = Infinity;
  /** When this one wrote last; others may write to its outlet. */
  #wroteAt = Infinity;
  /** Since when nothing was taken while it was waited for. */
  #quietFrom: number;
  #taken: number;
  /** Of the connection that a stream shares with others, all that was taken before included. */
  #connectionReadBy = -Infinity;
  #takenByConnection = 0;
  /** As `#aheadMs`, of the connection. */
  #connectionAheadMs: number;
  #tookBytes = 0;
  #waitedMs = 0;
  #resume: () => void = ignore;

  /**
   * `outlet`: the connection in HTTP/1, the stream in HTTP/2; `to`: what is written to, if it is not the same, as a
   * response, or a framing layer.
   * `handed`: bytes that were written so far, without framing. `tooSlow` is called once, with the reason.
   */
  constructor(
    outlet: Duplex,
    options: DeliveryOptions,
    handed: () => number,
    tooSlow: (why: string) => void,
    to: Sink = outlet,
  ) {
    this.outlet = outlet;
    this.#to = to;
    this.#options = options;
    this.#handed = handed;
    this.#tooSlow = tooSlow;
    this.#leastBytesPerS = options.leastBytesPerS();
    this.#steadyBytesPerMs = Math.max(STEADY_BYTES_PER_S, this.#leastBytesPerS) / 1000;
    this.#aheadMs = this.#connectionAheadMs = options.idleMs;
    this.#quietFrom = options.clock.now();
    // What was written before may be unread.
    const system = outlet instanceof Socket ? takenBySystem(outlet) : null;
    this.#taken =
      system === null ? Math.min(0, handed() - outlet.writableLength) : Math.max(0, system.bytes - handed());
  }

  write(chunk: Buffer): boolean {
    this.#wroteAt = this.#options.clock.now();
    return this.#to.write(chunk);
  }

  once(_event: "drain", run: () => void): void {
    this.#resume = run;
    this.wait();
    this.#to.once("drain", this.#drained);
  }

  /** From now on the other end is waited for. */
  wait(): void {
    const { clock, watch } = this.#options;
    const now = clock.now();
    this.#look(now);
    if (this.#waitsFrom === Infinity) this.#waitsFrom = this.#quietFrom = now;
    if (!this.outlet.destroyed) watch.add(this, now);
  }

  /** It is no longer waited for. */
  protected goOn(now: number): void {
    this.#look(now);
    this.#waitsFrom = Infinity;
  }

  /** Ends the deadlines. */
  stop(): void {
    this.#options.watch.remove(this);
  }

  /** Whether the other end is waited for, or may still be reading what the system took. */
  isBusy(): boolean {
    const now = this.#options.clock.now();
    this.#look(now);
    return this.#waitsFrom !== Infinity || this.#readBy > now;
  }

  get dueAt(): number {
    return this.#waitsFrom + this.#aheadMs;
  }

  overdue(now: number): void {
    this.#look(now);
    // Less may be nothing but an error of rounding, of which the clock sees no end.
    if (this.#aheadMs >= 1) return;
    const { idleMs } = this.#options;
    const quietMs = now - this.#quietFrom;
    this.stop();
    if (quietMs >= idleMs) return this.#tooSlow(`its system took nothing for ${Math.round(quietMs / 1000)} s`);
    const isBelow = this.#tookBytes * 1000 < this.#leastBytesPerS * this.#waitedMs;
    const why = isBelow ? `less than ${this.#leastBytesPerS} a second` : "and nearly nothing at the end";
    this.#tooSlow(`its system took ${this.#tookBytes} bytes in ${Math.round(this.#waitedMs / 1000)} s, ${why}`);
  }

  readonly #drained = (): void => {
    this.goOn(this.#options.clock.now());
    this.#resume();
  };

  #look(now: number): void {
    const { outlet } = this;
    const { idleMs } = this.#options;
    if (this.#waitsFrom !== Infinity) {
      this.#waitedMs += now - this.#waitsFrom;
      this.#aheadMs -= now - this.#waitsFrom;
      this.#connectionAheadMs -= now - this.#waitsFrom;
      this.#waitsFrom = now;
    }
    if (outlet.destroyed) return;
    const before = this.#taken;
    this.#taken =
      (outlet instanceof Socket ? takenBySystem(outlet)?.bytes : undefined) ?? this.#handed() - outlet.writableLength;
    if (this.#taken > before) this.#took(this.#taken - before, now);
    this.#aheadMs = Math.min(this.#aheadMs, idleMs + Math.max(0, this.#readBy - now));
    // A stream that waits for its whole connection is as far ahead as that.
    const { session } = outlet as Partial<Http2Stream>;
    const connection = session === undefined || session.destroyed ? null : takenBySystem(session.socket as Socket);
    if (connection === null) return;
    const took = connection.bytes - this.#takenByConnection;
    this.#takenByConnection = connection.bytes;
    this.#connectionReadBy = this.#readTime(this.#connectionReadBy, now, took);
    if (took > 0) this.#connectionAheadMs += (took * 1000) / this.#leastBytesPerS;
    this.#connectionAheadMs = Math.min(this.#connectionAheadMs, idleMs + Math.max(0, this.#connectionReadBy - now));
    if (connection.isFull) this.#aheadMs = Math.max(this.#aheadMs, this.#connectionAheadMs);
  }

  #took(bytes: number, now: number): void {
    this.#tookBytes += bytes;
    this.#quietFrom = now;
    this.#readBy = this.#readTime(
      this.#readBy,
      this.outlet.writableLength === 0 ? Math.min(this.#wroteAt, now) : now,
      bytes,
    );
    this.#aheadMs += (bytes * 1000) / this.#leastBytesPerS;
  }

  /**
   * When an end that reads steadily, and was to be ready at `readBy`, will have read these bytes, too, which were taken
   * at `from`.
   */
  #readTime(readBy: number, from: number, bytes: number): number {
    const perMs = this.#steadyBytesPerMs;
    return bytes <= 0 ? readBy : Math.min(Math.max(readBy, from) + bytes / perMs, from + MAX_HIDDEN_BYTES / perMs);
  }
}

/**
 * What the system took of the bytes written to a socket, and whether it takes no more for now; null where Node does not
 * tell. Over TLS in its records.
 */
export function takenBySystem(socket: Socket): { readonly bytes: number; readonly isFull: boolean } | null {
  type Handle = { readonly bytesWritten?: number; readonly writeQueueSize?: number };
  const { _handle: own } = socket as { _handle?: (Handle & { readonly _parent?: Handle }) | null };
  const { bytesWritten, writeQueueSize } = own?._parent ?? own ?? {};
  // Not the socket's own numbers, in which all of a write that is under way counts as not taken.
  if (bytesWritten === undefined || writeQueueSize === undefined) return null;
  return { bytes: bytesWritten - writeQueueSize, isFull: writeQueueSize > 0 };
}

/** The body of one reply on its way to its client. */
export class Delivery extends PacedSink {
  readonly #call: Call;
  readonly #cut: (why: "broken" | "overdue") => void;
  /** Moment of the monotonic clock at which the exchange has to be over; Infinity: none. */
  readonly #endsAt: number;

  /** `cut` ends the reply in its middle, its connection or stream included. */
  constructor(
    call: Call,
    outlet: Duplex,
    options: DeliveryOptions,
    cut: (why: "broken" | "overdue") => void,
    to?: Sink,
  ) {
    super(
      outlet,
      options,
      () => call.notes.sent ?? 0,
      (why) => this.#giveUp("request_timeout", `the client reads the reply too slowly: ${why}`),
      to,
    );
    this.#call = call;
    this.#cut = cut;
    // The error reply for a deadline that has passed is not bound by it.
    this.#endsAt = call.endsAt > options.clock.now() ? call.endsAt : Infinity;
  }

  /**
   * Sends a body of `length` bytes (Infinity: not known) while it arrives; `done` is called when all of it has been
   * written.
   */
  stream(body: Readable, length: number, done: () => void): void {
    const call = this.#call;
    call.onAbort(() => body.destroy());
    const broken = (cause: Error | null) => {
      // The client must not mistake the part it has for the whole: no clean end.
      call.fail(cause instanceof Fault ? cause.code : "upstream_reset", cause?.message ?? "the body ended early");
      this.#cut("broken");
    };
    pump(body, this, { passed: (bytes) => (call.notes.sent! += bytes), done, broken }, length);
  }

  /** All of the reply has been written: true where the client has yet to read some of it. */
  ended(): boolean {
    if (this.outlet.writableLength === 0) return false;
    this.wait();
    return true;
  }

  override wait(): void {
    if (this.index < 0) this.#call.onEnd(() => this.stop());
    this.#call.heldUpTill = Infinity;
    super.wait();
  }

  protected override goOn(now: number): void {
    this.#call.heldUpTill = now;
    super.goOn(now);
  }

  override get dueAt(): number {
    return Math.min(this.#endsAt, super.dueAt);
  }

  override overdue(now: number): void {
    if (this.#endsAt > now) return super.overdue(now);
    this.stop();
    this.#giveUp("upstream_timeout", "the time for the whole exchange was over before its client had read the reply");
  }

  #giveUp(code: "upstream_timeout" | "request_timeout", why: string): void {
    this.#call.fail(code, why);
    this.#cut("overdue");
  }
}

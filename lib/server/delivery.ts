/**
 * Sends the body of one reply to its client, and ends the reply when the client reads nothing of it for too long, or when the time for its
 * exchange is over. For every protocol.
 */
import type { Duplex, Readable } from "node:stream";
import type { Clock, DeadlineTimer, HasDeadline } from "../base/clock.ts";
import { Fault, ignore } from "../base/errors.ts";
import { pump, type Sink } from "../http/body.ts";
import type { Call } from "../http/exchange.ts";
import { acknowledgedBytes } from "./linger.ts";

export interface DeliveryOptions {
  readonly clock: Clock;
  /** The deadlines of all replies of a listener. */
  readonly watch: DeadlineTimer;
  /** Milliseconds a client may leave a reply unread, whether or not the upstream has finished it. Any byte it reads restarts the time. */
  readonly idleMs: number;
}

export interface Recipient {
  /** The destination of the reply: a response, a stream, a socket, or a framing layer before one. */
  readonly to: { write(chunk: Buffer): boolean; once(event: "drain", run: () => void): unknown };
  /** The transport: the connection in HTTP/1, the stream in HTTP/2. */
  readonly outlet: Duplex;
  /** Ends the reply in its middle, its connection or stream included. */
  readonly cut: (why: "broken" | "overdue") => void;
}

export class Delivery implements Sink, HasDeadline {
  /** As `HasDeadline`. */
  place = -1;
  readonly #call: Call;
  readonly #recipient: Recipient;
  readonly #options: DeliveryOptions;
  /** Moment of the monotonic clock at which the exchange has to be over; Infinity: none. */
  readonly #endsAt: number;
  /** Since when the client has acknowledged nothing; Infinity while it is not behind. */
  #behindSince = Infinity;
  /** The bytes that the client had acknowledged then. */
  #acknowledged = 0;
  #resume: () => void = ignore;

  constructor(call: Call, recipient: Recipient, options: DeliveryOptions) {
    this.#call = call;
    this.#recipient = recipient;
    this.#options = options;
    // The error reply for a deadline that has passed is not bound by it.
    this.#endsAt = call.endsAt > options.clock.now() ? call.endsAt : Infinity;
  }

  /** Sends a body of `length` bytes (Infinity: not known) while it arrives; `done` is called when all of it has been written. */
  stream(body: Readable, length: number, done: () => void): void {
    const call = this.#call;
    call.onAbort(() => body.destroy());
    const broken = (cause: Error | null) => {
      // The client must not mistake the part it has for the whole: no clean end.
      call.fail(cause instanceof Fault ? cause.code : "upstream_reset", cause?.message ?? "the body ended early");
      this.#recipient.cut("broken");
    };
    pump(body, this, { passed: (bytes) => (call.notes.sent! += bytes), done, broken }, length);
  }

  write(chunk: Buffer): boolean {
    return this.#recipient.to.write(chunk);
  }

  onceDrained(run: () => void): void {
    this.#resume = run;
    this.#waitForClient();
    this.#recipient.to.once("drain", this.#drained);
  }

  /** All of the reply has been written: true where the client has yet to read some of it. */
  ended(): boolean {
    if (this.#recipient.outlet.writableLength === 0) return false;
    this.#waitForClient();
    return true;
  }

  get dueAt(): number {
    return Math.min(this.#endsAt, this.#behindSince + this.#options.idleMs);
  }

  overdue(now: number): void {
    if (this.#endsAt <= now) return this.#giveUp("upstream_timeout", "the time for the whole exchange was over before its client had read the reply");
    const before = this.#acknowledged;
    this.#acknowledged = acknowledgedBytes(this.#recipient.outlet);
    this.#behindSince = now;
    if (this.#acknowledged === before) this.#giveUp("request_timeout", `the client read nothing of the reply for ${this.#options.idleMs} ms`);
  }

  #waitForClient(): void {
    const { watch, clock } = this.#options;
    const now = clock.now();
    this.#behindSince = now;
    this.#acknowledged = acknowledgedBytes(this.#recipient.outlet);
    if (this.place < 0) this.#call.onEnd(() => watch.remove(this));
    if (!this.#recipient.outlet.destroyed) watch.add(this, now);
  }

  readonly #drained = (): void => {
    this.#behindSince = Infinity;
    this.#resume();
  };

  #giveUp(code: "upstream_timeout" | "request_timeout", why: string): void {
    this.#call.fail(code, why);
    this.#options.watch.remove(this);
    this.#recipient.cut("overdue");
  }
}

/**
 * Reads the cost of a request from its reply while that passes by, and books it when the reply ends. The reply is
 * neither held nor changed.
 */
import type { Readable } from "node:stream";
import { createGunzip, type Gunzip } from "node:zlib";
import { costOf, type COST } from "../config/cost.ts";
import type { Infer } from "../config/schema.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { headerValue, withHeader, withoutHeader } from "../http/headers.ts";
import { JsonNumber } from "../http/json_number.ts";
import { LentBody } from "../http/lent_body.ts";
import type { Reply } from "../http/reply.ts";
import { tapBody } from "../http/tapped_body.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { entry } from "../base/event_loop.ts";
import type { CostedLimiter, Decision } from "../store/counters.ts";
import type { Costing, KeptState, Settle, Tools } from "./plugin.ts";

export { fields } from "../config/cost.ts";
export { costedLimiter } from "../store/costs.ts";
export { HeldCounts } from "../store/held_counts.ts";

/** Books the cost of each request that a limiter admits, when its reply ends. */
export function costing(
  limiter: Pick<CostedLimiter, "book">,
  cost: Infer<typeof COST>,
  tools: Pick<Tools, "keep">,
  callerOf: (exchange: Exchange) => string,
  settle: Settle,
): Costing {
  const reservations = new WeakMap<Call, NonNullable<Decision["reservation"]>>();
  const book = (exchange: Exchange, amount: number) => {
    const reservation = reservations.get(exchange.call);
    if (reservation === undefined) limiter.book(callerOf(exchange), amount);
    else reservation(amount);
  };
  return {
    settle(next, exchange, decision) {
      const { reservation } = decision;
      if (reservation !== undefined) reservations.set(exchange.call, reservation);
      return settle(next, exchange, decision);
    },
    around: (next) => bookingCosts(next, cost, tools, book),
  };
}

type Book = (exchange: Exchange, cost: number) => void;

/** Books the cost of each request that `next` gets, when its reply ends. */
export function bookingCosts(
  next: Handler,
  { responseHeader, responseJson, default: usual, failed, reserve = 0 }: Cost,
  { keep }: Pick<Tools, "keep">,
  book: Book,
): Handler {
  const header = responseHeader?.toLowerCase();
  const path = responseJson?.split(".") ?? [];
  const late = keep("late costs", null, () => new LateCosts());
  // Without a reserve an error costs what it states, as it always has.
  const ofError = failed ?? (reserve > 0 ? usual : undefined);
  const watched = (exchange: Exchange, reply: Reply): Reply => {
    const { call } = exchange;
    const observer = header === undefined ? observerOf(reply, path) : null;
    const stated = header === undefined ? null : headerValue(reply.headers, header);
    const isError = reply.status >= 400;
    const done = (found: string | null) => {
      const cost = (found === null ? null : costOf(found)) ?? usual;
      // A client that leaves before the cost is there would else have the reply for the default.
      if (hasLeft(call)) book(exchange, Math.max(cost, reserve));
      else book(exchange, isError && ofError !== undefined ? ofError : cost);
    };
    call.onEnd(() => (observer === null ? done(stated ?? null) : late.wait(observer, done)));
    return reply;
  };
  return (exchange) => {
    const reply = next(header === undefined ? askingReadable(exchange) : exchange);
    return reply instanceof Promise ? reply.then((later) => watched(exchange, later)) : watched(exchange, reply);
  };
}

type Cost = Pick<Infer<typeof COST>, "responseHeader" | "responseJson" | "default"> &
  Partial<Pick<Infer<typeof COST>, "failed" | "reserve">>;

/** Whether the client has disconnected, or read too slowly. What ends because of the upstream is not its doing. */
function hasLeft({ aborted, notes: { code } }: Call): boolean {
  return aborted && (code === null || (Object.hasOwn(ERRORS, code) && ERRORS[code as ErrorCode].side === "client"));
}

/** The whole reply as it is: a client could else have it for the default, by what it asks for. */
function askingReadable(exchange: Exchange): Exchange {
  // A server may ignore both (RFC 9110 §12.5.3, §14.2), and a coding that it chooses itself is read.
  return exchange.with({
    headers: withHeader(withoutHeader(exchange.headers, "range"), "Accept-Encoding", "identity"),
  });
}

/**
 * Costs of replies that have ended, and whose compressed bytes are still being read: the gateway waits for them before
 * it ends.
 */
class LateCosts implements KeptState {
  #count = 0;
  #whenNone = () => {};

  wait(observer: Observer, done: (found: string | null) => void): void {
    this.#count++;
    observer.end((found) => {
      done(found);
      if (--this.#count === 0) this.#whenNone();
    });
  }

  close(): Promise<void> | void {
    if (this.#count > 0) return new Promise((resolve) => (this.#whenNone = resolve));
  }
}

/** Watches the body of a reply. Null: it has none that can state a cost. */
function observerOf({ headers, body }: Reply, path: readonly string[]): Observer | null {
  const type = (headerValue(headers, "content-type") ?? "").split(";", 1)[0]!.trim().toLowerCase();
  const Kind =
    type === "text/event-stream"
      ? EventReader
      : /^application\/(?:x-ndjson|ndjson|jsonl|x-jsonlines)$/.test(type)
        ? LineReader
        : JsonReader;
  if (body === null || (Kind === JsonReader && !/^application\/(?:json|[^/]+\+json)$/.test(type))) return null;
  const coding = (headerValue(headers, "content-encoding") ?? "identity").trim().toLowerCase();
  const reader = new Kind(new JsonNumber(path));
  const observer =
    coding === "identity"
      ? new PlainObserver(reader)
      : coding === "gzip" || coding === "x-gzip"
        ? new GzipObserver(reader)
        : null;
  if (observer === null) return null;
  const whole = body instanceof LentBody ? body.bytes : Buffer.isBuffer(body) ? body : null;
  if (whole !== null) observer.write(whole);
  else tapBody(body as Readable, (bytes) => observer.write(bytes));
  return observer;
}

interface Observer {
  write(bytes: Buffer): void;
  /** The reply is over: passes on what was found. */
  end(done: (found: string | null) => void): void;
}

class PlainObserver implements Observer {
  readonly #reader: JsonReader;

  constructor(reader: JsonReader) {
    this.#reader = reader;
  }

  write(bytes: Buffer): void {
    this.#reader.write(bytes);
  }

  end(done: (found: string | null) => void): void {
    done(this.#reader.number.found);
  }
}

/** Most decompressed bytes of one reply that are looked at: a megabyte in gzip can hold a gigabyte. */
const MAX_INFLATED = 16 * 1024 * 1024;
/** Most compressed bytes that wait to be looked at. */
const MAX_WAITING = 1024 * 1024;

/** Decompresses a copy of what passes by, on Node's threads. */
class GzipObserver implements Observer {
  readonly #reader: JsonReader;
  readonly #gunzip: Gunzip;
  #inflated = 0;
  #hasFailed = false;

  constructor(reader: JsonReader) {
    this.#reader = reader;
    const gunzip = (this.#gunzip = createGunzip());
    gunzip.on(
      "data",
      entry("the cost of a compressed reply", (bytes: Buffer) => {
        this.#inflated += bytes.length;
        if (this.#inflated > MAX_INFLATED) gunzip.destroy(new Error("too long"));
        else reader.write(bytes);
      }),
    );
    gunzip.on("error", () => (this.#hasFailed = true));
  }

  write(bytes: Buffer): void {
    if (this.#gunzip.destroyed) return;
    // A copy: the buffer is read into again while another thread decompresses it.
    this.#gunzip.write(Buffer.from(bytes));
    if (this.#gunzip.writableLength > MAX_WAITING) this.#gunzip.destroy(new Error("too much at once"));
  }

  /** A stream that was broken off or is not valid has no cost. */
  end(done: (found: string | null) => void): void {
    if (this.#gunzip.closed) return done(null);
    this.#gunzip.once(
      "close",
      entry("the end of a compressed reply", () => done(this.#hasFailed ? null : this.#reader.number.found)),
    );
    this.#gunzip.end();
  }
}

/** Reads a body that is one value of JSON. */
class JsonReader {
  readonly number: JsonNumber;

  constructor(number: JsonNumber) {
    this.number = number;
  }

  write(bytes: Buffer): void {
    this.number.write(bytes);
  }
}

/** Each line is a value. */
class LineReader extends JsonReader {
  override write(bytes: Buffer): void {
    let isSearched = false;
    for (let at = 0; at < bytes.length;) {
      if (!isSearched && this.number.isAtStart) {
        isSearched = true;
        at = withoutName(bytes, this.number.name, "\n", at);
      }
      const newline = bytes.indexOf(NEWLINE, at);
      const end = newline < 0 ? bytes.length : newline;
      this.line(bytes, at, end);
      if (newline >= 0) this.endLine();
      at = end + 1;
    }
  }

  protected line(bytes: Buffer, at: number, end: number): void {
    this.number.write(bytes, at, end);
  }

  protected endLine(): void {
    this.number.reset();
  }
}

/**
 * Where the values begin that can have the member: those before, of which a stream has most, need not be read byte by
 * byte. To be asked once for a chunk, since it searches all of it.
 */
function withoutName(bytes: Buffer, name: Buffer, boundary: string, from: number): number {
  const named = bytes.indexOf(name, from);
  const last = bytes.lastIndexOf(boundary, named < 0 ? undefined : named);
  return last < from ? from : last + boundary.length;
}

const NEWLINE = 0x0a;
const RETURN = 0x0d;
const DATA = Buffer.from("data:");
const BYTE_ORDER_MARK = Buffer.from("\uFEFF");

/**
 * The lines of an event that begin with "data:" are one value
 * (https://html.spec.whatwg.org/multipage/server-sent-events.html). A line ends with LF, CR, or both.
 */
class EventReader extends LineReader {
  /** Bytes of "data:" that the line begins with; -1: it begins otherwise. */
  #same = 0;
  #isBlank = true;
  /** The line before has ended with CR, and LF would belong to it. */
  #isReturned = false;
  /** Bytes of the mark with which the stream may begin. */
  #marks = 0;

  override write(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length && this.#marks < BYTE_ORDER_MARK.length && bytes[at] === BYTE_ORDER_MARK[this.#marks]) {
      this.#marks++;
      at++;
    }
    if (at < bytes.length) this.#marks = BYTE_ORDER_MARK.length;
    let feed = -1;
    let carriage = -1;
    let isSearched = false;
    while (at < bytes.length) {
      const isRest = this.#isReturned && bytes[at] === NEWLINE;
      this.#isReturned = false;
      if (isRest) at++;
      if (!isSearched && this.#isBlank && this.#same === 0 && this.number.isAtStart) {
        isSearched = true;
        at = withoutName(bytes, this.number.name, "\n\n", at);
      }
      // Looked for once more only behind the last one found: a chunk may have many lines and none of the other ends.
      if (feed < at) feed = placeOf(NEWLINE, bytes, at);
      if (carriage < at) carriage = placeOf(RETURN, bytes, at);
      const end = Math.min(feed, carriage);
      this.line(bytes, at, end);
      at = end + 1;
      if (end === bytes.length) return;
      this.endLine();
      this.#isReturned = end === carriage;
    }
  }

  protected override line(bytes: Buffer, from: number, end: number): void {
    let at = from;
    if (this.#isBlank) this.#isBlank = at === end;
    for (; at < end && this.#same >= 0 && this.#same < DATA.length; at++)
      this.#same = bytes[at] === DATA[this.#same] ? this.#same + 1 : -1;
    if (this.#same === DATA.length) this.number.write(bytes, at, end);
  }

  protected override endLine(): void {
    if (this.#isBlank) this.number.reset();
    this.#same = 0;
    this.#isBlank = true;
  }
}

/** The length where there is none. */
function placeOf(byte: number, bytes: Buffer, from: number): number {
  const at = bytes.indexOf(byte, from);
  return at < 0 ? bytes.length : at;
}

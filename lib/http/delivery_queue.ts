/**
 * Texts on their way to a server: waiting in a bounded queue, sent in batches, tried again with growing pauses, given up and counted then.
 * What a text says, how a batch is spelt and what the log is told is decided by whoever owns one: `http_log.ts`, `otlp.ts`.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { HttpClient, type ClientAnswer, type ClientFailure, type ClientRequestOptions, type ClientTls } from "./client.ts";
import { httpDate } from "./date.ts";
import { headerValue, type HeaderList } from "./headers.ts";

export interface OutboxOptions {
  readonly clock: Clock;
  /** Whom every batch is sent to, and how. */
  readonly request: Pick<ClientRequestOptions, "url" | "method" | "headers" | "timeoutMs">;
  /** For HTTPS. Default: the server is verified against the system's CA certificates. */
  readonly tls?: ClientTls | undefined;
  /** How the log calls them: "the collector". */
  readonly receiver: string;
  /** Makes the body of a request. When it fails, the batch is lost. */
  readonly encode: (texts: readonly string[]) => Buffer | Promise<Buffer>;
  /** Most texts in a batch, which is sent as soon as there are so many. */
  readonly batchSize: number;
  /** How long a text waits for others at most, in milliseconds. */
  readonly batchMs: number;
  /** Most texts that wait. */
  readonly maxTexts: number;
  /** No further text comes to wait once they have so many together. */
  readonly maxCharacters: number;
  /** Which is lost where there is no room: the one that comes, or those that have waited longest. */
  readonly whenFull: "lose newest" | "lose oldest";
  /** Whether another try may help after this status. Where no answer comes it may. */
  readonly isTransient: (status: number) => boolean;
  /** Before each further try, in milliseconds, where Retry-After asks for nothing else. After the last a batch is lost. */
  readonly pausesMs: readonly number[];
  /** Numbers from 0 to below 1, which make pauses half to one and a half times as long, so that gateways differ. Default: 0.5, as they are. */
  readonly random?: () => number;
  /** What was lost all the same of a batch that was answered with 2xx, by the answer's body, empty where it was not to be had. Default: nothing. */
  readonly rejectedBy?: (answer: Buffer) => Rejected;
  /** Hears of losses once in `quietMs`, and when it is closed. */
  readonly report: (lost: number, why: string) => void;
  readonly quietMs: number;
}

export interface Rejected {
  readonly count: number;
  readonly why: string;
}

export class DeliveryQueue {
  readonly #options: OutboxOptions;
  readonly #client: HttpClient;
  readonly #texts = new TextQueue();
  #timer: Timer | null = null;
  #sending: Promise<void> | null = null;
  #isClosed = false;
  #draining: Promise<void> | null = null;
  /** Gives up what is being sent, and all that waits. */
  #cut = new AbortController();
  /** Ends the pause before another try. */
  #hurry = () => {};
  #sent = 0;
  #lost = 0;
  /** Of those: which have not been reported. */
  #untold = 0;
  #why = "";
  #quietUntil = -Infinity;
  /** Tells of what has been lost while the log was to be quiet. */
  #telling: Timer | null = null;

  constructor(options: OutboxOptions) {
    this.#options = options;
    this.#client = new HttpClient({ clock: options.clock, maxConnections: 1, tls: options.tls });
  }

  /** Texts that the server has taken. */
  get sent(): number {
    return this.#sent;
  }

  /** Texts that it has not taken, or for which there was no room. */
  get lost(): number {
    return this.#lost;
  }

  get isFull(): boolean {
    return this.#texts.length >= this.#options.maxTexts || this.#texts.characters >= this.#options.maxCharacters;
  }

  /** Takes a text, whatever has become of those before. Costs no waiting. */
  add(text: string): void {
    while (this.isFull) {
      if (this.#options.whenFull === "lose newest") return this.lose(1, NO_ROOM);
      this.#texts.take(1);
      this.lose(1, NO_ROOM);
    }
    this.#texts.add(text);
    if (this.#isClosed) void this.#drain();
    else if (this.#texts.length >= this.#options.batchSize) this.#send();
    else if (this.#sending === null) this.#sendLater();
  }

  /** Counts texts that are lost before they have come here, too. */
  lose(count: number, why: string): void {
    this.#lost += count;
    this.#untold += count;
    this.#why = why;
    this.#tell("if due");
  }

  /** Sends what there is, within a second; what is left then is lost. What is added later is sent at once, and has as long again. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#hurry();
    await this.#drain();
    this.#tell("now");
  }

  #drain(): Promise<void> {
    return (this.#draining ??= this.#sendRest().finally(() => {
      this.#draining = null;
      // One that has come since the last look, and was told that somebody sends already.
      if (this.#texts.length > 0) void this.#drain();
    }));
  }

  async #sendRest(): Promise<void> {
    const deadline = this.#options.clock.after(DRAIN_MS, () => {
      this.#cut.abort();
      this.#hurry();
      // At once: to make a body of each batch that is not sent would take seconds where there are many.
      const { length } = this.#texts.take(Infinity);
      if (length > 0) this.lose(length, TOO_LATE);
    });
    while (this.#sending !== null || this.#texts.length > 0) {
      this.#send();
      await this.#sending;
    }
    deadline.cancel();
    this.#client.close();
    this.#cut = new AbortController();
  }

  #sendLater(): void {
    this.#timer ??= this.#options.clock.after(this.#options.batchMs, () => this.#send());
  }

  /** One batch after the other: those that wait until one has gone give the server time. */
  #send(): void {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
      if (this.#texts.length > 0) this.#sendLater();
    });
  }

  /** What waits when it is called, and all that fills a batch until it is done. */
  async #sendAll(): Promise<void> {
    const { batchSize } = this.#options;
    this.#timer?.cancel();
    this.#timer = null;
    do {
      await this.#deliver(this.#texts.take(batchSize));
    } while (this.#texts.length >= batchSize);
  }

  async #deliver(batch: readonly string[]): Promise<void> {
    const { encode, pausesMs, random = () => 0.5 } = this.#options;
    let body: Buffer;
    try {
      body = await encode(batch);
    } catch (error) {
      return this.lose(batch.length, (error as Error).message);
    }
    let why = TOO_LATE;
    for (let tries = 0; !this.#cut.signal.aborted; tries++) {
      const tried = await this.#try(body);
      if (tried.outcome === "taken") return this.#taken(batch.length, tried.answer);
      why = tried.why;
      const pauseMs = pausesMs[tries];
      if (tried.outcome === "refused" || pauseMs === undefined || this.#cut.signal.aborted) break;
      await this.#pause(tried.askedMs ?? pauseMs * (0.5 + random()));
    }
    this.lose(batch.length, why);
  }

  async #try(body: Buffer): Promise<Tried> {
    const { request } = this.#options;
    try {
      return this.#outcomeOf(await this.#client.ask({ ...request, body, maxBytes: MAX_ANSWER_BYTES, signal: this.#cut.signal }));
    } catch (error) {
      const { message, status, headers } = error as ClientFailure;
      // The status says it all: a body that is too large, or breaks off, must not have the server get a batch twice that it has taken.
      if (status !== null && status >= 200 && status <= 599) return this.#outcomeOf({ status, headers, body: NOTHING });
      return { outcome: "failed", why: message, askedMs: null };
    }
  }

  #outcomeOf({ status, headers, body }: ClientAnswer): Tried {
    const { receiver, isTransient, clock } = this.#options;
    if (status < 300) return { outcome: "taken", answer: body };
    const why = `${receiver} answered with status ${status}`;
    return isTransient(status) ? { outcome: "failed", why, askedMs: retryAfter(headers, clock.wall()) } : { outcome: "refused", why };
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      // At the end there is no time for patience.
      const timer = this.#options.clock.after(this.#isClosed ? Math.min(ms, HURRIED_PAUSE_MS) : ms, resolve);
      this.#hurry = () => {
        timer.cancel();
        resolve();
      };
    });
  }

  #taken(count: number, answer: Buffer): void {
    const rejected = this.#options.rejectedBy?.(answer);
    const lost = Math.min(rejected?.count ?? 0, count);
    this.#sent += count - lost;
    if (lost > 0) this.lose(lost, rejected!.why);
  }

  #tell(when: "now" | "if due"): void {
    if (this.#untold === 0) return;
    const { clock, quietMs } = this.#options;
    const now = clock.now();
    if (when === "if due" && now < this.#quietUntil) {
      this.#telling ??= clock.after(this.#quietUntil - now, () => this.#tell("now"));
      return;
    }
    this.#telling?.cancel();
    this.#telling = null;
    this.#quietUntil = now + quietMs;
    this.#options.report(this.#untold, this.#why);
    this.#untold = 0;
  }
}

/** First in, first out. An array that is shifted or spliced moves all that is behind, 0.1 to 0.9 ms at a million. */
class TextQueue {
  #texts: (string | null)[] = [];
  /** Those before it are gone. */
  #first = 0;
  #characters = 0;

  get length(): number {
    return this.#texts.length - this.#first;
  }

  get characters(): number {
    return this.#characters;
  }

  add(text: string): void {
    this.#texts.push(text);
    this.#characters += text.length;
  }

  /** The first that have come, so many at most. */
  take(count: number): string[] {
    const end = Math.min(this.#first + count, this.#texts.length);
    const taken = this.#texts.slice(this.#first, end) as string[];
    for (const text of taken) this.#characters -= text.length;
    // What is gone must not be held.
    this.#texts.fill(null, this.#first, end);
    this.#first = end;
    // Each is moved once on average.
    if (this.#first * 2 >= this.#texts.length) {
      this.#texts = this.#texts.slice(this.#first);
      this.#first = 0;
    }
    return taken;
  }
}

type Tried =
  | { readonly outcome: "taken"; readonly answer: Buffer }
  | { readonly outcome: "refused"; readonly why: string }
  /** `askedMs` is the pause that the server asks for; null: it does not. */
  | { readonly outcome: "failed"; readonly why: string; readonly askedMs: number | null };

const NOTHING = Buffer.alloc(0);
const TOO_LATE = "the time to send them is over";
const NO_ROOM = "there is no room for more: they come faster than they can be sent";

/** Seconds, or a date (RFC 9110 §10.2.3), within bounds; null where it says neither. */
function retryAfter(headers: HeaderList, wall: number): number | null {
  const text = headerValue(headers, "retry-after");
  if (text === undefined) return null;
  const ms = /^[0-9]+$/.test(text) ? Number(text) * 1000 : httpDate(text, wall) - wall;
  return Number.isNaN(ms) ? null : Math.min(Math.max(ms, SHORTEST_PAUSE_MS), LONGEST_PAUSE_MS);
}

/** What a server asks for in Retry-After is held to, between these: it must neither be besieged nor fill the queue. */
const SHORTEST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 30_000;
const HURRIED_PAUSE_MS = 100;
/** The end of the gateway waits for a second at most. */
const DRAIN_MS = 900;
const MAX_ANSWER_BYTES = 64 * 1024;

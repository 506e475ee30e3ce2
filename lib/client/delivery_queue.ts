/**
 * Sends texts (log lines, spans) to a server in batches from a bounded queue, retries with growing pauses, and counts
 * lost texts.
 */
import type { Clock, Timer } from "../base/clock.ts";
import type { Client, ClientAnswer, ClientFailure, ClientRequestOptions } from "./client.ts";
import { askedWait } from "../http/retry_after.ts";

export interface DeliveryQueueOptions {
  readonly clock: Clock;
  /** The request that sends a batch. */
  readonly request: Pick<ClientRequestOptions, "url" | "method" | "headers" | "timeoutMs">;
  /** Sends the batches, one at a time; is closed with the queue. */
  readonly client: Client;
  /** The server's name in the log: "the collector". */
  readonly receiver: string;
  /** Makes the body of a request. When it fails, the batch is lost. */
  readonly encode: (texts: readonly string[]) => Buffer | Promise<Buffer>;
  /** Most texts in a batch; a full batch is sent at once. */
  readonly batchSize: number;
  /** Longest time that a text waits for others, in milliseconds. */
  readonly batchMs: number;
  /** Most texts that wait. */
  readonly maxTexts: number;
  /** Most characters that wait; the text that exceeds them is still accepted. */
  readonly maxCharacters: number;
  /** Which texts are dropped when the queue is full: the new one, or the oldest ones. */
  readonly whenFull: "lose newest" | "lose oldest";
  /** Whether this status is retried. A try without an answer always is. */
  readonly isTransient: (status: number) => boolean;
  /** Milliseconds before each retry, unless Retry-After asks for others. After the last retry a batch is lost. */
  readonly pausesMs: readonly number[];
  /**
   * Numbers from 0 to below 1, which make pauses half to one and a half times as long, so that gateways differ.
   * Default: always 0.5.
   */
  readonly random?: () => number;
  /**
   * Reads from the body of a 2xx response which texts the server rejected. The body is empty if it did not arrive.
   * Default: none.
   */
  readonly rejectedBy?: (answer: Buffer) => Rejected;
  /** Called with new losses once in `quietMs`, and when the queue is closed. */
  readonly report: (lost: number, why: string) => void;
  readonly quietMs: number;
}

export interface Rejected {
  readonly count: number;
  readonly why: string;
}

export class DeliveryQueue {
  readonly #options: DeliveryQueueOptions;
  readonly #texts = new TextQueue();
  #timer: Timer | null = null;
  #sending: Promise<void> | null = null;
  #isClosed = false;
  #draining: Promise<void> | null = null;
  /** Aborts the batch that is being sent. */
  #cut = new AbortController();
  /** Ends the pause before another try. */
  #hurry = () => {};
  /** Texts that the server has accepted. */
  sent = 0;
  /** Texts that it has not accepted, or for which there was no room. */
  lost = 0;
  /** How many of those have not been reported, and why the last one was lost. */
  #unreported = 0;
  #why = "";
  #quietUntil = -Infinity;
  #reportLater: Timer | null = null;

  constructor(options: DeliveryQueueOptions) {
    this.#options = options;
  }

  get isFull(): boolean {
    return this.#texts.length >= this.#options.maxTexts || this.#texts.characters >= this.#options.maxCharacters;
  }

  /** Adds a text. Never waits. */
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

  /** Counts texts as lost; also called for texts that were lost before they reached the queue. */
  lose(count: number, why: string): void {
    this.lost += count;
    this.#unreported += count;
    this.#why = why;
    this.#report("if due");
  }

  /**
   * Sends the queued texts within a second and drops the rest. Texts added later are sent at once, also within a
   * second.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#hurry();
    await this.#drain();
    this.#report("now");
  }

  #drain(): Promise<void> {
    return (this.#draining ??= this.#sendRest().finally(() => {
      this.#draining = null;
      // A text may have been added since the last check.
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
    this.#options.client.close();
    this.#cut = new AbortController();
  }

  #sendLater(): void {
    this.#timer ??= this.#options.clock.after(this.#options.batchMs, () => this.#send());
  }

  /** One batch after the other, so that a slow server is not flooded. */
  #send(): void {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
      if (this.#texts.length > 0) this.#sendLater();
    });
  }

  /** Sends the texts that wait now, and full batches as long as there are some. */
  async #sendAll(): Promise<void> {
    const { batchSize } = this.#options;
    this.#timer?.cancel();
    this.#timer = null;
    do {
      await this.#deliver(this.#texts.take(batchSize));
    } while (this.#texts.length >= batchSize);
  }

  async #deliver(batch: readonly string[]): Promise<void> {
    const {
      encode,
      pausesMs,
      random = () => 0.5,
      rejectedBy = () => NONE_REJECTED,
      receiver,
      isTransient,
      clock,
      client,
      request,
    } = this.#options;
    let body: Buffer;
    try {
      body = await encode(batch);
    } catch (error) {
      return this.lose(batch.length, (error as Error).message);
    }
    let why = TOO_LATE;
    for (let tries = 0; !this.#cut.signal.aborted; tries++) {
      const answer = await answerTo(client, { ...request, body, signal: this.#cut.signal });
      let askedMs: number | null = null;
      if (answer instanceof Error) why = answer.message;
      else {
        const { status } = answer;
        if (status < 300) {
          const { count, why: reason } = rejectedBy(answer.body);
          const lost = Math.min(count, batch.length);
          this.sent += batch.length - lost;
          return lost > 0 ? this.lose(lost, reason) : undefined;
        }
        why = `${receiver} answered with status ${status}`;
        if (!isTransient(status)) break;
        askedMs = boundedPause(askedWait(answer.headers, clock.wall()));
      }
      const pauseMs = pausesMs[tries];
      if (pauseMs === undefined || this.#cut.signal.aborted) break;
      await this.#pause(askedMs ?? pauseMs * (0.5 + random()));
    }
    this.lose(batch.length, why);
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      // At the end there is no time for a pause.
      const timer = this.#options.clock.after(this.#isClosed ? Math.min(ms, HURRIED_PAUSE_MS) : ms, resolve);
      this.#hurry = () => {
        timer.cancel();
        resolve();
      };
    });
  }

  #report(when: "now" | "if due"): void {
    if (this.#unreported === 0) return;
    const { clock, quietMs } = this.#options;
    const now = clock.now();
    if (when === "if due" && now < this.#quietUntil) {
      this.#reportLater ??= clock.after(this.#quietUntil - now, () => this.#report("now"));
      return;
    }
    this.#reportLater?.cancel();
    this.#reportLater = null;
    this.#quietUntil = now + quietMs;
    this.#options.report(this.#unreported, this.#why);
    this.#unreported = 0;
  }
}

/**
 * The body of a request with these texts. They are written one by one: joined first they are a string of a megabyte,
 * which takes ten times as long to make and to encode.
 */
export function bodyWith(
  texts: readonly string[],
  [before, between, after]: readonly [string, string, string],
): Buffer {
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  const own = Buffer.byteLength(before) + between.length * Math.max(0, texts.length - 1) + after.length;
  const body = Buffer.allocUnsafeSlow(bytes + own);
  let end = body.write(before);
  texts.forEach((text, i) => {
    if (i > 0) end += body.write(between, end);
    end += body.write(text, end);
  });
  body.write(after, end);
  return body;
}

/** Asks, and reads at most 64 KiB of the answer, whose status decides where it cannot be read. Never rejects. */
export async function answerTo(
  client: Client,
  options: Omit<ClientRequestOptions, "maxBytes">,
): Promise<ClientAnswer | ClientFailure> {
  try {
    return await client.ask({ ...options, maxBytes: MAX_ANSWER_BYTES });
  } catch (error) {
    const failure = error as ClientFailure;
    const { status, headers } = failure;
    // Where only the answer's body failed, what the server has accepted must not be sent again.
    return status !== null && status >= 200 && status <= 599 ? { status, headers, body: NOTHING } : failure;
  }
}

/** First in, first out. Shifting or splicing an array moves all later items, 0.1 to 0.9 ms at a million. */
class TextQueue {
  #texts: (string | null)[] = [];
  #first = 0;
  characters = 0;

  get length(): number {
    return this.#texts.length - this.#first;
  }

  add(text: string): void {
    this.#texts.push(text);
    this.characters += text.length;
  }

  /** Removes and returns the oldest, at most `count`. */
  take(count: number): string[] {
    const end = Math.min(this.#first + count, this.#texts.length);
    const oldest = this.#texts.slice(this.#first, end) as string[];
    for (const text of oldest) this.characters -= text.length;
    // Removed texts must not stay in memory.
    this.#texts.fill(null, this.#first, end);
    this.#first = end;
    // Each is moved once on average.
    if (this.#first * 2 >= this.#texts.length) {
      this.#texts = this.#texts.slice(this.#first);
      this.#first = 0;
    }
    return oldest;
  }
}

const NOTHING = Buffer.alloc(0);
const NONE_REJECTED: Rejected = { count: 0, why: "" };
const TOO_LATE = "the time to send them is over";
const NO_ROOM = "there is no room for more: they come faster than they can be sent";

function boundedPause(ms: number | null): number | null {
  return ms === null ? null : Math.min(Math.max(ms, SHORTEST_PAUSE_MS), LONGEST_PAUSE_MS);
}

/** Bounds of a pause that a server asks for in Retry-After: it must neither be flooded nor fill the queue. */
const SHORTEST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 30_000;
const HURRIED_PAUSE_MS = 100;
/** The end of the gateway waits for a second at most. */
const DRAIN_MS = 900;
const MAX_ANSWER_BYTES = 64 * 1024;

/**
 * Entries of a log on their way out: waiting in a bounded queue, sent in batches, tried again a few times, given up and counted then.
 * What an entry says, and how a batch is sent, is `http_log.ts`.
 */
import type { Clock, Timer } from "../base/clock.ts";
import type { Kept } from "./plugin.ts";

export interface LogQueueOptions {
  readonly clock: Clock;
  readonly batchSize: number;
  /** How long an entry waits for others at most. */
  readonly flushMs: number;
  /** Most entries that wait; beyond that the oldest are dropped. */
  readonly maxQueue: number;
  /** Sends a batch; never rejects. */
  readonly send: (entries: readonly string[], signal: AbortSignal) => Promise<Sent>;
  /** Hears of entries that are lost, at most once in ten seconds, and at the end. */
  readonly report: (lost: number, why: string) => void;
  /** Frees what `send` uses. */
  readonly release: () => void;
}

/** "ok", or why not and whether another try may help. */
export type Sent = "ok" | { readonly why: string; readonly again: boolean };

export class LogQueue implements Kept {
  readonly #options: LogQueueOptions;
  #entries: string[] = [];
  #characters = 0;
  #timer: Timer | null = null;
  /** What waits goes now, full batch or not. */
  #isDue = false;
  #sending: Promise<void> | null = null;
  #isClosed = false;
  #cut = new AbortController();
  /** Ends the wait before another try. */
  #hurry = () => {};
  #lost = 0;
  #why = "";
  #quietUntil = -Infinity;

  constructor(options: LogQueueOptions) {
    this.#options = options;
  }

  /** Takes an entry, whatever has become of those before. Costs no waiting. */
  add(entry: string): void {
    const { batchSize, flushMs, maxQueue, clock } = this.#options;
    this.#entries.push(entry);
    this.#characters += entry.length;
    while (this.#entries.length > maxQueue || (this.#characters > MAX_CHARACTERS && this.#entries.length > 1)) {
      this.#characters -= this.#entries.shift()!.length;
      this.#lose(1, "they come faster than they can be sent");
    }
    if (this.#isClosed) void this.#drain();
    else if (this.#entries.length >= batchSize) this.#send();
    else if (this.#sending === null) this.#timer ??= clock.after(flushMs, () => this.#flush());
  }

  /** Sends what there is, within a time; entries of requests that end later are still sent. */
  close(): Promise<void> {
    this.#isClosed = true;
    this.#hurry();
    const drained = this.#drain();
    this.#options.release();
    return drained;
  }

  #flush(): void {
    this.#timer = null;
    this.#isDue = true;
    this.#send();
  }

  async #drain(): Promise<void> {
    this.#timer?.cancel();
    this.#flush();
    const { clock } = this.#options;
    const deadline = clock.after(DRAIN_MS, () => this.#cut.abort());
    while (this.#sending !== null) await this.#sending;
    deadline.cancel();
    this.#tell(true);
  }

  #send(): void {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
      this.#cut = new AbortController();
      if (this.#entries.length === 0) return;
      if (this.#isClosed) this.#flush();
      else this.#timer ??= this.#options.clock.after(this.#options.flushMs, () => this.#flush());
    });
  }

  async #sendAll(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    while (this.#entries.length >= this.#options.batchSize || (this.#isDue && this.#entries.length > 0)) {
      const batch = this.#entries.splice(0, this.#options.batchSize);
      for (const entry of batch) this.#characters -= entry.length;
      await this.#deliver(batch);
    }
    this.#isDue = false;
  }

  async #deliver(batch: readonly string[]): Promise<void> {
    for (let tries = 1; ; tries++) {
      const sent = this.#cut.signal.aborted ? { why: "the time to send them is over", again: false } : await this.#options.send(batch, this.#cut.signal);
      // What was lost while the log was quiet must not stay untold until more is lost.
      if (sent === "ok") return this.#tell(false);
      if (!sent.again || tries === MAX_TRIES || this.#cut.signal.aborted) return this.#lose(batch.length, sent.why);
      await this.#pause(FIRST_PAUSE_MS * 2 ** (tries - 1));
    }
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#options.clock.after(this.#isClosed ? SHORT_PAUSE_MS : ms, resolve);
      this.#hurry = () => {
        timer.cancel();
        resolve();
      };
    });
  }

  #lose(count: number, why: string): void {
    this.#lost += count;
    this.#why = why;
    this.#tell(false);
  }

  #tell(atOnce: boolean): void {
    const now = this.#options.clock.now();
    if (this.#lost === 0 || (!atOnce && now < this.#quietUntil)) return;
    this.#quietUntil = now + 10_000;
    this.#options.report(this.#lost, this.#why);
    this.#lost = 0;
  }
}

/** Of all entries that wait: heads of requests may be large. */
const MAX_CHARACTERS = 64 * 1024 * 1024;
const MAX_TRIES = 4;
const FIRST_PAUSE_MS = 500;
const SHORT_PAUSE_MS = 100;
/** The end of the gateway waits for a second at most. */
const DRAIN_MS = 900;

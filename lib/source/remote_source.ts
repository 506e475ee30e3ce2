/**
 * A configuration's text that a server has: asks for it again and again, keeps what was received last, and reports
 * changes.
 *
 * ```
 *             ask                    a text, none ("missing")
 *   waiting ───────► asking ──────────────────────────────────► listeners, where it is another than before
 *      ▲                │
 *      │ poll ± 20 %, or a change that the server reports
 *      └────────────────┤ no answer ("unreachable"): what was received stays
 *        0.5 s … 10 s ◄─┘
 * ```
 */
import type { Clock, Timer } from "../base/clock.ts";
import { ignore, messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import {
  SourceFailure,
  type SourceState,
  type SourceText,
  type TextServer,
  type TextSource,
} from "../config/text_source.ts";

export interface RemoteSourceOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** 0 to below 1. Default `Math.random`. */
  readonly random?: () => number;
  /**
   * Whether a text and its signature fit; a pair that does not is asked for once more at once: two files are replaced
   * one after the other. Default: each pair does.
   */
  readonly isPair?: (received: SourceText) => boolean;
  /** See `SourceState`. Default: none. */
  readonly plainSecret?: string | null;
  /**
   * How long after a change that the server reports it is asked, in milliseconds: gateways that hear of it at once do
   * not all ask and reload at once. Default 0.
   */
  readonly spreadMs?: number;
}

/** A text that was in force in an earlier run of the program. */
export interface TextCopy extends SourceText {
  /** In milliseconds since 1970. */
  readonly keptAt: number;
}

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 10_000;

export class RemoteSource implements TextSource {
  readonly name: string;
  readonly folder = null;
  readonly cause = "source";
  readonly #server: TextServer;
  readonly #options: RemoteSourceOptions;
  readonly #closing = new AbortController();
  readonly #listeners = new Set<() => void>();
  /** The last answer; null: there was none. */
  #received: SourceText | SourceFailure | null = null;
  /** What `current` gives in place of the last answer, until there is another one; null: nothing. */
  #copyInPlace: TextCopy | null = null;
  /** In whose place the copy is: what was refused at the start; null: there was no answer. */
  #refused: SourceText | SourceFailure | null = null;
  /** That is in force. */
  #copyInForce: TextCopy | null = null;
  #problem: SourceFailure | null = null;
  #failures = 0;
  #isUp = true;
  #since: number;
  #answeredAt: number | null = null;
  #revision: string | null = null;
  /** Resolves when nothing is asked. */
  #asking: Promise<void> = Promise.resolve();
  /** Asks once `#asking` is over. */
  #next: Promise<void> | null = null;
  #timer: Timer | null = null;
  #isWatching = false;
  /** Asks after a change that the server has reported. */
  #soon: Timer | null = null;
  /** Whether text and signature of the last answer do not fit. */
  #isUnfit = false;
  /** Whether there was a text once. */
  #hasHadText = false;
  /** Whether `current` gives another text than listeners know. */
  #isNews = false;
  /** Who reads the text itself after the next answer. */
  #readers = 0;
  readonly #texts = new WeakMap<Buffer, SourceText>();

  constructor(server: TextServer, options: RemoteSourceOptions) {
    this.name = server.name;
    this.#server = server;
    this.#options = options;
    this.#since = options.clock.wall();
  }

  get state(): SourceState {
    return {
      isUp: this.#isUp,
      since: this.#since,
      answeredAt: this.#answeredAt,
      revision: this.#revision,
      problem: this.#problem?.message ?? null,
      copy: this.#copyInForce && { keptAt: this.#copyInForce.keptAt },
      plainSecret: this.#options.plainSecret ?? null,
    };
  }

  *current(): Generator<void, SourceText> {
    const text = this.#copyInPlace ?? this.#received;
    if (text === null) throw this.#problem ?? new SourceFailure("unreachable", `${this.name} was not asked yet`);
    if (text instanceof SourceFailure) throw text;
    return text;
  }

  /** What was refused at the start is tried again. Listeners are not called: who calls this reads `current` then. */
  async refresh(): Promise<void> {
    this.#readers++;
    try {
      await this.#ask();
      this.#copyInPlace = null;
      this.#isNews = false;
    } finally {
      this.#readers--;
      // Of an answer before one that has failed.
      this.#report();
    }
  }

  #report(): void {
    if (!this.#isNews || this.#readers > 0) return;
    this.#isNews = false;
    for (const listener of this.#listeners) listener();
  }

  /** Calls while a question is on its way share the next one: the answer to the first may be older than a change. */
  #ask(): Promise<void> {
    this.#next ??= this.#asking.then(() => {
      this.#next = null;
      const asked = this.#askNow();
      this.#asking = asked.catch(ignore);
      return asked;
    });
    return this.#next;
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Until there is another answer than the one that was `refused`, `current` gives this text. */
  useCopy(copy: TextCopy, refused: SourceText | SourceFailure): void {
    this.#refused = refused instanceof SourceFailure && refused.kind === "unreachable" ? null : refused;
    this.#copyInPlace = copy;
    this.#copyInForce = copy;
  }

  /** Of the configuration that has come into force. Returns what was received with it; null: it is the copy. */
  taken(text: Buffer | string): SourceText | null {
    if (text === this.#copyInForce?.text) return null;
    this.#copyInForce = null;
    return typeof text === "string" ? null : (this.#texts.get(text) ?? null);
  }

  close(): void {
    this.#closing.abort();
    this.#timer?.cancel();
    this.#soon?.cancel();
    this.#listeners.clear();
    this.#server.close();
  }

  async #askNow(): Promise<void> {
    this.#timer?.cancel();
    try {
      if (this.#closing.signal.aborted) throw new SourceFailure("unreachable", `${this.name} is not asked any more`);
      const answer = await this.#askForPair();
      this.#answered(answer ?? this.#received);
    } catch (error) {
      const failure = error instanceof SourceFailure ? error : new SourceFailure("unreachable", messageOf(error));
      if (failure.kind === "unreachable") {
        this.#failed(failure);
        throw failure;
      }
      this.#answered(failure);
    } finally {
      this.#askLater();
      this.#report();
    }
  }

  async #askForPair(): Promise<SourceText | null> {
    const { signal } = this.#closing;
    const { isPair = () => true } = this.#options;
    // With an ETag of half a pair a server may say for ever that nothing has changed.
    if (this.#isUnfit) this.#server.forget?.();
    const answer = await this.#server.ask(signal);
    if (answer === null || (!this.#isUnfit && isSame(answer, this.#received))) return answer;
    this.#isUnfit = !isPair(answer);
    if (!this.#isUnfit || isSame(answer, this.#received)) return answer;
    this.#server.forget?.();
    // Where that fails, the next question says so.
    const again = await this.#server.ask(signal).catch(() => null);
    if (again !== null) this.#isUnfit = !isPair(again);
    return again ?? answer;
  }

  #answered(answer: SourceText | SourceFailure | null): void {
    const { clock, log } = this.#options;
    const now = clock.wall();
    if (!this.#isUp) {
      log.info("the source of the configuration answers again", {
        source: this.name,
        after_s: seconds(now - this.#since),
      });
      this.#since = now;
    }
    const hasText = answer !== null && !(answer instanceof SourceFailure);
    this.#isUp = true;
    this.#hasHadText ||= hasText;
    this.#failures = this.#hasHadText ? 0 : this.#failures + 1;
    this.#answeredAt = now;
    const before = this.#copyInPlace ?? this.#received;
    const isRefusedStill = this.#copyInPlace !== null && isSame(answer, this.#refused);
    this.#problem = answer instanceof SourceFailure ? answer : null;
    if (hasText) {
      this.#revision = answer.revision;
      this.#texts.set(answer.text, answer);
    }
    this.#received = answer;
    if (!this.#isWatching) this.#watch();
    // What was refused at the start is refused still: the copy stays in its place.
    if (isRefusedStill) return;
    this.#copyInPlace = null;
    if (isSame(answer, this.#copyInForce)) this.#copyInForce = null;
    this.#isNews ||= !isSame(before, answer);
  }

  #failed(failure: SourceFailure): void {
    const { clock, log } = this.#options;
    this.#failures++;
    const isNews = this.#isUp || (this.#received === null && this.#problem?.message !== failure.message);
    if (this.#isUp) this.#since = clock.wall();
    this.#isUp = false;
    this.#problem = failure;
    if (isNews && !this.#closing.signal.aborted)
      log.error("the source of the configuration does not answer", { source: this.name, error: failure.message });
  }

  #askLater(): void {
    const { clock } = this.#options;
    if (this.#closing.signal.aborted) return;
    const ms = this.#failures > 0 ? this.#delay(this.#failures) : this.#server.pollMs * this.#between(0.8, 1.2);
    this.#timer = clock.after(ms, () => void this.#ask().catch(ignore));
  }

  /** Follows the changes that the server reports; a watch that ends begins again. */
  #watch(): void {
    const { clock, spreadMs = 0 } = this.#options;
    const { signal } = this.#closing;
    if (this.#server.watch === undefined || signal.aborted) return;
    this.#isWatching = true;
    let failures = 0;
    const ask = () => {
      this.#soon = null;
      void this.#ask().catch(ignore);
    };
    const askSoon = () => {
      if (spreadMs === 0) ask();
      else this.#soon ??= clock.after(spreadMs, ask);
    };
    const watch = (): void => {
      const began = clock.now();
      this.#server.watch!(askSoon, signal)
        .catch(ignore)
        .finally(() => {
          // Also one that has reported a change may fail at once: only its duration says that it has worked.
          if (clock.now() - began > LONGEST_DELAY_MS) failures = 0;
          if (!signal.aborted) clock.after(this.#delay(++failures), watchAgain);
        });
    };
    const watchAgain = () => {
      if (signal.aborted) return;
      // What has changed in between. A server that does not answer is asked with the pauses of that.
      if (this.#isUp) ask();
      watch();
    };
    watch();
  }

  /** 0.5 s, doubled with each further failure up to 10 s, ± 20 %: gateways that failed together do not ask together. */
  #delay(failures: number): number {
    return Math.min(FIRST_DELAY_MS * 2 ** (failures - 1), LONGEST_DELAY_MS) * this.#between(0.8, 1.2);
  }

  #between(least: number, most: number): number {
    const { random = Math.random } = this.#options;
    return least + (most - least) * random();
  }
}

function isSame(a: SourceText | SourceFailure | null, b: SourceText | SourceFailure | null): boolean {
  if (a === b) return true;
  if (a === null || b === null) return false;
  if (a instanceof SourceFailure || b instanceof SourceFailure)
    return a instanceof SourceFailure && b instanceof SourceFailure;
  return a.signature === b.signature && a.text.equals(b.text);
}

function seconds(ms: number): number {
  return Math.round(ms / 1000);
}

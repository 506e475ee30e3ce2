/**
 * What name servers are asked for, again as the answers age: when, how soon after a failure, and for whom. Addresses of
 * hosts are `addresses.ts`, the targets of SRV records `service_records.ts`.
 */
import type { Timer } from "../base/clock.ts";
import { ignore } from "../base/errors.ts";
import type { LookUpTools } from "./contracts.ts";

/** All look-ups of one kind; all users of a name share one. */
export abstract class LookUps<One extends LookUp<unknown>> {
  readonly tools: Required<LookUpTools>;
  ttlMs: number;
  protected readonly all = new Map<string, One>();
  /** By whom they are retained. */
  readonly #held = new Map<object, ReadonlySet<One>>();

  constructor({ clock, log, random = Math.random, ttlMs = 30_000 }: LookUpTools) {
    this.tools = { clock, log, random, ttlMs };
    this.ttlMs = ttlMs;
  }

  /**
   * Looks these up from now on, new ones at once, and no others that the same owner has had. They are what the owner
   * uses, and not their names: by its name another one may have been made since. `ttlMs`: how old an answer may get, in
   * milliseconds, of all owners.
   */
  retain(wanted: Iterable<One>, ttlMs = this.ttlMs, owner: object = this): void {
    const isChanged = ttlMs !== this.ttlMs;
    this.ttlMs = ttlMs;
    if (isChanged) for (const each of this.all.values()) each.schedule();
    const before: ReadonlySet<One> = this.#held.get(owner) ?? NONE;
    const now = new Set(wanted);
    for (const each of now) if (!before.has(each)) each.hold();
    for (const each of before) if (!now.has(each)) each.release();
    if (now.size > 0) this.#held.set(owner, now);
    else this.#held.delete(owner);
  }

  /** Ends all look-ups and timers; the last answers stay. */
  close(): void {
    for (const owner of [...this.#held.keys()]) this.retain([], this.ttlMs, owner);
  }

  /** One that was forgotten is used: new users of its name get it, unless there is another one meanwhile. */
  remember(one: One): void {
    if (!this.all.has(one.name)) this.all.set(one.name, one);
  }

  /** Names that nobody retains: they came with configurations that have not come into force. */
  forgetUnused(): void {
    for (const each of this.all.values()) this.forgetIfUnused(each);
  }

  /**
   * A name is kept during its look-up: otherwise a new request for it would start a second look-up at the same time.
   */
  forgetIfUnused(one: LookUp<unknown>): void {
    if (one.isUnused && this.all.get(one.name) === one) this.all.delete(one.name);
  }
}

const NONE: ReadonlySet<never> = new Set();

/** One name that is looked up. */
export abstract class LookUp<Answer> {
  readonly name: string;
  protected readonly lookUps: LookUps<LookUp<Answer>>;
  /** The look-up in progress. */
  #looking: Promise<Answer> | null = null;
  #holders = 0;
  /** In a row. */
  #failures = 0;
  #endedAt = 0;
  /** In [0, 1): how much earlier than it has to be the next look-up is. */
  #jitter = 0;
  #timer: Timer | null = null;

  constructor(name: string, lookUps: LookUps<LookUp<Answer>>) {
    this.name = name;
    this.lookUps = lookUps;
  }

  /** Rejects where nothing is found. */
  protected abstract ask(): Promise<Answer>;

  /** A retained name has been looked up. `failures`: in a row, before this one. */
  protected abstract ended(answer: Answer | null, error: Error | null, failures: number): void;

  get isUnused(): boolean {
    return this.#holders === 0 && this.#looking === null;
  }

  protected get isRetained(): boolean {
    return this.#holders > 0;
  }

  hold(): void {
    if (this.#holders++ > 0) return;
    this.lookUps.remember(this);
    this.look().catch(ignore);
  }

  release(): void {
    if (--this.#holders > 0) return;
    this.#timer?.cancel();
    this.released();
    this.lookUps.forgetIfUnused(this);
  }

  /** Nobody retains it any more. */
  protected released(): void {}

  /** Sets the timer of the next look-up, counted from the end of the last one. */
  schedule(): void {
    if (this.#looking !== null || this.#holders === 0) return;
    const { ttlMs, tools } = this.lookUps;
    const { clock } = tools;
    // After a failure 1 s, 2 s, 4 s, …: a name that fails at the start is most often one whose service is starting too.
    const wait = this.#failures === 0 ? ttlMs : Math.min(FIRST_RETRY_MS * 2 ** (this.#failures - 1), ttlMs);
    this.#timer?.cancel();
    const dueAt = this.#endedAt + wait * (1 - JITTER * this.#jitter);
    this.#timer = clock.after(Math.max(0, dueAt - clock.now()), () => void this.look().catch(ignore));
  }

  /** The answer of the look-up in progress, or of a new one; rejects with its error. */
  protected look(): Promise<Answer> {
    this.#timer?.cancel();
    return (this.#looking ??= this.ask().then(
      (answer) => this.#end(answer, null),
      (error: Error) => this.#end(null, error),
    ) as Promise<Answer>);
  }

  #end(answer: Answer | null, error: Error | null): Answer | null {
    const { clock, random } = this.lookUps.tools;
    this.#looking = null;
    if (this.#holders === 0) this.lookUps.forgetIfUnused(this);
    else {
      const failures = this.#failures;
      this.#failures = error === null ? 0 : failures + 1;
      this.#endedAt = clock.now();
      this.#jitter = random();
      this.schedule();
      this.ended(answer, error, failures);
    }
    if (error !== null) throw error;
    return answer;
  }
}

const FIRST_RETRY_MS = 1000;
/** Each look-up is up to a tenth early, so that names that were looked up together drift apart. */
const JITTER = 0.1;

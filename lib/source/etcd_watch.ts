/**
 * Watches keys of etcd: says what their states are, after each change and every five seconds.
 *
 * A watch alone proves nothing: over HTTP/1.1 it cannot be asked whether it still lives, a proxy may hold its lines
 * back, and a cluster that was made of a backup counts its revisions anew. So it only says when to look. What decides
 * are revisions that a linearizable request reads, after each event and every five seconds besides; they are compared
 * with those that were known before, never advanced by anything else.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import { isObject } from "../json_schema/values.ts";
import type { EtcdClient } from "./etcd_client.ts";
import { EtcdFailure } from "./etcd_failure.ts";
import type { EtcdMessage, JsonLine } from "./json_lines.ts";

/** What a look finds besides the states of keys. */
export interface Moment {
  /** As in `ConfigState`. */
  readonly cluster: string;
  /** Of the whole cluster. */
  readonly revision: number;
}

interface KeyWatchOptions<State extends Moment> {
  readonly client: EtcdClient;
  readonly clock: Clock;
  /** The members `key` and perhaps `range_end` of each watch. */
  readonly ranges: readonly EtcdMessage[];
  /** The states at this moment. */
  readonly look: (signal: AbortSignal) => Promise<State>;
  /** Whether nothing was written in between. */
  readonly isSame: (one: State, other: State) => boolean;
  /** Called with what each look has found, before the next one begins. */
  readonly seen: (state: State) => Promise<void> | void;
  /**
   * Called when the member, or the way to it, has ended a stream that had begun: the cluster may have been restored
   * from a backup, which has the same revisions for other values.
   */
  readonly onEnd: () => void;
}

/** Resolves once `signal` is aborted. Rejects with what `look` and `seen` reject with. */
export async function watchKeys<State extends Moment>(
  { client, clock, ranges, look, isSame, seen, onEnd }: KeyWatchOptions<State>,
  signal: AbortSignal,
): Promise<void> {
  const messages = (revision: number) =>
    ranges.map((range) => ({ create_request: { ...range, start_revision: String(revision) } }));
  const watch = new Watch<State>(client, clock, { messages, isSame, onEnd }, signal);
  try {
    let last: State | null = null;
    while (!signal.aborted) {
      const state = await look(signal);
      await seen(state);
      if (signal.aborted) return;
      watch.follow(state, last);
      last = state;
      await watch.event();
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    watch.close();
  }
}

interface StreamOptions<State extends Moment> extends Pick<KeyWatchOptions<State>, "isSame" | "onEnd"> {
  /** What asks for the events from this revision on. */
  readonly messages: (revision: number) => readonly EtcdMessage[];
}

interface OpenStream {
  readonly member: string;
  readonly openedAt: number;
  readonly abort: AbortController;
  /** A line of it has come. */
  hasBegun: boolean;
  /** Since the last look. */
  hadEvent: boolean;
}

/** The stream of events, opened again as often as it ends; and when to look whether it has missed something. */
class Watch<State extends Moment> {
  readonly #client: EtcdClient;
  readonly #clock: Clock;
  readonly #options: StreamOptions<State>;
  readonly #signal: AbortSignal;
  /** Null: none is open. */
  #stream: OpenStream | null = null;
  #opensAt = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #isDue = false;
  #wake: (() => void) | null = null;

  constructor(client: EtcdClient, clock: Clock, options: StreamOptions<State>, signal: AbortSignal) {
    this.#client = client;
    this.#clock = clock;
    this.#options = options;
    this.#signal = signal;
    signal.addEventListener("abort", this.#onAbort);
  }

  /** Opens the stream where there is none that can be relied on. `last`: what was seen before. */
  follow(seen: State, last: State | null): void {
    const stream = this.#stream;
    if (stream !== null) {
      const isElsewhere = stream.member !== this.#client.member;
      const isCountedAnew = last !== null && (seen.cluster !== last.cluster || seen.revision < last.revision);
      // What holds lines back may serve the next stream, too: the next member is asked.
      const hasMissed = last !== null && !this.#options.isSame(last, seen) && !stream.hadEvent;
      stream.hadEvent = false;
      if (hasMissed) this.#client.leave(stream.member);
      if (!isElsewhere && !isCountedAnew && !hasMissed) return;
      this.#stream = null;
      stream.abort.abort();
    }
    if (this.#clock.now() >= this.#opensAt) this.#open(seen.revision + 1);
  }

  /** Resolves with an event, with the end of the stream, or when it is time to look in any case. */
  event(): Promise<void> {
    const ms = this.#stream === null ? Math.min(LOOK_MS, Math.max(0, this.#opensAt - this.#clock.now())) : LOOK_MS;
    return new Promise((resolve) => {
      if (this.#isDue || this.#signal.aborted) {
        this.#isDue = false;
        return resolve();
      }
      let timer: Timer | null = null;
      this.#wake = () => {
        timer?.cancel();
        this.#wake = null;
        this.#isDue = false;
        resolve();
      };
      timer = this.#clock.after(ms, this.#wake);
    });
  }

  close(): void {
    this.#signal.removeEventListener("abort", this.#onAbort);
    this.#stream?.abort.abort();
    this.#stream = null;
    this.#due();
  }

  readonly #onAbort = entry("the end of a watch", () => this.close());

  #open(revision: number): void {
    const { member } = this.#client;
    const abort = new AbortController();
    const stream = { member, abort, hasBegun: false, hadEvent: false, openedAt: this.#clock.now() };
    this.#stream = stream;
    const receive = (line: JsonLine) => {
      if (this.#stream !== stream) return;
      stream.hasBegun = true;
      const what = meaningOf(line);
      if (what === "nothing") return;
      if (what === "ended") return abort.abort();
      stream.hadEvent = true;
      this.#due();
    };
    this.#client
      .stream("/v3/watch", this.#options.messages(revision), receive, abort.signal)
      .catch((error: unknown) => this.#ended(stream, error))
      .catch(this.#unexpected);
  }

  #ended(stream: OpenStream, error: unknown): void {
    if (this.#stream !== stream) return;
    this.#stream = null;
    const now = this.#clock.now();
    if (now - stream.openedAt > LOOK_MS) this.#pauseMs = FIRST_PAUSE_MS;
    this.#opensAt = now + this.#pauseMs;
    this.#pauseMs = Math.min(2 * this.#pauseMs, LOOK_MS);
    if (!(error instanceof EtcdFailure)) throw error;
    if (error.kind === "unreachable") {
      this.#client.leave(stream.member);
      if (stream.hasBegun) this.#options.onEnd();
    }
    this.#due();
  }

  /** It looks every five seconds in any case. */
  readonly #unexpected = (): void => this.#due();

  #due(): void {
    this.#isDue = true;
    this.#wake?.();
  }
}

/**
 * What a line of a watch says. "ended": etcd has cancelled a watch, since its revision was compacted or its user may
 * not read any more.
 */
function meaningOf(line: JsonLine): "event" | "ended" | "nothing" {
  if (line === "long") return "event";
  const { result } = line.object;
  if (!isObject(result) || result.canceled === true) return "ended";
  return Array.isArray(result.events) && result.events.length > 0 ? "event" : "nothing";
}

/** A watch that hangs is noticed by then. */
const LOOK_MS = 5_000;
const FIRST_PAUSE_MS = 500;

/**
 * A key of etcd that has the text of a configuration, with its signature in a second one: read in one transaction, and
 * watched.
 *
 * A watch alone proves nothing: over HTTP/1.1 it cannot be asked whether it still lives, a proxy may hold its lines
 * back, and a cluster that was made of a backup counts its revisions anew. So it only says when to look. What decides
 * are revisions that a linearizable transaction reads, after each event and every five seconds besides; they are
 * compared with those of the text that was read last, never advanced by anything else.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import type { Log } from "../base/log.ts";
import type { SourceSettings } from "../config/settings_types.ts";
import { SourceFailure, type SourceText, type TextServer } from "../config/text_source.ts";
import { isObject } from "../json_schema/values.ts";
import { EtcdClient, type EtcdOptions } from "./etcd_client.ts";
import { EtcdFailure } from "./etcd_failure.ts";
import { etcdOptions } from "./etcd_options.ts";
import { base64, configState, isSame, readBoth, signatureKey, type ConfigState } from "./etcd_keys.ts";
import type { JsonLine } from "./json_lines.ts";

export interface EtcdServerOptions extends EtcdOptions {
  /** For messages: "etcd://10.0.0.1:2379/edge/gw.json". */
  readonly name: string;
  readonly key: string;
  /** See `TextServer`. */
  readonly pollMs: number;
}

export class EtcdServer implements TextServer {
  readonly name: string;
  readonly pollMs: number;
  readonly #key: string;
  readonly #clock: Clock;
  readonly #client: EtcdClient;
  /** Of the last answer; null: there was none. */
  #known: ConfigState | null = null;
  /**
   * A stream of events has ended: the cluster may have been restored from a backup, which has the same revisions for
   * other texts.
   */
  #isUnsure = false;

  constructor(options: EtcdServerOptions) {
    this.name = options.name;
    this.pollMs = options.pollMs;
    this.#key = options.key;
    this.#clock = options.clock;
    this.#client = new EtcdClient(options);
  }

  async ask(signal: AbortSignal): Promise<SourceText | null> {
    const began = this.#clock.now();
    const seen = await this.#look(signal);
    const before = this.#known;
    if (seen.text.modRevision === 0) throw this.#missing(seen, `etcd has no key "${this.#key}"`);
    const isKnown = before !== null && isSame(before, seen) && before.text.value?.length !== 0;
    if (isKnown && !this.#isUnsure) return null;
    this.#isUnsure = false;
    const read = await this.#inWords(async () => {
      const left = ASK_MS - (this.#clock.now() - began);
      const options = { maxBytes: MAX_ANSWER_BYTES, limitMs: left, memberMs: left, signal };
      return configState(await this.#client.call("/v3/kv/txn", readBoth(this.#key, "texts"), options), "texts");
    });
    const { text, signature } = read;
    if (text.modRevision === 0) throw this.#missing(read, `etcd has no key "${this.#key}"`);
    if (text.value!.length === 0) throw this.#missing(read, `the key "${this.#key}" of etcd is empty`);
    this.#known = withoutText(read);
    return {
      text: text.value!,
      signature: signature.modRevision === 0 ? null : signature.value!.toString(),
      revision: `rev:${text.modRevision}`,
    };
  }

  async watch(changed: () => void, signal: AbortSignal): Promise<void> {
    const onEnd = () => void (this.#isUnsure = true);
    const watch = new Watch(this.#client, this.#clock, { watch: watchBoth(this.#key), onEnd }, signal);
    try {
      let last: ConfigState | null = null;
      while (!signal.aborted) {
        const seen = await this.#look(signal);
        if (this.#known === null || this.#isUnsure || !isSame(this.#known, seen)) changed();
        watch.follow(seen, last);
        last = seen;
        await watch.event();
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      watch.close();
    }
  }

  close(): void {
    this.#client.close();
  }

  /** The revisions at this moment. Rejects with a `SourceFailure`. */
  #look(signal: AbortSignal): Promise<ConfigState> {
    return this.#inWords(async () =>
      configState(await this.#client.call("/v3/kv/txn", readBoth(this.#key, "revisions"), { signal }), "revisions"),
    );
  }

  #missing(state: ConfigState, message: string): SourceFailure {
    this.#known = withoutText(state);
    return new SourceFailure("missing", `${message}: publish a configuration there`);
  }

  async #inWords<T>(ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      throw error instanceof EtcdFailure ? new SourceFailure("unreachable", error.message) : error;
    }
  }
}

/** Of the text only whether it is empty: it may have megabytes. */
function withoutText(state: ConfigState): ConfigState {
  const { value } = state.text;
  return {
    ...state,
    text: { ...state.text, value: value === null || value.length > 0 ? null : value },
    signature: { ...state.signature, value: null },
  };
}

/** Two watches of one request, by one revision. */
function watchBoth(key: string) {
  return (revision: number) =>
    [key, signatureKey(key)].map((name) => ({
      create_request: { key: base64(name), start_revision: String(revision) },
    }));
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
class Watch {
  readonly #client: EtcdClient;
  readonly #clock: Clock;
  readonly #messages: ReturnType<typeof watchBoth>;
  readonly #onEnd: () => void;
  readonly #signal: AbortSignal;
  /** Null: none is open. */
  #stream: OpenStream | null = null;
  #opensAt = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #isDue = false;
  #wake: (() => void) | null = null;

  /** `onEnd` is called when the member, or the way to it, has ended a stream that had begun. */
  constructor(
    client: EtcdClient,
    clock: Clock,
    { watch, onEnd }: { readonly watch: ReturnType<typeof watchBoth>; readonly onEnd: () => void },
    signal: AbortSignal,
  ) {
    this.#client = client;
    this.#clock = clock;
    this.#messages = watch;
    this.#onEnd = onEnd;
    this.#signal = signal;
    signal.addEventListener("abort", this.#onAbort);
  }

  /** Opens the stream where there is none that can be relied on. `last`: what was seen before. */
  follow(seen: ConfigState, last: ConfigState | null): void {
    const stream = this.#stream;
    if (stream !== null) {
      const isElsewhere = stream.member !== this.#client.member;
      const isCountedAnew = last !== null && (seen.cluster !== last.cluster || seen.revision < last.revision);
      // What holds lines back may serve the next stream, too: the next member is asked.
      const hasMissed = last !== null && !isSame(last, seen) && !stream.hadEvent;
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
      .stream("/v3/watch", this.#messages(revision), receive, abort.signal)
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
      if (stream.hasBegun) this.#onEnd();
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

/** The key that settings name. */
export function openEtcd(settings: SourceSettings, _log: Log, clock: Clock): TextServer {
  const { url, pollMs } = settings;
  return new EtcdServer({ ...etcdOptions(settings, clock), name: url.name, key: url.path, pollMs });
}

/** A watch that hangs is noticed by then. */
const LOOK_MS = 5_000;
const FIRST_PAUSE_MS = 500;
/** A question to a source ends within 10 s. */
const ASK_MS = 9_500;
/** A text of 64 MiB in base64, a signature, and what is around them. */
const MAX_ANSWER_BYTES = 90 * 1024 * 1024;

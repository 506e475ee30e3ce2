/**
 * A key of etcd that has the text of a configuration, with its signature in a second one: read in one transaction, and
 * watched.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { SourceSettings } from "../config/settings_types.ts";
import { SourceFailure, type SourceText, type TextServer } from "../config/text_source.ts";
import { EtcdClient, type EtcdOptions } from "./etcd_client.ts";
import { EtcdFailure } from "./etcd_failure.ts";
import { etcdOptions } from "./etcd_options.ts";
import { base64, configState, isSame, readBoth, signatureKey, type ConfigState } from "./etcd_keys.ts";
import { watchKeys } from "./etcd_watch.ts";

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
    const left = ASK_MS - (this.#clock.now() - began);
    if (left <= 0) throw new SourceFailure("unreachable", `no answer within ${ASK_MS / 1000} s`);
    const read = await this.#inWords(async () => {
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

  watch(changed: () => void, signal: AbortSignal): Promise<void> {
    return watchKeys(
      {
        client: this.#client,
        clock: this.#clock,
        ranges: [this.#key, signatureKey(this.#key)].map((key) => ({ key: base64(key) })),
        look: (ends) => this.#look(ends),
        isSame,
        seen: (state) => {
          if (this.#known === null || this.#isUnsure || !isSame(this.#known, state)) changed();
        },
        onEnd: () => void (this.#isUnsure = true),
      },
      signal,
    );
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

/** The key that settings name. */
export function openEtcd(settings: SourceSettings, _log: Log, clock: Clock): TextServer {
  const { url, pollMs } = settings;
  return new EtcdServer({ ...etcdOptions(settings, clock), name: url.name, key: url.path, pollMs });
}

/** A question to a source ends within 10 s. */
const ASK_MS = 9_500;
/** A text of 64 MiB in base64, a signature, and what is around them. */
const MAX_ANSWER_BYTES = 90 * 1024 * 1024;

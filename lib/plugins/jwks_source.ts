/**
 * Fetches the keys of an issuer from its `jwks_uri`: for the first token, when they are old, and when a token names an unknown key. While
 * the issuer fails, fetches become less frequent and the last keys stay valid.
 */
import { hash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Client } from "../client/client.ts";
import type { Call } from "../http/exchange.ts";
import { keysOf, type Algorithm, type KeySet } from "./jwt_keys.ts";
import { hostOf } from "./endpoint.ts";
import type { KeptState } from "./plugin.ts";

interface JwksSourceOptions {
  readonly url: string;
  readonly algorithms: readonly Algorithm[];
  readonly clock: Clock;
  readonly log: Log;
  /** Names the plugin in the log. */
  readonly plugin: string;
  /** Asks the issuer, and is closed with the source. */
  readonly client: Client;
}

export class JwksSource implements KeptState {
  readonly #options: JwksSourceOptions;
  #keys: KeySet | null = null;
  /** SHA-256 of the text that the keys were read from. */
  #digest = "";
  #fetchedAt = -Infinity;
  /** No fetch before then. */
  #nextAt = -Infinity;
  #failures = 0;
  #fetching: { readonly done: Promise<void>; readonly controller: AbortController } | null = null;
  #waiting = 0;
  #isClosed = false;

  constructor(options: JwksSourceOptions) {
    this.#options = options;
  }

  /** The current keys; null before the first fetch. */
  current(): KeySet | null {
    const now = this.#options.clock.now();
    if (this.#keys !== null && !this.#isClosed && now - this.#fetchedAt >= REFRESH_MS && now >= this.#nextAt) this.#fetch();
    return this.#keys;
  }

  /** Resolves with the keys of another fetch, or with the current keys if it fails; null when it is too early for a fetch. */
  more(call: Call): Promise<KeySet | null> | null {
    if (this.#fetching === null && this.#options.clock.now() < this.#nextAt) return null;
    const { done } = this.#fetch();
    this.#waiting++;
    return new Promise((resolve) => {
      let isOver = false;
      const over = () => {
        if (isOver) return;
        isOver = true;
        this.#waiting--;
        this.#abortUnawaited();
        resolve(this.#keys);
      };
      void done.then(over);
      call.onAbort(over);
    });
  }

  /** Ends a fetch that no request waits for; waiting requests still get their keys. */
  close(): void {
    this.#isClosed = true;
    this.#abortUnawaited();
    this.#options.client.close();
  }

  #abortUnawaited(): void {
    if (this.#isClosed && this.#waiting === 0) this.#fetching?.controller.abort();
  }

  #fetch(): { readonly done: Promise<void> } {
    if (this.#fetching !== null) return this.#fetching;
    const controller = new AbortController();
    const done = this.#fetchKeys(controller.signal).finally(() => {
      this.#fetching = null;
    });
    this.#fetching = { done, controller };
    return this.#fetching;
  }

  /** Never rejects. */
  async #fetchKeys(signal: AbortSignal): Promise<void> {
    const { url, algorithms, clock, log, plugin, client } = this.#options;
    try {
      const headers = ["Accept", "application/jwk-set+json, application/json"];
      const { status, body } = await client.ask({ url: new URL(url), headers, timeoutMs: TIMEOUT_MS, maxBytes: MAX_BYTES, signal });
      if (status !== 200) throw new Error(`it answered with status ${status}`);
      const digest = hash("sha256", body);
      if (digest !== this.#digest || this.#keys === null) {
        const keys = keysOf(body.toString(), algorithms);
        if (typeof keys === "string") throw new Error(`its answer ${keys}`);
        this.#keys = keys;
        this.#digest = digest;
      }
      if (this.#failures > 0) log.info("jwt has keys from its issuer again", { plugin, host: hostOf(url) });
      this.#failures = 0;
      this.#fetchedAt = clock.now();
      this.#nextAt = this.#fetchedAt + MIN_INTERVAL_MS;
    } catch (error) {
      if (signal.aborted) return;
      this.#nextAt = clock.now() + Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** Math.min(this.#failures++, 10));
      const fields = { plugin, host: hostOf(url), error: (error as Error).message };
      log.warn(`jwt cannot fetch the keys of its issuer; ${this.#keys === null ? "it has none" : "it keeps using the cached keys"}`, fields);
    }
  }
}

/** Age at which keys are fetched again. */
const REFRESH_MS = 10 * 60_000;
/** Between two fetches, however many tokens name unknown keys: clients cannot make the gateway flood the issuer. */
const MIN_INTERVAL_MS = 10_000;
const FIRST_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 60_000;
const TIMEOUT_MS = 5_000;
const MAX_BYTES = 512 * 1024;

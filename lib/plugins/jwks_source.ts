/**
 * Fetches the keys of an issuer from its `jwks_uri`: for the first token, when they are old, and when a token names an
 * unknown key. While the issuer fails, fetches become less frequent and the last keys stay valid.
 */
import { hash } from "node:crypto";
import type { Client } from "../client/client.ts";
import type { Call } from "../http/exchange.ts";
import { keysOf, type Algorithm, type KeySet } from "./jwt_keys.ts";
import { hostOf } from "./endpoint.ts";
import type { KeptState, Tools } from "./plugin.ts";

interface JwksSourceOptions extends Pick<Tools, "clock" | "log" | "scope"> {
  /** The plugin kind, for logs. */
  readonly kind: string;
  readonly url: string;
  readonly algorithms: readonly Algorithm[];
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
    if (this.#keys !== null && !this.#isClosed && now - this.#fetchedAt >= REFRESH_MS && now >= this.#nextAt)
      this.#fetch();
    return this.#keys;
  }

  /**
   * Resolves with the keys of another fetch, or with the current keys if it fails; null when it is too early for a
   * fetch.
   */
  more(call: Pick<Call, "onAbort">): Promise<KeySet | null> | null {
    if (this.#fetching === null && this.#options.clock.now() < this.#nextAt) return null;
    const done = this.#fetch();
    this.#waiting++;
    return Promise.race([done, new Promise<void>((resolve) => call.onAbort(resolve))]).then(() => {
      this.#waiting--;
      this.#abortUnawaited();
      return this.#keys;
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

  #fetch(): Promise<void> {
    if (this.#fetching === null) {
      const controller = new AbortController();
      this.#fetching = {
        done: this.#fetchKeys(controller.signal).finally(() => void (this.#fetching = null)),
        controller,
      };
    }
    return this.#fetching.done;
  }

  /** Never rejects. */
  async #fetchKeys(signal: AbortSignal): Promise<void> {
    const { kind, url, algorithms, clock, log, scope, client } = this.#options;
    const named = { plugin: scope.path, host: hostOf(url) };
    try {
      const headers = ["Accept", "application/jwk-set+json, application/json"];
      const { status, body } = await client.ask({
        url: new URL(url),
        headers,
        timeoutMs: TIMEOUT_MS,
        maxBytes: MAX_BYTES,
        signal,
      });
      if (status !== 200) throw new Error(`it answered with status ${status}`);
      const digest = hash("sha256", body);
      if (digest !== this.#digest || this.#keys === null) {
        const keys = keysOf(body.toString(), algorithms);
        if (typeof keys === "string") throw new Error(`its answer ${keys}`);
        this.#keys = keys;
        this.#digest = digest;
      }
      if (this.#failures > 0) log.info(`${kind} has keys from its issuer again`, named);
      this.#failures = 0;
      this.#fetchedAt = clock.now();
      this.#nextAt = this.#fetchedAt + MIN_INTERVAL_MS;
    } catch (error) {
      if (signal.aborted) return;
      this.#nextAt = clock.now() + Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** Math.min(this.#failures++, 10));
      const so = this.#keys === null ? "it has none" : "it keeps using the cached keys";
      log.warn(`${kind} cannot fetch the keys of its issuer; ${so}`, { ...named, error: (error as Error).message });
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

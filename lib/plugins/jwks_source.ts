/**
 * Fetches the keys of an issuer from its `jwks_uri`: for the first token, when they are old, and when a token names an
 * unknown key. While the issuer fails, fetches become less frequent and the last keys stay valid.
 */
import { hash } from "node:crypto";
import type { Client } from "../client/client.ts";
import type { Call } from "../http/exchange.ts";
import { keysOf, type Algorithm, type KeySet } from "./jwt_keys.ts";
import { serverOf, answerText } from "./endpoint.ts";
import type { KeptState, Tools } from "./plugin.ts";
import { BackOff, SingleFlight } from "./single_flight.ts";

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
  readonly #backOff: BackOff;
  readonly #fetches = new SingleFlight<void>();
  #keys: KeySet | null = null;
  /** SHA-256 of the text that the keys were read from. */
  #digest = "";
  #fetchedAt = -Infinity;
  #isClosed = false;

  constructor(options: JwksSourceOptions) {
    this.#options = options;
    const { scope, url } = options;
    this.#backOff = new BackOff(options, { plugin: scope.path, host: serverOf(url) }, FIRST_BACKOFF_MS);
  }

  /** The current keys; null before the first fetch. */
  current(): KeySet | null {
    const isOld = this.#keys !== null && this.#options.clock.now() - this.#fetchedAt >= REFRESH_MS;
    if (isOld && !this.#isClosed && !this.#backOff.isPausing) void this.#fetches.join("", this.#fetch);
    return this.#keys;
  }

  /**
   * Resolves with the keys of another fetch, or with the current keys if it fails; null when it is too early for a
   * fetch.
   */
  more(call: Pick<Call, "onAbort">): Promise<KeySet | null> | null {
    if (this.#fetches.current("") === undefined && this.#backOff.isPausing) return null;
    return this.#fetches.wait("", call, undefined, this.#fetch).then(() => this.#keys);
  }

  /** Ends a fetch that no request waits for; waiting requests still get their keys. */
  close(): void {
    this.#isClosed = true;
    this.#fetches.close();
    this.#options.client.close();
  }

  /** Never rejects. */
  readonly #fetch = async (signal: AbortSignal): Promise<void> => {
    const { kind, url, algorithms, clock, client } = this.#options;
    try {
      const headers = ["Accept", "application/jwk-set+json, application/json"];
      const request = { url: new URL(url), headers, timeoutMs: TIMEOUT_MS, maxBytes: MAX_BYTES, signal };
      const answer = await client.ask(request);
      if (answer.status !== 200) throw new Error(`it answered with status ${answer.status}`);
      const digest = hash("sha256", answer.body);
      if (digest !== this.#digest || this.#keys === null) {
        const keys = keysOf(answerText(answer, MAX_BYTES), algorithms);
        if (typeof keys === "string") throw new Error(`its answer ${keys}`);
        this.#keys = keys;
        this.#digest = digest;
      }
      this.#fetchedAt = clock.now();
      this.#backOff.worked(`${kind} has keys from its issuer again`, MIN_INTERVAL_MS);
    } catch (error) {
      if (signal.aborted) return;
      const so = this.#keys === null ? "it has none" : "it keeps using the cached keys";
      this.#backOff.warn(`${kind} cannot fetch the keys of its issuer; ${so}`, error);
    }
  };
}

/** Age at which keys are fetched again. */
const REFRESH_MS = 10 * 60_000;
/** Between two fetches, however many tokens name unknown keys: clients cannot make the gateway flood the issuer. */
const MIN_INTERVAL_MS = 10_000;
const FIRST_BACKOFF_MS = 1_000;
const TIMEOUT_MS = 5_000;
const MAX_BYTES = 512 * 1024;

/**
 * The entry of this gateway among those of its fleet: written to etcd under a lease, and taken back at its end. What
 * happens to it never is in the way of anything else.
 *
 * ```
 *            no lease ──── grant ────► leased ◄── put, where the entry is another one
 *               ▲                        │   ◄── keepalive, every 10 s
 *               └── the lease is lost ───┘
 * ```
 */
import type { Clock, Timer } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { isObject } from "../json_schema/values.ts";
import type { EtcdClient } from "./etcd_client.ts";
import { EtcdFailure } from "./etcd_failure.ts";
import { base64, entriesBelow } from "./etcd_keys.ts";
import type { FleetEntry } from "./fleet_entries.ts";

export interface OwnEntryOptions {
  readonly client: EtcdClient;
  /** Of the configuration. */
  readonly key: string;
  /** Of the gateway: what its entry is found by. */
  readonly id: string;
  readonly clock: Clock;
  readonly log: Log;
  /** What the entry is to have now. */
  readonly entry: () => Promise<FleetEntry>;
}

export class OwnEntry {
  readonly #options: OwnEntryOptions;
  readonly #closing = new AbortController();
  /** int64 as text; null: there is none. */
  #lease: string | null = null;
  /** What etcd has of the entry; null: it is not known. */
  #written: string | null = null;
  #renewedAt = 0;
  #failures = 0;
  #timer: Timer | null = null;
  #working: Promise<void> = Promise.resolve();

  /** It begins at once. */
  constructor(options: OwnEntryOptions) {
    this.#options = options;
    this.#work();
  }

  /** Takes the entry back, within a second. Never rejects. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#timer?.cancel();
    await this.#working;
    const { client } = this.#options;
    const lease = this.#lease;
    this.#lease = null;
    // Without an answer it ends with the lease.
    if (lease !== null)
      await client.call("/v3/lease/revoke", { ID: lease }, { limitMs: LAST_MS, memberMs: LAST_MS }).catch(() => {});
    client.close();
  }

  #work(): void {
    this.#timer = null;
    this.#working = this.#step().then(
      () => this.#succeeded(),
      (error: unknown) => this.#failed(error),
    );
    void this.#working.then(() => {
      if (this.#closing.signal.aborted) return;
      const pause = Math.min(LOOK_MS * 2 ** this.#failures, LONGEST_PAUSE_MS);
      this.#timer = this.#options.clock.after(pause, () => this.#work());
    });
  }

  async #step(): Promise<void> {
    const { clock, entry } = this.#options;
    if (this.#lease === null) await this.#grant();
    else if (clock.now() - this.#renewedAt >= RENEWED_MS) await this.#renew();
    const text = JSON.stringify(await entry());
    if (text === this.#written || this.#lease === null || this.#closing.signal.aborted) return;
    this.#written = null;
    const { key, id } = this.#options;
    const put = { key: base64(`${entriesBelow(key)}${id}`), value: base64(text), lease: this.#lease };
    await this.#call("/v3/kv/put", put);
    this.#written = text;
  }

  async #grant(): Promise<void> {
    const now = this.#options.clock.now();
    const { ID: lease } = await this.#call("/v3/lease/grant", { TTL: String(LEASE_S) });
    if (typeof lease !== "string" || !/^\d{1,20}$/.test(lease))
      throw new EtcdFailure("unreachable", "etcd has granted a lease without a name");
    this.#lease = lease;
    this.#written = null;
    this.#renewedAt = now;
  }

  /** A lease that is lost is replaced at once. */
  async #renew(): Promise<void> {
    const now = this.#options.clock.now();
    const { result } = await this.#call("/v3/lease/keepalive", { ID: this.#lease });
    const ttl = isObject(result) ? Number(result.TTL ?? 0) : NaN;
    if (ttl > 0) this.#renewedAt = now;
    else await this.#grant();
  }

  #call(path: string, message: Readonly<Record<string, unknown>>) {
    return this.#options.client.call(path, message, { signal: this.#closing.signal });
  }

  #succeeded(): void {
    const { log, key } = this.#options;
    if (this.#failures > 0) log.info("the entry of this gateway in etcd is written again", { key: entriesBelow(key) });
    this.#failures = 0;
  }

  #failed(error: unknown): void {
    if (this.#closing.signal.aborted) return;
    const { log, key } = this.#options;
    if (error instanceof EtcdFailure && error.isLeaseLost) this.#lease = null;
    if (this.#failures === 0)
      log.warn("the entry of this gateway in etcd cannot be written", {
        key: entriesBelow(key),
        error: messageOf(error),
      });
    this.#failures = Math.min(this.#failures + 1, MOST_FAILURES);
  }
}

const LEASE_S = 30;
const RENEWED_MS = 10_000;
/** How often the entry is compared with what etcd has, and so how often it is written at most. */
const LOOK_MS = 1_000;
const LONGEST_PAUSE_MS = 5_000;
const MOST_FAILURES = 10;
const LAST_MS = 1_000;

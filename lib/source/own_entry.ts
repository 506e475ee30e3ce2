/**
 * The entry of this gateway among those of its fleet: written to etcd under a lease, and taken back at its end. What
 * happens to it never is in the way of anything else.
 *
 * ```
 *            no lease ──── grant ────► leased ◄── put, where the entry is another one
 *               ▲                        │   ◄── put, every minute: somebody may have deleted it
 *               │                        │   ◄── keepalive, every 10 s
 *               └── the lease is lost ───┘
 * ```
 */
import type { Clock, Timer } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { EtcdClient } from "./etcd_client.ts";
import { EtcdFailure } from "./etcd_failure.ts";
import { base64, entriesBelow } from "./etcd_keys.ts";
import { EtcdLease } from "./etcd_lease.ts";
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

interface Written {
  readonly text: string;
  readonly lease: string;
  readonly at: number;
}

export class OwnEntry {
  readonly #options: OwnEntryOptions;
  readonly #closing = new AbortController();
  readonly #lease: EtcdLease;
  /** What etcd has of the entry, and with which lease; null: it is not known. */
  #written: Written | null = null;
  #failures = 0;
  /** Whether `look` was called while the entry was compared. */
  #isDue = false;
  #timer: Timer | null = null;
  #working: Promise<void> = Promise.resolve();

  /** It begins at once. */
  constructor(options: OwnEntryOptions) {
    const { client, clock } = options;
    this.#options = options;
    this.#lease = new EtcdLease({ client, clock, ttlS: LEASE_S, renewedMs: RENEWED_MS });
    this.#work();
  }

  /** The entry is another one: it is written at once. */
  look(): void {
    if (this.#closing.signal.aborted) return;
    if (this.#timer === null) this.#isDue = true;
    else if (this.#failures === 0) {
      this.#timer.cancel();
      this.#work();
    }
  }

  /** Takes the entry back, within a second. Never rejects. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#timer?.cancel();
    await this.#working;
    await this.#lease.revoke();
    this.#options.client.close();
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
      if (this.#isDue) this.look();
    });
  }

  async #step(): Promise<void> {
    const { client, clock, entry, key, id } = this.#options;
    const { signal } = this.#closing;
    await this.#lease.hold({ signal });
    this.#isDue = false;
    const text = JSON.stringify(await entry());
    const lease = this.#lease.id;
    if (lease === null || signal.aborted) return;
    if (this.#written !== null && this.#isStill(this.#written, text, lease)) return;
    this.#written = null;
    const put = { key: base64(`${entriesBelow(key)}${id}`), value: base64(text), lease };
    await client.call("/v3/kv/put", put, { signal });
    this.#written = { text, lease, at: clock.now() };
  }

  #isStill(written: Written, text: string, lease: string): boolean {
    const age = this.#options.clock.now() - written.at;
    return text === written.text && lease === written.lease && age < REWRITTEN_MS;
  }

  #succeeded(): void {
    const { log, key } = this.#options;
    if (this.#failures > 0) log.info("the entry of this gateway in etcd is written again", { key: entriesBelow(key) });
    this.#failures = 0;
  }

  #failed(error: unknown): void {
    if (this.#closing.signal.aborted) return;
    const { log, key } = this.#options;
    if (error instanceof EtcdFailure && error.isLeaseLost) this.#lease.forget();
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
/** To read the entry needs a right that a gateway may not have. */
const REWRITTEN_MS = 60_000;
/** How often the entry is compared with what etcd has, and so how often it is written at most. */
const LOOK_MS = 1_000;
const LONGEST_PAUSE_MS = 5_000;
const MOST_FAILURES = 10;

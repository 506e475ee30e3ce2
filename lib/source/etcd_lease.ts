/**
 * A lease of etcd: what is written with it is gone once it ends, which is soon after nobody renews it any more.
 */
import type { Clock } from "../base/clock.ts";
import { isObject } from "../json_schema/values.ts";
import type { EtcdCallOptions, EtcdClient } from "./etcd_client.ts";
import { EtcdFailure } from "./etcd_failure.ts";

interface LeaseOptions {
  readonly client: EtcdClient;
  readonly clock: Clock;
  /** How long it lives after a renewal, in seconds. */
  readonly ttlS: number;
  /** How old a renewal is when `hold` asks for the next one, in milliseconds. */
  readonly renewedMs: number;
}

export class EtcdLease {
  readonly #options: LeaseOptions;
  #id: string | null = null;
  #renewedAt = -Infinity;

  constructor(options: LeaseOptions) {
    this.#options = options;
  }

  /** int64 as text; null: there is none. */
  get id(): string | null {
    return this.#id;
  }

  /** Whether it lives by this machine's clock, which is a little longer than by that of etcd. */
  get isAlive(): boolean {
    const { clock, ttlS } = this.#options;
    return this.#id !== null && clock.now() - this.#renewedAt < ttlS * 1_000;
  }

  /** Asks for one where there is none, or it was lost; renews it in time. Rejects with an `EtcdFailure`. */
  async hold(call: EtcdCallOptions = {}): Promise<void> {
    const { client, clock, ttlS, renewedMs } = this.#options;
    const now = clock.now();
    if (this.#id !== null) {
      if (now - this.#renewedAt < renewedMs) return;
      const { result } = await client.call("/v3/lease/keepalive", { ID: this.#id }, call);
      const ttl = isObject(result) ? Number(result.TTL ?? 0) : NaN;
      if (ttl > 0) {
        this.#renewedAt = now;
        return;
      }
      this.#id = null;
    }
    const { ID: id } = await client.call("/v3/lease/grant", { TTL: String(ttlS) }, call);
    if (typeof id !== "string" || !/^\d{1,20}$/.test(id))
      throw new EtcdFailure("unreachable", "etcd has granted a lease without a name");
    this.#id = id;
    this.#renewedAt = now;
  }

  /** The next `hold` asks for another one. */
  forget(): void {
    this.#id = null;
  }

  /** What was written with it is gone. Never rejects, within a second: without an answer the lease ends by itself. */
  async revoke(): Promise<void> {
    const id = this.#id;
    this.#id = null;
    if (id === null) return;
    const time = { limitMs: LAST_MS, memberMs: LAST_MS };
    await this.#options.client.call("/v3/lease/revoke", { ID: id }, time).catch(() => {});
  }
}

const LAST_MS = 1_000;

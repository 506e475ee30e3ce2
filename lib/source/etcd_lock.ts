/**
 * A lock in etcd: a key that exists once, under a lease. Whoever has made it holds the lock until it gives it back, or
 * its lease ends.
 *
 * A program that was stopped for a while may believe that it holds the lock still. So each change that needs the lock
 * has its `fence` as a condition: the key must be the one that this program has made, by its revision.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { isObject } from "../json_schema/values.ts";
import type { EtcdClient } from "./etcd_client.ts";
import { EtcdFailure } from "./etcd_failure.ts";
import { base64, keyValues, revisionOf } from "./etcd_keys.ts";
import { EtcdLease } from "./etcd_lease.ts";
import type { EtcdMessage } from "./json_lines.ts";

export interface LockOptions {
  readonly client: EtcdClient;
  readonly key: string;
  readonly clock: Clock;
  /** Called once the lock that was held is lost. */
  readonly lost: () => void;
}

export class EtcdLock {
  readonly #options: LockOptions;
  readonly #lease: EtcdLease;
  /** The revision that has made the key; null: it is not held. */
  #held: { readonly revision: number; readonly lease: string } | null = null;
  #timer: Timer | null = null;

  constructor(options: LockOptions) {
    const { client, clock } = options;
    this.#options = options;
    this.#lease = new EtcdLease({ client, clock, ttlS: LEASE_S, renewedMs: RENEWED_MS });
  }

  /** The condition of a transaction, which holds while the lock is this one; null: it is not held. */
  get fence(): EtcdMessage | null {
    if (this.#held === null || !this.#lease.isAlive) return null;
    return compareCreation(this.#options.key, this.#held.revision);
  }

  /** With it keys are written that are gone with the lock; null: it is not held. */
  get lease(): string | null {
    return this.#held?.lease ?? null;
  }

  /** Whether the lock is held afterwards: nobody had it. Rejects with an `EtcdFailure`. */
  async take(value: Buffer, signal: AbortSignal): Promise<boolean> {
    const { client, key } = this.#options;
    await this.#lease.hold({ signal });
    const lease = this.#lease.id!;
    const name = base64(key);
    const transaction = {
      compare: [compareCreation(key, 0)],
      success: [{ request_put: { key: name, value: base64(value), lease } }],
      failure: [{ request_range: { key: name } }],
    };
    const answer = await client.call("/v3/kv/txn", transaction, { signal }).catch((error: unknown) => {
      if (error instanceof EtcdFailure && error.isLeaseLost) this.#lease.forget();
      throw error;
    });
    const revision = answer.succeeded === true ? revisionIn(answer) : ownRevision(answer, lease);
    if (revision === null) return false;
    this.#held = { revision, lease };
    this.#renewLater(RENEWED_MS);
    return true;
  }

  /** Somebody has seen that the key is gone, or another one. */
  drop(): void {
    this.#timer?.cancel();
    if (this.#held === null) return;
    this.#held = null;
    this.#options.lost();
  }

  /** Within a second. Never rejects. */
  async release(): Promise<void> {
    this.#timer?.cancel();
    this.#held = null;
    await this.#lease.revoke();
  }

  #renewLater(ms: number): void {
    this.#timer?.cancel();
    this.#timer = this.#options.clock.after(ms, () => void this.#renew());
  }

  async #renew(): Promise<void> {
    const held = this.#held;
    const outcome = await this.#lease.hold({ limitMs: RENEWAL_MS }).then(
      () => "answered",
      () => "failed",
    );
    if (this.#held !== held || held === null) return;
    if (this.#lease.id !== held.lease || !this.#lease.isAlive) return this.drop();
    this.#renewLater(outcome === "answered" ? RENEWED_MS : AGAIN_MS);
  }
}

/** 0: there is no such key. */
function compareCreation(key: string, revision: number): EtcdMessage {
  return { key: base64(key), target: "CREATE", result: "EQUAL", create_revision: String(revision) };
}

function revisionIn({ header }: EtcdMessage): number {
  if (!isObject(header)) throw new EtcdFailure("unreachable", "etcd: its answer has no revision");
  return revisionOf(header);
}

/** Of a key that this program has made although the answer to it was lost; null: it is another one's. */
function ownRevision({ responses }: EtcdMessage, lease: string): number | null {
  const [response] = Array.isArray(responses) ? (responses as unknown[]) : [];
  const range = isObject(response) ? response.response_range : undefined;
  const [found] = isObject(range) ? keyValues(range) : [];
  return found?.lease === lease ? found.created() : null;
}

/** Another gateway can take the lock of one that has failed after this time. */
const LEASE_S = 15;
const RENEWED_MS = 5_000;
const RENEWAL_MS = 4_000;
const AGAIN_MS = 1_000;

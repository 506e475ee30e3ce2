/**
 * Counts the client connections of all workers.
 */
import { parseAddress } from "../base/ip_address.ts";
import { REFUSED, SharedCount, SharedCounts } from "../base/shared_counts.ts";
import type { Threads } from "../base/threads.ts";
import type { ConnectionCounts } from "./limits.ts";

/** Of all workers; the main thread reads them. */
export class SharedConnections implements ConnectionCounts {
  readonly #all: SharedCount;
  readonly #byAddress: SharedCounts;

  constructor(threads: Threads) {
    this.#all = new SharedCount(threads, "connections");
    this.#byAddress = new SharedCounts(threads, "connections by address");
  }

  get open(): number {
    return this.#all.total;
  }

  /** Of the worker with this number. */
  of(worker: number): number {
    return this.#all.of(worker);
  }

  take(remote: string, most: number, mostOfClient: number): ReturnType<ConnectionCounts["take"]> {
    if (!this.#all.take(most)) return "max_connections";
    const at = this.#byAddress.take(...keyOf(remote), mostOfClient);
    const give = () => {
      this.#all.give();
      if (at !== REFUSED) this.#byAddress.give(at);
    };
    if (at !== REFUSED) return give;
    give();
    return "max_connections_per_ip";
  }

  /** The worker with this number is dead, and its connections are closed. */
  clear(worker: number): void {
    this.#all.clear(worker);
    this.#byAddress.clear(worker);
  }
}

/**
 * The first half of an IPv6 address. No IPv6 client has one that begins with ffff:ffff (RFC 4291 §2.7): it stands for
 * IPv4.
 */
function keyOf(remote: string): readonly [high: number, low: number] {
  const address = parseAddress(remote);
  if (address === null) return [-1, 0];
  const [first, second, , last] = address.words;
  return address.version === 6 ? [first | 0, second | 0] : [-1, last | 0];
}

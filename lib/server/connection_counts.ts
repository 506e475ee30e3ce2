/**
 * Counts client connections, in all and by client address (IPv6 by /64): those of this thread, or those of all workers.
 */
import { callerAddress, parseAddress } from "../base/cidr.ts";
import { REFUSED, SharedCount, SharedCounts } from "../base/shared_counts.ts";
import type { Threads } from "../base/threads.ts";

export interface ConnectionCounts {
  /** Connections that are open. */
  readonly open: number;
  /** Counts one more; false if that would be more than `most`, 0 being no limit. */
  take(most: number): boolean;
  give(): void;
  /** The same for the connections of one client. Returns the function that gives it back; null: the limit is reached. */
  takeFor(address: string, most: number): (() => void) | null;
}

/** Of a program without workers. */
export class OwnConnections implements ConnectionCounts {
  open = 0;
  readonly #byAddress = new Map<string, number>();

  take(most: number): boolean {
    if (most > 0 && this.open >= most) return false;
    this.open++;
    return true;
  }

  give(): void {
    this.open--;
  }

  takeFor(remote: string, most: number): (() => void) | null {
    const address = callerAddress(remote);
    const others = this.#byAddress.get(address) ?? 0;
    if (most > 0 && others >= most) return null;
    this.#byAddress.set(address, others + 1);
    return () => {
      const left = this.#byAddress.get(address)! - 1;
      if (left === 0) this.#byAddress.delete(address);
      else this.#byAddress.set(address, left);
    };
  }
}

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

  take(most: number): boolean {
    return this.#all.take(most);
  }

  give(): void {
    this.#all.give();
  }

  takeFor(remote: string, most: number): (() => void) | null {
    const [high, low] = keyOf(remote);
    const at = this.#byAddress.take(high, low, most);
    return at === REFUSED ? null : () => this.#byAddress.give(at);
  }

  /** The worker at this place is dead, and its connections are closed. */
  clear(place: number): void {
    this.#all.clear(place);
    this.#byAddress.clear(place);
  }
}

/** The first half of an IPv6 address. No IPv6 client has one that begins with ffff:ffff (RFC 4291 §2.7): it stands for IPv4. */
function keyOf(remote: string): readonly [high: number, low: number] {
  const address = parseAddress(remote);
  if (address === null) return [-1, 0];
  const [first, second, , last] = address.words;
  return address.version === 6 ? [first | 0, second | 0] : [-1, last | 0];
}

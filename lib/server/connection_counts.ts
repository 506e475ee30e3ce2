/**
 * Counts client connections, in all and by client address (IPv6 by /64): those of this thread, or those of all workers (`shared_connections.ts`).
 */
import { callerAddress } from "../base/ip_address.ts";

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

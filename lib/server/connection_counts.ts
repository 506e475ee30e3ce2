/**
 * Counts client connections, in all and by client address (IPv6 by /64): those of this thread, or those of all workers (`shared_connections.ts`).
 */
import { callerAddress } from "../base/ip_address.ts";

export interface ConnectionCounts {
  /** Connections that are open. */
  readonly open: number;
  /** Counts one more, and returns the function that gives it back; else the limit that is reached (0: none). */
  take(address: string, most: number, mostOfClient: number): (() => void) | "max_connections" | "max_connections_per_ip";
}

/** Of a program without workers. */
export class OwnConnections implements ConnectionCounts {
  open = 0;
  readonly #byAddress = new Map<string, number>();

  take(remote: string, most: number, mostOfClient: number): ReturnType<ConnectionCounts["take"]> {
    if (most > 0 && this.open >= most) return "max_connections";
    const address = callerAddress(remote);
    const others = this.#byAddress.get(address) ?? 0;
    if (mostOfClient > 0 && others >= mostOfClient) return "max_connections_per_ip";
    this.open++;
    this.#byAddress.set(address, others + 1);
    return () => {
      this.open--;
      const left = this.#byAddress.get(address)! - 1;
      if (left === 0) this.#byAddress.delete(address);
      else this.#byAddress.set(address, left);
    };
  }
}

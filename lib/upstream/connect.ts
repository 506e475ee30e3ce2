/**
 * Opens TCP and TLS connections to an upstream, by the addresses that its name has.
 */
import type { Socket } from "node:net";
import type { Secure } from "../base/egress.ts";
import { Fault } from "../base/errors.ts";
import type { Address, ConnectTarget, TlsToUpstreams } from "./contracts.ts";

/**
 * All that a pool holds of a configuration, besides what can be set anew: `Runtime` makes another pool when one of them
 * changes.
 */
export interface PoolOptions extends ConnectTarget {
  /** "h2": over TLS, negotiated by ALPN. "h2c": without TLS, by prior knowledge (RFC 9113 §3.3). */
  readonly protocol: "http" | "https" | "h2" | "h2c";
  /** How long an unused connection is kept, in milliseconds. */
  readonly keepaliveIdleMs: number;
  /** Of the header with which `dial` begins a connection of a client. Default: there is none. */
  readonly proxyProtocol?: "v1" | "v2";
  /** For "https" and "h2", and only for them. */
  readonly tls?: TlsToUpstreams;
  /** The one address of `name` that it leads to. Default: it is not bound to one. */
  readonly address?: Address;
  /** The identity of the proxy that `dial` goes through, and which looks names up. Default: there is none. */
  readonly proxy?: string;
}

/** Opens the connections of one pool, and follows the addresses of its upstream. */
export class Connector {
  /**
   * Opens a connection to the address, or to the first that a look-up gives. Throws Node's error if it cannot begin.
   */
  readonly open: (address: Address | undefined, more?: object) => Socket;
  readonly #options: PoolOptions;
  readonly #readdress: (addresses: readonly Address[]) => void;
  #unfollow: (() => void) | null = null;
  #isClosed = false;

  /**
   * `readdress` is called when the name has other addresses. Throws when the client certificate and its key do not fit.
   */
  constructor(options: PoolOptions, readdress: (addresses: readonly Address[]) => void) {
    const { protocol, tls } = options;
    this.#options = options;
    this.#readdress = readdress;
    this.open =
      tls === undefined
        ? (address, more) => connect(options, null, address, more)
        : tls.connector(options, protocol === "h2" ? ["h2"] : undefined);
  }

  /**
   * Of the name; empty where there is none, or no answer yet. Followed from the first use on: some pools are never
   * used.
   */
  get addresses(): readonly Address[] {
    const { name } = this.#options;
    if (name === undefined) return NO_ADDRESSES;
    if (this.#unfollow === null && !this.#isClosed)
      this.#unfollow = name.onChange(() => this.#readdress(name.addresses));
    return name.addresses;
  }

  /** The addresses are not followed any more. */
  close(): void {
    this.#isClosed = true;
    this.#unfollow?.();
  }
}

const NO_ADDRESSES: readonly Address[] = [];

/**
 * `first`: see `HostName.connectOptions`. `secure`: null for plain TCP. `readyEvent` names the event that the socket
 * emits when it can be used.
 */
export function connect(to: ConnectTarget, secure: Secure | null, first: Address | undefined, more?: object): Socket {
  const socket = to.dial({ ...to.name?.connectOptions(first), ...more }, secure);
  // Nagle's algorithm would hold back the last small segment of each message. A host's process lives as long as the
  // client of a request, and not until an idle connection ends.
  return socket.setNoDelay(true).unref();
}

export function readyEvent(socket: Socket): "connect" | "secureConnect" {
  return "encrypted" in socket ? "secureConnect" : "connect";
}

export function isSecure(protocol: PoolOptions["protocol"]): boolean {
  return protocol === "https" || protocol === "h2";
}

export function shuttingDown(): Fault {
  return new Fault("upstream_unavailable", "the gateway is shutting down");
}

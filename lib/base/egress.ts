/**
 * Opens every connection that the program makes, together with `egress_clients.ts` and `egress_tls.ts`: only these
 * files call Node's functions for this. A connection is opened only to a destination that the configuration or a
 * setting names. Redirects are not followed, and no proxy of the environment is used: one that the configuration names
 * is in `egress_proxy.ts`.
 */
import net, { type OnReadOpts, type Socket, type TcpNetConnectOpts } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { guardedEmitter } from "./event_loop.ts";

/** A server that the program may connect to. */
export interface Destination {
  /**
   * A host name or an address, IPv6 without brackets. "*": any host, for servers that a Redis Cluster names. With
   * `srv`: the name of a record, and no server.
   */
  readonly host: string;
  /** 0 with `srv`. */
  readonly port: number;
  /** The servers are the targets of an SRV record: which they are, only name servers know. */
  readonly srv?: true;
  /**
   * "upstream", "health", "jwks", "introspection", "oidc", "forward_auth", "http_log", "mirror", "redis", "otlp",
   * "manager", "admin", "acme", "config", "egress_proxy", or what a plugin kind says.
   */
  readonly why: string;
}

/** Leads to servers on behalf of the gateway. */
export interface EgressProxy {
  /** Another one where the proxy, or what it is told, is another. */
  readonly identity: string;
  /** Host and port. */
  readonly address: string;
  /** False: the destination is connected to directly. */
  leadsTo(to: Destination): boolean;
  /** A connection to the destination; it emits "connect" when it leads there. */
  open(to: Destination, options?: { readonly onread?: OnReadOpts | undefined }): Socket;
  dialer(to: Destination): Dial;
}

/** Options of a connection over TLS, and what opens it: see `overTls`. */
export interface Secure extends ConnectionOptions {
  readonly open: (options: ConnectionOptions) => Socket;
}

/**
 * Begins to connect to one destination, over TLS unless `secure` is null. Holds nothing else of the configuration that
 * it is from.
 */
export type Dial = (options: Omit<TcpNetConnectOpts, "host" | "port">, secure: Secure | null) => Socket;

export type DialTo = (to: Destination) => Dial;

/**
 * The destinations of one configuration, of one part of it, or of one setting. It never changes, so what outlives a
 * configuration may only hold that of its own part, whose settings are in its key.
 */
export class Egress {
  readonly #permitted: ReadonlySet<string>;
  /** Asked for each connection of a client; null: there is never a proxy. */
  readonly proxy: (() => EgressProxy | null) | null;

  constructor(destinations: Iterable<Destination>, proxy: (() => EgressProxy | null) | null = null) {
    this.#permitted = new Set(Array.from(destinations, keyOf));
    this.proxy = proxy;
  }

  /** The same with one more server: a target of an SRV record that the configuration names. */
  with(target: Destination): Egress {
    return new Egress([target], this.proxy);
  }

  /** The proxy that leads to a destination; null: it is connected to directly. */
  proxyTo(to: Destination): EgressProxy | null {
    const proxy = this.proxy?.() ?? null;
    return proxy?.leadsTo(to) === true ? proxy : null;
  }

  permits(to: Destination): boolean {
    return this.#permitted.has(keyOf(to)) || this.#permitted.has(keyOf({ ...to, host: "*" }));
  }

  /** Throws an `Error` for a destination that is not permitted. */
  check(to: Destination): void {
    if (!this.permits(to))
      throw new Error(
        `no connection is opened to ${to.host} port ${to.port} (${to.why}): ` +
          `neither the configuration nor a setting names this server`,
      );
  }

  /** For connections to one destination. Throws here, not when it is used, if the destination is not permitted. */
  dialer(to: Destination): Dial {
    this.check(to);
    const { host, port } = to;
    const proxied = this.proxyTo(to)?.dialer(to);
    if (proxied !== undefined) return proxied;
    return (options, secure) =>
      guardedEmitter(
        secure === null ? net.connect({ ...options, host, port }) : secure.open({ ...secure, ...options, host, port }),
      );
  }
}

function keyOf({ why, host, port }: Destination): string {
  return `${why} ${host} ${port}`;
}

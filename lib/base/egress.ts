/**
 * Opens every connection that the program makes: the only file that calls Node's functions for this. A connection is opened only to a
 * destination that the configuration or a setting names. Redirects are not followed, and no proxy of the environment is used.
 */
import dns, { type LookupAddress } from "node:dns";
import http, { type Agent, type AgentOptions, type ClientRequest, type RequestOptions } from "node:http";
import http2, { type ClientHttp2Session, type ClientSessionOptions, type SecureClientSessionOptions } from "node:http2";
import https from "node:https";
import net, { type Socket, type TcpNetConnectOpts } from "node:net";
import type { Duplex } from "node:stream";
import tls, { type ConnectionOptions } from "node:tls";
import { entry, guarded } from "./event_loop.ts";

/** A server that the program may connect to. */
export interface Destination {
  /** A host name or an address, IPv6 without brackets. "*": any host, for servers that a Redis Cluster names. */
  readonly host: string;
  readonly port: number;
  /** "upstream", "health", "jwks", "introspection", "forward_auth", "http_log", "mirror", "redis", "otlp", "manager", "admin", or what a plugin kind says. */
  readonly why: string;
}

/** Begins to connect to one destination, over TLS unless `secure` is null. Holds nothing else of the configuration that it is from. */
export type Dial = (options: Omit<TcpNetConnectOpts, "host" | "port">, secure: ConnectionOptions | null) => Socket;

/**
 * The destinations of one configuration, of one part of it, or of one setting. It never changes, so what outlives a configuration may only
 * hold that of its own part, whose settings are in its key.
 */
export class Egress {
  readonly #permitted: ReadonlySet<string>;

  constructor(destinations: Iterable<Destination>) {
    this.#permitted = new Set(Array.from(destinations, keyOf));
  }

  permits(to: Destination): boolean {
    return this.#permitted.has(keyOf(to)) || this.#permitted.has(keyOf({ ...to, host: "*" }));
  }

  /** Throws an `Error` for a destination that is not permitted. */
  check(to: Destination): void {
    if (!this.permits(to)) throw new Error(`no connection is opened to ${to.host} port ${to.port} (${to.why}): neither the configuration nor a setting names this server`);
  }

  /** For connections to one destination. Throws here, not when it is used, if the destination is not permitted. */
  dialer(to: Destination): Dial {
    this.check(to);
    const { host, port } = to;
    return (options, secure) => guarded(secure === null ? net.connect({ ...options, host, port }) : tls.connect({ ...secure, ...options, host, port }));
  }

  /** Keeps connections for `requestBy`, whose request fails for a destination that is not permitted. */
  agent(why: string, scheme: "http:" | "https:", options: AgentOptions | https.AgentOptions): Agent {
    const agent = scheme === "https:" ? new https.Agent(options) : new http.Agent(options);
    const connect = agent.createConnection.bind(agent);
    agent.createConnection = (to, done) => {
      try {
        this.check({ host: String(to.host), port: Number(to.port), why });
      } catch (error) {
        process.nextTick(entry("a refused connection", done!), error);
        return undefined;
      }
      return connect(to, done);
    };
    return agent;
  }
}

/** The server of a URL, such as that of http, https, redis, or of any scheme with a port. */
export function destinationOf({ protocol, hostname, port }: URL, why: string): Destination {
  const host = hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
  return { host, port: Number(port || DEFAULT_PORTS[protocol]), why };
}

export const DEFAULT_PORTS: Readonly<Record<string, number>> = { "http:": 80, "https:": 443, "redis:": 6379, "rediss:": 6379 };

/** A request over the connections of an `Egress`. */
export function requestBy(agent: Agent, options: Omit<RequestOptions, "agent">): ClientRequest {
  return guardedRequest((agent instanceof https.Agent ? https : http).request({ ...options, agent }));
}

/** A request over a connection that is open, or over a stream that takes its place. */
export function requestOver(connection: Duplex, options: RequestOptions): ClientRequest {
  return guardedRequest(http.request({ ...options, createConnection: () => connection }));
}

function guardedRequest(request: ClientRequest): ClientRequest {
  return guarded(request).once("response", guarded);
}

/** HTTP/2 over a connection that is open. The address is for Node's defaults, which are not used: requests name their authority and scheme. */
export function http2Over(connection: Duplex, options: ClientSessionOptions | SecureClientSessionOptions): ClientHttp2Session {
  return guarded(http2.connect("http://upstream", { ...options, createConnection: () => connection }));
}

/** All addresses of a host name by the system (getaddrinfo), without IPv6 addresses on a machine that has none. */
export function lookUp(host: string): Promise<LookupAddress[]> {
  return dns.promises.lookup(host, { all: true, hints: dns.ADDRCONFIG });
}

/** The name servers of the system that `lookUp` asks. */
export function nameServers(): readonly Destination[] {
  return dns.getServers().map((server) => {
    // "10.0.0.2", "10.0.0.2:5353", "::1" or "[::1]:5353".
    const [, host = server, port = "53"] = /^\[(.+)\]:(\d+)$/.exec(server) ?? /^([\d.]+):(\d+)$/.exec(server) ?? [];
    return { host, port: Number(port), why: "dns" };
  });
}

function keyOf({ why, host, port }: Destination): string {
  return `${why} ${host} ${port}`;
}

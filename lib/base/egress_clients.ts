/**
 * Node's clients of HTTP and DNS, within what an `Egress` permits.
 */
import dns, { type LookupAddress, type SrvRecord } from "node:dns";
import http, { type Agent, type AgentOptions, type ClientRequest, type RequestOptions } from "node:http";
import http2, { type ClientHttp2Session, type ClientSessionOptions, type SecureClientSessionOptions } from "node:http2";
import https from "node:https";
import net from "node:net";
import type { Duplex } from "node:stream";
import type { Destination, Egress } from "./egress.ts";
import { entry, guardedEmitter } from "./event_loop.ts";

/** Keeps connections for `requestBy`, whose request fails for a destination that `egress` does not permit. */
export function agentOf(
  egress: Egress,
  why: string,
  scheme: "http:" | "https:",
  options: AgentOptions | https.AgentOptions,
): Agent {
  const agent = scheme === "https:" ? new https.Agent(options) : new http.Agent(options);
  const connect = agent.createConnection.bind(agent);
  const destinationOf = (to: { readonly host?: unknown; readonly port?: unknown }) => {
    return { host: String(to.host), port: Number(to.port), why };
  };
  agent.createConnection = (to, done) => {
    const destination = destinationOf(to);
    try {
      egress.check(destination);
    } catch (error) {
      process.nextTick(entry("a refused connection", done!), error);
      return undefined;
    }
    const { head } = to as Headed;
    const proxied = egress.proxyTo(destination)?.open(destination);
    const socket = proxied ?? (head && egress.dialer(destination)({}, null));
    if (socket === undefined) return connect(to, done);
    // It waits for the connection, before what the request writes.
    if (head !== undefined) socket.write(head);
    return scheme === "https:" ? connect({ ...to, ...{ socket } }, done) : socket;
  };
  const nameOf = agent.getName.bind(agent);
  // Also one that is not kept may be given to a request that waits.
  agent.getName = (to: Parameters<typeof nameOf>[0] & Headed = {}) =>
    to.head === undefined ? nameOf(to) : `${nameOf(to)}:${to.head.toString("latin1")}`;
  if (egress.proxy === null) return agent;
  const headedName = agent.getName.bind(agent);
  // A connection that is kept is not used once another way leads there. Node gives a connection's own options again
  // when it is free.
  agent.getName = (to: Parameters<typeof nameOf>[0] & { by?: string } = {}) => {
    to.by ??= egress.proxyTo(destinationOf(to))?.identity ?? "";
    return `${headedName(to)}:${to.by}`;
  };
  return agent;
}

interface Headed {
  /** What its connection, which serves requests with the same head alone, begins with. Default: nothing. */
  readonly head?: Buffer | undefined;
}

/** A request over the connections of an `agentOf`. */
export function requestBy(agent: Agent, options: Omit<RequestOptions, "agent"> & Headed): ClientRequest {
  return guardedRequest((agent instanceof https.Agent ? https : http).request({ ...options, agent }));
}

/** A request over a connection that is open, or over a stream that takes its place. */
export function requestOver(connection: Duplex, options: RequestOptions): ClientRequest {
  return guardedRequest(http.request({ ...options, createConnection: () => connection }));
}

function guardedRequest(request: ClientRequest): ClientRequest {
  return guardedEmitter(request).once("response", guardedEmitter);
}

/**
 * HTTP/2 over a connection that is open. The address is for Node's defaults, which are not used: requests name their
 * authority and scheme.
 */
export function http2Over(
  connection: Duplex,
  options: ClientSessionOptions | SecureClientSessionOptions,
): ClientHttp2Session {
  return guardedEmitter(http2.connect("http://upstream", { ...options, createConnection: () => connection }));
}

/** All addresses of a host name by the system (getaddrinfo), without IPv6 addresses on a machine that has none. */
export function lookUp(host: string): Promise<LookupAddress[]> {
  return dns.promises.lookup(host, { all: true, hints: dns.ADDRCONFIG });
}

/**
 * The targets of an SRV record (RFC 2782), by the name servers of the system; an answer that is longer than a datagram
 * is asked for over TCP. The name is asked for as it is, without search domains. Rejects with Node's error where there
 * is no answer: ENOTFOUND, ENODATA, ESERVFAIL, ETIMEOUT, …
 */
export function lookUpService(record: string): Promise<SrvRecord[]> {
  const resolver = new dns.promises.Resolver({ timeout: ANSWER_MS, tries: TRIES });
  resolver.setServers(dns.getServers());
  return resolver.resolveSrv(record);
}

/** For the first try; the next one waits for longer. */
const ANSWER_MS = 2_000;
const TRIES = 2;

/** The name servers of the system that `lookUp` and `lookUpService` ask. */
export function nameServers(): readonly Destination[] {
  return dns.getServers().map((server) => {
    // "10.0.0.2", "10.0.0.2:5353", "::1" or "[::1]:5353".
    const [, host = server, port = "53"] = /^\[(.+)\]:(\d+)$/.exec(server) ?? /^([\d.]+):(\d+)$/.exec(server) ?? [];
    return { host, port: Number(port), why: "dns" };
  });
}

/** Whether a process of this machine listens on a socket in the file system, which leads to no other host. */
export function isListening(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(path, () => {
      socket.destroy();
      resolve(true);
    });
    // Any other error is that of a socket with too many waiting connections, or of one that may not be asked.
    socket.on("error", ({ code }: NodeJS.ErrnoException) => resolve(code !== "ECONNREFUSED" && code !== "ENOENT"));
  });
}

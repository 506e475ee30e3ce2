/**
 * Accepts client connections, plain and TLS, for HTTP/1.1 and HTTP/2, has each request answered by `serve`, and drains
 * them at the end.
 */
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import net, { type AddressInfo, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { DeadlineTimer, type Clock } from "../base/clock.ts";
import { guardedEmitter, WriteBatch } from "../base/event_loop.ts";
import { ignore } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { TlsRules } from "../base/tls_rules.ts";
import type { Config } from "../config/model.ts";
import type { HostCertificates, TlsFiles } from "./certificates.ts";
import { toSharedReads, ClientConnection } from "./client_connection.ts";
import type { HandshakeMeter } from "./handshakes.ts";
import { CLIENT_IDLE_MS, Drain, type HasConnections, type Http1Options } from "./http1.ts";
import { ConnectionLimit, type ConnectionCounts } from "./limits.ts";
import type { readProxyHeader } from "./proxy_header.ts";
import { isEncrypted, connectionWithoutTls, type ConnectionFacts } from "./inbound.ts";

export interface TlsOptions {
  /** Those in force, by host name; asked once a handshake. Default: none. */
  readonly certificates?: () => HostCertificates;
  readonly clock: Clock;
  readonly log: Log;
  /** Those in force, `global.tls`; asked once a connection. Default: those of `contextRules`. */
  readonly rules?: () => ServerTlsRules | undefined;
  /** Default: nobody asks for their counts. */
  readonly handshakes?: HandshakeMeter;
  /** Milliseconds a client has for its handshake. Default 10 000. */
  readonly handshakeMs?: number;
  /** Whether a new connection may use HTTP/2, and more. Default: yes. */
  readonly protocols?: () => { readonly http2: boolean };
}

/** Which handshakes of clients succeed. */
export interface ServerTlsRules extends TlsRules {
  /** Lists of revoked certificates of clients, PEM. Default: none is looked at. */
  readonly clientCrl?: { readonly content: Buffer } | undefined;
  /** What an expired list does with the certificates that it does not have. Default "refuse". */
  readonly crlExpired?: "refuse" | "allow" | undefined;
}

export interface TlsConnections {
  /** Gets each new TCP connection. Those that are accepted begin their handshake, perhaps later. */
  readonly accept: (socket: Socket, begin: () => void) => void;
  /** Gets each connection whose handshake has finished. */
  readonly serve: (socket: TLSSocket) => void;
}

/** Clients over HTTP/2. */
export interface Http2Clients {
  /** Serves HTTP/2 on a connection; bytes that were read from it and put back are included. */
  add(socket: Socket): void;
  /** Sends a GOAWAY to the clients of all connections, or of those with or without TLS. */
  renew(which: "all" | "plain" | "secure"): void;
  /** Ends every connection at once. */
  destroy(): void;
}

/** Clients over HTTP/1 that Node's server serves, or a host's own. */
export interface NodeClients {
  readonly onRequest: (request: IncomingMessage, response: ServerResponse) => void;
  readonly onUpgrade: (request: IncomingMessage, socket: Duplex, firstBytes: Buffer) => void;
  serve(socket: Socket): void;
  destroy(): void;
}

/** The servers of TLS of one listener. */
export interface SecureServers extends HasConnections {
  /** A server that does not listen yet. Throws node's error for files that cannot be used. */
  create(files: TlsFiles, connections: TlsConnections): Server;
  /** Throws, and keeps the old files, when the new ones cannot be used. */
  renew(files: TlsFiles): void;
  /** For session tickets, in place of a key of its own. */
  useTicketKey(key: Buffer): void;
}

/** What a listener needs for more than HTTP/1.1 by our own codec over plain TCP. */
export interface ListenerFeatures {
  readonly http2: {
    readonly createHttp2: (server: Http1Options) => Http2Clients;
    readonly detectProtocol: (
      socket: Socket,
      server: Http1Options,
      serve: (protocol: "HTTP/1" | "HTTP/2") => void,
    ) => void;
  };
  readonly nodeHttp1: {
    readonly NodeHttp1: new (options: Http1Options, serveUpgrade: (socket: Socket) => void) => NodeClients;
  };
  readonly routing: { readonly readProxyHeader: typeof readProxyHeader };
  readonly serverTls: {
    readonly TlsServers: new (options: TlsOptions) => SecureServers;
    readonly connectionOf: (socket: TLSSocket) => ConnectionFacts;
  };
}

/** The options of codecs have defaults: a write batch of its own, `ended` that does nothing, and no tunnels. */
export interface ListenerOptions
  extends
    Pick<Http1Options, "clock" | "log" | "receiving" | "serve">,
    Partial<Pick<Http1Options, "writeBatch" | "ended" | "unread" | "join">>,
    Pick<TlsOptions, "certificates" | "rules" | "handshakes" | "handshakeMs"> {
  /** Those that have been loaded: to ask for another one throws. */
  readonly features: ListenerFeatures;
  /** How new connections are served, see `global`. Default: HTTP/1 by our own codec, and HTTP/2 over TLS. */
  readonly protocols?: () => Pick<Config["global"], "http1" | "http2" | "h2c" | "proxyProtocol">;
  /** Whether the address "::" also accepts IPv4 clients. Default false: it would clash with a listener on 0.0.0.0. */
  readonly dualStack?: boolean;
  /**
   * How the threads of one program use a port: this one alone (the default), "taken" once and given back for others, or
   * "shared" with them.
   */
  readonly ports?: "alone" | "taken" | "shared";
  /** Counts client connections. Default: those of this listener. */
  readonly connections?: ConnectionCounts;
}

export class Listener {
  /** How many client connections are open, and how many were refused. */
  readonly connections: ConnectionLimit;
  readonly #options: ListenerOptions;
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();
  readonly #shared: Http1Options;
  // Made when a connection needs them first, perhaps while the listener drains.
  #node: NodeClients | null = null;
  #http2: Http2Clients | null = null;
  #tls: SecureServers | null = null;
  /** How many connections have been accepted. */
  #accepted = 0;
  readonly #drain = new Drain();
  /** Set once `stopAccepting` was called: resolves when the ports are closed. */
  #stopped: Promise<void> | null = null;
  #onAllClosed: (() => void) | null = null;

  constructor(options: ListenerOptions) {
    const {
      clock,
      log,
      receiving,
      serve,
      writeBatch = new WriteBatch(),
      ended = ignore,
      unread = ignore,
      join = ignore,
    } = options;
    this.#options = options;
    this.connections = new ConnectionLimit(receiving, log, clock, options.connections);
    const deadlines = new DeadlineTimer(clock);
    const delivery = {
      clock,
      watch: deadlines,
      idleMs: CLIENT_IDLE_MS,
      leastBytesPerS: () => receiving().limits.minReplyBytesPerS,
    };
    const own = { drain: this.#drain, connectionOf: this.#connectionOf };
    this.#shared = { clock, log, writeBatch, deadlines, delivery, receiving, serve, ended, unread, join, ...own };
  }

  /** Serves also the events of a host's own `http.Server`. */
  get nodeHttp1(): NodeClients {
    return (this.#node ??= new this.#options.features.nodeHttp1.NodeHttp1(this.#shared, this.#serveWire));
  }

  get tls(): SecureServers {
    if (this.#tls === null) {
      this.#tls = new this.#options.features.serverTls.TlsServers(this.#options);
      this.#drain.add(this.#tls);
    }
    return this.#tls;
  }

  /**
   * Listens for HTTP/1.1, and for HTTP/2 where `h2c` says so; on the socket `fd` if it is given. Rejects with node's
   * listen error.
   */
  async listenPlain(host: string, port: number, fd?: number): Promise<AddressInfo> {
    const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (accepted) => {
      // Asked once: in a worker a reload may come between two questions, and only our own codec can read from memory
      // that is shared.
      const { h2c = false, http1 = "wire", proxyProtocol = "off" } = this.#options.protocols?.() ?? {};
      const isWire = !h2c && http1 === "wire" && proxyProtocol === "off";
      const socket = isWire ? toSharedReads(accepted) : accepted;
      this.#accept(socket, proxyProtocol, () => {
        if (isWire) this.#serveWire(socket);
        else if (h2c)
          this.#options.features.http2.detectProtocol(socket, this.#shared, (protocol) =>
            this.#serve(socket, protocol),
          );
        else this.#serve(socket, "HTTP/1");
      });
    });
    return this.#listen(server, host, port, fd);
  }

  /**
   * Listens for HTTP/1.1, and for HTTP/2 unless `http2` says no, over TLS ≥ 1.2, chosen by ALPN. Rejects with node's
   * listen or certificate error.
   */
  async listenSecure(host: string, port: number, files: TlsFiles, fd?: number): Promise<AddressInfo> {
    const server = this.tls.create(files, {
      accept: (socket, begin) => this.#accept(socket, this.#options.protocols?.().proxyProtocol ?? "off", begin),
      serve: (socket) => this.#serve(socket, socket.alpnProtocol === "h2" ? "HTTP/2" : "HTTP/1"),
    });
    return this.#listen(server, host, port, fd);
  }

  /**
   * After a reload that changed what HTTP/2 connections are opened under: sends GOAWAY to all of them, or to the plain
   * ones.
   */
  renewSessions(which: "all" | "plain" | "secure"): void {
    this.#http2?.renew(which);
  }

  /** From now on each HTTP/1 reply asks its client to reconnect. HTTP/2 clients get one GOAWAY, from `drain`. */
  announceStop(): void {
    this.#drain.isLeaving = true;
  }

  /**
   * Closes the ports, within `lingerMs` where clients were asked to reconnect. Connections stay open, and no client is
   * asked to leave.
   */
  stopAccepting(lingerMs: number): Promise<void> {
    return (this.#stopped ??= this.#stopAccepting(lingerMs));
  }

  async #stopAccepting(lingerMs: number): Promise<void> {
    const isAnnounced = this.#drain.isLeaving;
    // A client that is asked to reconnect while the port is open must not do so just as the port closes.
    this.#drain.isLeaving = false;
    if (lingerMs > 0 && this.#servers.length > 0) {
      // The system completes connections before node accepts them, and resets the ones that still wait when their port
      // closes: a pause is waited for, of clients that were asked to reconnect and do so over the network, and then of
      // connections that wait already, but not for ever.
      if (isAnnounced) await this.#untilNoneCome(lingerMs / PAUSE_MS, PAUSE_MS);
      await this.#untilNoneCome(BACKLOG, 0);
    }
    for (const server of this.#servers) server.close();
  }

  /**
   * Stops accepting. Each connection ends after its last reply, an idle one `lingerMs` after the last reply on any.
   * Resolves when all have ended.
   */
  async drain(lingerMs: number): Promise<void> {
    await this.stopAccepting(lingerMs);
    this.#http2?.renew("all");
    this.#drain.begin(this.#options.clock, lingerMs);
    if (this.#sockets.size > 0) await new Promise<void>((resolve) => (this.#onAllClosed = resolve));
  }

  /** Ends every connection at once, upgraded ones too. */
  destroy(): void {
    for (const server of this.#servers) server.close();
    this.#http2?.destroy();
    this.#node?.destroy();
    this.#drain.cancel();
    for (const socket of this.#sockets) socket.destroy();
  }

  readonly #connectionOf = (socket: Socket) =>
    isEncrypted(socket) ? this.#options.features.serverTls.connectionOf(socket) : connectionWithoutTls(socket);

  #serve(socket: Socket, protocol: "HTTP/1" | "HTTP/2"): void {
    if (protocol === "HTTP/2") (this.#http2 ??= this.#options.features.http2.createHttp2(this.#shared)).add(socket);
    else if (this.#options.protocols?.().http1 === "node") this.nodeHttp1.serve(socket);
    else this.#serveWire(socket);
  }

  readonly #serveWire = (socket: Socket) => void new ClientConnection(socket, this.#shared);

  /** Calls `serve` for a new TCP connection that is accepted, once its header of the PROXY protocol has been read. */
  #accept(accepted: Socket, proxyProtocol: "off" | "accept" | "require", serve: () => void): void {
    const socket = guardedEmitter(accepted);
    const giveBack = this.connections.admit(socket);
    if (giveBack === null) return;
    this.#sockets.add(socket);
    this.#accepted++;
    socket.on("error", ignore).once("close", () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.#onAllClosed?.();
    });
    if (proxyProtocol === "off") return serve();
    const { connections } = this;
    const reading = { ...this.#shared, connections, giveBack };
    this.#options.features.routing.readProxyHeader(socket, proxyProtocol, reading, serve);
  }

  async #listen(server: Server, host: string, port: number, fd: number | undefined): Promise<AddressInfo> {
    const { dualStack, ports } = this.#options;
    const ipv6Only = host.includes(":") && dualStack !== true;
    guardedEmitter(server).listen(
      fd === undefined ? { host, port, ipv6Only, ...(ports === "shared" && { reusePort: true }) } : { fd },
    );
    await once(server, "listening");
    server.on("error", ignore);
    const address = server.address();
    const isTcp = address !== null && typeof address === "object";
    if (ports === "taken" || !isTcp) server.close();
    else this.#servers.push(server);
    if (!isTcp) throw new Error("it is not a TCP socket");
    return address;
  }

  async #untilNoneCome(maxPauses: number, pauseMs: number): Promise<void> {
    for (let pause = 0, before = -1; pause < maxPauses && before !== this.#accepted; pause++) {
      before = this.#accepted;
      if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
      // Node accepts one connection in a turn of the event loop; the first of two turns comes before it looks at
      // sockets. A timer, too, may come late, and before those that wait by then.
      for (let i = 0; i < 2; i++) await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

/** Without new connections for this long, clients that were asked to reconnect have done so. */
const PAUSE_MS = 20;
/** How many connections wait at most to be accepted: node's default. */
const BACKLOG = 511;

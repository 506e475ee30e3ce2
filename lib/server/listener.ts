/**
 * The sockets that clients come to: plain and TLS, HTTP/1.1 and HTTP/2, until they are drained. Each request is received, given to
 * `serve`, and answered. What `serve` does is `gateway/serve.ts`.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import http2, { type ServerHttp2Stream } from "node:http2";
import net, { type AddressInfo, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { WriteBatch } from "../base/write_batch.ts";
import type { Log } from "../base/log.ts";
import { DeadlineTimer } from "../base/deadline_timer.ts";
import { messageOf } from "../base/errors.ts";
import type { Notes } from "../http/exchange.ts";
import { resetStream } from "../http/h2_streams.ts";
import { problem, type Reply } from "../http/reply.ts";
import { refuseBare } from "./socket_reply.ts";
import { NodeHttp1 } from "./http1_node.ts";
import { receiveStream } from "./h2_receive.ts";
import { respondStream } from "./h2_respond.ts";
import { createSessions } from "./h2_sessions.ts";
import { watchStream } from "./h2_upload.ts";
import { createH2c } from "./h2c.ts";
import type { HostCertificates } from "./certificates.ts";
import { CLIENT_IDLE_MS, KEEP_ALIVE_MS, type Responder } from "./http1.ts";
import { createWireHttp1 } from "./http1_wire.ts";
import { createConnectionLimit, createUploads, guard, type ConnectionLimit } from "./limits.ts";
import type { Inbound, ReceiveOptions } from "./receive.ts";
import { createTlsServers, type TlsFiles } from "./tls.ts";

export interface ListenerOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** With what replies leave; default: with each other. */
  readonly writeBatch?: WriteBatch;
  /** Answers a request. What it throws or rejects with is logged, and answered with 500. */
  readonly serve: (inbound: Inbound) => Reply | Promise<Reply>;
  /** What to believe at this moment; asked once a request. */
  readonly receiving: () => ReceiveOptions;
  /** Which codec serves HTTP/1 connections that begin now. Default: our own. */
  readonly http1?: () => "wire" | "node";
  /** Whether plain connections that begin now may speak HTTP/2 by prior knowledge. */
  readonly h2c: () => boolean;
  /** Milliseconds a client has for its TLS handshake. Default 10 000. */
  readonly handshakeMs?: number;
  /** Certificates by host name that are in force at this moment; asked once a TLS handshake. */
  readonly certificates: () => HostCertificates;
  /** Called once for each request, when its reply is out or its client is gone. */
  readonly ended: (inbound: Inbound) => void;
  /** Joins an upgraded client with its tunnel. */
  readonly join: (client: Duplex, behind: Buffer, tunnel: NonNullable<Reply["tunnel"]>, notes: Notes) => void;
}

export interface Listener {
  /** Listens for HTTP/1.1, and for HTTP/2 where `h2c` says so. Rejects with node's listen error. */
  listenPlain(host: string, port: number): Promise<AddressInfo>;
  /** Listens for HTTP/2 and HTTP/1.1 over TLS ≥ 1.2, chosen by ALPN. Rejects with node's listen or certificate error. */
  listenSecure(host: string, port: number, files: TlsFiles): Promise<AddressInfo>;
  /** Exchanges the files of every secure listener; connections stay. Throws, and changes nothing, when they cannot be used. */
  renewTls(files: TlsFiles): void;
  /** A reload has changed what HTTP/2 connections are opened under: those of before, or the plain ones of them, are told to go. */
  renewSessions(which: "all" | "plain"): void;
  /** For a host's own `http.Server`: its `request` and `upgrade` events. */
  readonly onRequest: (request: IncomingMessage, response: ServerResponse) => void;
  readonly onUpgrade: (request: IncomingMessage, socket: Duplex, behind: Buffer) => void;
  /** From now on HTTP/1 clients are asked to connect anew with each reply. HTTP/2 ones are told once, by `drain`. */
  announceStop(): void;
  /**
   * Stops accepting; connections end as their last reply goes out, those without a request `lingerMs` after the last one was over.
   * Resolves when all have.
   */
  drain(lingerMs: number): Promise<void>;
  /** Ends every connection at once, upgraded ones too. */
  destroy(): void;
  /** How many connections of clients there are, and were not taken. */
  readonly connections: Pick<ConnectionLimit, "open" | "refused">;
}

export function createListener(options: ListenerOptions): Listener {
  const { clock, log, writeBatch = new WriteBatch() } = options;
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  /** TCP connections whose TLS handshake has not finished, by their addresses. */
  const handshakes = new Map<string, Socket>();
  let taken = 0;
  let announced = false;
  const tlsServers = createTlsServers(options.certificates, clock, options.handshakeMs);
  const door = createConnectionLimit(options.receiving, log, clock);
  let allGone: (() => void) | null = null;
  const delivery = { clock, watch: new DeadlineTimer(clock), idleMs: CLIENT_IDLE_MS };
  const http1Options = { clock, log, writeBatch, delivery, receiving: options.receiving, answer, ended: options.ended, join: options.join };
  const wire = createWireHttp1(http1Options);
  const codecs = { wire, node: new NodeHttp1(http1Options, wire.serve) };
  const serveHttp1 = (socket: Socket) => codecs[options.http1?.() ?? "wire"].serve(socket);
  const limits = () => options.receiving().limits;
  const uploads = createUploads(clock);
  const http2Sessions = createSessions({ clock, log, limits, keepAliveMs: KEEP_ALIVE_MS, onStream });
  const h2c = createH2c({
    clock,
    timeoutMs: () => limits().headersTimeoutMs,
    tooLate: (socket) => refuseBare(socket, "request_timeout", { requestId: randomUUID(), clock, detail: "The request head did not arrive in time." }),
    serveHttp2: (socket) => http2Sessions.take(socket),
  });

  function onStream(stream: ServerHttp2Stream, block: readonly string[], endOfStream: boolean, takenBack: () => void): void {
    const rules = options.receiving();
    const inbound = receiveStream(stream, block, endOfStream, rules);
    const { call } = inbound;
    let state: "open" | "tunnel" | "given up" = "open";
    const giveUp = (code: number = http2.constants.NGHTTP2_INTERNAL_ERROR) => {
      state = "given up";
      resetStream(stream, code);
    };
    // Ahead of the `end` that node gives the body of a stream that is reset: half a request must not go on as a whole one.
    stream.once("aborted", () => call.abort());
    stream.once("close", () => {
      if (state === "tunnel" || isAnswered(stream)) {
        call.close();
      } else {
        call.abort();
        if (state === "open") takenBack();
      }
      options.ended(inbound);
    });
    const send = (reply: Reply) => {
      if (!respondStream(stream, inbound, reply, { ...delivery, giveUp })) return;
      state = "tunnel";
      call.close();
      options.join(stream, NOTHING, reply.tunnel!, call.notes);
    };
    const tooSlow = (why: string) => {
      if (!stream.headersSent) {
        send(problem(call, "request_timeout", { detail: "The request did not arrive in time.", why }));
        return call.abort();
      }
      // The reply is whole: its end tells the client that nobody reads on.
      if (stream.writableEnded) return;
      call.fail("request_timeout", why);
      giveUp(http2.constants.NGHTTP2_CANCEL);
    };
    if (inbound.body !== null) watchStream({ stream, headers: inbound.headers, limits: rules.limits, tooSlow }, uploads, clock);
    answer(inbound, { send, giveUp });
  }

  /** Hands the request on and its reply back; waits only where a promise comes. A reply that cannot be sent is a 500, or given up once it has begun. */
  function answer(inbound: Inbound, responder: Responder): void {
    const failed = (error: unknown) => {
      log.error("a reply could not be sent", { request_id: inbound.call.id, error: messageOf(error, "stack") });
      try {
        responder.send(problem(inbound.call, "internal", { why: messageOf(error) }));
      } catch {
        responder.giveUp();
      }
    };
    const attempt = (reply: Reply) => {
      try {
        responder.send(reply);
      } catch (error) {
        failed(error);
      }
    };
    try {
      const reply = options.serve(inbound);
      if (reply instanceof Promise) reply.then(attempt, failed);
      else attempt(reply);
    } catch (error) {
      failed(error);
    }
  }

  /** Whether a connection is taken. Over TLS its TCP connection is asked about. */
  function admitted(socket: Socket): boolean {
    if (!door.admit(socket)) return false;
    track(socket);
    return true;
  }

  function track(socket: Socket): void {
    sockets.add(socket);
    taken++;
    socket.once("close", () => {
      sockets.delete(socket);
      if (sockets.size === 0) allGone?.();
    });
  }

  /** Ends connections of which no byte of a request has come. */
  function endSilent(): void {
    h2c.drain();
    for (const socket of handshakes.values()) socket.destroy();
  }

  return {
    onRequest: codecs.node.onRequest,
    onUpgrade: codecs.node.onUpgrade,
    async listenPlain(host, port) {
      const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
        if (!admitted(socket)) return;
        socket.on("error", ignore);
        if (options.h2c()) h2c.look(socket, serveHttp1);
        else serveHttp1(socket);
      });
      const address = await listen(server, host, port);
      servers.push(server);
      return address;
    },
    async listenSecure(host, port, files) {
      const server = tlsServers.create(files);
      guard(server, (socket) => {
        if (!admitted(socket)) return false;
        const addresses = addressesOf(socket);
        handshakes.set(addresses, socket);
        socket.once("close", () => handshakes.delete(addresses));
        return true;
      });
      server.on("secureConnection", (socket) => {
        handshakes.delete(addressesOf(socket));
        // Only from here on: a client that closes its side during the handshake has left, and its connection must end with that.
        socket.allowHalfOpen = true;
        socket.on("error", ignore);
        if (socket.alpnProtocol === "h2") http2Sessions.take(socket);
        else serveHttp1(socket);
      });
      server.on("tlsClientError", (error, socket) => {
        log.debug("TLS handshake failed", { error: error.message });
        // node leaves one that has run out of time open.
        socket.destroy();
      });
      const address = await listen(server, host, port);
      servers.push(server);
      return address;
    },
    connections: door,
    renewSessions: (which) => http2Sessions.renew(which),
    renewTls: (files) => tlsServers.renew(files),
    announceStop() {
      announced = true;
      for (const codec of Object.values(codecs)) codec.sendAway(true);
    },
    async drain(lingerMs) {
      // Who is sent away while the port is open comes back to it, and must not do so just when it closes.
      if (announced) for (const codec of Object.values(codecs)) codec.sendAway(false);
      if (lingerMs > 0 && servers.length > 0) await untilNoneComes(() => taken, announced ? { pauseMs: 20, most: lingerMs / 20 } : WAITING_ALREADY);
      for (const server of servers) server.close();
      http2Sessions.drain();
      for (const codec of Object.values(codecs)) codec.drain(lingerMs);
      if (lingerMs === 0) endSilent();
      else clock.after(lingerMs, endSilent);
      if (sockets.size === 0) return;
      await new Promise<void>((resolve) => {
        allGone = resolve;
      });
    },
    destroy() {
      for (const server of servers) server.close();
      http2Sessions.destroy();
      for (const codec of Object.values(codecs)) codec.destroy();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function listen(server: Server, host: string, port: number): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    // "::" alone would take the IPv4 port too and clash with 0.0.0.0.
    server.listen({ host, port, ipv6Only: host.includes(":") }, () => {
      server.removeListener("error", reject);
      server.on("error", ignore);
      resolve(server.address() as AddressInfo);
    });
  });
}

/** The same for a TLS socket and for its TCP connection, which node does not give with it. */
function addressesOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

/**
 * The system takes connections before we do, and resets those that still wait when their port is closed. This waits for a pause in which
 * none comes, but not for ever.
 */
async function untilNoneComes(taken: () => number, { pauseMs, most }: { readonly pauseMs: number; readonly most: number }): Promise<void> {
  for (let pause = 0, before = -1; pause < most && before !== taken(); pause++) {
    before = taken();
    if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    // A turn of the event loop, in which node takes one: the first of two comes before it looks at sockets.
    else for (let i = 0; i < 2; i++) await new Promise((resolve) => setImmediate(resolve));
  }
}

/** As many turns as connections wait at most: node's backlog. */
const WAITING_ALREADY = { pauseMs: 0, most: 511 };

/**
 * Whether the whole reply is out. Node ends the writing side of a stream by itself where the client resets it (then `aborted` tells),
 * and at once for a HEAD (then the head tells).
 */
function isAnswered(stream: ServerHttp2Stream): boolean {
  return stream.headersSent && stream.writableFinished && !stream.aborted && stream.rstCode === http2.constants.NGHTTP2_NO_ERROR;
}

const NOTHING = Buffer.alloc(0);

function ignore(): void {}

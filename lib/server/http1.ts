/**
 * What both codecs for HTTP/1 clients share, our own (`client_connection.ts`) and node's (`http1_node.ts`): options,
 * drain, refusals of what cannot be read.
 */
import { randomUUID } from "node:crypto";
import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock, DeadlineTimer, Timer } from "../base/clock.ts";
import { ERRORS } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { WriteBatch } from "../base/event_loop.ts";
import type { DeliveryOptions } from "../http/delivery.ts";
import type { Call, Notes } from "../http/exchange.ts";
import type { HeaderList } from "../http/headers.ts";
import type { OwnReply } from "../http/own_body.ts";
import { errorReply, type Reply, type Tunnel } from "../http/reply.ts";
import { headTooLarge, type RequestRefusal } from "./request_head.ts";
import { endSoon } from "./linger.ts";
import type { ConnectionFacts, Inbound, ReceiveOptions, Unread } from "./inbound.ts";

/** Sends the reply to one request. */
export interface Responder {
  /** Sends the reply; called once, unless `giveUp` is. */
  send(reply: Reply): void;
  /** No reply can be sent: ends the connection or stream. */
  giveUp(): void;
}

export interface Http1Options {
  readonly connectionOf: (socket: Socket) => ConnectionFacts;
  readonly clock: Clock;
  readonly writeBatch: WriteBatch;
  /** The deadlines of all connections, uploads and replies of a listener. */
  readonly deadlines: DeadlineTimer;
  readonly log: Log;
  readonly drain: Drain;
  /** The rules in force at this moment; asked at each read of a connection, or for each request. */
  readonly receiving: () => ReceiveOptions;
  /** Answers a request. An error or rejection is logged, and answered with 500. */
  readonly serve: (inbound: Inbound) => Reply | Promise<Reply>;
  /** Called once for each request, when its reply was sent or its client has disconnected. */
  readonly ended: (inbound: Inbound) => void;
  /** Called for each request that is refused and never became one. */
  readonly unread: (unread: Unread) => void;
  /** How replies that clients do not read are ended. */
  readonly delivery: DeliveryOptions;
  /** Connects an upgraded client to its tunnel. */
  readonly join: (client: Duplex, firstBytes: Buffer, tunnel: Tunnel, notes: Notes, delivery: DeliveryOptions) => void;
}

/** A connection, or what has several. */
export interface HasConnections {
  /** Ends those without a request. */
  endIdle(): void;
}

/** Ends the connections of a listener. */
export class Drain {
  /** Whether connections end with their next reply. */
  isLeaving = false;
  readonly #members = new Set<HasConnections>();
  #timer: Timer | null = null;

  get hasBegun(): boolean {
    return this.#timer !== null;
  }

  /**
   * Connections end with their next reply; those without a request `lingerMs` after the last reply on any, as a request
   * on its way to one may be lost.
   */
  begin(clock: Clock, lingerMs: number): void {
    const endIdle = () => {
      for (const member of this.#members) member.endIdle();
    };
    this.isLeaving = true;
    this.#timer = clock.after(lingerMs, endIdle);
    if (lingerMs === 0) endIdle();
  }

  add(member: HasConnections): void {
    this.#members.add(member);
    this.postpone();
  }

  remove(member: HasConnections): void {
    this.#members.delete(member);
  }

  /** A connection has begun, or answered its request: its client may not know yet that it is ending. */
  postpone(): void {
    this.#timer?.restart();
  }

  cancel(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }
}

/**
 * Milliseconds that an idle client connection is kept: longer than the 60 s of most load balancers in front of a
 * gateway.
 */
export const KEEP_ALIVE_MS = 75_000;
/** What a reply says of its connection. */
export const CLOSE = "Connection: close\r\n";
export const KEEP_ALIVE = `Connection: keep-alive\r\nKeep-Alive: timeout=${KEEP_ALIVE_MS / 1000}\r\n`;
export const UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
export const NOTHING = Buffer.alloc(0);
/** Milliseconds that a client may leave a reply unread. */
export const CLIENT_IDLE_MS = 60_000;

/** Why a request is refused that its client has not sent to its end. */
export const CUT_OFF: RequestRefusal = { code: "bad_request", detail: "the connection ended before the request did" };

export const LATE_HEAD: RequestRefusal = { code: "request_timeout", detail: "the head did not arrive in time" };

/** What is known of a request that could not be read. */
export interface KnownOfUnread {
  /** Its connection, where that of the reply is a view of it. */
  readonly socket?: Socket;
  /** Of a request that has begun, and is reported when it ends. */
  readonly call?: Call | undefined;
  readonly line?: Unread["line"];
  /** What the client is told; default: by the code. */
  readonly said?: string;
}

/** Refuses a request that could not be read, and ends its connection; `detail` is for the log. */
export function refuseUnread(
  socket: Duplex,
  options: Http1Options,
  refusal: RequestRefusal,
  known: KnownOfUnread = {},
): void {
  const { call, line = null, said: detail = saidOf(refusal, options.receiving().limits) } = known;
  const whose = call ?? { id: randomUUID(), ownBody: options.receiving().ownBody ?? null };
  const { code } = refusal;
  const reply = errorReply({ code, ...ERRORS[code] }, whose, { detail });
  const sent = socket.writable ? sendRefusal(socket, reply, options.clock, whose.id, line?.method === "HEAD") : null;
  if (sent === null) socket.destroy();
  const { sentAs = reply.status } = reply;
  const isGone = refusal === CUT_OFF;
  if (call === undefined) {
    const connection = options.connectionOf(known.socket ?? (socket as Socket));
    const status = sent === null ? null : sentAs;
    options.unread({ ...refusal, id: whose.id, connection, line, httpVersion: "1.1", sent, status, isGone });
  } else if (!isGone) call.notes.status = sentAs;
}

function saidOf({ code }: RequestRefusal, { maxHeaderBytes, maxUriBytes }: ReceiveOptions["limits"]): string {
  if (code === "headers_too_large") return headTooLarge(maxHeaderBytes).detail;
  if (code === "uri_too_long") return `The request target may have at most ${maxUriBytes} bytes.`;
  return code === "request_timeout" ? "The request did not arrive in time." : "The request is not valid HTTP/1.1.";
}

/** Sends the reply, and ends the connection. Returns the bytes of the body. */
function sendRefusal(
  socket: Duplex,
  { status, sentAs = status, headers, body }: OwnReply,
  clock: Clock,
  requestId: string,
  isHead: boolean,
): number {
  const own = ["Date", new Date(clock.wall()).toUTCString(), "X-Request-Id", requestId, "Connection", "close"];
  socket.write(head(`HTTP/1.1 ${sentAs} ${STATUS_CODES[sentAs] ?? ""}`, [...headers, ...own]), "latin1");
  const bytes = isHead || body === null ? NOTHING : body;
  socket.write(bytes);
  endSoon(socket, clock);
  return bytes.length;
}

/**
 * 102, 103 and the like: unknown in HTTP/1.0 (RFC 9110 §15.2), and dropped for a client that is behind, as an upstream
 * could send them without end.
 */
export function writeInformation(socket: Socket, httpVersion: string, status: number, headers: HeaderList): void {
  if (httpVersion === "1.0" || socket.writableNeedDrain) return;
  socket.write(head(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}`, headers), "latin1");
}

/** The head of a message, to be written as Latin-1. */
export function head(firstLine: string, headers: HeaderList): string {
  let text = `${firstLine}\r\n`;
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return text + "\r\n";
}

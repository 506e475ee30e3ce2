/**
 * The interface of both codecs for HTTP/1 clients: our own (`http1_wire.ts`) and node's (`http1_node.ts`).
 */
import type { Duplex } from "node:stream";
import type { Socket } from "node:net";
import type { Clock, Timer } from "../base/clock.ts";
import type { WriteBatch } from "../base/write_batch.ts";
import type { ErrorCode } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Notes } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
import type { DeliveryOptions } from "./delivery.ts";
import type { Limits } from "./limits.ts";
import type { Inbound, ReceiveOptions } from "./receive.ts";

/** Sends the reply to one request. */
export interface Responder {
  /** Sends the reply; called once, unless `giveUp` is. */
  send(reply: Reply): void;
  /** No reply can be sent: ends the connection or stream. */
  giveUp(): void;
}

export interface Http1Options {
  readonly clock: Clock;
  readonly writeBatch: WriteBatch;
  readonly log: Log;
  /** The rules in force at this moment; asked once a request. */
  readonly receiving: () => ReceiveOptions;
  /** Answers a request: calls `send` or `giveUp` of the responder, once. */
  readonly answer: (inbound: Inbound, responder: Responder) => void;
  /** Called once for each request, when its reply is out or its client has disconnected. */
  readonly ended: (inbound: Inbound) => void;
  /** How replies that clients do not read are ended. */
  readonly delivery: DeliveryOptions;
  readonly join: (client: Duplex, behind: Buffer, tunnel: NonNullable<Reply["tunnel"]>, notes: Notes) => void;
}

export interface Http1 {
  /** Serves HTTP/1 on a connection that has been admitted. */
  serve(socket: Socket): void;
  /** Whether connections end with their next reply from now on. */
  sendAway(away: boolean): void;
  /**
   * Ends connections with their next reply, and those without a request `lingerMs` after the last reply: a request on its way to a connection
   * that is closed is lost, and its client cannot know whether it was served.
   */
  drain(lingerMs: number): void;
  /** Frees what is not a connection. */
  destroy(): void;
}

/** The part of `Http1` that ends connections: `endIdle` ends those without a request. */
export function createDrain(clock: Clock, endIdle: () => void) {
  let isLeaving = false;
  let timer: Timer | null = null;
  return {
    isLeaving: () => isLeaving,
    sendAway(away: boolean): void {
      isLeaving = away;
    },
    begin(lingerMs: number): void {
      isLeaving = true;
      timer = clock.after(lingerMs, endIdle);
      if (lingerMs === 0) endIdle();
    },
    /** A connection has begun or lost its request: its client may not know yet that it has to leave. */
    postpone: () => timer?.restart(),
    cancel(): void {
      timer?.cancel();
      timer = null;
    },
  };
}

export type Drain = ReturnType<typeof createDrain>;

/** How long an idle client connection is kept, in milliseconds: longer than the 60 s that load balancers in front of a gateway usually keep theirs. */
export const KEEP_ALIVE_MS = 75_000;
/** How long a client may leave a reply unread, in milliseconds. */
export const CLIENT_IDLE_MS = 60_000;

/** The detail of the problem document for a request that could not be read. */
export function clientErrorDetail(code: ErrorCode, { maxHeaderBytes, maxUriBytes }: Limits): string | undefined {
  if (code === "headers_too_large") return `The request line and header fields may have ${maxHeaderBytes} bytes together.`;
  if (code === "uri_too_long") return `The request target may have ${maxUriBytes} bytes.`;
  return code === "request_timeout" ? "The request did not arrive in time." : "The request is not valid HTTP/1.1.";
}

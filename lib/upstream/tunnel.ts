/**
 * Joins two connections after a protocol switch: every byte passes both ways, with back-pressure, until either side ends.
 */
import { constants, type Http2Stream } from "node:http2";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { pump, sinkOf } from "../http/body.ts";
import type { Notes } from "../http/exchange.ts";
import { resetStream } from "../http/h2_streams.ts";
import type { Tunnel } from "../http/reply.ts";

/**
 * Either side is a socket or an HTTP/2 stream. `clientHead` and `tunnel.head` are bytes that arrived behind the upgrade on either side.
 * `notes` counts the bytes.
 */
export function joinTunnel(client: Duplex, clientHead: Buffer, tunnel: Tunnel, notes: Pick<Notes, "received" | "sent">): void {
  const upstream = tunnel.socket;
  // Closed while a plugin handled the 101: its events are over, and the other side would wait for it.
  if (upstream.destroyed) return reset(client);
  if (client.destroyed) return reset(upstream);
  // By default it ends with the other side; here either side may continue alone.
  upstream.allowHalfOpen = true;
  if (clientHead.length > 0) upstream.write(clientHead);
  if (tunnel.head.length > 0) client.write(tunnel.head);
  notes.received = clientHead.length;
  notes.sent = tunnel.head.length;
  carry(client, upstream, (bytes) => (notes.received! += bytes));
  carry(upstream, client, (bytes) => (notes.sent! += bytes));
  const moved = closeWhenIdle(client, upstream, tunnel.idleMs);
  client.on("data", moved);
  upstream.on("data", moved);
  // It was paused behind the 101.
  upstream.resume();
}

function carry(from: Duplex, to: Duplex, passed: (bytes: number) => void): void {
  pump(from, sinkOf(to), {
    passed,
    // A normal end of one side is passed on; the other side may still be sending.
    done: () => (wasReset(from) ? reset(to) : to.end()),
    broken: () => reset(to),
  });
  // A closed side emits no "drain", so the other side would stay paused for ever. Data already queued for the other side is still sent.
  to.once("close", () => {
    if (wasReset(to)) reset(from);
    else if (from.writableEnded && !from.writableFinished) from.once("finish", () => cut(from));
    else cut(from);
  });
}

/** Passes a reset on as a reset: RST for RST (RFC 8441 §5). Data still queued for that side is lost, as it would be without a proxy. */
function reset(side: Duplex): void {
  if (side instanceof Socket && !(side instanceof TLSSocket)) side.resetAndDestroy();
  else cut(side);
}

/** Ends a side at once: an HTTP/2 stream with CANCEL, where Node would send NO_ERROR. */
function cut(side: Duplex): void {
  if (isStream(side) && !side.destroyed && !side.closed) resetStream(side, constants.NGHTTP2_CANCEL);
  else side.destroy();
}

/** An HTTP/2 stream ends its readable side in good order also when it is reset. */
function wasReset(side: Duplex): boolean {
  // Undefined until it is closed, by Node's documentation.
  return isStream(side) && (side.rstCode ?? constants.NGHTTP2_NO_ERROR) !== constants.NGHTTP2_NO_ERROR;
}

function isStream(side: Duplex): side is Http2Stream {
  return "rstCode" in side;
}

/** The tunnel is idle when both sides have timed out, or closed, and no byte has moved since the first did. Returns the function that counts a move. */
function closeWhenIdle(client: Duplex, upstream: Duplex, idleMs: number): () => void {
  const sides: (Duplex & { setTimeout?(ms: number): void })[] = [client, upstream];
  const movedAtTimeout = [-1, -1];
  let moved = 0;
  sides.forEach((side, own) => {
    // Not as the argument of `setTimeout`, which would be called at the first timeout only.
    side.on("timeout", () => {
      movedAtTimeout[own] = moved;
      if (movedAtTimeout[1 - own] !== moved && !sides[1 - own]!.destroyed) return side.setTimeout?.(idleMs);
      cut(client);
      cut(upstream);
    });
    side.setTimeout?.(idleMs);
  });
  return () => void moved++;
}

/**
 * Joins two connections after a protocol switch: every byte passes both ways, with back-pressure, until either side ends. Either may
 * be a socket or a stream of HTTP/2. The switch itself, and who may have one, is decided before.
 */
import { constants, type Http2Stream } from "node:http2";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { pump, sinkOf } from "../http/body.ts";
import type { Notes } from "../http/exchange.ts";
import { resetStream } from "../http/h2_streams.ts";
import type { Tunnel } from "../http/reply.ts";

/** `clientHead` and `tunnel.head` are bytes that arrived behind the upgrade on either side. `notes` counts what passes. */
export function joinTunnel(client: Duplex, clientHead: Buffer, tunnel: Tunnel, notes: Pick<Notes, "received" | "sent">): void {
  const upstream = tunnel.socket;
  // Gone while a plugin thought about the 101: it would never be heard of again, and the other side would wait for it.
  if (upstream.destroyed) return reset(client);
  if (client.destroyed) return reset(upstream);
  // Connections of an agent end as soon as the other side does; here either side may go on alone.
  upstream.allowHalfOpen = true;
  if (clientHead.length > 0) upstream.write(clientHead);
  if (tunnel.head.length > 0) client.write(tunnel.head);
  notes.received = clientHead.length;
  notes.sent = tunnel.head.length;
  carry(client, upstream, (bytes) => (notes.received! += bytes));
  carry(upstream, client, (bytes) => (notes.sent! += bytes));
  const move = closeWhenIdle(client, upstream, tunnel.idleMs);
  client.on("data", move);
  upstream.on("data", move);
  // Held back by whoever read the 101 from it.
  upstream.resume();
}

function carry(from: Duplex, to: Duplex, passed: (bytes: number) => void): void {
  pump(from, sinkOf(to), {
    passed,
    // An orderly end of one side is passed on; the other may still be talking.
    done: () => (wasReset(from) ? reset(to) : to.end()),
    broken: () => reset(to),
  });
  // A side that is wholly gone takes nothing more: the other would wait, paused, for ever. What is on its way to it still goes out.
  to.once("close", () => {
    if (wasReset(to)) reset(from);
    else if (from.writableEnded && !from.writableFinished) from.once("finish", () => cut(from));
    else cut(from);
  });
}

/** Passes a break on as one: RST for RST (RFC 8441 §5). What is still on its way to the other side is lost, as it would be without us. */
function reset(side: Duplex): void {
  if (side instanceof Socket && !(side instanceof TLSSocket)) side.resetAndDestroy();
  else cut(side);
}

/** Ends a side at once: a stream of HTTP/2 says CANCEL, where node would say that there was no error. */
function cut(side: Duplex): void {
  if (isStream(side) && !side.destroyed && !side.closed) resetStream(side, constants.NGHTTP2_CANCEL);
  else side.destroy();
}

/** A stream of HTTP/2 ends its reading side in good order also when the client resets it. */
function wasReset(side: Duplex): boolean {
  // Undefined until it is closed, by node's documentation.
  return isStream(side) && (side.rstCode ?? constants.NGHTTP2_NO_ERROR) !== constants.NGHTTP2_NO_ERROR;
}

function isStream(side: Duplex): side is Http2Stream {
  return "rstCode" in side;
}

/**
 * Each side tells when it has been still for `idleMs`. The tunnel is idle when both have told and no byte has come from either since
 * the first did. Returns what is to be called for each byte's sake.
 */
function closeWhenIdle(client: Duplex, upstream: Duplex, idleMs: number): () => void {
  const sides: Timed[] = [client, upstream];
  const movedWhenStill = [-1, -1];
  let moved = 0;
  sides.forEach((side, own) => {
    // Not as the argument of `setTimeout`: that would hear of the first silence only.
    side.on("timeout", () => {
      movedWhenStill[own] = moved;
      if (movedWhenStill[1 - own] === moved) {
        cut(client);
        cut(upstream);
      } else {
        side.setTimeout?.(idleMs);
      }
    });
    side.setTimeout?.(idleMs);
  });
  return () => void moved++;
}

type Timed = Duplex & { setTimeout?(ms: number): void };

/**
 * Joins two connections after a protocol switch: every byte passes both ways, with back-pressure, until either side
 * ends.
 */
import type { Duplex } from "node:stream";
import { breakOff, pump } from "../http/body.ts";
import { PacedSink, type DeliveryOptions } from "../http/delivery.ts";
import type { Notes } from "../http/exchange.ts";
import type { Tunnel } from "../http/reply.ts";

/**
 * Either side is a socket, or an HTTP/2 stream that is cancelled when it is destroyed (`cancelWhenDestroyed`).
 * `clientHead` and `tunnel.head` are bytes that arrived behind the upgrade on either side.
 * `notes` counts the bytes. `delivery`: for the client, which may read as slowly as a reply; the upstream has
 * `tunnel.idleMs`.
 */
export function joinTunnel(
  client: Duplex,
  clientHead: Buffer,
  tunnel: Tunnel,
  notes: Pick<Notes, "received" | "sent">,
  delivery: DeliveryOptions,
): void {
  const { idleMs, socket: upstream } = tunnel;
  // Closed while a plugin handled the 101: its events are over, and the other side would wait for it.
  if (upstream.destroyed) return breakOff(client);
  if (client.destroyed) return breakOff(upstream);
  // By default it ends with the other side; here either side may continue alone.
  upstream.allowHalfOpen = true;
  if (clientHead.length > 0) upstream.write(clientHead);
  if (tunnel.head.length > 0) client.write(tunnel.head);
  notes.received = clientHead.length;
  notes.sent = tunnel.head.length;
  const tooSlow = () => {
    client.destroy();
    upstream.destroy();
  };
  const toUpstream = new PacedSink(
    upstream,
    { ...delivery, idleMs, leastBytesPerS: () => 0 },
    () => notes.received!,
    tooSlow,
  );
  const toClient = new PacedSink(client, delivery, () => notes.sent!, tooSlow);
  carry(client, upstream, toUpstream, (bytes) => (notes.received! += bytes));
  carry(upstream, client, toClient, (bytes) => (notes.sent! += bytes));
  closeWhenIdle(client, upstream, idleMs, () => toUpstream.isBusy() || toClient.isBusy());
  // It was paused behind the 101.
  upstream.resume();
}

function carry(from: Duplex, to: Duplex, sink: PacedSink, passed: (bytes: number) => void): void {
  pump(from, sink, {
    passed,
    // A normal end of one side is passed on, the other side may still be sending; and a reset as a reset (RFC 8441 §5).
    done: () => (wasReset(from) ? breakOff(to) : to.end()),
    broken: () => breakOff(to),
  });
  // A closed side emits no "drain", so the other side would stay paused for ever. Data already queued for the other
  // side is still sent.
  to.once("close", () => {
    sink.stop();
    if (wasReset(to)) breakOff(from);
    else if (from.writableEnded && !from.writableFinished) from.once("finish", () => from.destroy());
    else from.destroy();
  });
}

/**
 * An HTTP/2 stream ends its readable side in good order also when it is reset. Its code is 0 (NO_ERROR) or, until it is
 * closed, undefined without a reset.
 */
function wasReset({ rstCode = 0 }: Duplex & { readonly rstCode?: number }): boolean {
  return rstCode !== 0;
}

/**
 * The tunnel is idle when both sides have timed out, or closed, no byte has moved since the first did, and nobody reads
 * what is under way.
 */
function closeWhenIdle(client: Duplex, upstream: Duplex, idleMs: number, isBusy: () => boolean): void {
  const sides: (Duplex & { setTimeout?(ms: number): void })[] = [client, upstream];
  const movedAtTimeout = [-1, -1];
  let moved = 0;
  sides.forEach((side, own) => {
    for (const event of ["data", "drain"]) side.on(event, () => void moved++);
    // Not as the argument of `setTimeout`, which would be called at the first timeout only.
    side.on("timeout", () => {
      movedAtTimeout[own] = moved;
      if ((movedAtTimeout[1 - own] !== moved && !sides[1 - own]!.destroyed) || isBusy())
        return side.setTimeout?.(idleMs);
      client.destroy();
      upstream.destroy();
    });
    side.setTimeout?.(idleMs);
  });
}

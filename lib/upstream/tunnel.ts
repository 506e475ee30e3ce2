/**
 * Joins two sockets after a protocol switch: every byte passes both ways, with back-pressure, until either side ends.
 * The 101 itself, and who may have one, is decided before.
 */
import type { Duplex } from "node:stream";
import { pump } from "../http/body.ts";
import type { Tunnel } from "../http/reply.ts";

/** `clientHead` and `tunnel.head` are bytes that arrived behind the upgrade on either side. */
export function joinTunnel(client: Duplex, clientHead: Buffer, tunnel: Tunnel): void {
  const upstream = tunnel.socket;
  // Connections of an agent end as soon as the other side does; here either side may go on alone.
  upstream.allowHalfOpen = true;
  if (clientHead.length > 0) upstream.write(clientHead);
  if (tunnel.head.length > 0) client.write(tunnel.head);
  carry(client, upstream);
  carry(upstream, client);
  closeWhenIdle(client, upstream, tunnel.idleMs);
}

function carry(from: Duplex, to: Duplex): void {
  pump(from, to, {
    // An orderly end of one side is passed on; the other may still be talking.
    done: () => to.end(),
    broken: () => to.destroy(),
  });
  // A side that is wholly gone takes nothing more: the other would wait, paused, for ever. What is on its way to it still goes out.
  to.once("close", () => {
    if (from.writableEnded && !from.writableFinished) from.once("finish", () => from.destroy());
    else from.destroy();
  });
}

/**
 * Each socket tells when it has been still for `idleMs`. The tunnel is idle when both have told and nothing has moved on either since
 * the first did.
 */
function closeWhenIdle(client: Duplex, upstream: Duplex, idleMs: number): void {
  const sides: Timed[] = [client, upstream];
  const movedWhenStill = [-1, -1];
  sides.forEach((side, own) => {
    side.setTimeout?.(idleMs, () => {
      const moved = bytesMoved(client, upstream);
      movedWhenStill[own] = moved;
      if (movedWhenStill[1 - own] === moved) {
        client.destroy();
        upstream.destroy();
      } else {
        side.setTimeout?.(idleMs);
      }
    });
  });
}

type Timed = Duplex & { setTimeout?(ms: number, run?: () => void): void };

function bytesMoved(...sides: Duplex[]): number {
  let sum = 0;
  for (const side of sides as (Duplex & { bytesRead?: number; bytesWritten?: number })[]) sum += (side.bytesRead ?? 0) + (side.bytesWritten ?? 0);
  return sum;
}

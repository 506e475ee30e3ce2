/**
 * Tells a server which client a connection from inside its own process is made for, by both addresses and ports of the connection, which no
 * other connection can have meanwhile. No header carries it, so none can be forged.
 */
import type { Socket } from "node:net";

export interface OriginalClients {
  /** To be called by the end that connects, once it has its socket; `address` is the client's, without a port. */
  note(socket: Socket, address: string): void;
  /** The client's address for a socket of the end that accepts: the one that was noted, or else that of the other end; "" when it is gone. */
  addressOf(socket: Socket): string;
}

export function createOriginalClients(): OriginalClients {
  const noted = new Map<string, string>();
  return {
    note(socket, address) {
      const begin = () => {
        const key = keyOf(socket.localAddress, socket.localPort, socket.remoteAddress, socket.remotePort);
        noted.set(key, address);
        socket.once("close", () => noted.delete(key));
      };
      if (socket.connecting) socket.once("connect", begin);
      else begin();
    },
    addressOf: ({ remoteAddress, remotePort, localAddress, localPort }) =>
      noted.get(keyOf(remoteAddress, remotePort, localAddress, localPort)) ?? remoteAddress ?? "",
  };
}

/** A dual-stack listener writes 127.0.0.1 as ::ffff:127.0.0.1. */
function keyOf(from = "", fromPort = 0, to = "", toPort = 0): string {
  return `${from} ${fromPort} ${to} ${toPort}`.replaceAll("::ffff:", "");
}

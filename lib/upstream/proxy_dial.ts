/**
 * Begins connections to an upstream with a header of the PROXY protocol (`service.proxy_protocol`), before TLS or HTTP.
 */
import type { Socket } from "node:net";
import type { Dial } from "../base/egress.ts";
import { guardedEmitter } from "../base/event_loop.ts";
import { proxyHeader } from "../base/proxy_protocol.ts";
import type { ForClient } from "./contracts.ts";

export { fields } from "../config/proxy_protocol.ts";

/** Connections that are not for a client are the gateway's own: its checks. */
export function proxiedDial(dial: Dial, version: "v1" | "v2", port: number): Dial {
  return ({ client = null, ...options }: Parameters<Dial>[0] & ForClient, secure) => {
    const socket = dial(options, null);
    // Before whoever waits for the connection writes to it.
    socket.prependOnceListener("connect", () => {
      socket.write(proxyHeader(version, client, socket.remoteAddress ?? "", port));
    });
    return secure === null ? socket : over(socket, secure.open({ ...secure, socket }));
  };
}

/** Errors of the connection are those of TLS over it. */
function over(socket: Socket, secure: Socket): Socket {
  socket.on("error", (error) => secure.destroy(error));
  return guardedEmitter(secure);
}

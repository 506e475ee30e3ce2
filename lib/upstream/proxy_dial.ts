/**
 * Begins connections to an upstream with a header of the PROXY protocol (`service.proxy_protocol`), before TLS or HTTP.
 */
import type { Socket } from "node:net";
import type { Destination, Dial } from "../base/egress.ts";
import { headedTls } from "../base/egress_tls.ts";
import { proxyHeader } from "../base/proxy_protocol.ts";
import type { ForClient } from "./contracts.ts";

export { fields } from "../config/proxy_protocol.ts";

/** `dial` leads to `to`. Connections that are not for a client are the gateway's own: its checks. */
export function proxiedDial(dial: Dial, version: "v1" | "v2", to: Destination): Dial {
  return ({ client = null, ...options }: Parameters<Dial>[0] & ForClient, secure) => {
    // Before whoever waits for the connection writes to it.
    const begin = (socket: Socket) =>
      socket.prependOnceListener("connect", () => {
        const { port } = to;
        socket.write(proxyHeader(version, client, { host: socket.remoteAddress ?? to.host, port }));
      });
    return secure === null ? begin(dial(options, null)) : dial(options, headedTls(secure, begin));
  };
}

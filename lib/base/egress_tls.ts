/**
 * Connections over TLS for an `Egress`. By itself, because a program that makes none does without Node's TLS: 0.7 MiB.
 */
import { Socket, type TcpNetConnectOpts } from "node:net";
import tls, { type ConnectionOptions } from "node:tls";
import type { Secure } from "./egress.ts";

export function overTls(options: ConnectionOptions): Secure {
  return { ...options, open: (all) => tls.connect(all) };
}

/** The same over TCP connections that `begin` gets before they are open, to write what comes before TLS. */
export function headedTls(secure: Secure, begin: (socket: Socket) => void): Secure {
  const open = (all: ConnectionOptions) => {
    const given = all.socket as Socket | undefined;
    // TLS must not be laid over a handle: where a name has several addresses, Node takes another one for each.
    const below = given ?? new Socket();
    begin(below);
    const socket = secure.open({ ...all, socket: below });
    below.on("error", (error) => socket.destroy(error));
    Object.defineProperty(socket, "remoteAddress", { get: () => below.remoteAddress });
    if (given === undefined)
      below
        .setNoDelay(true)
        .unref()
        .connect(all as TcpNetConnectOpts);
    return socket;
  };
  return { ...secure, open };
}

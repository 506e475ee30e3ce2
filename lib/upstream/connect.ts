/**
 * Opens a TCP or TLS connection to an upstream, by the addresses that its name has.
 */
import type { Socket } from "node:net";
import type { Secure } from "../base/egress.ts";
import type { Address, ConnectTarget } from "./contracts.ts";

/**
 * `first`: see `HostName.connectOptions`. `secure`: null for plain TCP. `readyEvent` names the event that the socket
 * emits when it can be used.
 */
export function connect(to: ConnectTarget, secure: Secure | null, first: Address | undefined, more?: object): Socket {
  const socket = to.dial({ ...to.name?.connectOptions(first), ...more }, secure);
  // Nagle's algorithm would hold back the last small segment of each message. A host's process lives as long as the
  // client of a request, and not until an idle connection ends.
  return socket.setNoDelay(true).unref();
}

export function readyEvent(socket: Socket): "connect" | "secureConnect" {
  return "encrypted" in socket ? "secureConnect" : "connect";
}

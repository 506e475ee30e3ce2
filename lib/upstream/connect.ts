/**
 * Opens a TCP or TLS connection to an upstream, by the addresses that its name has.
 */
import type { Socket } from "node:net";
import type { Dial, Secure } from "../base/egress.ts";
import type { Address, HostName } from "./contracts.ts";

export interface ConnectTarget {
  readonly host: string;
  readonly port: number;
  /** Connects to `host` and `port`. */
  readonly dial: Dial;
  /** The addresses of `host`, if it is a name. Default: Node looks the name up for every connection. */
  readonly name?: HostName;
}

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

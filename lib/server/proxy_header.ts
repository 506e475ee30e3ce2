/**
 * Reads the header of the PROXY protocol, with which a proxy begins a connection, before anything else is read from it.
 */
import type { Socket } from "node:net";
import { parseProxyHeader, proxyHeaderBegins, type ProxyHeader } from "../base/proxy_protocol.ts";
import { readFirstBytes } from "./first_bytes.ts";
import type { Http1Options } from "./http1.ts";
import type { ConnectionLimit } from "./limits.ts";

interface ReadingOptions extends Pick<Http1Options, "clock" | "drain" | "receiving"> {
  readonly connections: ConnectionLimit;
  /** Uncounts the connection as one of its proxy. */
  readonly giveBack: () => void;
}

/**
 * Calls `serve` for a connection whose header has been read: from then on `remoteAddress` is the client's, and it
 * counts as one of the client. Bytes behind the header are put back. Resets the connection where a header is not from
 * `trusted_proxies`, is invalid, or has not arrived within `limits.headersTimeoutMs`; or where there is none and `mode`
 * is "require".
 */
export function readProxyHeader(
  socket: Socket,
  mode: "accept" | "require",
  options: ReadingOptions,
  serve: () => void,
): void {
  const { receiving, connections, giveBack } = options;
  const isTrusted = () => receiving().proxies?.has(socket.remoteAddress ?? "") === true;
  // Nothing that it sends would be read.
  if (mode === "require" && !isTrusted()) return connections.refuse(socket, UNTRUSTED);
  /** The reason where the connection is refused. */
  const read = (bytes: Buffer): ProxyHeader | string | null => {
    const begins = proxyHeaderBegins(bytes);
    if (begins === "part") return null;
    if (begins === "none") return mode === "require" ? "there is no PROXY header" : NO_HEADER;
    if (!isTrusted()) return UNTRUSTED;
    const header = parseProxyHeader(bytes);
    if (header === "part") return null;
    return typeof header === "string" ? "the PROXY header is invalid" : header;
  };
  readFirstBytes(socket, options, {
    read,
    decided(found, bytes) {
      if (typeof found === "string") return connections.refuse(socket, found);
      const { address, length } = found;
      if (bytes.length > length) socket.unshift(bytes.subarray(length));
      if (address !== null) {
        Object.defineProperty(socket, "remoteAddress", { value: address });
        socket.off("close", giveBack);
        giveBack();
        if (connections.admit(socket) === null) return;
      }
      serve();
    },
    late() {
      // Browsers and checks of balancers open connections that they do not use.
      if (socket.bytesRead === 0) socket.destroy();
      else connections.refuse(socket, "a PROXY header has not arrived in time");
    },
  });
}

const NO_HEADER: ProxyHeader = { length: 0, address: null };
const UNTRUSTED = "one that begins with a PROXY header, or has to, is not from global.trusted_proxies";

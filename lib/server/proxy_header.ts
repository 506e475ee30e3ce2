/**
 * Reads the header of the PROXY protocol, with which a proxy begins a connection, before anything else is read from it.
 */
import type { Socket } from "node:net";
import { parseProxyHeader, proxyHeaderBegins } from "../base/proxy_protocol.ts";
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
  { clock, drain, receiving, connections, giveBack }: ReadingOptions,
  serve: () => void,
): void {
  const isTrusted = () => receiving().proxies?.has(socket.remoteAddress ?? "") === true;
  // Nothing that it sends would be read.
  if (mode === "require" && !isTrusted()) return connections.refuse(socket, UNTRUSTED);
  let seen: Buffer = Buffer.alloc(0);
  const onReadable = () => {
    for (let chunk: Buffer | null; (chunk = socket.read() as Buffer | null) !== null;)
      seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
    const begins = proxyHeaderBegins(seen);
    if (begins === "part") return;
    if (begins === "none") return mode === "require" ? refuse("there is no PROXY header") : begin(null, seen);
    if (!isTrusted()) return refuse(UNTRUSTED);
    const header = parseProxyHeader(seen);
    if (header === "part") return;
    if (typeof header === "string") refuse("the PROXY header is invalid");
    else begin(header.address, seen.subarray(header.length));
  };
  // It has sent part of a header at most, and sends nothing more.
  const onEnd = () => void socket.destroy();
  const undecided = { endIdle: () => void (socket.bytesRead === 0 && socket.destroy()) };
  const stop = () => {
    timer.cancel();
    drain.remove(undecided);
    socket.off("readable", onReadable).off("end", onEnd).off("close", stop);
  };
  const begin = (address: string | null, rest: Buffer) => {
    stop();
    if (socket.destroyed) return;
    if (rest.length > 0) socket.unshift(rest);
    if (address !== null) {
      Object.defineProperty(socket, "remoteAddress", { value: address });
      socket.off("close", giveBack);
      giveBack();
      if (connections.admit(socket) === null) return;
    }
    serve();
  };
  const refuse = (reason: string) => {
    stop();
    connections.refuse(socket, reason);
  };
  const timer = clock.after(receiving().limits.headersTimeoutMs, () => {
    // Browsers and checks of balancers open connections that they do not use.
    if (socket.bytesRead === 0) socket.destroy();
    else refuse("a PROXY header has not arrived in time");
  });
  drain.add(undecided);
  socket.on("readable", onReadable).on("end", onEnd).on("close", stop);
}

const UNTRUSTED = "one that begins with a PROXY header, or has to, is not from global.trusted_proxies";

/**
 * Distinguishes HTTP/2 by prior knowledge (RFC 9113 §3.3) from HTTP/1 on a plain port, by the first bytes of a
 * connection.
 */
import type { Socket } from "node:net";
import { readFirstBytes } from "./first_bytes.ts";
import { LATE_HEAD, refuseUnread, type Http1Options } from "./http1.ts";

/** The part of the preface that no HTTP/1 request can start with; the HTTP/2 parser checks the rest. */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n");

/**
 * Calls `decided` once; bytes read are put back. Ends a connection that has not sent enough within
 * `limits.headersTimeoutMs`.
 */
export function detectProtocol(
  socket: Socket,
  options: Http1Options,
  decided: (protocol: "HTTP/1" | "HTTP/2") => void,
): void {
  readFirstBytes(socket, options, {
    read: protocolOf,
    decided(protocol, bytes) {
      socket.unshift(bytes);
      decided(protocol);
    },
    late: () => refuseUnread(socket, options, LATE_HEAD),
  });
}

function protocolOf(bytes: Buffer): "HTTP/1" | "HTTP/2" | null {
  const length = Math.min(bytes.length, PREFACE.length);
  if (bytes.compare(PREFACE, 0, length, 0, length) !== 0) return "HTTP/1";
  return length === PREFACE.length ? "HTTP/2" : null;
}

/**
 * What handshakes of clients have come to: the group of a connection, and why a handshake was refused.
 */
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";

/** Counts handshakes, once for each. */
export interface HandshakeMeter {
  /** `group`: null: it is not known. */
  finished(side: "client" | "upstream", version: string | null, group: string | null): void;
  refused(side: "client" | "upstream", reason: string): void;
}

/** On the socket itself: HTTP/2 shows another object for it, which passes on what it does not know. */
const GROUP = Symbol("the group for key exchange");

export function noteGroup(socket: TLSSocket, group: string | null): void {
  Object.assign(socket, { [GROUP]: group });
}

export function notedGroup(socket: Socket): string | null {
  return (socket as { readonly [GROUP]?: string | null })[GROUP] ?? null;
}

/** One of a few reasons, for a label, by OpenSSL's code; `socket`: of the handshake. */
export function refusalReason(
  { code = "", message }: NodeJS.ErrnoException,
  socket: { readonly authorizationError?: unknown },
): string {
  if (socket.authorizationError != null) return "certificate_invalid";
  if (message.startsWith(NO_CERTIFICATE)) return "host";
  for (const [pattern, reason] of REASONS) if (pattern.test(code)) return reason;
  return "other";
}

/** Begins the error of a handshake for a host that has no certificate. */
export const NO_CERTIFICATE = "no certificate is for ";

const REASONS: readonly (readonly [RegExp, string])[] = [
  [/^ERR_SSL_(?:UNSUPPORTED_PROTOCOL|VERSION_TOO_LOW)$/, "version"],
  [/^ERR_SSL_NO_SHARED_CIPHER$/, "cipher"],
  [/^ERR_SSL_(?:NO_SUITABLE_KEY_SHARE|NO_SUITABLE_GROUPS|NO_SHARED_GROUPS)$/, "group"],
  [/^ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE$/, "certificate_missing"],
  [/^ERR_SSL_NO_APPLICATION_PROTOCOL$/, "protocol"],
  [/^ERR_SSL_(?:HTTP_REQUEST|WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG)$/, "not_tls"],
  // The client refuses: it does not trust the certificate, or is a probe.
  [/^ERR_SSL_[\w/]*ALERT/, "client_alert"],
  [/^ERR_TLS_HANDSHAKE_TIMEOUT$/, "timeout"],
  [/^ECONNRESET$|^EPIPE$/, "closed"],
];

/**
 * Classifies the fault of an attempt: whether it counts against the upstream and whether another try may follow.
 */
import { Fault, type ErrorCode } from "../base/errors.ts";

/** The upstream cannot have seen the request: whatever the method, it may be sent again. */
export class Unsent extends Fault {}

/** As `Unsent`: the upstream closed a kept connection, as it may at any time. That says nothing about its health. */
export class Stale extends Unsent {}

/**
 * The upstream closed the connection during an upload, unread: clients choose what they send, and their uploads must
 * not eject it.
 */
export class UploadRefused extends Fault {}

/**
 * "connect": there was no connection, and nothing was sent. "reset": it broke before a response. "timeout": no response
 * in time.
 */
export type TryFailure = "connect" | "reset" | "timeout";

/** Null if another try would not help: faults of the client, and invalid responses. */
export function tryFailure(fault: Fault): TryFailure | null {
  switch (fault.code) {
    case "upstream_connect_failed":
    case "upstream_saturated":
      return "connect";
    case "upstream_reset":
      return "reset";
    case "upstream_timeout":
      return fault instanceof Unsent ? "connect" : "timeout";
    default:
      return null;
  }
}

/**
 * Whether the upstream caused it, so that its health and the circuit breaker count it: neither the client nor a lack of
 * connections did.
 */
export function isUpstreams(fault: Fault): boolean {
  if (fault instanceof Stale || fault instanceof UploadRefused) return false;
  const failure = tryFailure(fault);
  return fault.code === "upstream_invalid" || (failure !== null && fault.code !== "upstream_saturated");
}

/** For an error of the connection. */
export function faultCode(error: NodeJS.ErrnoException, isConnecting: boolean): ErrorCode {
  return isConnecting || REFUSED_BY_TLS.test(error.code ?? "") ? "upstream_connect_failed" : "upstream_reset";
}

/**
 * In TLS 1.3 a server refuses a client certificate after the handshake; it has not read the request then. After any
 * other TLS error it may have. The name is ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE with OpenSSL 3.0,
 * ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE later (Node 22).
 */
const REFUSED_BY_TLS = /^ERR_SSL_[\w/]*ALERT_\w*(?:CERT|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE)/;

/**
 * Serves an interface for operators (the admin interface, the management UI) on its own port, with limits that suit
 * people and scripts.
 */
import type { AddressInfo } from "node:net";
import { createSecureContext } from "node:tls";
import { Fault } from "../base/errors.ts";
import { hasToken, headerValue } from "../http/headers.ts";
import { JoinedPieces } from "../http/pieces.ts";
import type { NoPair, Pair } from "../server/certificates.ts";
import type { Limits } from "../server/limits.ts";
import { Listener, type ListenerFeatures, type ListenerOptions } from "../server/listener.ts";
import type { Inbound } from "../server/inbound.ts";

/** A certificate, and the features of a listener for TLS. */
export interface OperatorTls extends Pair {
  readonly features: ListenerFeatures;
}

export interface OperatorServerOptions extends Pick<ListenerOptions, "serve" | "clock" | "log"> {
  /** PEM. Null: plain HTTP. */
  readonly tls: OperatorTls | null;
  /** Bytes of a request body; 0: `serve` checks it. */
  readonly maxBodyBytes: number;
  /** Called when the server closes: ends event streams, which would never end by themselves. */
  readonly endStreams: () => void;
}

export interface OperatorServer {
  /** Rejects with the error of `net.Server.listen` (EADDRINUSE, EACCES, …). Port 0 takes any free one. */
  listen(where: { readonly host: string; readonly port: number }): Promise<AddressInfo>;
  /**
   * Uses another certificate for new connections; does nothing on plain HTTP. Throws for a certificate that cannot be
   * used.
   */
  renewTls(files: Pair | NoPair): void;
  /** Stops accepting, ends event streams, and gives other requests two seconds. May be called twice. */
  close(): Promise<void>;
}

/** Throws for a certificate that cannot be used. */
export function createOperatorServer({
  tls,
  maxBodyBytes,
  endStreams,
  ...options
}: OperatorServerOptions): OperatorServer {
  if (tls !== null) createSecureContext(tls);
  const { clock } = options;
  const receiving = { clock, proxies: null, limits: { ...LIMITS, maxBodyBytes } };
  const listener = new Listener({
    ...options,
    dualStack: true,
    receiving: () => receiving,
    features: tls?.features ?? NO_FEATURES,
  });
  let closing: Promise<void> | null = null;

  async function close(): Promise<void> {
    const drained = listener.drain(0);
    endStreams();
    const grace = clock.after(CLOSE_GRACE_MS, () => listener.destroy());
    await drained;
    grace.cancel();
    listener.destroy();
  }

  return {
    listen: ({ host, port }) =>
      tls === null ? listener.listenPlain(host, port) : listener.listenSecure(host, port, withoutCa(tls)),
    renewTls(files) {
      if (tls !== null && files.cert !== null) listener.tls.renew(withoutCa(files));
    },
    close: () => (closing ??= close()),
  };
}

/** Plain HTTP/1.1 needs none. */
const NO_FEATURES = {} as ListenerFeatures;

const CLOSE_GRACE_MS = 2000;

const LIMITS: Limits = {
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  minBodyBytesPerS: 0,
  minReplyBytesPerS: 0,
  maxHeaderBytes: 16 * 1024,
  maxHeaders: 100,
  maxUriBytes: 8 * 1024,
  maxBodyBytes: 0,
  maxConnections: 1024,
  maxConnectionsPerIp: 0,
  maxClientShare: 1,
  maxRequestsInFlight: 0,
};

/** Operators log in with a password: they are not asked for a client certificate. */
function withoutCa({ cert, key }: Pair) {
  return { cert, key, ca: null, requireClientCert: false };
}

/**
 * The whole body of a request, requested first where the client waits for that (RFC 9110 §10.1.1). Rejects with a
 * `Fault` "body_too_large" beyond `maxBytes`, and with an error when the body breaks off.
 */
export async function readInboundBody({ body, headers, call }: Inbound, maxBytes: number): Promise<Buffer> {
  const tooLarge = new Fault("body_too_large", `the body has more than ${maxBytes} bytes`);
  if (Number(headerValue(headers, "content-length") ?? 0) > maxBytes) throw tooLarge;
  if (hasToken(headerValue(headers, "expect"), "100-continue")) call.inform(100, []);
  const pieces = new JoinedPieces();
  let bytes = 0;
  // Destroying the body would reset a stream of HTTP/2, and with it the reply.
  for await (const chunk of (body?.iterator({ destroyOnReturn: false }) ?? []) as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooLarge;
    pieces.add(chunk);
  }
  return Buffer.concat(pieces.all);
}

/**
 * Serves an interface for operators (the admin interface, the management UI) on its own port, with limits that suit people and scripts
 * instead of traffic.
 */
import type { AddressInfo } from "node:net";
import tls from "node:tls";
import type { Clock } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { hasToken, headerValue } from "../http/headers.ts";
import type { Pair } from "./certificates.ts";
import type { Limits } from "./limits.ts";
import { Listener, type ListenerOptions } from "./listener.ts";
import type { Inbound } from "./receive.ts";

export interface OperatorServerOptions extends Pick<ListenerOptions, "serve" | "dualStack"> {
  readonly clock: Clock;
  readonly log: Log;
  /** Null: plain HTTP. */
  readonly tls: Pair | null;
  /** Bytes of a request body; 0: `serve` checks it. */
  readonly maxBodyBytes: number;
  /** Called when the server closes: ends event streams, which would never end by themselves. */
  readonly endStreams: () => void;
}

export interface OperatorServer {
  /** Rejects with the error of `net.Server.listen` (EADDRINUSE, EACCES, …). Port 0 takes any free one. */
  listen(where: { readonly host: string; readonly port: number }): Promise<AddressInfo>;
  /** Uses another certificate for new connections; does nothing on plain HTTP. Throws for a certificate that cannot be used. */
  renewTls(files: Pair): void;
  /** Stops accepting, ends event streams, and gives other requests two seconds. May be called twice. */
  close(): Promise<void>;
}

/** Throws for a certificate that cannot be used. */
export function createOperatorServer(options: OperatorServerOptions): OperatorServer {
  const { clock, log, serve, dualStack } = options;
  const isSecure = options.tls !== null;
  let files = options.tls;
  if (files !== null) tls.createSecureContext(files);
  const receiving = { clock, isTrusted: () => false, limits: { ...LIMITS, maxBodyBytes: options.maxBodyBytes } };
  const listener = new Listener({
    clock,
    log,
    serve,
    ...(dualStack === undefined ? {} : { dualStack }),
    receiving: () => receiving,
  });
  let closing: Promise<void> | null = null;

  async function close(): Promise<void> {
    const drained = listener.drain(0);
    options.endStreams();
    const grace = clock.after(CLOSE_GRACE_MS, () => listener.destroy());
    await drained;
    grace.cancel();
    listener.destroy();
  }

  return {
    listen: ({ host, port }) => (files === null ? listener.listenPlain(host, port) : listener.listenSecure(host, port, withoutCa(files))),
    renewTls(renewed) {
      if (!isSecure) return;
      listener.renewTls(withoutCa(renewed));
      files = renewed;
    },
    close: () => (closing ??= close()),
  };
}

const CLOSE_GRACE_MS = 2000;

const LIMITS: Limits = {
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  minBodyBytesPerS: 0,
  maxHeaderBytes: 16 * 1024,
  maxHeaders: 100,
  maxUriBytes: 8 * 1024,
  maxBodyBytes: 0,
  maxConnections: 1024,
  maxConnectionsPerIp: 0,
  maxRequestsInFlight: 0,
};

/** Operators log in with a password: they are not asked for a client certificate. */
function withoutCa({ cert, key }: Pair) {
  return { cert, key, ca: null, requireClientCert: false };
}

/**
 * The whole body of a request, after asking for it where the client waits for that (RFC 9110 §10.1.1). Rejects with a `Fault`
 * "body_too_large" beyond `maxBytes`, and with an error when the body breaks off.
 */
export function readBody({ body, headers, call }: Inbound, maxBytes: number): Promise<Buffer> {
  if (body === null) return Promise.resolve(Buffer.alloc(0));
  const tooLarge = new Fault("body_too_large", `the body has more than ${maxBytes} bytes`);
  if (Number(headerValue(headers, "content-length") ?? 0) > maxBytes) return Promise.reject(tooLarge);
  if (hasToken(headerValue(headers, "expect"), "100-continue")) call.inform(100, []);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    body.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= maxBytes) return void chunks.push(chunk);
      chunks.length = 0;
      reject(tooLarge);
    });
    body.on("end", () => resolve(Buffer.concat(chunks)));
    body.on("error", reject);
    body.on("close", () => reject(new Error("the body broke off")));
  });
}

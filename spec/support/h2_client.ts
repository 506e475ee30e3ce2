/** HTTP/2 requests to a gateway by Node's own client. For frames that it does not send, see `h2_raw.ts`. */
import { once } from "node:events";
import http2, {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import type { ConnectionOptions } from "node:tls";
import { onTestFinished } from "vitest";
import { CA } from "./certs.ts";

export interface H2Request {
  /** Default: "GET". */
  readonly method?: string;
  /** Default: "/a/x". */
  readonly path?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Buffer | undefined;
  readonly trailers?: OutgoingHttpHeaders | undefined;
}

export interface H2Reply {
  /** 0: the stream closed without a response. */
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** The body undecoded. */
  readonly bytes: Buffer;
  readonly trailers: IncomingHttpHeaders;
  /** Statuses of the informational responses before the final one. */
  readonly informed: readonly number[];
  /** The error code of RST_STREAM; 0 (NO_ERROR): the stream ended cleanly. */
  readonly resetCode: number;
}

/**
 * A session over plain TCP (prior knowledge), closed when the test ends. Its errors are ignored; those of its streams
 * are not.
 */
export function h2Session(port: number, options: http2.ClientSessionOptions = {}): ClientHttp2Session {
  return closedAtEnd(http2.connect(`http://127.0.0.1:${port}`, options));
}

/**
 * A connected session over TLS that negotiated "h2" and trusts the test CA; `options` as of `tls.connect`. Closed when
 * the test ends.
 */
export async function h2TlsSession(port: number, options: ConnectionOptions = {}): Promise<ClientHttp2Session> {
  const all = { ca: CA.cert, host: "127.0.0.1", ...options } as http2.SecureClientSessionOptions;
  const session = closedAtEnd(http2.connect(`https://localhost:${port}`, all));
  await once(session, "connect");
  return session;
}

/** A plain session that may open WebSockets: the server's SETTINGS have arrived (RFC 8441 §3). */
export async function h2WebSocketSession(port: number): Promise<ClientHttp2Session> {
  const session = h2Session(port);
  await once(session, "remoteSettings");
  return session;
}

/** Sends a whole request; resolves with the whole reply, rejects if the stream fails or is reset. */
export async function h2Ask(session: ClientHttp2Session, request: H2Request = {}): Promise<H2Reply> {
  const { stream, reply } = h2Open(session, request, request.body === undefined && request.trailers === undefined);
  if (request.body !== undefined || request.trailers !== undefined) stream.end(request.body);
  const settled = await reply;
  if (stream.errored !== null) throw stream.errored;
  if (settled.resetCode !== 0) throw new Error(`the stream was reset with code ${settled.resetCode}`);
  return settled;
}

/**
 * Begins a request whose body, unless `endStream` is true, the test writes. `reply` resolves when the stream has
 * closed, however it closed.
 */
export function h2Open(
  session: ClientHttp2Session,
  request: H2Request,
  endStream: boolean,
): { readonly stream: ClientHttp2Stream; readonly reply: Promise<H2Reply> } {
  const { method = "GET", path = "/a/x", headers = {}, trailers } = request;
  const stream = session.request(
    { ":method": method, ":path": path, ...headers },
    { endStream, waitForTrailers: trailers !== undefined },
  );
  if (trailers !== undefined) stream.on("wantTrailers", () => stream.sendTrailers(trailers));
  return { stream, reply: replyOn(stream) };
}

/** Resolves with the reply on a stream when the stream has closed. */
export function replyOn(stream: ClientHttp2Stream): Promise<H2Reply> {
  let received: IncomingHttpHeaders = {};
  let trailers: IncomingHttpHeaders = {};
  const informed: number[] = [];
  const chunks: Buffer[] = [];
  stream.on("headers", (fields) => informed.push(Number(fields[":status"])));
  stream.on("response", (fields) => (received = fields));
  stream.on("trailers", (fields) => (trailers = fields));
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  stream.on("error", () => {});
  return new Promise((resolve) => {
    stream.on("close", () => {
      const bytes = Buffer.concat(chunks);
      const status = Number(received[":status"] ?? 0);
      resolve({
        status,
        headers: received,
        body: bytes.toString(),
        bytes,
        trailers,
        informed,
        resetCode: stream.rstCode ?? 0,
      });
    });
  });
}

function closedAtEnd(session: ClientHttp2Session): ClientHttp2Session {
  session.on("error", () => {});
  onTestFinished(() => session.destroy());
  return session;
}

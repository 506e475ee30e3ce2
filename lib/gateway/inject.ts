/**
 * Makes a request without a socket, and collects its reply: for tests of a configuration, and for hosts that have a request as values.
 */
import { validateHeaderName, validateHeaderValue } from "node:http";
import { Readable } from "node:stream";
import { TOKEN } from "../base/http_grammar.ts";
import { checkNames, type Names } from "../base/suggest.ts";
import type { ClientCertificate } from "../http/exchange.ts";
import { hasHeader, headerValue, withoutNamed, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { replyHeaders } from "../server/client_reply.ts";
import { withoutDropped, type Refusal } from "../server/framing.ts";
import { receiveParts, refuseFramingOf, refuseSize, UNKNOWN_EXPECTATION, type Inbound, type ReceiveOptions } from "../server/receive.ts";

export interface InjectRequest {
  /** Default "GET". */
  readonly method?: string;
  /** Path with query, or an absolute http(s) URL. */
  readonly path: string;
  /** An object, or a flat list `[name, value, …]` where order and duplicates matter. `Host` defaults to "localhost". */
  readonly headers?: Readonly<Record<string, string>> | HeaderList;
  readonly body?: string | Buffer;
  /** Address of the client. Default "127.0.0.1". */
  readonly remoteAddress?: string;
  /** The client's certificate, as over TLS. Default: none. */
  readonly certificate?: ClientCertificate;
  /** Whether the client speaks TLS. Default: if it has a certificate. */
  readonly encrypted?: boolean;
}

export interface InjectResponse {
  readonly status: number;
  /** Flat list, as a client would get it. */
  readonly headers: HeaderList;
  readonly body: Buffer;
  /** First value of the named header, in any case. */
  header(name: string): string | undefined;
  /** The body as UTF-8. */
  text(): string;
  /** The body parsed as JSON; throws a SyntaxError when it is none. */
  json(): unknown;
}

export const REQUEST_NAMES: Names<InjectRequest> = { method: true, path: true, headers: true, body: true, remoteAddress: true, certificate: true, encrypted: true };

/** Throws a `TypeError` for unknown names and for values of the wrong kind. */
export function checkRequest<Request extends InjectRequest>(what: string, given: Request, names: Names<Request> = REQUEST_NAMES as Names<Request>): void {
  checkNames(what, given, names);
  const { path, method, body, headers }: InjectRequest = given;
  const problem =
    (typeof path !== "string" && "path must be a string") ||
    (method !== undefined && typeof method !== "string" && "method must be a string") ||
    (body !== undefined && typeof body !== "string" && !(body instanceof Uint8Array) && "body must be a string or a Buffer") ||
    (headers !== undefined && (typeof headers !== "object" || headers === null) && "headers must be an object or a flat list");
  if (problem !== false) throw new TypeError(`${what}: ${problem}`);
}

export function injected(request: InjectRequest, options: ReceiveOptions): Inbound {
  const received = [...withoutDropped(headerListOf(request.headers ?? []), options.underscores)];
  if (!hasHeader(received, "host")) received.unshift("Host", "localhost");
  const body = request.body === undefined ? null : Buffer.from(request.body);
  if (body !== null && !hasHeader(received, "content-length")) received.push("Content-Length", String(body.length));
  const { path } = request;
  const { limits } = options;
  const refusal =
    refuseBytes(path, received, limits) ?? refuseMalformed(request, received, body?.length ?? 0) ?? refuseSize(path, received, limits) ?? refuseExpectation(received);
  const headers = refusal === null ? withoutNamed(received) : received;
  const host = headerValue(headers, "host")!;
  const { remoteAddress = "127.0.0.1", certificate = null, encrypted = certificate !== null } = request;
  const connection = { remoteAddress, encrypted, certificate: () => certificate, tlsVersion: null };
  return {
    ...receiveParts(headers, connection, host, options, () => {}),
    method: request.method ?? "GET",
    target: request.path,
    httpVersion: "1.1",
    body: body === null || body.length === 0 ? null : Readable.from([body]),
    trailers: () => [],
    upgrade: null,
    refusal,
  };
}

/** A flat list as it is; from an object, its names and values in turn. */
export function headerListOf(headers: Readonly<Record<string, string>> | HeaderList): HeaderList {
  return Array.isArray(headers) ? (headers as HeaderList) : Object.entries(headers as Record<string, string>).flat();
}

/** Counts as node does: the target, and names and values of headers, without separators. */
export function refuseBytes(target: string, headers: HeaderList, { maxHeaderBytes, maxUriBytes }: ReceiveOptions["limits"]): Refusal | null {
  if (target.length > maxUriBytes || headers.reduce((sum, text) => sum + text.length, target.length) < maxHeaderBytes) return null;
  return { code: "headers_too_large", detail: `The request line and header fields may have at most ${maxHeaderBytes} bytes together.` };
}

function refuseExpectation(headers: HeaderList): Refusal | null {
  return CONTINUE.test(headerValue(headers, "expect") ?? "100-continue") ? null : UNKNOWN_EXPECTATION;
}

/** The same test as node's. */
const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i;

/** Refuses what the parser refuses in a request from the network; forwarded, it could hide a second request (request smuggling). */
function refuseMalformed({ method = "GET", path }: InjectRequest, headers: HeaderList, bodyLength: number): Refusal | null {
  const malformed = (detail: string): Refusal => ({ code: "bad_request", detail });
  try {
    for (let i = 0; i < headers.length; i += 2) {
      validateHeaderName(headers[i]!);
      validateHeaderValue(headers[i]!, headers[i + 1]!);
    }
  } catch (error) {
    return malformed(`${(error as Error).message}.`);
  }
  if (!TOKEN.test(method)) return malformed("The method is not a token.");
  if (path.includes(" ")) return malformed("The request target has a space that is not percent-encoded.");
  const framing = refuseFramingOf(headers);
  if (framing !== null) return framing;
  if (hasHeader(headers, "transfer-encoding")) return malformed("An injected body has no Transfer-Encoding.");
  const length = headerValue(headers, "content-length");
  return length === undefined || length === String(bodyLength) ? null : malformed("The Content-Length is not the length of the body.");
}

/** Reads the reply to its end. Rejects when its body breaks off, and when `before` does, which is called with the size of each piece. */
export async function collected(inbound: Inbound, reply: Reply, before?: (bytes: number) => Promise<void>): Promise<InjectResponse> {
  inbound.call.notes.status = reply.status;
  const chunks: Buffer[] = [];
  if (Buffer.isBuffer(reply.body)) chunks.push(reply.body);
  else if (reply.body !== null) {
    for await (const chunk of reply.body as AsyncIterable<Buffer>) {
      await before?.(chunk.length);
      chunks.push(chunk);
    }
  }
  const headers = replyHeaders(reply, inbound.call.id);
  const body = inbound.method === "HEAD" ? Buffer.alloc(0) : Buffer.concat(chunks);
  inbound.call.notes.sent = body.length;
  return {
    status: reply.status,
    headers,
    body,
    header: (name) => headerValue(headers, name.toLowerCase()),
    text: () => body.toString(),
    json: () => JSON.parse(body.toString()) as unknown,
  };
}

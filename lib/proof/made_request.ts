/**
 * A request that is made of values instead of bytes of a socket, and its collected reply: for tests of a configuration,
 * `explain`, and hosts.
 */
import { hash } from "node:crypto";
import { isIP } from "node:net";
import { Readable } from "node:stream";
import { ignore } from "../base/errors.ts";
import { FIELD_VALUE, TOKEN } from "../base/http_grammar.ts";
import { checkNames, type OptionNames } from "../base/option_names.ts";
import type { ClientCertificate } from "../http/client_certificate.ts";
import { hasHeader, headerValue, withoutHeader, type HeaderList } from "../http/headers.ts";
import { asSent, type Reply } from "../http/reply.ts";
import { refuseBytes } from "../server/node_request.ts";
import { malformed, readFraming, type Framing, type RequestRefusal, type RequestHead } from "../server/request_head.ts";
import { receiveHead, type Inbound, type ReceiveOptions } from "../server/inbound.ts";
import { pairs, replyHeaders } from "../server/reply_headers.ts";

/** A request, by the names that the tests of a configuration use. */
export interface InjectRequest {
  /** Default "GET". */
  readonly method?: string;
  /**
   * Path with query; or an http(s) URL, which also names the host, and whether the client speaks TLS. A path: if it has
   * a certificate.
   */
  readonly url: string;
  /**
   * An object, with a list for several lines; or a flat list `[name, value, …]` where order matters. `Host` defaults to
   * "localhost".
   */
  readonly headers?: Headers;
  readonly body?: string | Buffer;
  /** Address of the client. Default "127.0.0.1". */
  readonly clientIp?: string;
  /** The client's certificate, as over TLS. Default: none. */
  readonly certificate?: GivenCertificate | undefined;
}

type Headers = Readonly<Record<string, string | readonly string[]>> | HeaderList;

/** Unless `verified` is false, a certificate that was verified. */
export interface GivenCertificate extends Partial<
  Pick<ClientCertificate, "verified" | "reason" | "fingerprint" | "keyUses">
> {
  /** In the form of RFC 4514: "CN=billing,O=Example". */
  readonly subject: string;
  /** Subject alternative names with their types: "DNS:billing.example.com". Default: none. */
  readonly san?: readonly string[];
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

export const REQUEST_NAMES: OptionNames<InjectRequest> = {
  method: true,
  url: true,
  headers: true,
  body: true,
  clientIp: true,
  certificate: true,
};
const CERTIFICATE_NAMES: OptionNames<GivenCertificate> = {
  subject: true,
  san: true,
  verified: true,
  reason: true,
  fingerprint: true,
  keyUses: true,
};

const BY_URL = 'the url says it, such as "https://localhost/"';
const HINTS: ReadonlyMap<string, string> = new Map([
  ["path", 'write "url"'],
  ["remoteAddress", 'write "clientIp"'],
  ["names", 'write "san"'],
  ...["encrypted", "scheme", "host", "authority"].map((name) => [name, BY_URL] as const),
]);

/** Throws a `TypeError` for unknown names and for values of the wrong kind. */
export function checkRequest<Request extends InjectRequest>(
  what: string,
  given: Request,
  names: OptionNames<Request> = REQUEST_NAMES as OptionNames<Request>,
): void {
  checkNames(what, given, names, HINTS);
  const { url, method, body, headers, clientIp, certificate }: InjectRequest = given;
  if (certificate !== undefined) checkNames(`certificate of ${what}`, certificate, CERTIFICATE_NAMES, HINTS);
  const problem =
    (typeof url !== "string" && "url must be a string") ||
    (clientIp !== undefined &&
      (typeof clientIp !== "string" || isIP(clientIp) === 0) &&
      "clientIp must be an IP address") ||
    (certificate !== undefined && typeof certificate.subject !== "string" && "certificate.subject must be a string") ||
    (method !== undefined && typeof method !== "string" && "method must be a string") ||
    (body !== undefined &&
      typeof body !== "string" &&
      !(body instanceof Uint8Array) &&
      "body must be a string or a Buffer") ||
    (headers !== undefined &&
      (typeof headers !== "object" || headers === null) &&
      "headers must be an object or a flat list");
  if (problem !== false) throw new TypeError(`${what}: ${problem}`);
}

/**
 * Receives a request as from the network. `defaultScheme`: of a URL that is a path; a certificate is always over TLS.
 * `isHead`: there is no body, whatever the headers say of one. A request for a WebSocket is received as any other.
 */
export function injected(
  request: InjectRequest,
  options: ReceiveOptions,
  defaultScheme: "http" | "https" = "http",
  isHead = false,
): Inbound {
  const { method = "GET", url, clientIp = "127.0.0.1", certificate = null } = request;
  const { scheme, host: named, path } = readUrl(url);
  const headers = [...headerListOf(request.headers ?? [])];
  // With a Host beside it, a URL is sent whole, as to a proxy (RFC 9112 §3.2.2).
  const target = hasHeader(headers, "host") ? url : path;
  if (!hasHeader(headers, "host")) headers.unshift("Host", named);
  const body = request.body === undefined ? null : Buffer.from(request.body);
  if (body !== null && !hasHeader(headers, "content-length")) headers.push("Content-Length", String(body.length));
  const framing = readFraming(method, headers, "1.1", options.underscores);
  const shown = certificate && certificateOf(certificate);
  const connection = {
    remoteAddress: clientIp,
    encrypted: shown !== null || (scheme ?? defaultScheme) === "https",
    certificate: () => shown,
    tlsVersion: null,
  };
  const head = { method, target, httpVersion: "1.1", headers, framing };
  const inbound = receiveHead(
    head,
    connection,
    body === null || body.length === 0 ? null : Readable.from([body]),
    null,
    options,
    ignore,
  );
  const refusal =
    refuseBytes(head, options.limits) ??
    refuseMalformed(head) ??
    framing.refusal ??
    (isHead ? null : refuseLength(framing, body?.length ?? 0)) ??
    inbound.refusal;
  const kept = isHead
    ? withoutHeader(withoutHeader(inbound.headers, "content-length"), "transfer-encoding")
    : inbound.headers;
  return { ...inbound, headers: kept, upgrade: null, refusal };
}

/** A path as it is, for localhost. */
function readUrl(url: string): { readonly scheme?: string; readonly host: string; readonly path: string } {
  const [, scheme, host, path] = /^(https?):\/\/([^/?]+)(.*)$/i.exec(url) ?? [];
  if (host === undefined) return { host: "localhost", path: url };
  return { scheme: scheme!.toLowerCase(), host, path: path!.startsWith("/") ? path! : `/${path}` };
}

function certificateOf({ subject, san = [], ...others }: GivenCertificate): ClientCertificate {
  // RFC 4514 §2: the most specific first, "," and "+" between them; escapes are undone, except for bytes in hex.
  const attributes = subject.match(/(?:\\.|[^,+\\])+/g) ?? [];
  const name = attributes
    .map((each) => each.trim())
    .find((each) => /^CN=/i.test(each))
    ?.slice(3)
    .replace(/\\(.)/g, "$1");
  const fingerprint = hash("sha256", JSON.stringify([subject, san]));
  return {
    verified: true,
    reason: null,
    subject,
    commonName: name || null,
    names: san,
    fingerprint,
    keyUses: [],
    ...others,
  };
}

/** A flat list as it is; from an object, its names and values in turn. */
export function headerListOf(headers: Headers): HeaderList {
  if (Array.isArray(headers)) return headers as HeaderList;
  return Object.entries(headers as Record<string, string | string[]>).flatMap(([name, values]) =>
    [values].flat().flatMap((value) => [name, value]),
  );
}

/**
 * Refuses what the parser refuses in a request from the network; forwarded, it could hide a second request (request
 * smuggling).
 */
function refuseMalformed({ method, target, headers }: RequestHead): RequestRefusal | null {
  if (!TOKEN.test(method)) return malformed("The method is not a token.");
  if (target.includes(" ")) return malformed("The request target has a space that is not percent-encoded.");
  const wrong = pairs(headers).find(
    ([name, value]) => value === undefined || !TOKEN.test(name) || !FIELD_VALUE.test(value),
  );
  // The value is not repeated: it may be a credential.
  return wrong === undefined
    ? null
    : malformed(`The header ${JSON.stringify(wrong[0])} is not a token with a value of visible characters.`);
}

function refuseLength({ bodyLength }: Framing, actual: number): RequestRefusal | null {
  if (bodyLength === "chunked") return malformed("An injected body has no Transfer-Encoding.");
  return bodyLength === actual ? null : malformed("The Content-Length is not the length of the body.");
}

/**
 * Reads the reply to its end. Rejects when its body breaks off, and when `before` does, which is called with the size
 * of each piece.
 */
export async function collected(
  inbound: Inbound,
  made: Reply,
  before?: (bytes: number) => Promise<void>,
): Promise<InjectResponse> {
  const reply = inbound.call.ownBody === null ? made : asSent(made);
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

/**
 * HTTP/2 streams to requests and replies to streams (RFC 9113), over node's stream interface.
 * The rules that hold for every protocol are in `receive.ts` and `respond.ts`.
 */
import http2, { type IncomingHttpHeaders, type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { Fault } from "../base/errors.ts";
import { pump } from "../http/body.ts";
import type { Call } from "../http/exchange.ts";
import { headerValues, isHopByHop, type HeaderList } from "../http/headers.ts";
import { discard, type Reply } from "../http/reply.ts";
import { isHost, receiveParts, refuseSize, type Inbound, type ReceiveOptions, type Refusal } from "./receive.ts";
import { replyHeaders, spoiltReply } from "./respond.ts";

/** A request from a stream's header block, given as node's flat list with the pseudo-headers in front. */
export function receiveStream(stream: ServerHttp2Stream, block: readonly string[], endOfStream: boolean, options: ReceiveOptions): Inbound {
  let method = "";
  let target = "";
  let authority: string | undefined;
  const headers: string[] = [];
  const cookies: string[] = [];
  for (let i = 0; i < block.length; i += 2) {
    const name = block[i]!;
    const value = block[i + 1]!;
    if (name === ":method") method = value;
    else if (name === ":path") target = value;
    else if (name === ":authority") authority = value;
    else if (name === "cookie") cookies.push(value);
    else if (!name.startsWith(":")) headers.push(name, value);
  }
  // One header line for HTTP/1.1 upstreams, whatever the crumbs (RFC 9113 §8.2.3).
  if (cookies.length > 0) headers.push("cookie", cookies.join("; "));
  const hosts = headerValues(headers, "host");
  const { socket } = stream.session!;
  let trailers: HeaderList = [];
  if (!endOfStream) stream.once("trailers", (_fields: IncomingHttpHeaders, _flags: number, raw?: string[]) => (trailers = raw ?? flat(_fields)));
  return {
    ...receiveParts(
      headers,
      { remoteAddress: socket.remoteAddress, encrypted: (socket as Socket & { encrypted?: boolean }).encrypted === true },
      authority ?? hosts[0] ?? "",
      options,
      (status, list) => inform(stream, status, list),
    ),
    method,
    target,
    httpVersion: "2.0",
    headers,
    body: endOfStream ? null : stream,
    trailers: () => trailers,
    upgrade: null,
    refusal: refuseAuthority(authority, hosts) ?? refuseSize(target, headers),
  };
}

/** Sends `reply` on the stream; a fault after the head resets it. */
export function respondStream(stream: ServerHttp2Stream, method: string, call: Call, reply: Reply): void {
  if (call.aborted || stream.destroyed || stream.closed) return discard(reply);
  const spoilt = spoiltReply(call, reply);
  if (spoilt !== null) return respondStream(stream, method, call, spoilt);
  const { body } = reply;
  call.notes.status = reply.status;
  const source = body !== null && !Buffer.isBuffer(body) && method !== "HEAD" ? body : null;
  const bytes = Buffer.isBuffer(body) && method !== "HEAD" ? body : null;
  try {
    stream.respond(fields(replyHeaders(reply, call.id), reply.status), {
      endStream: source === null && bytes === null,
      waitForTrailers: source !== null && reply.trailers !== undefined,
    });
  } catch (error) {
    // A header HTTP/2 cannot carry: the stream has not begun, and says so by its reset.
    call.fail("upstream_invalid", `the reply's head cannot be written: ${(error as Error).message}`);
    discard(reply);
    return stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
  }
  // A client that is still sending is told that nobody reads on (RFC 9113 §8.1).
  stream.once("finish", () => {
    if (!stream.readableEnded) stream.close(http2.constants.NGHTTP2_NO_ERROR);
  });
  if (source === null) {
    if (bytes !== null) stream.end(bytes);
    else discard(reply);
    return;
  }
  stream.once("wantTrailers", () => {
    try {
      stream.sendTrailers(fields(reply.trailers?.() ?? []));
    } catch {
      // Trailers HTTP/2 cannot carry. The body is whole without them; this ends the stream.
      stream.close(http2.constants.NGHTTP2_NO_ERROR);
    }
  });
  call.onAbort(() => source.destroy());
  pump(source, stream, {
    done: () => stream.end(),
    broken(cause) {
      call.fail(cause instanceof Fault ? cause.code : "upstream_reset", cause?.message ?? "the body broke off");
      stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
    },
  });
}

/** `Host` may stand beside `:authority` only when it says the same (RFC 9113 §8.3.1). */
function refuseAuthority(authority: string | undefined, hosts: readonly string[]): Refusal | null {
  if (hosts.length > 1) return { code: "bad_request", detail: "The request has more than one Host header." };
  const host = authority ?? hosts[0];
  if (host === undefined) return { code: "bad_request", detail: "The request names no host." };
  if (!isHost(host)) return { code: "bad_request", detail: "The host is not a host name with an optional port." };
  if (authority !== undefined && hosts.length === 1 && hosts[0]!.toLowerCase() !== authority.toLowerCase()) {
    return { code: "bad_request", detail: "The Host header and :authority differ." };
  }
  return null;
}

function inform(stream: ServerHttp2Stream, status: number, headers: HeaderList): void {
  if (stream.headersSent || stream.destroyed || stream.closed) return;
  stream.additionalHeaders(fields(headers, status));
}

/** A header list as node's HTTP/2 takes it: names in lower case, values of one name together, nothing that concerns a connection. */
function fields(list: HeaderList, status?: number): OutgoingHttpHeaders {
  const result: OutgoingHttpHeaders = Object.create(null);
  if (status !== undefined) result[":status"] = status;
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!.toLowerCase();
    if (isHopByHop(name)) continue;
    const value = list[i + 1]!;
    const earlier = result[name];
    if (earlier === undefined) result[name] = value;
    else if (Array.isArray(earlier)) earlier.push(value);
    else if (!SINGLE.has(name)) result[name] = [String(earlier), value];
  }
  return result;
}

/** Names of which node's HTTP/2 sends one value; of several, the first counts. */
const SINGLE = new Set([
  "access-control-allow-credentials",
  "access-control-max-age",
  "access-control-request-method",
  "age",
  "authorization",
  "content-encoding",
  "content-language",
  "content-length",
  "content-location",
  "content-md5",
  "content-range",
  "content-type",
  "date",
  "dnt",
  "etag",
  "expires",
  "from",
  "host",
  "if-match",
  "if-modified-since",
  "if-none-match",
  "if-range",
  "if-unmodified-since",
  "last-modified",
  "location",
  "max-forwards",
  "proxy-authorization",
  "range",
  "referer",
  "retry-after",
  "tk",
  "upgrade-insecure-requests",
  "user-agent",
  "x-content-type-options",
]);

function flat(trailers: IncomingHttpHeaders): string[] {
  const list: string[] = [];
  for (const name in trailers) {
    const value = trailers[name];
    for (const one of Array.isArray(value) ? value : [value ?? ""]) list.push(name, one);
  }
  return list;
}

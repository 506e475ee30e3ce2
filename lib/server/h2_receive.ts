/**
 * Reads a request from the header block of an HTTP/2 stream (RFC 9113 §8), ordinary or opening a WebSocket (RFC 8441).
 *
 * nghttp2 resets the stream for: names in upper case, CR, LF and NUL, blanks around values, headers of a connection, TE
 * other than "trailers", pseudo-headers that are missing, unknown, repeated, late, or of a response, a path without
 * "/", a second Content-Length or Host, and a body that is not as long as its Content-Length.
 */
import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { detectTruncatedBody } from "../http/h2_streams.ts";
import { boundBody, countReceived } from "../http/limited_body.ts";
import { hasHeader, headerValue, headerValues, isHost, type HeaderList } from "../http/headers.ts";
import {
  BAD_LENGTH,
  isDropped,
  isKnownMethod,
  malformed,
  NO_TUNNEL,
  PLAIN_LENGTH,
  UPGRADE_WITH_BODY,
  type Framing,
  type RequestRefusal,
} from "./request_head.ts";
import { informStream } from "./h2_respond.ts";
import type { Limits } from "./limits.ts";
import { receiveHead, type ConnectionFacts, type Inbound, type ReceiveOptions } from "./inbound.ts";

/** `block` is node's flat header list with the pseudo-headers first. */
export function receiveStream(
  stream: ServerHttp2Stream,
  block: readonly string[],
  endOfStream: boolean,
  connection: ConnectionFacts,
  options: ReceiveOptions,
): Inbound {
  const pseudo: Pseudo = { ":method": "", ":path": "", ":scheme": "", ":authority": undefined, ":protocol": undefined };
  const headers: string[] = [];
  let cookies: string | undefined;
  let listBytes = 0;
  for (let i = 0; i < block.length; i += 2) {
    const name = block[i]!;
    const value = block[i + 1]!;
    listBytes += name.length + value.length + FIELD_BYTES;
    if (name.charCodeAt(0) === COLON) pseudo[name as keyof Pseudo] = value;
    // HTTP/2 may split cookies into several fields; HTTP/1.1 upstreams get one (RFC 9113 §8.2.3).
    else if (name === "cookie") cookies = cookies === undefined ? value : `${cookies}; ${value}`;
    else if (!isDropped(name, options.underscores)) headers.push(name, value);
  }
  if (cookies !== undefined) headers.push("cookie", cookies);
  const hosts = headerValues(headers, "host");
  const expected = headerValues(headers, "expect");
  const upgrade = pseudo[":protocol"] === "websocket" ? "websocket" : null;
  const hasBody = !endOfStream && upgrade === null;
  let trailers: HeaderList = [];
  if (!endOfStream) detectTruncatedBody(stream);
  if (hasBody)
    stream.once("trailers", (_fields: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => (trailers = raw));
  const refusal =
    refuseMethod(pseudo) ??
    refuseConnect(pseudo, headers, endOfStream) ??
    refuseTarget(pseudo) ??
    refuseAuthority(pseudo, hosts) ??
    refuseLength(headers);
  const tooLarge = refuseList(listBytes, options.limits);
  const framing: Framing = {
    host: pseudo[":authority"] ?? hosts[0],
    bodyLength: hasBody ? "chunked" : 0,
    isPersistent: true,
    expects:
      expected.length === 0 || tooLarge !== null
        ? "nothing"
        : expected.join().toLowerCase() === "100-continue"
          ? "continue"
          : "unknown",
    upgrade,
    dropsHeaders: false,
    namesHeaders: false,
    refusal,
  };
  // As in an HTTP/1.1 upgrade: routes and plugins know one kind of WebSocket.
  const head = {
    method: upgrade === null ? pseudo[":method"] : "GET",
    target: pseudo[":path"],
    httpVersion: "2.0",
    headers,
    framing,
  };
  const body = hasBody ? boundBody(stream, headers, options.limits.maxBodyBytes) : null;
  const inbound = receiveHead(head, connection, body, hasBody ? () => trailers : null, options, informStream(stream));
  if (body !== null) countReceived(body, inbound.call.notes);
  return tooLarge === null || inbound.refusal !== null ? inbound : { ...inbound, refusal: tooLarge };
}

const COLON = 0x3a;
/** Overhead of a field in the size of the list (RFC 9113 §6.5.2). */
const FIELD_BYTES = 32;

interface Pseudo {
  ":method": string;
  ":path": string;
  ":scheme": string;
  ":authority": string | undefined;
  /** Of an extended CONNECT (RFC 8441 §4). */
  ":protocol": string | undefined;
}

function refuseMethod({ ":method": method }: Pseudo): RequestRefusal | null {
  return isKnownMethod(method) ? null : malformed("The method is not a known one.");
}

/** Node accepts a somewhat larger list, so that the client gets a reply: see SURPLUS_HEAD_BYTES. */
function refuseList(bytes: number, { maxHeaderBytes }: Limits): RequestRefusal | null {
  if (bytes <= maxHeaderBytes) return null;
  return {
    code: "headers_too_large",
    detail:
      `The header list of a request may have at most ${maxHeaderBytes} bytes, ` +
      `${FIELD_BYTES} for each line included.`,
  };
}

/** As in HTTP/1.1: nghttp2 reads `010` as ten, another reader as eight. */
function refuseLength(headers: HeaderList): RequestRefusal | null {
  const length = headerValue(headers, "content-length");
  return length === undefined || PLAIN_LENGTH.test(length) ? null : BAD_LENGTH;
}

function refuseConnect(
  { ":method": method, ":protocol": protocol }: Pseudo,
  headers: HeaderList,
  endOfStream: boolean,
): RequestRefusal | null {
  if (protocol === undefined) return method === "CONNECT" ? NO_TUNNEL : null;
  if (protocol !== "websocket") return malformed("The only protocol that CONNECT can ask for is websocket.");
  if (endOfStream) return malformed("The request for a WebSocket ends before it can begin.");
  return hasHeader(headers, "content-length") ? UPGRADE_WITH_BODY : null;
}

/**
 * For an unknown scheme nghttp2 accepts any path, also `http://elsewhere/`, which would be read as an absolute target.
 */
function refuseTarget({ ":scheme": scheme, ":path": target }: Pseudo): RequestRefusal | null {
  if (scheme !== "https" && scheme !== "http") return malformed("The scheme is neither http nor https.");
  return target.charCodeAt(0) === SLASH ? null : malformed("The path does not start with a slash.");
}

const SLASH = 0x2f;

/** `Host` and `:authority` must be equal if both are present (RFC 9113 §8.3.1). */
function refuseAuthority({ ":authority": authority }: Pseudo, hosts: readonly string[]): RequestRefusal | null {
  if (hosts.length > 1) return malformed("The request has more than one Host header.");
  const host = authority ?? hosts[0];
  if (host === undefined) return malformed("The request names no host.");
  if (!isHost(host)) return malformed("The host is not a host name with an optional port.");
  if (authority !== undefined && hosts.length === 1 && hosts[0]!.toLowerCase() !== authority.toLowerCase()) {
    return malformed("The Host header and :authority differ.");
  }
  return null;
}

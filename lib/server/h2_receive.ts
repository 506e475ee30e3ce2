/**
 * Takes a request from the header block of an HTTP/2 stream (RFC 9113 §8), or of one that is to become a WebSocket (RFC 8441).
 * The rules that hold for every protocol are in `receive.ts`; sending the reply is `h2_respond.ts`.
 *
 * nghttp2 refuses, by resetting the stream: names in upper case, CR, LF and NUL, blanks around values, headers that concern a
 * connection, TE beside "trailers", pseudo-headers that are missing, unknown, repeated, late, or of a response, a path without "/",
 * a second Content-Length or Host, and a body that is not as long as its Content-Length says.
 */
import { METHODS } from "node:http";
import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { detectTruncatedBody } from "../http/h2_streams.ts";
import { hasHeader, headerValues, type HeaderList } from "../http/headers.ts";
import { isDropped, withoutDropped } from "./dropped_headers.ts";
import { informStream } from "./h2_respond.ts";
import type { Limits } from "./limits.ts";
import { isHost, type Refusal } from "./framing.ts";
import {
  boundBody,
  connectionOf,
  receiveParts,
  refuseSize,
  UNKNOWN_EXPECTATION,
  type Inbound,
  type ReceiveOptions,
} from "./receive.ts";

/** `block` is node's flat list, the pseudo-headers in front. */
export function receiveStream(stream: ServerHttp2Stream, block: readonly string[], endOfStream: boolean, options: ReceiveOptions): Inbound {
  const pseudo: Pseudo = { method: "", target: "", scheme: "", authority: undefined, protocol: undefined };
  const headers: string[] = [];
  let crumbs: string | undefined;
  let listBytes = 0;
  for (let i = 0; i < block.length; i += 2) {
    const name = block[i]!;
    const value = block[i + 1]!;
    listBytes += name.length + value.length + FIELD_BYTES;
    if (name.charCodeAt(0) === COLON) setPseudo(pseudo, name, value);
    // One header line for HTTP/1.1 upstreams, whatever the crumbs (RFC 9113 §8.2.3).
    else if (name === "cookie") crumbs = crumbs === undefined ? value : `${crumbs}; ${value}`;
    else if (!isDropped(name, options.underscores)) headers.push(name, value);
  }
  if (crumbs !== undefined) headers.push("cookie", crumbs);
  const hosts = headerValues(headers, "host");
  const upgrade = pseudo.protocol === "websocket" ? "websocket" : null;
  let trailers: HeaderList = [];
  if (!endOfStream) detectTruncatedBody(stream);
  if (!endOfStream && upgrade === null) {
    stream.once("trailers", (_fields: IncomingHttpHeaders, _flags: number, raw: readonly string[]) => {
      trailers = withoutDropped(raw, options.underscores);
    });
  }
  const { call, scheme, authority, clientAddress } = receiveParts(
    headers,
    connectionOf(stream.session!.socket as Socket),
    pseudo.authority ?? hosts[0] ?? "",
    options,
    informStream(stream),
  );
  // Written out, as in `receive.ts`, and in its order: one shape for all that reads it.
  return {
    call,
    scheme,
    authority,
    clientAddress,
    // What an HTTP/1.1 upgrade says with GET: routes and plugins know one kind of WebSocket.
    method: upgrade === null ? pseudo.method : "GET",
    target: pseudo.target,
    httpVersion: "2.0",
    headers,
    body: endOfStream || upgrade !== null ? null : boundBody(stream, headers, options.limits),
    trailers: () => trailers,
    upgrade,
    refusal:
      refuseMethod(pseudo.method) ??
      refuseConnect(pseudo, headers, endOfStream) ??
      refuseTarget(pseudo) ??
      refuseAuthority(pseudo.authority, hosts) ??
      refuseSize(pseudo.target, headers, options.limits) ??
      refuseList(listBytes, options.limits) ??
      refuseExpectation(headers),
  };
}

const COLON = 0x3a;
/** What a field counts beside its name and value (RFC 9113 §6.5.2). */
const FIELD_BYTES = 32;

interface Pseudo {
  method: string;
  target: string;
  scheme: string;
  authority: string | undefined;
  /** Of an extended CONNECT (RFC 8441 §4). */
  protocol: string | undefined;
}

function setPseudo(pseudo: Pseudo, name: string, value: string): void {
  switch (name) {
    case ":method":
      pseudo.method = value;
      break;
    case ":path":
      pseudo.target = value;
      break;
    case ":scheme":
      pseudo.scheme = value;
      break;
    case ":authority":
      pseudo.authority = value;
      break;
    case ":protocol":
      pseudo.protocol = value;
      break;
  }
}

/** What node's HTTP/1 parser knows, so that the protocols take the same; an upstream's may know no more. */
const KNOWN_METHODS = new Set(METHODS);

function refuseMethod(method: string): Refusal | null {
  return KNOWN_METHODS.has(method) ? null : malformed("The method is not a known one.");
}

/** Node lets through somewhat more than a list may have, so that there is an answer: see `h2_sessions.ts`. */
function refuseList(bytes: number, { maxHeaderBytes }: Limits): Refusal | null {
  if (bytes <= maxHeaderBytes) return null;
  return { code: "headers_too_large", detail: `The header list of a request may have ${maxHeaderBytes} bytes, ${FIELD_BYTES} for each line included.` };
}

/** The same test as node's of HTTP/1.1. */
function refuseExpectation(headers: HeaderList): Refusal | null {
  const expected = headerValues(headers, "expect");
  return expected.length === 0 || CONTINUE.test(expected.join(", ")) ? null : UNKNOWN_EXPECTATION;
}

const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i;

function refuseConnect({ method, protocol }: Pseudo, headers: HeaderList, endOfStream: boolean): Refusal | null {
  if (protocol === undefined) return method === "CONNECT" ? malformed("The gateway is no forward proxy: CONNECT is not served.") : null;
  if (protocol !== "websocket") return malformed("The only protocol that CONNECT can ask for is websocket.");
  if (endOfStream) return malformed("The request for a WebSocket ends before it can begin.");
  return hasHeader(headers, "content-length") ? malformed("A request for a WebSocket cannot have a body.") : null;
}

/** With a scheme that it does not know, nghttp2 lets any path pass: `http://elsewhere/`, which would be read as an absolute target. */
function refuseTarget({ scheme, target }: Pseudo): Refusal | null {
  if (scheme !== "https" && scheme !== "http") return malformed("The scheme is neither http nor https.");
  return target.charCodeAt(0) === SLASH ? null : malformed("The path does not start with a slash.");
}

const SLASH = 0x2f;

/** `Host` may stand beside `:authority` only when it says the same (RFC 9113 §8.3.1). */
function refuseAuthority(authority: string | undefined, hosts: readonly string[]): Refusal | null {
  if (hosts.length > 1) return malformed("The request has more than one Host header.");
  const host = authority ?? hosts[0];
  if (host === undefined) return malformed("The request names no host.");
  if (!isHost(host)) return malformed("The host is not a host name with an optional port.");
  if (authority !== undefined && hosts.length === 1 && hosts[0]!.toLowerCase() !== authority.toLowerCase()) {
    return malformed("The Host header and :authority differ.");
  }
  return null;
}

function malformed(detail: string): Refusal {
  return { code: "bad_request", detail };
}

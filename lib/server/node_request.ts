/**
 * Reads what Node's own parser has made of an HTTP/1 request.
 */
import type { IncomingMessage } from "node:http";
import { boundBody, countReceived } from "../http/limited_body.ts";
import { readFraming, type RequestRefusal, type RequestHead } from "./request_head.ts";
import type { ConnectionFacts, Inbound, Inform, ReceiveOptions } from "./inbound.ts";
import { receiveHead } from "./receive.ts";

/** An HTTP/1 request that node's parser has read. */
export function receive(
  request: IncomingMessage,
  connection: ConnectionFacts,
  options: ReceiveOptions,
  inform: Inform,
): Inbound {
  const { httpVersion, rawHeaders } = request;
  const method = request.method!;
  const read = readFraming(method, rawHeaders, httpVersion, options.underscores);
  const hasBody = read.bodyLength !== 0 && read.upgrade === null;
  const framing = hasBody && request.readableDidRead ? { ...read, refusal: BODY_READ } : read;
  const body = hasBody ? boundBody(request, rawHeaders, options.limits.maxBodyBytes) : null;
  const head: RequestHead = { method, target: nodeTargetOf(request), httpVersion, headers: rawHeaders, framing };
  const inbound = receiveHead(
    head,
    connection,
    body,
    body === null ? null : () => request.rawTrailers,
    options,
    inform,
  );
  if (body !== null) countReceived(body, inbound.call.notes);
  return inbound;
}

/**
 * The target as the client sent it: a framework cuts the prefix off `url` where it mounts a handler, and keeps the
 * whole in `originalUrl` (Express, Connect, Polka). A host that rewrites `url` gets what it wrote: `url` is no longer
 * the end of `originalUrl` then.
 */
export function nodeTargetOf({ url = "", originalUrl }: IncomingMessage & { readonly originalUrl?: unknown }): string {
  // `/gw?x` under `/gw` is `/?x`: the slash is the framework's.
  return typeof originalUrl === "string" && originalUrl.endsWith(url.slice(1)) ? originalUrl : url;
}

/** The host's mistake, said to its author, who sees it first. */
const BODY_READ: RequestRefusal = {
  code: "bad_request",
  detail:
    "The program around the gateway has read the request body before the gateway: " +
    "a body parser must come after it, or leave its paths alone.",
};

/**
 * Reads what Node's own parser has made of an HTTP/1 request.
 */
import type { IncomingMessage } from "node:http";
import { boundBody, countReceived } from "../http/limited_body.ts";
import { headTooLarge, isRequestLine, malformed, readFraming, type RequestRefusal } from "./request_head.ts";
import type { RequestHead } from "./request_head.ts";
import type { Limits } from "./limits.ts";
import { receiveHead, type ConnectionFacts, type Inbound, type Inform, type ReceiveOptions } from "./inbound.ts";

export interface NodeInbound extends Inbound {
  /** See `Framing`. */
  readonly isPersistent: boolean;
}

/** An HTTP/1 request that node's parser has read. */
export function receive(
  request: IncomingMessage,
  connection: ConnectionFacts,
  options: ReceiveOptions,
  inform: Inform,
): NodeInbound {
  const { httpVersion, rawHeaders: headers } = request;
  const head = checkedHead({ method: request.method!, target: nodeTargetOf(request), httpVersion, headers }, options);
  const { bodyLength, upgrade } = head.framing;
  const body = bodyLength === 0 || upgrade !== null ? null : boundBody(request, headers, options.limits.maxBodyBytes);
  const framing = body !== null && request.readableDidRead ? { ...head.framing, refusal: BODY_READ } : head.framing;
  const inbound = receiveHead(
    { ...head, framing },
    connection,
    body,
    body === null ? null : () => request.rawTrailers,
    options,
    inform,
  );
  if (body !== null) countReceived(body, inbound.call.notes);
  return { ...inbound, isPersistent: framing.isPersistent };
}

/** Node's parser accepts other targets than our grammar, HTTP/0.9 and HTTP/2.0, and somewhat larger heads. */
export function checkedHead(
  head: Omit<RequestHead, "framing">,
  { limits, underscores }: Pick<ReceiveOptions, "limits" | "underscores">,
): RequestHead {
  const { method, target, httpVersion, headers } = head;
  const framing = readFraming(method, headers, httpVersion, underscores);
  const isLine = isRequestLine(`${method} ${target} HTTP/${httpVersion}\r\n`);
  const refusal = isLine ? refuseBytes(head, limits) : NO_REQUEST_LINE;
  return { ...head, framing: refusal === null ? framing : { ...framing, refusal } };
}

/**
 * 431 for a head that is too large as HTTP clients write it, which has been read otherwise: `GET / HTTP/1.1`,
 * `Name: value`, and the ends of the lines.
 */
export function refuseBytes(
  { method, target, headers }: Pick<RequestHead, "method" | "target" | "headers">,
  { maxHeaderBytes, maxUriBytes }: Limits,
): RequestRefusal | null {
  const line = method.length + target.length + " ".length + " HTTP/1.1\r\n".length;
  // Each name and each value has two characters behind it. The empty line at the end does not count.
  const bytes = headers.reduce((sum, text) => sum + text.length + 2, line);
  return target.length > maxUriBytes || bytes - "\r\n".length <= maxHeaderBytes ? null : headTooLarge(maxHeaderBytes);
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

const NO_REQUEST_LINE = malformed("The request line is not that of HTTP/1.1 or HTTP/1.0.");

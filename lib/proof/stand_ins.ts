/**
 * The parties around a gateway in a test of its configuration: the client with its certificate, the upstreams, and the
 * servers that plugins ask.
 */
import type { Json } from "../config/json.ts";
import type { Service } from "../config/model.ts";
import type { ConfigTest } from "../config/tests.ts";
import { ClientFailure, type ClientAnswer, type ClientRequestOptions } from "../client/client.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { withoutHeader, type HeaderList } from "../http/headers.ts";
import { faultReply, problem, type Reply } from "../http/reply.ts";
import type { Inbound, ReceiveOptions } from "../server/inbound.ts";
import { headText, replyOf, requestHead } from "../upstream/heads.ts";
import { OwnHeaders } from "../upstream/own_headers.ts";
import { authorityOf } from "../upstream/upstream_set.ts";
import { headerListOf, injected } from "./made_request.ts";
import { mcpRequest } from "./mcp_request.ts";

/** A request as the upstream would get it. */
export interface Forwarded {
  /** With the query. */
  readonly path: string;
  readonly headers: HeaderList;
  /** The identity of the caller. */
  readonly identity: string | null;
}

/** What a server answers that a plugin asks. */
export type Answer = ConfigTest["answers"][number];

/** The request of a test, received as from the network; `scheme` of a URL that is a path. */
export function requestOf(
  { mcp, clientIp, certificate, url, ...written }: ConfigTest["request"],
  defaultScheme: "http" | "https",
  receiving: ReceiveOptions,
): Inbound {
  const { method, headers, body } = mcp === undefined ? written : mcpRequest(mcp, written.headers);
  const given = { method, url, headers, clientIp, certificate: certificate ?? undefined };
  return injected(body === undefined ? given : { ...given, body: textOf(body) }, receiving, defaultScheme);
}

/**
 * A handler that answers in place of the upstreams of a service, as the first of them would; `seen` gets the request
 * that would be sent.
 */
export function upstreamOf(
  { status, headers, body }: ConfigTest["upstream"],
  seen: (request: Forwarded) => void,
  viaName: string,
): (service: Service) => Handler {
  const bytes = Buffer.from(textOf(body ?? ""));
  const rawHeaders = [
    ...withoutHeader(headerListOf(headers), "content-length"),
    "Content-Length",
    String(bytes.length),
  ];
  const answer = ({ method }: Exchange): Reply => {
    return replyOf(method, { statusCode: status, statusMessage: "", httpVersion: "1.1", rawHeaders }, viaName, bytes);
  };
  return (service) => {
    return (exchange) => {
      const path = exchange.upstreamPath + exchange.query;
      try {
        const headers = headersFor(exchange, service, viaName);
        if (headers === null) return problem(exchange.call, "upstream_unavailable");
        // It checks what plugins have made of the head.
        headText(exchange.method, path, headers);
        seen({ path, headers, identity: exchange.identity });
      } catch (error) {
        return faultReply(exchange.call, error);
      }
      if (exchange.body === null) return answer(exchange);
      // The limits of a body apply as it is read.
      return exchange.body.toArray().then(
        () => answer(exchange),
        (error: unknown) => faultReply(exchange.call, error),
      );
    };
  };
}

/**
 * The headers that the first upstream of a service would get; null if none has a weight. Throws for a head that plugins
 * have broken.
 */
export function headersFor(
  exchange: Exchange,
  { upstreams, protocol, preserveHost }: Service,
  viaName: string,
): HeaderList | null {
  const able = upstreams.filter((upstream) => "srv" in upstream || upstream.weight > 0);
  const first = able.find(({ backup }) => backup !== true) ?? able[0];
  if (first === undefined) return null;
  const sent = first.requestHeaders === undefined ? exchange : new OwnHeaders(first.requestHeaders).sentWith(exchange);
  // Which target of a record it would be, nobody knows here.
  const authority = "srv" in first ? first.srv : authorityOf({ ...first, protocol });
  return requestHead(sent, { authority }, { preserveHost, viaName }).headers;
}

/** Answers what plugins ask of other servers, by the exact URL; a server without an answer cannot be reached. */
export function serversOf(answers: readonly Answer[]): (request: ClientRequestOptions) => Promise<ClientAnswer> {
  const known = new Map(answers.map((answer) => [new URL(answer.url).href, answer]));
  return async ({ url, maxBytes, signal }) => {
    if (signal?.aborted) throw new ClientFailure("cancelled", "the request was given up");
    const answer = known.get(url.href);
    if (answer === undefined) throw new ClientFailure("unreachable", `the test has no answer of ${url.href}`);
    const body = Buffer.from(textOf(answer.body ?? ""));
    if (body.length > maxBytes) throw new ClientFailure("too_large", `the answer has more than ${maxBytes} bytes`);
    return {
      status: answer.status,
      headers: [
        ...withoutHeader(headerListOf(answer.headers), "content-length"),
        "Content-Length",
        String(body.length),
      ],
      body,
    };
  };
}

/** A text as it is, anything else as JSON. */
function textOf(body: Json): string {
  return typeof body === "string" ? body : JSON.stringify(body);
}

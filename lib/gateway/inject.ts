/**
 * A request without a socket: for tests of a configuration, and for hosts that already have the request as values.
 * It takes the same path through the gateway as one from the network.
 */
import { Readable } from "node:stream";
import type { HeaderList } from "../http/headers.ts";
import { headerValue } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { receiveParts, refuseSize, isHost, type Inbound, type ReceiveOptions } from "../server/receive.ts";
import { replyHeaders } from "../server/respond.ts";

export interface InjectRequest {
  /** Default "GET". */
  readonly method?: string;
  /** Path with query, or an absolute http(s) URL. */
  readonly path: string;
  /** An object, or a flat list `[name, value, …]` where order and duplicates matter. `Host` defaults to "localhost". */
  readonly headers?: Readonly<Record<string, string>> | HeaderList;
  readonly body?: string | Buffer;
  /** Where the request seems to come from. Default "127.0.0.1". */
  readonly remoteAddress?: string;
}

export interface InjectResponse {
  readonly status: number;
  /** Flat list, as it would have been sent. */
  readonly headers: HeaderList;
  readonly body: Buffer;
  /** First value of the named header, in any case. */
  header(name: string): string | undefined;
  /** The body as UTF-8. */
  text(): string;
  /** The body parsed as JSON; throws a SyntaxError when it is none. */
  json(): unknown;
}

export function injected(request: InjectRequest, options: ReceiveOptions): Inbound {
  const given = request.headers ?? [];
  const headers: string[] = Array.isArray(given) ? [...(given as HeaderList)] : Object.entries(given as Record<string, string>).flat();
  if (headerValue(headers, "host") === undefined) headers.unshift("Host", "localhost");
  const body = request.body === undefined ? null : Buffer.from(request.body);
  if (body !== null && headerValue(headers, "content-length") === undefined) headers.push("Content-Length", String(body.length));
  const host = headerValue(headers, "host")!;
  const connection = { remoteAddress: request.remoteAddress ?? "127.0.0.1", encrypted: false };
  return {
    ...receiveParts(headers, connection, host, options, () => {}),
    method: request.method ?? "GET",
    target: request.path,
    httpVersion: "1.1",
    headers,
    body: body === null || body.length === 0 ? null : Readable.from([body]),
    trailers: () => [],
    upgrade: null,
    refusal: isHost(host)
      ? refuseSize(request.path, headers)
      : { code: "bad_request", detail: "The Host header is not a host name with an optional port." },
  };
}

/** Reads the reply to its end. Rejects when its body breaks off. */
export async function collected(inbound: Inbound, reply: Reply): Promise<InjectResponse> {
  inbound.call.notes.status = reply.status;
  const chunks: Buffer[] = [];
  if (Buffer.isBuffer(reply.body)) chunks.push(reply.body);
  else if (reply.body !== null) for await (const chunk of reply.body) chunks.push(chunk as Buffer);
  const headers = replyHeaders(reply, inbound.call.id);
  const body = inbound.method === "HEAD" ? Buffer.alloc(0) : Buffer.concat(chunks);
  return {
    status: reply.status,
    headers,
    body,
    header: (name) => headerValue(headers, name.toLowerCase()),
    text: () => body.toString(),
    json: () => JSON.parse(body.toString()) as unknown,
  };
}

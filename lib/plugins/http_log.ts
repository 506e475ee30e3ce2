/**
 * The plugin kind `http_log`: sends an entry about every request to an HTTP server, in batches, once the reply is over.
 *
 * A batch is an array of JSON (RFC 8259), or a line for each entry, depending on the content type. Credentials in known
 * places, or of a known form, are left out.
 */
import { TOKEN } from "../base/http_grammar.ts";
import { isSecretName } from "../base/secret_names.ts";
import { HttpClient } from "../client/client.ts";
import { CLIENT_TLS } from "../config/tls_fields.ts";
import { integer, object, oneOf, optional, record, string, withDefault } from "../config/whole_schema.ts";
import { bodyWith, DeliveryQueue } from "../client/delivery_queue.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { REDACTED, redactedPath } from "../http/redact.ts";
import { redacted } from "../http/redact_query.ts";
import type { Reply } from "../http/reply.ts";
import { tapBody } from "../http/tapped_body.ts";
import { checkTls, clientTls, httpUrl, serverOf, timeoutField } from "./endpoint.ts";
import type { Plugin, Tools } from "./plugin.ts";

const value = string({ pattern: /^[\t\x20-\x7e]*$/, hint: "text that a header can carry", secret: true });

const schema = object(
  {
    http_endpoint: httpUrl("Where entries are sent.", "path"),
    method: withDefault(oneOf(["POST", "PUT", "PATCH"], { describe: "Method of the requests." }), "POST"),
    content_type: withDefault(
      string({
        pattern: /^[\w.+-]+\/[\w.+-]+( *;[\x20-\x7e]*)?$/,
        hint: 'a media type, such as "application/json"',
        describe: "application/x-ndjson: one line per entry; anything else: a JSON array.",
      }),
      "application/json",
    ),
    headers: withDefault(record(value, { describe: "Further headers, such as credentials for the server." }), {}),
    batch_size: withDefault(integer({ min: 1, max: 10_000, describe: "Maximum number of entries in a batch." }), 100),
    flush_ms: withDefault(
      integer({
        min: 1,
        max: 600_000,
        describe: "Maximum delay of an entry before its batch is sent, in milliseconds.",
      }),
      1_000,
    ),
    max_queue: withDefault(
      integer({
        min: 1,
        max: 1_000_000,
        describe: "Maximum number of waiting entries; beyond it the oldest are dropped.",
      }),
      10_000,
    ),
    timeout_ms: timeoutField("the answer to a batch", 5_000),
    tls: optional(CLIENT_TLS),
  },
  {
    describe: "Sends an entry about every request to an HTTP server.",
    refine({ headers, httpEndpoint, tls }, report) {
      checkTls(httpEndpoint, tls, report);
      for (const name of Object.keys(headers)) {
        if (!TOKEN.test(name) || OWN.test(name))
          report("is not the name of a header that can be set here", "headers", name);
      }
    },
  },
);

const OWN = /^(content-type|content-length|host|connection|transfer-encoding|expect|te|upgrade|trailer)$/i;

export const httpLog: Plugin<typeof schema> = {
  name: "http_log",
  schema,
  dials: { why: "http_log", urls: ({ httpEndpoint }) => [httpEndpoint] },
  code: { HttpClient },
  create(config, tools) {
    const queue = tools.keep("queue", config, () => queueFor(config, tools));
    const observe = (exchange: Exchange, reply: Reply | null) => {
      const bytes = bytesRead(exchange, reply);
      const add = () => queue.add(JSON.stringify(entryOf(exchange, reply, bytes(), tools)));
      const socket = reply?.tunnel?.socket;
      // A tunnel continues after the reply is sent.
      if (socket === undefined || socket.closed) exchange.call.onEnd(add);
      else socket.once("close", add);
    };
    return (next) => (exchange) => {
      const seen = (reply: Reply) => {
        observe(exchange, reply);
        return reply;
      };
      const failed = (error: unknown): never => {
        observe(exchange, null);
        throw error;
      };
      try {
        const reply = next(exchange);
        return reply instanceof Promise ? reply.then(seen, failed) : seen(reply);
      } catch (error) {
        return failed(error);
      }
    };
  },
};

type Config = Parameters<typeof httpLog.create>[0];

function queueFor(config: Config, { clock, log, scope, client }: Tools): DeliveryQueue {
  const { method, contentType, timeoutMs } = config;
  const headers = ["Content-Type", contentType, ...Object.entries(config.headers).flat()];
  const inLines = /^application\/x-ndjson\b/i.test(contentType);
  return new DeliveryQueue({
    clock,
    request: { url: new URL(config.httpEndpoint), method, headers, timeoutMs },
    client: client({ maxConnections: 1, tls: clientTls(config.tls) }),
    receiver: "the server",
    encode: (entries) => bodyWith(entries, inLines ? ["", "\n", "\n"] : ["[", ",", "]"]),
    batchSize: config.batchSize,
    batchMs: config.flushMs,
    maxTexts: config.maxQueue,
    // The head of a request may be large.
    maxCharacters: 64 * 1024 * 1024,
    whenFull: "lose oldest",
    isTransient: (status) => status >= 500 || status === 408 || status === 429,
    pausesMs: [500, 1_000, 2_000],
    report: (lost, why) =>
      log.warn("http_log has lost entries", {
        plugin: scope.path,
        host: serverOf(config.httpEndpoint),
        entries: lost,
        error: why,
      }),
    quietMs: 10_000,
  });
}

/** Returns a function that gives the bytes of the body that were read so far; null if that is unknown. */
function bytesRead({ method }: Exchange, reply: Reply | null): () => number | null {
  if (reply?.tunnel !== undefined) return () => null;
  const body = method === "HEAD" ? null : reply?.body;
  if (body === undefined) return () => null;
  if (body === null || Buffer.isBuffer(body)) return () => body?.length ?? 0;
  let bytes = 0;
  tapBody(body, (chunk) => (bytes += chunk.length));
  // Nobody has begun to read it.
  return () => (body.readableFlowing === null ? null : bytes);
}

function entryOf(
  exchange: Exchange,
  reply: Reply | null,
  bytes: number | null,
  { clock, secretParameters }: Tools,
): object {
  const { call, method, scheme, authority, path, query, httpVersion, headers, body, service, route, clientAddress } =
    exchange;
  const { notes } = call;
  const latency = clock.now() - call.startedAt;
  const endedAt = clock.wall();
  const length = headerValue(headers, "content-length");
  return {
    service: service.name,
    route: route.name,
    request: {
      id: call.id,
      method,
      scheme,
      host: authority,
      path: redactedPath(path),
      query: redacted(query, secretParameters),
      http_version: httpVersion,
      headers: shownHeaders(headers, secretParameters),
      bytes: length === undefined ? (body === null ? 0 : null) : Number(length),
    },
    response: {
      // Earlier plugins may have replaced the reply; logs the status that was sent.
      status: notes.status ?? (call.aborted ? null : (reply?.status ?? null)),
      headers: shownHeaders(reply?.headers ?? [], secretParameters),
      bytes,
      code: notes.code ?? (call.aborted ? "client_closed" : null),
    },
    latency: Math.round(latency * 100) / 100,
    client_ip: clientAddress,
    caller: notes.identity,
    started_at: new Date(endedAt - latency).toISOString(),
    ended_at: new Date(endedAt).toISOString(),
  };
}

/** By name in lower case; several values of one name as a list. */
function shownHeaders(list: HeaderList, secretParameters: ReadonlySet<string>): object {
  const shown = new Map<string, string | string[]>();
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!.toLowerCase();
    const text = isSecretName(name) || secretParameters.has(name) ? REDACTED : redacted(list[i + 1]!, secretParameters);
    const before = shown.get(name);
    if (before === undefined) shown.set(name, text);
    else if (typeof before === "string") shown.set(name, [before, text]);
    else before.push(text);
  }
  // fromEntries defines properties: a header named __proto__ is data like any other.
  return Object.fromEntries(shown);
}

/**
 * The plugin kind `http_log`: tells an HTTP server of every request once its reply is over, in batches. Waiting, sending again and
 * giving up is `http/delivery_queue.ts`.
 *
 * It looks at a request and its reply, and changes neither; it never answers itself. A batch is an array of JSON (RFC 8259), or a line
 * for each entry where the content type says so. Credentials that it knows by their place or form are left out.
 */
import type { Readable } from "node:stream";
import { CLIENT_TLS } from "../config/model.ts";
import { integer, object, oneOf, optional, record, string, withDefault } from "../config/schema.ts";
import type { Clock } from "../base/clock.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { DeliveryQueue } from "../http/delivery_queue.ts";
import { REDACTED, redacted, redactedPath } from "../http/redact.ts";
import type { Reply } from "../http/reply.ts";
import { checkTls, clientTls, hostOf, httpUrl } from "./outside.ts";
import { definePlugin, type Tools } from "./plugin.ts";

const value = string({ pattern: /^[\t\x20-\x7e]*$/, hint: "text that a header can carry", secret: true });

const schema = object(
  {
    http_endpoint: httpUrl("Where entries are sent.", "path"),
    method: withDefault(oneOf(["POST", "PUT", "PATCH"], { describe: "With which method." }), "POST"),
    content_type: withDefault(
      string({
        pattern: /^[\w.+-]+\/[\w.+-]+( *;[\x20-\x7e]*)?$/,
        hint: 'a media type, such as "application/json"',
        describe: "application/x-ndjson: a line for each entry; everything else: an array of JSON.",
      }),
      "application/json",
    ),
    headers: withDefault(record(value, { describe: "Further headers, such as credentials for the server." }), {}),
    batch_size: withDefault(integer({ min: 1, max: 10_000, describe: "Most entries in a batch." }), 100),
    flush_ms: withDefault(integer({ min: 1, max: 600_000, describe: "How long an entry waits for others, in milliseconds." }), 1_000),
    max_queue: withDefault(integer({ min: 1, max: 1_000_000, describe: "How many entries may wait; beyond that the oldest are dropped." }), 10_000),
    timeout_ms: withDefault(integer({ min: 1, max: 600_000, describe: "Longest wait for the answer to a batch." }), 5_000),
    tls: optional(CLIENT_TLS),
  },
  {
    describe: "Tells an HTTP server of every request.",
    refine({ headers, httpEndpoint, tls }, complain) {
      checkTls(httpEndpoint, tls, complain);
      for (const name of Object.keys(headers)) {
        const fits = HEADER.test(name) && !/^(content-type|content-length|host|connection|transfer-encoding|expect|te|upgrade|trailer)$/i.test(name);
        if (!fits) complain("is not the name of a header that can be set here", "headers", name);
      }
    },
  },
);

const HEADER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

export const httpLog = definePlugin({
  name: "http_log",
  schema,
  create(config, tools) {
    const outbox = tools.keep("outbox", config, () => outboxFor(config, tools));
    const { clock } = tools;
    return (next) => (exchange) => {
      const observed = new Observed(exchange, outbox, clock);
      let reply;
      try {
        reply = next(exchange);
      } catch (error) {
        observed.watch(null);
        throw error;
      }
      if (!(reply instanceof Promise)) {
        observed.watch(reply);
        return reply;
      }
      return reply.then(
        (later) => {
          observed.watch(later);
          return later;
        },
        (error: unknown) => {
          observed.watch(null);
          throw error;
        },
      );
    };
  },
});

type Config = Parameters<typeof httpLog.create>[0];

function outboxFor(config: Config, { clock, log, scope }: Tools): DeliveryQueue {
  const { method, contentType, timeoutMs } = config;
  const headers = ["Content-Type", contentType, ...Object.entries(config.headers).flat()];
  const inLines = /^application\/x-ndjson\b/i.test(contentType);
  return new DeliveryQueue({
    clock,
    request: { url: new URL(config.httpEndpoint), method, headers, timeoutMs },
    tls: clientTls(config.tls),
    receiver: "the server",
    encode: (entries) => Buffer.from(inLines ? entries.join("\n") + "\n" : `[${entries.join(",")}]`),
    batchSize: config.batchSize,
    batchMs: config.flushMs,
    maxTexts: config.maxQueue,
    // Heads of requests may be large.
    maxCharacters: 64 * 1024 * 1024,
    whenFull: "lose oldest",
    isTransient: (status) => status >= 500 || status === 408 || status === 429,
    pausesMs: [500, 1_000, 2_000],
    report: (lost, why) => log.warn("http_log has lost entries", { plugin: scope.key, host: hostOf(config.httpEndpoint), entries: lost, error: why }),
    quietMs: 10_000,
  });
}

/** One request, until its reply is over. */
class Observed {
  readonly #exchange: Exchange;
  readonly #outbox: DeliveryQueue;
  readonly #clock: Clock;
  #reply: Reply | null = null;
  /** Bytes of the body that were read; null when nobody can know. */
  #bytes: number | null = null;

  constructor(exchange: Exchange, outbox: DeliveryQueue, clock: Clock) {
    this.#exchange = exchange;
    this.#outbox = outbox;
    this.#clock = clock;
  }

  /** Null: there will be none from within. */
  watch(reply: Reply | null): void {
    this.#reply = reply;
    const { call, method } = this.#exchange;
    const end = () => this.#end();
    // A tunnel goes on when the reply is out, unless it has ended already.
    if (reply?.tunnel !== undefined) return void (reply.tunnel.socket.closed ? call.onEnd(end) : reply.tunnel.socket.once("close", end));
    const body = reply?.body;
    if (method === "HEAD" || body === null) this.#bytes = 0;
    else if (body === undefined) this.#bytes = null;
    else if (Buffer.isBuffer(body)) this.#bytes = body.length;
    else this.#count(body);
    call.onEnd(end);
  }

  /** Listens to the body when somebody begins to read it, and not before: to listen is to read. */
  #count(body: Readable): void {
    const look = (event: string | symbol) => {
      if (event !== "data") return;
      body.off("newListener", look);
      this.#bytes = 0;
      body.on("data", (chunk: Buffer) => (this.#bytes! += chunk.length));
    };
    body.on("newListener", look);
  }

  /** Whatever goes wrong here is no concern of the request's. */
  #end(): void {
    try {
      this.#outbox.add(JSON.stringify(this.#entry()));
    } catch {
      // An entry that cannot be written, then, is none.
    }
  }

  #entry(): object {
    const { call, method, scheme, authority, path, query, httpVersion, headers, service, route, clientAddress } = this.#exchange;
    const { notes } = call;
    const latency = this.#clock.now() - call.startedAt;
    const endedAt = this.#clock.wall();
    const length = headerValue(headers, "content-length");
    const reply = this.#reply;
    return {
      service: service.name,
      route: route.name,
      request: {
        id: call.id,
        method,
        scheme,
        host: authority,
        path: redactedPath(path),
        query: redacted(query),
        http_version: httpVersion,
        headers: shownHeaders(headers),
        bytes: length === undefined ? (this.#exchange.body === null ? 0 : null) : Number(length),
      },
      response: {
        // Plugins further out may have replaced the reply; what was sent counts.
        status: notes.status ?? (call.aborted ? null : (reply?.status ?? null)),
        headers: shownHeaders(reply?.headers ?? []),
        bytes: this.#bytes,
        code: notes.code ?? (call.aborted ? "client_closed" : null),
      },
      latency: Math.round(latency * 100) / 100,
      client_ip: clientAddress,
      caller: notes.identity,
      started_at: new Date(endedAt - latency).toISOString(),
      ended_at: new Date(endedAt).toISOString(),
    };
  }
}

/** By names in lower case; several of one name as a list. */
function shownHeaders(list: HeaderList): object {
  const shown = new Map<string, string | string[]>();
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!.toLowerCase();
    const text = shownValue(name, list[i + 1]!);
    const before = shown.get(name);
    if (before === undefined) shown.set(name, text);
    else if (typeof before === "string") shown.set(name, [before, text]);
    else before.push(text);
  }
  // fromEntries defines properties: a header named __proto__ is data like any other.
  return Object.fromEntries(shown);
}

function shownValue(lowerName: string, text: string): string {
  return SECRET_HEADERS.has(lowerName) ? REDACTED : redacted(text);
}

const SECRET_HEADERS = new Set([
  ...["authorization", "proxy-authorization", "cookie", "set-cookie", "apikey", "api-key", "x-api-key"],
  ...["x-auth-token", "x-access-token", "x-csrf-token", "x-amz-security-token", "x-goog-api-key"],
]);

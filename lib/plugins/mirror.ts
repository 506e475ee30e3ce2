/**
 * The plugin kind `mirror`: sends copies of requests to another server, and discards its answers.
 *
 * A request is copied once an upstream has answered it or failed: refused requests and those that a cache answers are
 * not copied. The request itself never waits: its body is recorded while it is read on its way to the upstream.
 */
import { setMaxListeners } from "node:events";
import type { Readable } from "node:stream";
import { ignore } from "../base/errors.ts";
import { FORWARDING } from "../base/http_grammar.ts";
import { proxyHeader } from "../base/proxy_protocol.ts";
import { evenShare } from "../base/share.ts";
import { destinationOf } from "../base/url_destination.ts";
import { CLIENT_TLS } from "../config/tls_fields.ts";
import { integer, object, oneOf, optional, percent, withDefault } from "../config/schema.ts";
import { HttpClient, type ClientFailure } from "../client/client.ts";
import type { Exchange } from "../http/exchange.ts";
import { isGrpc } from "../http/grpc.ts";
import { endToEnd, hasHeader, headerValue, nameSet, withoutHeaders, type HeaderList } from "../http/headers.ts";
import { LentBody } from "../http/lent_body.ts";
import { tapBody } from "../http/tapped_body.ts";
import { checkTls, clientTls, httpUrl, originHeaders, timeoutField } from "./endpoint.ts";
import type { Plugin, Tools } from "./plugin.ts";
import { sparseCount } from "./sparse_count.ts";

const schema = object(
  {
    url: httpUrl("Where copies are sent: scheme, host, port, and a base path that is put before the upstream's path."),
    percent: withDefault(percent({ describe: "Share of the requests that is copied." }), 100),
    max_body_bytes: withDefault(
      integer({ min: 0, max: 16 * 1024 * 1024, describe: "Requests with a longer body are not copied." }),
      65_536,
    ),
    max_in_flight: withDefault(
      integer({
        min: 1,
        max: 10_000,
        describe: "Maximum number of copies without an answer; further ones are dropped.",
      }),
      64,
    ),
    timeout_ms: timeoutField("the answer to a copy", 5_000),
    tls: optional(CLIENT_TLS),
    proxy_protocol: optional(
      oneOf(["v1", "v2"], {
        describe: "Each copy has a connection that begins with a header of this version of the PROXY protocol.",
      }),
    ),
  },
  {
    describe: "Sends copies of requests to another server.",
    refine({ url, tls }, report) {
      const { search, hash } = new URL(url);
      if (search !== "" || hash !== "" || url.endsWith("?"))
        report("has a query or a fragment: copies have the query of their request", "url");
      checkTls(url, tls, report);
    },
  },
);

export const mirror: Plugin<typeof schema> = {
  name: "mirror",
  schema,
  dials: { why: "mirror", urls: ({ url }) => [url] },
  code: { HttpClient },
  create(config, tools) {
    const copies = tools.keep("copies", config, () => copiesOf(config, tools));
    const isChosen = evenShare(config.percent);
    return (next) => (exchange) => {
      if (!isCopied(exchange) || !isChosen()) return next(exchange);
      const copy = new Copy(exchange, copies);
      const reply = next(copy.original);
      // Beside the reply, which is returned as it is.
      if (reply instanceof Promise) void reply.then(copy.answered, copy.answered);
      else copy.answered();
      return reply;
    };
  },
};

type Config = Parameters<typeof mirror.create>[0];

/** A stream of gRPC messages may never end, and a copy of a copy could go round in circles. */
function isCopied({ upgrade, headers }: Exchange): boolean {
  return upgrade === null && !hasHeader(headers, "x-mirrored") && !isGrpc(headerValue(headers, "content-type"));
}

/** One request that is to be copied. */
class Copy {
  /** The request to pass on. */
  readonly original: Exchange;
  readonly #copies: Copies;
  #block = Buffer.alloc(0);
  #length = 0;
  /** What has become of its body; the last two: why it is no longer recorded. */
  #body: "whole" | "recording" | "too_long" | "dropped" = "whole";
  /** "due": an upstream got the request. "over": it is sent, or there is no copy. */
  #state: "waiting" | "due" | "over" = "waiting";

  constructor(exchange: Exchange, copies: Copies) {
    const { body } = exchange;
    this.original = exchange;
    this.#copies = copies;
    const whole = body instanceof LentBody ? body.bytes : null;
    // A listener would make it a stream, which is not sent to a second upstream.
    if (whole !== null) this.#record(whole);
    else if (body !== null) this.#watch(exchange, body);
  }

  #watch({ headers, call }: Exchange, body: Readable): void {
    this.#body = "recording";
    const forget = (bytes: number) => (this.#length = Math.max(0, this.#length - bytes));
    if (Number(headerValue(headers, "content-length") ?? 0) > this.#copies.maxBodyBytes) this.#lose("too_long");
    else tapBody(body, (chunk) => this.#record(chunk), forget);
    body.once("end", () => {
      if (this.#body === "recording") this.#body = "whole";
      this.#settle();
    });
    call.onEnd(() => this.#body === "recording" && this.#end());
  }

  /** The request has a reply. */
  readonly answered = (): void => {
    if (this.original.call.notes.attempts === 0) return this.#end();
    if (this.#state === "waiting") this.#state = "due";
    this.#settle();
  };

  #record(chunk: Buffer): void {
    if (this.#state === "over" || this.#body === "too_long" || this.#body === "dropped") return;
    const { maxBodyBytes } = this.#copies;
    const length = this.#length + chunk.length;
    if (length > maxBodyBytes) return this.#lose("too_long");
    if (length > this.#block.length) {
      // A block of its own: chunks are parts of larger blocks, which would stay in memory with them.
      const size = Math.min(maxBodyBytes, Math.max(length, 2 * this.#block.length));
      if (!this.#copies.take(size - this.#block.length)) return this.#lose("dropped");
      const larger = Buffer.alloc(size);
      this.#block.copy(larger);
      this.#block = larger;
    }
    chunk.copy(this.#block, this.#length);
    this.#length = length;
  }

  #lose(why: "too_long" | "dropped"): void {
    this.#body = why;
    this.#release();
    this.#settle();
  }

  #settle(): void {
    if (this.#state !== "due" || this.#body === "recording") return;
    this.#state = "over";
    if (this.#body !== "whole") return this.#copies.tally(this.#body);
    const { body } = this.original;
    this.#copies.send(this.original, body === null ? undefined : this.#block.subarray(0, this.#length), () =>
      this.#release(),
    );
  }

  #end(): void {
    this.#state = "over";
    this.#release();
  }

  #release(): void {
    this.#copies.giveBack(this.#block.length);
    this.#block = Buffer.alloc(0);
  }
}

type Copies = ReturnType<typeof copiesOf>;

/** The copies of one plugin instance. */
function copiesOf(config: Config, tools: Tools) {
  const { maxBodyBytes, maxInFlight, timeoutMs, proxyProtocol } = config;
  const { log, scope, clock, tally } = tools;
  const url = new URL(config.url);
  const basePath = url.pathname.replace(/\/$/, "");
  const address = destinationOf(url, "mirror");
  const client = tools.client({ maxConnections: maxInFlight, tls: clientTls(config.tls) });
  const named = { plugin: scope.path, host: url.host };
  const logFailed = sparseCount(clock, (copies, error: string) =>
    log.warn("mirror cannot deliver copies", { ...named, copies, error }),
  );
  const cutting = new AbortController();
  // Each copy on its way listens.
  setMaxListeners(0, cutting.signal);
  let inFlight = 0;
  /** Bytes of bodies in memory: those of copies on their way, and those that are being recorded. */
  let held = 0;
  let emptied = ignore;
  return {
    maxBodyBytes,
    tally,
    /** Reserves memory, if all bodies together stay within `max_in_flight` times `max_body_bytes`. */
    take(bytes: number): boolean {
      if (held + bytes > maxInFlight * maxBodyBytes) return false;
      held += bytes;
      return true;
    },
    giveBack: (bytes: number) => void (held -= bytes),
    /** `release` is called when the body is no longer needed. */
    send(exchange: Exchange, body: Buffer | undefined, release: () => void): void {
      if (inFlight >= maxInFlight) {
        release();
        return tally("dropped");
      }
      inFlight++;
      const target = basePath + exchange.upstreamPath + exchange.query;
      const request = {
        url,
        target,
        method: exchange.method,
        headers: headersOf(exchange),
        ...(proxyProtocol && { connectionHead: proxyHeader(proxyProtocol, exchange.clientAddress, address) }),
        ...(body !== undefined && { body }),
      };
      const ended = (result: string) => {
        inFlight--;
        release();
        tally(result);
        if (inFlight === 0) emptied();
      };
      client.ask({ ...request, timeoutMs, maxBytes: MAX_ANSWER_BYTES, discards: true, signal: cutting.signal }).then(
        () => ended("sent"),
        ({ status, message }: ClientFailure) => {
          // The rest of a long answer is of no interest.
          if (status === null) logFailed(message);
          ended(status === null ? "failed" : "sent");
        },
      );
    },
    /** Copies on their way get a moment longer. */
    async close(): Promise<void> {
      client.close();
      if (inFlight === 0) return;
      const timer = clock.after(CLOSING_MS, () => cutting.abort());
      await new Promise<void>((resolve) => (emptied = resolve));
      timer.cancel();
    },
  };
}

/** Longer answers are broken off, and their connections closed. */
const MAX_ANSWER_BYTES = 1024 * 1024;
const CLOSING_MS = 500;

const REPLACED = nameSet(["host", "content-length", "expect", "trailer", "x-request-id", ...FORWARDING]);

function headersOf(exchange: Exchange): HeaderList {
  return [...withoutHeaders(endToEnd(exchange.headers), REPLACED), ...originHeaders(exchange), "X-Mirrored", "1"];
}

/**
 * Forwards a request to an admin interface in another process and streams the reply back.
 */
import { randomUUID } from "node:crypto";
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders } from "node:http";
import type { Clock } from "../base/clock.ts";
import { requestBy } from "../base/egress_clients.ts";
import { Fault } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import {
  endToEnd,
  hasToken,
  headerValue,
  headerValues,
  nameSet,
  withoutHeaders,
  type HeaderList,
} from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { readInboundBody } from "../operator/operator_server.ts";
import type { Inbound } from "../server/inbound.ts";
import {
  connectionTo,
  BackendFailure,
  failureOf,
  LEADS_BACK,
  NO_ADMIN,
  UNKNOWN_NAME,
  type Backend,
} from "./backend.ts";
import { scriptHeaders, type AdminBackend } from "./server.ts";

/** Time limit for the head of a reply, connecting included. The body has none: it may be an event stream. */
const REPLY_MS = 10_000;
/** A reload checks the configuration, which takes longer. */
const REPLY_TO_POST_MS = 30_000;
/** Between two parts of a body that is not an event stream. */
const BODY_IDLE_MS = 30_000;
/** TCP keep-alive of event streams. */
const PROBE_MS = 30_000;
const MAX_HEAD_BYTES = 32 * 1024;
/** Larger bodies are sent on as they arrive: several of them would fill the memory. */
const MAX_HELD_BYTES = 64 * 1024;

export class AdminProxy implements AdminBackend {
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #connection: ReturnType<typeof connectionTo>;
  /** Open event streams, which do not end by themselves. */
  readonly #streams = new Set<IncomingMessage>();
  /** Identifies requests that loop back here (RFC 9110 §7.6.3), which would use up all connections. */
  readonly #via = `edge-gateway-manager-${randomUUID()}`;
  #lastFailure: string | null = null;

  constructor(backend: Backend, clock: Clock, log: Log) {
    this.#backend = backend;
    this.#clock = clock;
    this.#log = log;
    this.#connection = connectionTo(backend);
  }

  endStreams(): void {
    for (const stream of this.#streams) stream.destroy();
  }

  async forward(inbound: Inbound, path: string): Promise<Reply> {
    const { call, method, headers } = inbound;
    const isLarge = inbound.body !== null && !(Number(headerValue(headers, "content-length")) <= MAX_HELD_BYTES);
    try {
      // Read before connecting: with a slow client the admin interface would appear not to answer.
      const response = await this.#ask(inbound, path, isLarge ? null : await readInboundBody(inbound, MAX_HELD_BYTES));
      if (response.statusCode! < 500) this.#noteSuccess();
      if (isEventStream(response)) this.#streams.add(response.once("close", () => this.#streams.delete(response)));
      return replyFrom(response, method);
    } catch (error) {
      // The client sent a header that HTTP/1.1 cannot carry, or a body that broke off or is too large.
      if (!(error instanceof BackendFailure))
        return problem(call, error instanceof Fault ? error.code : "bad_request", { why: (error as Error).message });
      const { code, detail, message: why } = error;
      if (!call.aborted) this.#noteFailure(why);
      return problem(call, code, { detail, why });
    }
  }

  /** `body`: null: it is sent on as it arrives. Rejects with a `Failure`, or with the error of the client's body. */
  #ask(inbound: Inbound, path: string, body: Buffer | null): Promise<IncomingMessage> {
    const { call, method, headers } = inbound;
    const { url } = this.#backend;
    const fields = [
      "Host",
      url.host,
      "Via",
      `1.1 ${this.#via}`,
      ...withoutHeaders(endToEnd(scriptHeaders(headers)), REGENERATED),
    ];
    if (body === null) fields.push(...framingOf(headers));
    else if (body.length > 0 || !SAFE.has(method)) fields.push("Content-Length", String(body.length));
    const list = fields as unknown as OutgoingHttpHeaders; // Node also accepts a flat list
    const waitMs = method === "POST" || method === "PUT" ? REPLY_TO_POST_MS : REPLY_MS;
    return new Promise((resolve, reject) => {
      if (headerValues(headers, "via").some((value) => value.includes(this.#via)))
        throw new BackendFailure("upstream_invalid", LEADS_BACK);
      const request = requestBy(this.#connection.agent, {
        ...this.#connection,
        setHost: false,
        maxHeaderSize: MAX_HEAD_BYTES,
        method,
        path: url.pathname.replace(/\/$/, "") + path,
        headers: list,
      });
      const fail = (failure: Error) => {
        reject(failure);
        request.destroy();
      };
      const late = `The admin interface did not answer within ${waitMs / 1000} s.`;
      const waiting = () => this.#clock.after(waitMs, () => fail(new BackendFailure("upstream_timeout", late)));
      let timer = waiting();
      let isOver = false;
      const sent = () => {
        timer.cancel();
        if (!isOver) timer = waiting();
      };
      call.onAbort(() => request.destroy());
      request.on("close", () => {
        isOver = true;
        timer.cancel();
        reject(new BackendFailure("upstream_reset", "The admin interface closed the connection without an answer."));
      });
      request.on("error", (error) => reject(failureOf(error)));
      request.on("upgrade", (_response, socket) => {
        socket.destroy();
        fail(new BackendFailure("upstream_invalid", "The admin interface switched protocols unexpectedly."));
      });
      request.on("response", (response) => {
        isOver = true;
        timer.cancel();
        const status = response.statusCode!;
        if (status < 200 || status > 599)
          fail(new BackendFailure("upstream_invalid", "The admin interface sent a reply that cannot be forwarded."));
        else if (isNoAdmin(method, path, response)) fail(new BackendFailure("upstream_invalid", NO_ADMIN));
        else if (status === 421) fail(new BackendFailure("upstream_invalid", UNKNOWN_NAME));
        else resolve(response);
      });
      if (body !== null) request.end(body);
      else sendBody(inbound, request, sent).catch((error: Error) => fail(error));
    });
  }

  #noteSuccess(): void {
    if (this.#lastFailure !== null)
      this.#log.info("the admin interface answers again", { url: this.#backend.url.href });
    this.#lastFailure = null;
  }

  /** Logs a repeated failure only once. */
  #noteFailure(reason: string): void {
    if (reason !== this.#lastFailure)
      this.#log.warn("the admin interface does not answer", { url: this.#backend.url.href, error: reason });
    this.#lastFailure = reason;
  }
}

/** Of a body that is sent on. */
function framingOf(headers: HeaderList): HeaderList {
  const length = headerValue(headers, "content-length");
  return length === undefined ? ["Transfer-Encoding", "chunked"] : ["Content-Length", length];
}

/**
 * As fast as the admin interface reads it. `sent` is called for each part. Rejects when the client's body breaks off,
 * or is too large.
 */
async function sendBody({ body, headers, call }: Inbound, request: ClientRequest, sent: () => void): Promise<void> {
  let goOn = (): void => {};
  request.on("drain", () => goOn()).on("close", () => goOn());
  if (hasToken(headerValue(headers, "expect"), "100-continue")) call.inform(100, []);
  // As in `readBody`.
  for await (const chunk of body!.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    if (request.destroyed) return;
    if (!request.write(chunk)) await new Promise<void>((resolve) => (goOn = resolve));
    sent();
  }
  request.end();
}

const SAFE = new Set(["GET", "HEAD"]);

/** Headers of connection and framing. */
const REGENERATED = nameSet(["host", "content-length", "expect", "trailer"]);

/**
 * Whether another server answered in place of an admin interface. Pages request these paths first, for which no admin
 * interface sends a redirect, a page, 404 or 405. A 5xx comes from a proxy in front of it.
 */
function isNoAdmin(method: string, path: string, { statusCode: status = 0, headers }: IncomingMessage): boolean {
  if (path === "/login" ? method !== "POST" : !/^\/gateway\/(?:status|now)(?:\?|$)/.test(path) || !SAFE.has(method))
    return false;
  if (status === 404 || status === 405 || (status >= 300 && status < 400 && status !== 304)) return true;
  return status < 500 && /^text\/html\b/i.test(headers["content-type"] ?? "");
}

function replyFrom(response: IncomingMessage, method: string): Reply {
  const status = response.statusCode!;
  const headers = endToEnd(response.rawHeaders);
  // The id that is in the log of the gateway.
  const requestId = headerValue(headers, "x-request-id");
  response.on("error", () => {}); // reported by the sender of the body
  if (method === "HEAD" || status === 204 || status === 304) {
    response.resume();
    return { status, headers, requestId, body: null };
  }
  const stopped = () =>
    response.destroy(new Fault("upstream_timeout", "the admin interface stopped sending its reply"));
  if (isEventStream(response)) response.socket.setKeepAlive(true, PROBE_MS);
  else response.setTimeout(BODY_IDLE_MS, stopped);
  return { status, headers, requestId, body: response };
}

function isEventStream(response: IncomingMessage): boolean {
  return /^text\/event-stream\b/i.test(response.headers["content-type"] ?? "");
}

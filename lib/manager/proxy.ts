/**
 * Passes a request on to the admin interface and its answer back, streamed as it comes. Which requests get here is `endpoints.ts`, how
 * the admin interface is reached `backend.ts`.
 */
import { randomUUID } from "node:crypto";
import http, { type ClientRequest, type IncomingMessage } from "node:http";
import https from "node:https";
import type { Clock } from "../base/clock.ts";
import { Fault, type ErrorCode } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { endToEnd, hasToken, headerValue, headerValues, type HeaderList } from "../http/headers.ts";
import type { OriginalClients } from "../http/original_clients.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Inbound } from "../server/receive.ts";
import { addressOf, createAgent, failureOf, LEADS_BACK, NO_ADMIN, UNKNOWN_NAME, type Backend } from "./backend.ts";

export interface PassOptions {
  readonly backend: Backend;
  readonly clock: Clock;
  readonly log: Log;
  readonly clients?: OriginalClients;
}

export interface Pass {
  /** `path` is what the admin interface is asked for, query included: "/gateway/status". Never rejects. */
  pass(inbound: Inbound, path: string): Promise<Reply>;
  /** Ends event streams, which would never end by themselves. */
  closeStreams(): void;
  /** Ends all that is under way. */
  close(): void;
}

/** For the head of an answer, in milliseconds, the wait for a connection included. A body may take its time: some are event streams. */
const ANSWER_MS = 10_000;
/** Checking a large configuration takes longer than reading one. */
const ANSWER_TO_POST_MS = 30_000;
/** Between two parts of a body that is no event stream. */
const BODY_IDLE_MS = 30_000;
/** After so much silence the system asks whether the other end of an event stream is still there. */
const PROBE_MS = 30_000;
const MAX_HEAD_BYTES = 32 * 1024;

export function createPass({ backend, clock, log, clients }: PassOptions): Pass {
  const agent = createAgent(backend);
  const prefix = backend.url.pathname.replace(/\/$/, "");
  const send = backend.url.protocol === "https:" ? https.request : http.request;
  const address = addressOf(backend);
  const underWay = new Set<ClientRequest>();
  const streams = new Set<IncomingMessage>();
  /** By which its own requests are known when they come back (RFC 9110 §7.6.3): one would be passed on until no connection is left. */
  const via = `edge-gateway-manager-${randomUUID()}`;
  let lastReason: string | null = null;

  return {
    async pass(inbound, path) {
      if (headerValues(inbound.headers, "via").some((value) => value.includes(via))) {
        tell(LEADS_BACK);
        return problem(inbound.call, "upstream_invalid", { detail: LEADS_BACK, why: LEADS_BACK });
      }
      try {
        const body = await readBody(inbound);
        return await new Promise<Reply>((resolve) => ask(inbound, path, body, resolve));
      } catch (error) {
        if (error instanceof Fault) return problem(inbound.call, error.code, { why: error.message });
        // The client broke its request off, or it holds what HTTP cannot carry on.
        return problem(inbound.call, "bad_request", { why: (error as Error).message });
      }
    },
    closeStreams() {
      for (const stream of streams) stream.destroy();
    },
    close() {
      for (const request of underWay) request.destroy();
      agent.destroy();
    },
  };

  function ask({ call, method, headers, clientAddress }: Inbound, path: string, body: Buffer, resolve: (reply: Reply) => void): void {
    // Browsers say so only where they trust the connection, and what asks here are scripts of pages anyway: the admin interface spares
    // them the challenge that would make a browser open a window of its own.
    const fields = ["Host", backend.url.host, "Sec-Fetch-Dest", "empty", "Via", `1.1 ${via}`, ...passedOn(headers)];
    if (body.length > 0 || !SAFE.has(method)) fields.push("Content-Length", String(body.length));
    const list = fields as unknown as http.OutgoingHttpHeaders; // flat, as node takes them too
    const request = send({ ...address, agent, method, path: prefix + path, headers: list, setHost: false, maxHeaderSize: MAX_HEAD_BYTES });
    let isOver = false;
    const waitMs = method === "POST" ? ANSWER_TO_POST_MS : ANSWER_MS;
    const timer = clock.after(waitMs, () => {
      fail("upstream_timeout", `The admin interface has not answered within ${waitMs / 1000} s.`);
      request.destroy();
    });
    underWay.add(request);
    if (clients !== undefined) request.once("socket", (socket) => clients.note(socket, clientAddress));
    call.onAbort(() => request.destroy());
    request.on("close", () => {
      underWay.delete(request);
      fail("upstream_reset", "The admin interface closed the connection without an answer.");
    });
    request.on("error", (error) => {
      const failure = failureOf(error);
      fail(failure.code, failure.detail, error.message);
    });
    request.on("upgrade", (_response, socket) => {
      socket.destroy();
      fail("upstream_invalid", "The admin interface switches protocols unasked.");
    });
    request.on("response", (response) => {
      const status = response.statusCode!;
      if (status < 200 || status > 599) {
        fail("upstream_invalid", "The admin interface sent no HTTP answer that can be passed on.");
        return void request.destroy();
      }
      const why = isNoAdmin(method, path, response) ? NO_ADMIN : status === 421 ? UNKNOWN_NAME : null;
      if (why !== null) {
        fail("upstream_invalid", why);
        return void request.destroy();
      }
      if (isOver) return;
      isOver = true;
      timer.cancel();
      if (lastReason !== null && status < 500) {
        log.info("the admin interface answers again", { url: backend.url.href });
        lastReason = null;
      }
      if (isEventStream(response)) follow(response);
      resolve(replyFrom(response, method));
    });
    request.end(body);

    function fail(code: ErrorCode, detail: string, why: string = detail): void {
      if (isOver) return;
      isOver = true;
      timer.cancel();
      if (!call.aborted) tell(why);
      resolve(problem(call, code, { detail, why }));
    }
  }

  function follow(stream: IncomingMessage): void {
    streams.add(stream);
    stream.once("close", () => streams.delete(stream));
  }

  /** Pages ask again and again; the log hears once of what stays as it is. */
  function tell(reason: string): void {
    if (reason === lastReason) return;
    lastReason = reason;
    log.warn("the admin interface does not answer", { url: backend.url.href, error: reason });
  }
}

const SAFE = new Set(["GET", "HEAD"]);

/**
 * Whole before anything is asked: it is small (the listener sees to that), and an admin interface that waits for a slow client would be
 * taken for one that does not answer. Rejects with a `Fault` for one that is too large.
 */
function readBody({ body, headers, call }: Inbound): Promise<Buffer> {
  if (body === null) return Promise.resolve(NOTHING);
  if (hasToken(headerValue(headers, "expect"), "100-continue")) call.inform(100, []);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    body.on("data", (chunk: Buffer) => chunks.push(chunk));
    body.on("end", () => resolve(Buffer.concat(chunks)));
    body.on("error", reject);
    body.on("close", () => reject(new Error("the body broke off")));
  });
}

const NOTHING = Buffer.alloc(0);

/**
 * Headers of the request as they go on: those of the connection stay behind, so do the framing, which is made anew, and Origin, by which
 * the admin interface would refuse a page that it does not know.
 */
function passedOn(headers: HeaderList): readonly string[] {
  const list = endToEnd(headers);
  const kept: string[] = [];
  for (let i = 0; i < list.length; i += 2) if (!LEFT_OUT.has(list[i]!.toLowerCase())) kept.push(list[i]!, list[i + 1]!);
  return kept;
}

const LEFT_OUT = new Set(["host", "origin", "sec-fetch-dest", "content-length", "expect", "trailer"]);

/**
 * Every admin interface answers these two, which the pages ask first, and leads nobody elsewhere. What a proxy before it says of its
 * absence (5xx) is another matter, and so is what it says to other methods: its own 405 to GET /login, for one.
 */
function isNoAdmin(method: string, path: string, { statusCode: status = 0, headers }: IncomingMessage): boolean {
  if (path === "/login" ? method !== "POST" : path !== "/gateway/status" || !SAFE.has(method)) return false;
  if (status === 404 || status === 405 || (status >= 300 && status < 400 && status !== 304)) return true;
  return status < 500 && /^text\/html\b/i.test(headers["content-type"] ?? "");
}

function replyFrom(response: IncomingMessage, method: string): Reply {
  const status = response.statusCode!;
  const headers = endToEnd(response.rawHeaders);
  // An operator looks for it in the gateway's log, where the admin interface has written its own.
  const requestId = headerValue(headers, "x-request-id");
  response.on("error", ignore); // whoever sends the body hears of it
  if (method === "HEAD" || status === 204 || status === 304) {
    response.resume();
    return { status, headers, requestId, body: null };
  }
  if (isEventStream(response)) response.socket.setKeepAlive(true, PROBE_MS);
  else response.setTimeout(BODY_IDLE_MS, () => response.destroy(new Fault("upstream_timeout", "the admin interface stopped in the middle of its answer")));
  return { status, headers, requestId, body: response };
}

function isEventStream(response: IncomingMessage): boolean {
  return /^text\/event-stream\b/i.test(response.headers["content-type"] ?? "");
}

function ignore(): void {}

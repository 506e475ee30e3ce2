/**
 * An HTTP/1.1 client for requests of the gateway's own: one request, one whole answer, within a time and a size. HTTPS
 * is verified, redirects are not followed.
 */
import type { Agent, ClientRequest, IncomingMessage, OutgoingHttpHeaders } from "node:http";
import type { AgentOptions as TlsAgentOptions } from "node:https";
import { isIP } from "node:net";
import tls, { type PeerCertificate } from "node:tls";
import type { Clock } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import type { Egress } from "../base/egress.ts";
import { TimeLimit } from "../base/time_limit.ts";
import { destinationOf } from "../base/url_destination.ts";
import { agentOf, requestBy } from "../base/egress_clients.ts";
import { connectFailure } from "../base/errors.ts";
import { BODILESS } from "../http/body.ts";
import type { HeaderList } from "../http/headers.ts";
import { JoinedPieces } from "../http/pieces.ts";

export interface HttpClientOptions {
  readonly clock: Clock;
  /** Where it may connect to; a request to another server fails. */
  readonly egress: Egress;
  /** As in `Destination`. */
  readonly why: string;
  /** Most connections to one host; requests beyond wait within their time. Default 256. */
  readonly maxConnections?: number;
  /**
   * For HTTPS. Default: servers are verified against the system's CA certificates, and no client certificate is
   * presented.
   */
  readonly tls?: ClientTls | undefined;
}

/** How servers are verified. Everything is PEM; `cert` and `key` are given together. */
export interface ClientTls {
  /** CA certificates. Default: the system's CA certificates. */
  readonly ca?: Buffer | undefined;
  /** Client certificate chain. */
  readonly cert?: Buffer | undefined;
  /** Private key of the client certificate. */
  readonly key?: Buffer | undefined;
  /** Host name or address that the certificate must be for. Default: the host of the URL. */
  readonly servername?: string | undefined;
}

export interface ClientRequestOptions {
  /** "http:" or "https:"; user name and password in it are not sent. */
  readonly url: URL;
  /** What is requested there, as it is. Default: path and query of the URL. */
  readonly target?: string;
  /** Default "GET". */
  readonly method?: string;
  /** Without Host and Content-Length, which are added. */
  readonly headers?: HeaderList;
  readonly body?: Buffer;
  /** Sent at the beginning of its connection, before TLS or HTTP; the connection serves no other request then. */
  readonly connectionHead?: Buffer;
  /** Whether it is sent again if the server had closed a kept connection. Default: for GET and HEAD. */
  readonly isRepeatable?: boolean;
  /**
   * From the last byte of the request on the wire to the last byte of the answer, in milliseconds; and as long at most
   * until the request is on the wire. Not counted: the time in which this process is busy itself.
   */
  readonly timeoutMs: number;
  /** Largest body of an answer. */
  readonly maxBytes: number;
  /**
   * Whether the body of the answer is read only to be discarded: that of the `ClientAnswer` is empty then. Default
   * false.
   */
  readonly discards?: boolean;
  /** Cancels the request. */
  readonly signal?: AbortSignal;
}

export interface ClientAnswer {
  /** 200 and above. */
  readonly status: number;
  readonly headers: HeaderList;
  readonly body: Buffer;
}

/**
 * "saturated": the time was over before the request got a connection of this client and was sent, or this machine
 * cannot open one, or this process was late itself.
 * "unsendable": HTTP cannot carry the request. These two and "cancelled" say nothing of the server.
 */
export type FailureKind =
  "unreachable" | "timeout" | "cancelled" | "too_large" | "invalid" | "saturated" | "unsendable";

/** Why there is no answer. The message is for logs: it contains nothing of the request. */
export class ClientFailure extends Error {
  readonly kind: FailureKind;
  /** Status of an answer that had begun; null when none had. */
  readonly status: number | null;
  /** Headers of such an answer, or an empty list. */
  readonly headers: HeaderList;
  /** Node's code of the error, where it has one: "ECONNREFUSED". */
  readonly code: string | null;

  constructor(kind: FailureKind, message: string, head: IncomingMessage | null = null, code: string | null = null) {
    super(message);
    this.name = "ClientFailure";
    this.kind = kind;
    this.status = head === null ? null : head.statusCode!;
    this.headers = head === null ? [] : head.rawHeaders;
    this.code = code;
  }

  /** Whether the server is to blame. What this side did not send or wait for must not count as its failure. */
  get isOfServer(): boolean {
    return this.kind !== "saturated" && this.kind !== "unsendable" && this.kind !== "cancelled";
  }
}

/** Sends requests of the gateway's own. */
export interface Client {
  /** Resolves with the whole answer, whatever its status; rejects with a `ClientFailure`. */
  ask(options: ClientRequestOptions): Promise<ClientAnswer>;
  /** Keeps no connection from now on. Requests in progress finish normally. */
  close(): void;
}

export class HttpClient implements Client {
  readonly #options: HttpClientOptions;
  readonly #agents: { [use in "http:" | "https:" | "http: once" | "https: once"]?: Agent } = {};
  #pending = 0;
  #isClosed = false;

  constructor(options: HttpClientOptions) {
    this.#options = options;
  }

  ask(options: ClientRequestOptions): Promise<ClientAnswer> {
    this.#pending++;
    return new Promise<ClientAnswer>((resolve, reject) => this.#send(options, resolve, reject)).finally(() => {
      this.#pending--;
      if (this.#isClosed && this.#pending === 0) this.#closeAll();
    });
  }

  close(): void {
    this.#isClosed = true;
    if (this.#pending === 0) this.#closeAll();
    else this.#dropIdle();
  }

  #send(
    options: ClientRequestOptions,
    resolve: (answer: ClientAnswer) => void,
    reject: (failure: ClientFailure) => void,
  ): void {
    const { method = "GET", timeoutMs, signal } = options;
    let request: ClientRequest | null = null;
    let isOver = false;
    let head: IncomingMessage | null = null;
    let again = options.isRepeatable ?? (method === "GET" || method === "HEAD");
    let waitedForConnection = false;
    let isSent = false;
    const end = (): boolean => {
      if (isOver) return false;
      isOver = true;
      limit.cancel();
      signal?.removeEventListener("abort", cancel);
      return true;
    };
    const fail = (kind: FailureKind, message: string, code?: string) => {
      if (!end()) return;
      request?.destroy();
      const isOwn = limit.wasLate && (kind === "timeout" || (kind === "unreachable" && OURS_IF_LATE.has(code)));
      reject(new ClientFailure(isOwn ? "saturated" : kind, message, head, code));
    };
    const cancel = () => fail("cancelled", "the request was given up");
    const limit = new TimeLimit(this.#options.clock, timeoutMs, () => {
      if (waitedForConnection && !isSent) fail("saturated", `no free connection within ${timeoutMs} ms`);
      else fail("timeout", `no answer within ${timeoutMs} ms`);
    });
    if (signal?.aborted) return cancel();
    signal?.addEventListener("abort", cancel);
    const send = (): void => {
      const asked = this.#request(options);
      if (asked instanceof Error) return fail("unsendable", asked.message);
      request = asked;
      asked.on("finish", () => {
        if (asked !== request) return;
        isSent = true;
        limit.restart();
      });
      asked.on("response", (response) => {
        head = response;
        receive(response, options, fail, (answer) => {
          if (!end()) return;
          // The server may never read the rest of the request, and the agent would keep the connection: the next
          // request would wait in vain.
          if (!asked.writableFinished) asked.destroy();
          resolve(answer);
        });
      });
      asked.on("upgrade", (_response, socket) => {
        socket.destroy();
        fail("invalid", "it switches protocols unasked");
      });
      asked.on("error", (error: NodeJS.ErrnoException) => {
        if (isOver || asked !== request) return;
        // The server had closed a kept connection while the request was on its way; it has probably closed the others,
        // too.
        if (again && asked.reusedSocket && !error.code?.startsWith("HPE_")) {
          again = false;
          this.#dropIdle();
          return send();
        }
        fail(kindOf(error), connectFailure(error), error.code);
      });
      asked.on(
        "close",
        () => void (asked === request && fail("unreachable", "the connection closed before an answer")),
      );
      asked.end(options.body);
      // Behind the tick in which Node gives the request its connection, where there is one.
      process.nextTick(entry("a look for a connection", () => (waitedForConnection ||= asked.socket === null)));
    };
    send();
  }

  /** Returns an error if HTTP cannot carry the headers. */
  #request({ url, method = "GET", headers = [], body, target, ...more }: ClientRequestOptions): ClientRequest | Error {
    const list = ["Host", url.host, ...headers];
    if (body !== undefined || !BODILESS.has(method)) list.push("Content-Length", String(body?.length ?? 0));
    const { egress, why, maxConnections = 256, tls } = this.#options;
    const { host, port } = destinationOf(url, why);
    const scheme = url.protocol === "https:" ? "https:" : "http:";
    const head = more.connectionHead;
    const use = head === undefined ? scheme : (`${scheme} once` as const);
    const agent = (this.#agents[use] ??= agentOf(egress, why, scheme, {
      ...(head === undefined ? KEPT : {}),
      maxSockets: maxConnections,
      ...(scheme === "https:" && agentTls(tls)),
    }));
    const path = target ?? url.pathname + url.search;
    try {
      // Flat, as node takes them too.
      return requestBy(agent, {
        method,
        host,
        port,
        path,
        head,
        headers: list as unknown as OutgoingHttpHeaders,
        setHost: false,
        maxHeaderSize: MAX_HEAD_BYTES,
      });
    } catch (error) {
      return error as Error;
    }
  }

  #dropIdle(): void {
    for (const agent of Object.values(this.#agents)) {
      for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
    }
  }

  #closeAll(): void {
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }
}

function kindOf({ code = "" }: NodeJS.ErrnoException): FailureKind {
  if (code.startsWith("HPE_")) return "invalid";
  return OWN_SHORTAGE.has(code) ? "saturated" : "unreachable";
}

/**
 * How a server ends a connection on which it has waited for too long; ETIMEDOUT: Node has tried the next address after
 * 250 ms, whether or not it was late itself.
 */
const OURS_IF_LATE = new Set([undefined, "ECONNRESET", "EPIPE", "ETIMEDOUT"]);

/** Files, ports and memory of this machine. */
const OWN_SHORTAGE = new Set(["EMFILE", "ENFILE", "EADDRNOTAVAIL", "ENOBUFS", "ENOMEM"]);

export function agentTls(settings: ClientTls | undefined): TlsAgentOptions {
  // Set in any case: NODE_TLS_REJECT_UNAUTHORIZED must not decide it.
  const always = { rejectUnauthorized: true };
  if (settings === undefined) return always;
  const { ca, cert, key, servername } = settings;
  // One context for all connections: with the files themselves node's agent would make a key of them for each request.
  const secure = { ...always, secureContext: tls.createSecureContext({ ca, cert, key }) };
  if (servername === undefined) return secure;
  return {
    ...secure,
    // The ClientHello cannot name an address (RFC 6066 §3), but the certificate can.
    servername: isIP(servername) === 0 ? servername : "",
    checkServerIdentity: (_host: string, certificate: PeerCertificate) =>
      tls.checkServerIdentity(servername, certificate),
  };
}

type Fail = (kind: FailureKind, message: string) => void;

function receive(
  response: IncomingMessage,
  { maxBytes, discards }: ClientRequestOptions,
  fail: Fail,
  done: (answer: ClientAnswer) => void,
): void {
  const pieces = new JoinedPieces();
  let bytes = 0;
  response.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > maxBytes) fail("too_large", `the answer has more than ${maxBytes} bytes`);
    else if (discards !== true) pieces.add(chunk);
  });
  const broken = () => fail("unreachable", "the connection broke in the middle of the answer");
  response.on("error", broken);
  response.on("end", () => {
    if (!response.complete) return broken();
    // Node reports a 101 without an Upgrade as an ordinary response.
    if (response.statusCode! < 200 || response.statusCode! > 599)
      return fail("invalid", `it answered with status ${response.statusCode}`);
    done({ status: response.statusCode!, headers: response.rawHeaders, body: Buffer.concat(pieces.all) });
  });
}

const MAX_HEAD_BYTES = 32 * 1024;
/** Shorter than the usual time for which servers keep an idle connection, so that few requests meet a closed one. */
const IDLE_MS = 4_000;
const KEPT = { keepAlive: true, maxFreeSockets: 32, scheduling: "lifo", timeout: IDLE_MS } as const;

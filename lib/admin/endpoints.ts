/**
 * The admin interface as a table: which path and method answers what, and to whom. Knows nothing of sockets.
 * Reading requests from connections and writing answers to them is `server.ts`.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { HeaderList } from "../http/headers.ts";
import { allowedHosts, HOST_NOT_ALLOWED } from "../http/allowed_hosts.ts";
import { createOriginalClients, type OriginalClients } from "../http/original_clients.ts";
import { problemDocument } from "../http/reply.ts";
import { METRICS_TYPE } from "../observe/exposition.ts";
import { createCors } from "./cors.ts";
import { createEvents } from "./events.ts";
import { createLogin } from "./login.ts";
import { readQuestion } from "./request_body.ts";
import { createSessions } from "./session.ts";
import { configView, explanationView, gatewayView, healthView, statsWithHistoryView, statusView, type AdminSource } from "./views.ts";

export interface Answer {
  readonly status: number;
  readonly headers: HeaderList;
  /**
   * A function writes the body itself, for as long as it takes; not called for HEAD. Its connection ends with it. A stream is read as fast
   * as the client reads, and its connection goes on.
   */
  readonly body: Buffer | Readable | null | ((response: ServerResponse) => void);
}

export interface AnswersOptions {
  readonly user: string;
  /** Plain text, or a hash as `hash-password` makes them. */
  readonly password: string;
  /** Signs sessions; at least 32 bytes. Null: random, and sessions end with the process. */
  readonly jwtSecret: string | null;
  readonly sessionTtlS: number;
  /** Masks AdminPassword, and every secret that stands in the configuration itself. */
  readonly redactSecrets: boolean;
  readonly corsOrigins: readonly string[];
  /** Names other than localhost under which it may be asked over plain HTTP. */
  readonly hosts: readonly string[];
  readonly clock: Clock;
  readonly log: Log;
  /** Told to token holders only. */
  readonly version: string;
  readonly source: AdminSource;
  /** Default: no connection is made for anybody else than who makes it. */
  readonly clients?: OriginalClients;
}

export interface Answers {
  /** Answers one request; `id` names it in the answer and in the log. Never rejects. */
  answer(request: IncomingMessage, id: string): Promise<Answer>;
  /** Ends answers that would go on. */
  close(): void;
}

export function createEndpoints(options: AnswersOptions): Answers {
  const { clock, log, source, clients = createOriginalClients() } = options;
  const login = createLogin(options);
  const sessions = createSessions({ user: options.user, password: options.password, secret: options.jwtSecret, ttlS: options.sessionTtlS, clock });
  const cors = createCors(options.corsOrigins);
  const isKnown = allowedHosts(options.hosts);
  const secrets = options.redactSecrets ? "masked" : "shown";
  const events = createEvents(options);

  const endpoints: Readonly<Record<string, Endpoint>> = {
    "/login": { POST: { open: true, answer: logIn } },
    "/logout": { DELETE: { open: true, answer: logOut } },
    "/gateway": { GET: { open: false, answer: () => json(200, gatewayView(source.proxyConfig(secrets))) } },
    "/gateway/config": { GET: { open: false, answer: () => json(200, configView(source.settings(), secrets)) } },
    "/gateway/status": { GET: { open: false, answer: () => json(200, statusView(source.status())) } },
    "/gateway/health": { GET: { open: false, answer: () => json(200, healthView(source.health())) } },
    "/gateway/stats": { GET: { open: false, answer: () => json(200, statsWithHistoryView(source.stats("all"))) } },
    "/gateway/events": { GET: { open: false, answer: listen } },
    "/gateway/explain": { POST: { open: false, answer: explain } },
    "/gateway/reload": { POST: { open: false, answer: reload } },
    "/metrics": { GET: { open: true, answer: metrics } }, // to whom, it says itself
    "/healthz": { GET: { open: true, answer: health } },
    "/readyz": { GET: { open: true, answer: readiness } },
  };

  return { answer: answered, close: () => events.close() };

  async function answered(request: IncomingMessage, id: string): Promise<Answer> {
    const { origin } = request.headers;
    let answer: Answer;
    try {
      answer = await route(request, id);
    } catch (fault) {
      log.error("admin request failed", { request_id: id, error: fault instanceof Error ? fault.stack : String(fault) });
      answer = refusal("internal", id);
    }
    return { ...answer, headers: [...COMMON, "X-Request-Id", id, ...cors.headers(origin), ...answer.headers] };
  }

  function route(request: IncomingMessage, id: string): Answer | Promise<Answer> {
    const { headers, method = "" } = request;
    const { path, authority = headers.host ?? "" } = targetOf(request.url ?? "");
    // A request of HTTP/1.1 names its host (RFC 9112 §3.2).
    if (path === null || (headers.host === undefined && request.httpVersion === "1.1")) return refusal("bad_request", id);
    // Over TLS the certificate has told the browser whose name this is.
    if (!isEncrypted(request) && !isKnown(authority)) return refusal("misdirected", id, HOST_NOT_ALLOWED);
    if (!SAFE.has(method) && cors.foreign(headers.origin, headers.host)) {
      return refusal("forbidden", id, "Pages of this origin may not change anything here.");
    }
    const methods = endpoints[path]; // No property of Object.prototype begins with a slash.
    if (methods === undefined) return refusal("route_not_found", id);
    const allow = allowed(methods);
    if (method === "OPTIONS") return { status: 204, headers: ["Allow", allow, ...cors.preflight(headers.origin, allow)], body: null };
    const endpoint = methods[method === "HEAD" ? "GET" : method];
    if (endpoint === undefined) return refusal("method_not_allowed", id, undefined, ["Allow", allow]);
    if (endpoint.open || sessions.live(headers.cookie)) return endpoint.answer(request, id);
    // Every 401 names a scheme (RFC 9110 §15.5.2), but "Basic" would make browsers ask for a password in a window of their own.
    return refusal("unauthenticated", id, "Log in with POST /login and send the cookie it sets.", SCRIPT_CHALLENGE);
  }

  async function logIn(request: IncomingMessage, id: string): Promise<Answer> {
    const refused = await refusedLogin(request, id, isScripted(request) ? SCRIPT_CHALLENGE : BASIC_CHALLENGE);
    if (refused !== null) return refused;
    const { cookie, expiresAt } = sessions.issue();
    log.info("admin logged in", { address: clients.addressOf(request.socket), request_id: id });
    return json(200, { user: options.user, expires_at: new Date(expiresAt).toISOString() }, ["Set-Cookie", cookie]);
  }

  /** Also to those who bring their credentials each time: scrapers have no place for a cookie. */
  async function metrics(request: IncomingMessage, id: string): Promise<Answer> {
    const { authorization, cookie } = request.headers;
    const refused = sessions.live(cookie) || sessions.borne(authorization) ? null : await refusedLogin(request, id, SCRAPER_CHALLENGE);
    if (refused !== null) return refused;
    return { status: 200, headers: ["Content-Type", METRICS_TYPE], body: source.metrics() };
  }

  /** Null: the request bears the administrator's credentials. */
  async function refusedLogin({ headers, socket }: IncomingMessage, id: string, challenge: HeaderList): Promise<Answer | null> {
    const address = clients.addressOf(socket);
    const outcome = await login.attempt(headers.authorization, address);
    switch (outcome.kind) {
      case "accepted":
        return null;
      case "paused":
        return refusal("rate_limited", id, "Too many failed logins from this address.", retryAfter(outcome.retryMs));
      case "overloaded":
        return refusal("overloaded", id, "Too many logins at once.", retryAfter(1000));
      case "wrong":
        // Not the user name given: people type passwords there.
        log.warn("admin login failed", { address, request_id: id });
        return refusal("unauthenticated", id, "The user name or the password is wrong.", challenge);
      case "missing":
        return refusal("unauthenticated", id, "Send the credentials of the administrator as HTTP Basic.", challenge);
    }
  }

  function logOut({ headers }: IncomingMessage): Answer {
    sessions.revoke(headers.cookie);
    events.review();
    return { status: 204, headers: ["Set-Cookie", sessions.clearing], body: null };
  }

  function listen({ headers: { cookie }, method }: IncomingMessage, id: string): Answer {
    const { state } = events;
    if (state === "ended") return refusal("overloaded", id, "The gateway is being shut down.");
    if (state === "full") return refusal("overloaded", id, "Too many streams of events are open.", retryAfter(5000));
    const body = method === "HEAD" ? null : (response: ServerResponse) => events.open(response, () => sessions.live(cookie));
    // A proxy of the manager's kind must hand each event on as it comes.
    return { status: 200, headers: ["Content-Type", "text/event-stream", "X-Accel-Buffering", "no"], body };
  }

  async function explain(request: IncomingMessage, id: string): Promise<Answer> {
    const question = await readQuestion(request, clock);
    if ("code" in question) return refusal(question.code, id, question.detail);
    return json(200, explanationView(source.explain(question, secrets)));
  }

  async function reload({ socket }: IncomingMessage, id: string): Promise<Answer> {
    log.info("admin asks for a reload", { address: clients.addressOf(socket), request_id: id });
    const reloaded = await source.reload();
    const { digest } = reloaded;
    if (reloaded.outcome === "taken") return json(200, { digest, changed: reloaded.changes.length > 0, changes: reloaded.changes });
    const detail = `Configuration ${digest} stays in force.`;
    return refusal("configuration_refused", id, detail, [], { digest, issues: reloaded.issues });
  }

  function readiness(): Answer {
    return source.ready() ? json(200, { status: "ready" }) : json(503, { status: "not_ready" });
  }

  function health({ headers }: IncomingMessage): Answer {
    return json(200, sessions.live(headers.cookie) ? { status: "ok", version: options.version } : { status: "ok" });
  }
}

/** What answers a path, by method; HEAD is answered where GET is, OPTIONS everywhere. */
type Endpoint = Readonly<
  Record<string, { readonly open: boolean; readonly answer: (request: IncomingMessage, id: string) => Answer | Promise<Answer> }>
>;

/** A problem document for an error of the table, with its type; `members` are those of its own. */
export function refusal(code: ErrorCode, id: string, detail?: string, headers: HeaderList = [], members?: object): Answer & { readonly body: Buffer } {
  const { status, title } = ERRORS[code];
  return withBody(status, "application/problem+json", problemDocument({ code, status, title }, id, detail, members), headers);
}

/** For every answer: what is shown here is nobody else's affair, and is what its type says. */
export const COMMON: HeaderList = ["Cache-Control", "no-store", "X-Content-Type-Options", "nosniff"];

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);
const REALM = "edge-gateway admin";
const BASIC_CHALLENGE: HeaderList = ["WWW-Authenticate", `Basic realm="${REALM}", charset="UTF-8"`];

/** What no browser acts upon: to "Basic" Chromium opens its own window even where a script has brought the credentials, and waits. */
const SCRIPT_CHALLENGE: HeaderList = ["WWW-Authenticate", `Cookie realm="${REALM}", form-action="/login", cookie-name="token"`];

const SCRAPER_CHALLENGE: HeaderList = [...BASIC_CHALLENGE, "WWW-Authenticate", `Bearer realm="${REALM}"`];

/** Sent by a script of a page, as browsers say of themselves (Fetch Metadata §2.1): it is the page that asks for the password. */
function isScripted({ headers }: IncomingMessage): boolean {
  return headers["sec-fetch-dest"] === "empty";
}

/**
 * The path of a target in origin-form or absolute-form (RFC 9112 §3.2), without its query; null for other forms. In absolute-form with the
 * authority, which counts in place of Host.
 */
function targetOf(target: string): { readonly path: string | null; readonly authority?: string } {
  const [prefix = "", authority] = ABSOLUTE_PREFIX.exec(target) ?? [];
  const path = target.slice(prefix.length).split("?", 1)[0]!;
  return { path: path.startsWith("/") ? path : null, ...(authority !== undefined && { authority }) };
}

/** `http://admin.example:8081` of http://admin.example:8081/gateway */
const ABSOLUTE_PREFIX = /^https?:\/\/([^/?]+)/i;

function isEncrypted({ socket }: IncomingMessage): boolean {
  return (socket as { encrypted?: boolean }).encrypted === true;
}

function allowed(methods: Endpoint): string {
  return Object.keys(methods)
    .flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : [method]))
    .concat("OPTIONS")
    .join(", ");
}

function retryAfter(ms: number): HeaderList {
  return ["Retry-After", String(Math.ceil(ms / 1000))];
}

function json(status: number, value: unknown, headers: HeaderList = []): Answer {
  return withBody(status, "application/json", Buffer.from(JSON.stringify(value) + "\n"), headers);
}

function withBody(status: number, type: string, body: Buffer, headers: HeaderList): Answer & { readonly body: Buffer } {
  return { status, headers: ["Content-Type", type, "Content-Length", String(body.length), ...headers], body };
}

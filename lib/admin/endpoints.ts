/**
 * The endpoints of the admin interface: which path and method gets which reply, and who may ask.
 */
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { allowedHosts, HOST_NOT_ALLOWED } from "../http/allowed_hosts.ts";
import { headerValue, headerValues, type HeaderList } from "../http/headers.ts";
import { isForeign } from "../http/own_pages.ts";
import { problem, type Reply } from "../http/reply.ts";
import { METRICS_TYPES, type MetricsFormat } from "../observe/exposition.ts";
import type { Inbound } from "../server/receive.ts";
import { EventStreams } from "./events.ts";
import { createLogin } from "./login.ts";
import { readQuestion } from "./question.ts";
import { createSessions } from "./session.ts";
import { configView, explanationView, gatewayView, healthView, statsWithHistoryView, statusView, type AdminSource } from "./views.ts";

export interface EndpointsOptions {
  readonly user: string;
  /** Plain text, or a hash as `hash-password` makes them. */
  readonly password: string;
  /** Signs sessions; at least 32 bytes. Null: random, and sessions end with the process. */
  readonly jwtSecret: string | null;
  readonly sessionTtlS: number;
  /** Masks AdminPassword, and every secret that stands in the configuration itself. */
  readonly redactSecrets: boolean;
  /** Pages that may use the interface (CORS), as browsers write them: `https://ui.example.com`. No wildcard: credentials forbid one. */
  readonly corsOrigins: readonly string[];
  /** Names other than localhost under which it may be asked over plain HTTP. */
  readonly hosts: readonly string[];
  readonly clock: Clock;
  readonly log: Log;
  /** Shown to token holders only. */
  readonly version: string;
  readonly source: AdminSource;
}

export interface Endpoints {
  /** Answers one request. Never rejects. */
  answer(inbound: Inbound): Promise<Reply>;
  /** Ends event streams; there will be no further ones. */
  endStreams(): void;
}

/** What answers a path, by method; HEAD is answered where GET is, OPTIONS everywhere. */
type Methods = Readonly<Record<string, { readonly open: boolean; readonly answer: (inbound: Inbound) => Reply | Promise<Reply> }>>;

export function createEndpoints(options: EndpointsOptions): Endpoints {
  const { source } = options;
  const secrets = options.redactSecrets ? "masked" : "shown";
  const access = createAccess(options);
  const events = new EventStreams(options);
  const shown = (view: () => unknown): Methods => ({ GET: { open: false, answer: () => json(200, view()) } });

  const table: Readonly<Record<string, Methods>> = {
    "/login": { POST: { open: true, answer: access.logIn } },
    "/logout": { DELETE: { open: true, answer: logOut } },
    "/gateway": shown(() => gatewayView(source.proxyConfig(secrets))),
    "/gateway/config": shown(() => configView(source.settings(), secrets)),
    "/gateway/status": shown(() => statusView(source.status())),
    "/gateway/health": shown(() => healthView(source.health())),
    "/gateway/stats": shown(() => statsWithHistoryView(source.stats("all"))),
    "/gateway/events": { GET: { open: false, answer: listen } },
    "/gateway/explain": { POST: { open: false, answer: explain } },
    "/gateway/reload": { POST: { open: false, answer: reload } },
    "/metrics": { GET: { open: true, answer: metrics } }, // checks credentials itself
    "/healthz": { GET: { open: true, answer: health } },
    "/readyz": { GET: { open: true, answer: readiness } },
  };
  return { answer: createRouter(table, access.isLoggedIn, options), endStreams: () => events.close() };

  function logOut({ headers }: Inbound): Reply {
    const cookie = access.logOut(headers);
    events.review();
    return { status: 204, headers: ["Set-Cookie", cookie], body: null };
  }

  /** Also with the credentials in each request: scrapers have no place for a cookie. */
  async function metrics(inbound: Inbound): Promise<Reply> {
    const refused = await access.refuseScraper(inbound);
    if (refused !== null) return refused;
    const format = metricsFormat(headerValues(inbound.headers, "accept").join(","));
    return { status: 200, headers: ["Content-Type", METRICS_TYPES[format], "Vary", "Accept"], body: source.metrics(format) };
  }

  function listen({ call, headers, method }: Inbound): Reply {
    const { state } = events;
    if (state === "ended") return problem(call, "overloaded", { detail: "The gateway is being shut down." });
    if (state === "full") return problem(call, "overloaded", { detail: "Too many streams of events are open.", headers: retryAfter(5000) });
    const body = method === "HEAD" ? null : events.open(() => access.isLoggedIn(headers));
    // X-Accel-Buffering: nginx and its like must pass each event on as it comes.
    return { status: 200, headers: ["Content-Type", "text/event-stream", "X-Accel-Buffering", "no"], body };
  }

  async function explain(inbound: Inbound): Promise<Reply> {
    const question = await readQuestion(inbound);
    if ("code" in question) return problem(inbound.call, question.code, { detail: question.detail });
    return json(200, explanationView(source.explain(question, secrets)));
  }

  async function reload({ call, clientAddress }: Inbound): Promise<Reply> {
    options.log.info("admin asks for a reload", { address: clientAddress, request_id: call.id });
    const reloaded = await source.reload();
    const { digest } = reloaded;
    if (reloaded.outcome === "taken") return json(200, { digest, changed: reloaded.changes.length > 0, changes: reloaded.changes });
    const detail = `Configuration ${digest} stays in force.`;
    return problem(call, "configuration_refused", { detail, members: { digest, issues: reloaded.issues } });
  }

  function readiness(): Reply {
    return source.ready() ? json(200, { status: "ready" }) : json(503, { status: "not_ready" });
  }

  function health({ headers }: Inbound): Reply {
    return json(200, access.isLoggedIn(headers) ? { status: "ok", version: options.version } : { status: "ok" });
  }
}

/** Who is logged in, and who gets in: sessions by cookie or bearer token, and logins by HTTP Basic. */
function createAccess(options: EndpointsOptions) {
  const { user, password, jwtSecret, sessionTtlS, clock, log } = options;
  const login = createLogin(options);
  const sessions = createSessions({ user, password, secret: jwtSecret, ttlS: sessionTtlS, clock });
  const cookiesOf = (headers: HeaderList) => headerValues(headers, "cookie").join("; ");

  /** Null: the request carries the administrator's credentials. */
  async function refuse({ call, headers, clientAddress }: Inbound, challenge: HeaderList): Promise<Reply | null> {
    const outcome = await login.attempt(headerValue(headers, "authorization"), clientAddress);
    switch (outcome.kind) {
      case "accepted":
        return null;
      case "paused":
        return problem(call, "rate_limited", { detail: "Too many failed logins from this address.", headers: retryAfter(outcome.retryMs) });
      case "overloaded":
        return problem(call, "overloaded", { detail: "Too many logins at once.", headers: retryAfter(1000) });
      case "wrong":
        // Without the user name given: people type passwords there.
        log.warn("admin login failed", { address: clientAddress, request_id: call.id });
        return problem(call, "unauthenticated", { detail: "The user name or the password is wrong.", headers: challenge });
      case "missing":
        return problem(call, "unauthenticated", { detail: "Send the credentials of the administrator as HTTP Basic.", headers: challenge });
    }
  }

  return {
    isLoggedIn: (headers: HeaderList) => sessions.live(cookiesOf(headers)),
    async logIn(inbound: Inbound): Promise<Reply> {
      // A page's script (Fetch Metadata §2.1) asks for the password itself.
      const isScript = headerValue(inbound.headers, "sec-fetch-dest") === "empty";
      const refused = await refuse(inbound, isScript ? SCRIPT_CHALLENGE : BASIC_CHALLENGE);
      if (refused !== null) return refused;
      const { cookie, expiresAt } = sessions.issue();
      log.info("admin logged in", { address: inbound.clientAddress, request_id: inbound.call.id });
      return json(200, { user, expires_at: new Date(expiresAt).toISOString() }, ["Set-Cookie", cookie]);
    },
    /** Returns the Set-Cookie header that removes the session's cookie. */
    logOut(headers: HeaderList): string {
      sessions.revoke(cookiesOf(headers));
      return sessions.clearing;
    },
    async refuseScraper(inbound: Inbound): Promise<Reply | null> {
      const { headers } = inbound;
      const hasToken = sessions.live(cookiesOf(headers)) || sessions.borne(headerValue(headers, "authorization"));
      return hasToken ? null : refuse(inbound, SCRAPER_CHALLENGE);
    },
  };
}

type RouterOptions = Pick<EndpointsOptions, "corsOrigins" | "hosts" | "log">;

/** Finds the endpoint for a request, after all checks that hold for every path, and adds the headers that every reply has. */
function createRouter(table: Readonly<Record<string, Methods>>, isLoggedIn: (headers: HeaderList) => boolean, options: RouterOptions): Endpoints["answer"] {
  const isKnown = allowedHosts(options.hosts);
  const origins = new Set(options.corsOrigins.map((origin) => origin.trim().replace(/\/$/, "").toLowerCase()));

  return async (inbound) => {
    const { call, headers } = inbound;
    let reply: Reply;
    try {
      reply = await route(inbound);
    } catch (error) {
      options.log.error("admin request failed", { request_id: call.id, error: messageOf(error, "stack") });
      reply = problem(call, "internal");
    }
    const origin = headerValue(headers, "origin");
    const shared = origin !== undefined && origins.has(origin) ? ["Access-Control-Allow-Origin", origin, ...CORS] : [];
    return { ...reply, headers: [...COMMON, ...shared, ...reply.headers] };
  };

  function route(inbound: Inbound): Reply | Promise<Reply> {
    const { call, headers, method, refusal } = inbound;
    if (refusal !== null) return problem(call, refusal.code, { detail: refusal.detail });
    const { path, authority = inbound.authority } = targetOf(inbound.target);
    if (path === null) return problem(call, "bad_request");
    // Over TLS the certificate has proved the name to the browser.
    if (inbound.scheme === "http" && !isKnown(authority)) return problem(call, "misdirected", { detail: HOST_NOT_ALLOWED });
    const origin = headerValue(headers, "origin");
    const isAllowed = origin === undefined || origins.has(origin);
    if (!SAFE.has(method) && !isAllowed && isForeign(inbound, inbound.authority)) {
      return problem(call, "forbidden", { detail: "Pages of this origin may not change anything here." });
    }
    const methods = table[path]; // No property of Object.prototype starts with a slash.
    if (methods === undefined) return problem(call, "route_not_found");
    const allow = Object.keys(methods).map((name) => (name === "GET" ? "GET, HEAD" : name)).concat("OPTIONS").join(", ");
    if (method === "OPTIONS") {
      const preflight = origin !== undefined && isAllowed ? ["Access-Control-Allow-Methods", allow, ...PREFLIGHT] : [];
      return { status: 204, headers: ["Allow", allow, ...preflight], body: null };
    }
    const endpoint = methods[method === "HEAD" ? "GET" : method];
    if (endpoint === undefined) return problem(call, "method_not_allowed", { headers: ["Allow", allow] });
    if (endpoint.open || isLoggedIn(headers)) return endpoint.answer(inbound);
    // Every 401 names a scheme (RFC 9110 §15.5.2); for "Basic" browsers would open a password window of their own.
    return problem(call, "unauthenticated", { detail: "Log in with POST /login and send the cookie it sets.", headers: SCRIPT_CHALLENGE });
  }
}

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);
const COMMON: HeaderList = ["Cache-Control", "no-store", "X-Content-Type-Options", "nosniff", "Vary", "Origin"];
const CORS = ["Access-Control-Allow-Credentials", "true", "Access-Control-Expose-Headers", "X-Request-Id, Retry-After"];
const PREFLIGHT = ["Access-Control-Allow-Headers", "Authorization, Content-Type", "Access-Control-Max-Age", "600"];

const REALM = "edge-gateway admin";
const BASIC_CHALLENGE: HeaderList = ["WWW-Authenticate", `Basic realm="${REALM}", charset="UTF-8"`];
/** A scheme that browsers ignore: for "Basic" Chromium opens its own window even where a script has sent the credentials, and waits. */
const SCRIPT_CHALLENGE: HeaderList = ["WWW-Authenticate", `Cookie realm="${REALM}", form-action="/login", cookie-name="token"`];
const SCRAPER_CHALLENGE: HeaderList = [...BASIC_CHALLENGE, "WWW-Authenticate", `Bearer realm="${REALM}"`];

/**
 * The path, without the query, of a target in origin-form or absolute-form (RFC 9112 §3.2); null for other forms. Of an absolute-form
 * target also the authority, which takes the place of Host.
 */
function targetOf(target: string): { readonly path: string | null; readonly authority?: string } {
  const [prefix = "", authority] = ABSOLUTE_PREFIX.exec(target) ?? [];
  const path = target.slice(prefix.length).split("?", 1)[0]!;
  return { path: path.startsWith("/") ? path : null, ...(authority !== undefined && { authority }) };
}

/** `http://admin.example:8081` of http://admin.example:8081/gateway */
const ABSOLUTE_PREFIX = /^https?:\/\/([^/?]+)/i;

/**
 * Chooses the format of metrics by the Accept header (RFC 9110 §12.5.1): OpenMetrics where it is asked for by name and not preferred less
 * than Prometheus' text format, which also clients get that accept neither.
 */
export function metricsFormat(accept: string): MetricsFormat {
  let open = 0;
  /** Quality of the text format as `text/plain`, `text/*`, and `*` + `/*`; the most specific one counts. */
  const plain: (number | undefined)[] = [];
  for (const range of accept.split(",")) {
    const [type, ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const value = (name: string) => parameters.find((parameter) => parameter.startsWith(`${name}=`))?.slice(name.length + 1).replace(/^"(.*)"$/, "$1");
    const version = value("version");
    const quality = value("q") ?? "1";
    const wanted = /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.test(quality) ? Number(quality) : 0;
    if (type === "application/openmetrics-text" && (version ?? "1.0.0") === "1.0.0") open = Math.max(open, wanted);
    else if (type === "text/plain" && (version ?? "0.0.4") === "0.0.4") plain[0] = Math.max(plain[0] ?? 0, wanted);
    else if (type === "text/*") plain[1] = wanted;
    else if (type === "*/*") plain[2] = wanted;
  }
  return open > 0 && open >= (plain[0] ?? plain[1] ?? plain[2] ?? 0) ? "openmetrics" : "prometheus";
}

function retryAfter(ms: number): HeaderList {
  return ["Retry-After", String(Math.ceil(ms / 1000))];
}

function json(status: number, value: unknown, headers: HeaderList = []): Reply {
  const body = Buffer.from(JSON.stringify(value) + "\n");
  return { status, headers: ["Content-Type", "application/json", "Content-Length", String(body.length), ...headers], body };
}

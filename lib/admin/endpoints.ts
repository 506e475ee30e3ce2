/**
 * The endpoints of the admin interface: paths, methods, replies and access control.
 */
import { ERRORS, Fault, messageOf } from "../base/errors.ts";
import { loadCode } from "../gateway/loaded_features.ts";
import { allowedHosts, HOST_NOT_ALLOWED } from "../operator/allowed_hosts.ts";
import { basicCredentials } from "../http/basic.ts";
import { headerValue, headerValues, type HeaderList } from "../http/headers.ts";
import { isForeign } from "../http/own_pages.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import type * as callers from "./caller_request.ts";
import type * as decisions from "./decision_request.ts";
import type * as docs from "./docs_request.ts";
import type * as explaining from "./explain_request.ts";
import type * as figureRequests from "./figures_request.ts";
import type * as fleets from "./fleet_request.ts";
import type * as logins from "./login.ts";
import type * as nowRequests from "./now.ts";
import type * as processes from "./process_request.ts";
import type * as reloading from "./reload_request.ts";
import type * as schemas from "./schema_request.ts";
import type * as settings from "./settings_request.ts";
import type * as ofSession from "./session.ts";
import type { Account } from "./session.ts";
import type * as tails from "./tail_request.ts";
import type * as showing from "./shown_request.ts";
import type * as purges from "./purge_request.ts";
import type * as rollovers from "./rollover_request.ts";
import type * as upstreams from "./upstream_request.ts";
import { askedOf, hasMetricsToken, json, METRICS_TYPE, NO_STORE, queryOf, readiness, retryAfter } from "./replies.ts";
import type { InterfaceOptions, Secrets } from "./views.ts";

export interface EndpointsOptions extends InterfaceOptions {
  readonly onRequest: OnRequest;
  /** The endpoints that change something, by their path; null without ADMIN_WRITE. */
  readonly writing: ((path: string) => readonly Endpoint[]) | null;
}

/** What only some requests need: it is loaded when the first of them comes. */
export interface OnRequest {
  readonly session: () => Promise<typeof ofSession>;
  readonly login: () => Promise<typeof logins>;
  readonly shown: () => Promise<typeof showing>;
  readonly decision: () => Promise<typeof decisions>;
  readonly now: () => Promise<typeof nowRequests>;
  readonly figures: () => Promise<typeof figureRequests>;
  readonly fleet: () => Promise<typeof fleets>;
  readonly process: () => Promise<typeof processes>;
  readonly callers: () => Promise<typeof callers>;
  readonly explain: () => Promise<typeof explaining>;
  readonly reload: () => Promise<typeof reloading>;
  readonly schema: () => Promise<typeof schemas>;
  readonly settings: () => Promise<typeof settings>;
  readonly docs: () => Promise<typeof docs>;
  readonly tail: () => Promise<typeof tails>;
  readonly upstream: () => Promise<typeof upstreams>;
  readonly purge: () => Promise<typeof purges>;
  readonly rollover: () => Promise<typeof rollovers>;
}

export interface Endpoint {
  /** GET is also HEAD. */
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /**
   * For every client, or the endpoint itself checks credentials. Default: for a session, or a caller with credentials
   * that reads.
   */
  readonly isOpen?: true;
  /** Who besides administrators may use it: operators, or also viewers. With GET all may. */
  readonly isFor?: "operators" | "all";
  /** A `Fault` that it throws becomes a problem with its code and message. */
  readonly answer: (inbound: Inbound, who: Who) => Reply | Promise<Reply>;
}

export interface Who extends Pick<Account, "role" | "user"> {
  /** When the session ends, in milliseconds since 1970; null: the request has credentials. */
  readonly expiresAt: number | null;
  /** Whether it has not ended meanwhile: a body may arrive slowly. */
  readonly isLive: () => boolean;
}

export class Endpoints {
  readonly #options: EndpointsOptions;
  /** Null: nobody has tried to log in yet. */
  #login: logins.Login | null = null;
  /** Null: nobody has asked for anything that a session opens. */
  #sessionsSoFar: ofSession.AdminSessions | null = null;
  /** Null: nobody has followed the requests yet. */
  #tail: tails.TailStreams | null = null;
  #hasEnded = false;
  readonly #isKnownHost: (authority: string) => boolean;
  readonly #origins: ReadonlySet<string>;
  readonly #table: Readonly<Record<string, Endpoint | readonly Endpoint[]>>;

  constructor(options: EndpointsOptions) {
    this.#options = options;
    this.#isKnownHost = allowedHosts(options.hosts);
    this.#origins = new Set(options.corsOrigins.map((origin) => origin.trim().replace(/\/$/, "").toLowerCase()));
    const { gateway, onRequest } = options;
    const shown = (path: showing.ShownPath): Endpoint => ({
      method: "GET",
      answer: async (inbound, who) =>
        (await loadCode(onRequest.shown)).shownRequest(path, inbound, options, this.#secretsFor(inbound.target, who)),
    });
    const read = <Module>(
      load: () => Promise<Module>,
      answerOf: (module: Module) => (inbound: Inbound, options: EndpointsOptions) => Reply | Promise<Reply>,
    ): Endpoint => ({
      method: "GET",
      answer: async (inbound) => answerOf(await loadCode(load))(inbound, options),
    });
    const explain: Endpoint["answer"] = async (inbound, who) =>
      (await loadCode(onRequest.explain)).explainRequest(inbound, options, this.#secretsFor(inbound.target, who));
    const reload: Endpoint["answer"] = async (inbound, { user }) =>
      (await loadCode(onRequest.reload)).reloadRequest(inbound, user, options);
    this.#table = {
      "/login": { method: "POST", isOpen: true, answer: (inbound) => this.#logIn(inbound) },
      "/logout": { method: "DELETE", isOpen: true, answer: (inbound) => this.#logOut(inbound) },
      "/gateway": shown("/gateway"),
      "/gateway/config": shown("/gateway/config"),
      "/gateway/session": [
        { method: "GET", answer: (_inbound, who) => json(200, this.#sessionView(who)) },
        { method: "POST", isFor: "all", answer: (inbound) => this.#renew(inbound) },
      ],
      "/gateway/status": shown("/gateway/status"),
      "/gateway/health": shown("/gateway/health"),
      "/gateway/stats": shown("/gateway/stats"),
      "/gateway/now": read(onRequest.now, (module) => module.nowRequest),
      "/gateway/figures": read(onRequest.figures, (module) => module.figuresRequest),
      "/gateway/fleet": read(onRequest.fleet, (module) => module.fleetRequest),
      "/gateway/process": read(onRequest.process, (module) => module.processRequest),
      "/gateway/plugin-figures": read(onRequest.process, (module) => module.pluginFiguresRequest),
      "/gateway/plugins": read(onRequest.explain, (module) => module.pluginsRequest),
      "/gateway/callers": read(onRequest.callers, (module) => module.callersRequest),
      "/gateway/caller": read(onRequest.callers, (module) => module.callerRequest),
      "/gateway/settings": read(onRequest.settings, (module) => module.settingsRequest),
      "/gateway/schema": read(onRequest.schema, (module) => module.schemaRequest),
      "/gateway/docs": read(onRequest.docs, (module) => module.docsRequest),
      "/gateway/tests": shown("/gateway/tests"),
      "/gateway/requests": read(onRequest.decision, (module) => module.decisionsRequest),
      "/gateway/requests/{id}": {
        method: "GET",
        answer: async (inbound) => (await loadCode(onRequest.decision)).decisionRequest(REQUESTS, inbound, options),
      },
      "/gateway/tail": { method: "GET", answer: (inbound, who) => this.#follow(inbound, who) },
      "/gateway/explain": { method: "POST", isFor: "all", answer: explain },
      "/gateway/reload": { method: "POST", isFor: "operators", answer: reload },
      "/gateway/cache/purge": {
        method: "POST",
        isFor: "operators",
        answer: async (inbound, who) => (await loadCode(onRequest.purge)).purgeRequest(inbound, who, options),
      },
      "/metrics": { method: "GET", isOpen: true, answer: (inbound) => this.#metrics(inbound) },
      "/healthz": { method: "GET", isOpen: true, answer: (inbound) => this.#health(inbound) },
      "/readyz": { method: "GET", isOpen: true, answer: () => readiness(gateway.ready) },
    };
  }

  /** Ends all streams and refuses new ones. */
  endStreams(): void {
    this.#hasEnded = true;
    this.#tail?.close();
  }

  /** Answers one request. Never rejects. */
  async answer(inbound: Inbound): Promise<Reply> {
    const { call, headers } = inbound;
    let reply: Reply;
    try {
      reply = await this.#route(inbound);
    } catch (error) {
      const isOfClient = error instanceof Fault && ERRORS[error.code].status < 500;
      if (!isOfClient)
        this.#options.log.error("admin request failed", { request_id: call.id, error: messageOf(error, "stack") });
      reply = error instanceof Fault ? problem(call, error.code, { detail: error.message }) : problem(call, "internal");
    }
    const origin = headerValue(headers, "origin");
    const shared =
      origin !== undefined && this.#origins.has(origin) ? ["Access-Control-Allow-Origin", origin, ...CORS] : [];
    return { ...reply, headers: [...COMMON, ...shared, ...reply.headers] };
  }

  async #sessions(): Promise<ofSession.AdminSessions> {
    const { AdminSessions } = await loadCode(this.#options.onRequest.session);
    return (this.#sessionsSoFar ??= new AdminSessions(this.#options));
  }

  async #route(inbound: Inbound): Promise<Reply> {
    const { call, headers, method } = inbound;
    const asked = askedOf(inbound);
    if ("status" in asked) return asked;
    const { path, authority } = asked;
    // Over TLS the certificate has proved the name to the browser.
    if (inbound.scheme === "http" && !this.#isKnownHost(authority))
      return problem(call, "misdirected", { detail: HOST_NOT_ALLOWED });
    const [origin, ...others] = headerValues(headers, "origin");
    const isAllowed = origin !== undefined && others.length === 0 && this.#origins.has(origin);
    const isForeignPage = !isAllowed && isForeign(inbound, inbound.authority);
    if (!SAFE.has(method) && isForeignPage) {
      return problem(call, "forbidden", { detail: "Pages of this origin may not make changes." });
    }
    // No property of Object.prototype starts with a slash.
    const endpoints = [
      this.#table[path.startsWith(REQUESTS) ? `${REQUESTS}{id}` : path] ?? this.#options.writing?.(path) ?? [],
    ].flat();
    if (endpoints.length === 0)
      return problem(call, "route_not_found", { detail: "The admin interface has no such path." });
    const allow = [...endpoints.map((each) => (each.method === "GET" ? "GET, HEAD" : each.method)), "OPTIONS"].join(
      ", ",
    );
    if (method === "OPTIONS") {
      const preflight = isAllowed ? ["Access-Control-Allow-Methods", allow, ...PREFLIGHT] : [];
      return { status: 204, headers: ["Allow", allow, ...preflight], body: null };
    }
    const endpoint = endpoints.find((each) => each.method === (method === "HEAD" ? "GET" : method));
    if (endpoint === undefined)
      return problem(call, "method_not_allowed", { detail: `This path accepts ${allow}.`, headers: ["Allow", allow] });
    if (endpoint.isOpen) return endpoint.answer(inbound, NOBODY);
    const sessions = await this.#sessions();
    const session = sessions.of(headers);
    if (session !== null)
      return this.#answerTo({ ...session, isLive: () => sessions.hasCookie(headers) }, endpoint, inbound);
    // Browsers send credentials that they were once given with the requests of all pages; of the session's cookie,
    // SameSite forbids that.
    const isCaller = endpoint.method === "GET" && !COOKIE_ONLY.has(path) && !isForeignPage;
    if (isCaller && basicCredentials(headerValue(headers, "authorization")) !== null) {
      // Reading takes one command, with credentials that are checked and throttled as those of a login.
      const found = await this.#accountOf(inbound, scriptChallenge(this.#options.cookie));
      if ("status" in found) return found;
      const { user, role } = found;
      return this.#answerTo(
        { user, role, expiresAt: null, isLive: () => this.#login!.isLive(found) },
        endpoint,
        inbound,
      );
    }
    const cookie = sessions.foreignCookie(headers);
    const challenge = scriptChallenge(this.#options.cookie);
    if (cookie === null)
      return problem(call, "unauthenticated", {
        detail: "Log in with POST /login and send the cookie it sets.",
        headers: challenge,
      });
    return problem(call, "unauthenticated", { detail: whyForeign(cookie), headers: challenge, members: { cookie } });
  }

  #answerTo(who: Who, endpoint: Endpoint, inbound: Inbound): Reply | Promise<Reply> {
    const { role } = who;
    if (role === "admin" || endpoint.method === "GET" || endpoint.isFor === "all") return endpoint.answer(inbound, who);
    if (role === "operator" && endpoint.isFor === "operators") return endpoint.answer(inbound, who);
    return problem(inbound.call, "forbidden", { detail: MAY_NOT[role] });
  }

  /**
   * `secrets=masked`: as with ADMIN_REDACT_SECRETS. A request with credentials gets none: browsers add those to the
   * requests of other pages.
   */
  #secretsFor(target: string, { role, expiresAt }: Who): Secrets {
    return role !== "admin" ||
      expiresAt === null ||
      this.#options.redactSecrets ||
      queryOf(target).get("secrets") === "masked"
      ? "masked"
      : "shown";
  }

  async #logIn(inbound: Inbound): Promise<Reply> {
    // A script of a page (Fetch Metadata §2.1) shows its own password form.
    const isScript = headerValue(inbound.headers, "sec-fetch-dest") === "empty";
    const found = await this.#accountOf(inbound, isScript ? scriptChallenge(this.#options.cookie) : BASIC_CHALLENGE);
    if ("status" in found) return found;
    const sessions = await this.#sessions();
    const issued = sessions.issue(found.user);
    if (issued === null) return problem(inbound.call, "unauthenticated");
    const { user, role, expiresAt, cookie } = issued;
    const device = sessions.deviceCookie(user, inbound.headers);
    const from = { address: inbound.clientAddress, request_id: inbound.call.id, role };
    this.#options.log.info("admin logged in", from);
    this.#options.audit?.add("login", { by: role, user, ...from });
    await this.#options.audit?.written();
    return json(200, { user, role, expires_at: new Date(expiresAt).toISOString() }, [
      ...["Set-Cookie", cookie],
      ...["Set-Cookie", device],
    ]);
  }

  async #renew({ call, headers }: Inbound): Promise<Reply> {
    const renewed = (await this.#sessions()).renew(headers);
    return renewed === null
      ? problem(call, "unauthenticated")
      : json(200, this.#sessionView(renewed), ["Set-Cookie", renewed.cookie]);
  }

  #sessionView({ user, role, expiresAt }: Pick<Who, "user" | "role" | "expiresAt">) {
    return {
      user,
      role,
      write: this.#options.write && role === "admin",
      drain: this.#options.write && role !== "viewer",
      expires_at: expiresAt && new Date(expiresAt).toISOString(),
    };
  }

  /** Whose credentials a request carries, or the reply to one without any. */
  async #accountOf(inbound: Inbound, challenge: HeaderList): Promise<Account | Reply> {
    const { Login, accountOf } = await loadCode(this.#options.onRequest.login);
    this.#login ??= new Login(this.#options);
    return accountOf(this.#login, inbound, challenge, this.#options, await this.#sessions());
  }

  async #logOut({ headers }: Inbound): Promise<Reply> {
    const sessions = await this.#sessions();
    await sessions.revoke(headers);
    this.#tail?.review();
    return { status: 204, headers: ["Set-Cookie", sessions.clearing], body: null };
  }

  /** Also accepts METRICS_TOKEN, a session's token as bearer, and the credentials: scrapers store no cookies. */
  async #metrics(inbound: Inbound): Promise<Reply> {
    const { headers } = inbound;
    const sessions = await this.#sessions();
    const isOpen =
      hasMetricsToken(headers, this.#options.metricsToken) ||
      sessions.hasCookie(headers) ||
      sessions.hasBearer(headers);
    const found = isOpen ? NOBODY : await this.#accountOf(inbound, SCRAPER_CHALLENGE);
    if ("status" in found) return found;
    await this.#options.refresh("all");
    return { status: 200, headers: ["Content-Type", METRICS_TYPE], body: await this.#options.metrics() };
  }

  async #follow({ call, method, target }: Inbound, who: Who): Promise<Reply> {
    const { TailStreams } = await loadCode(this.#options.onRequest.tail);
    this.#tail ??= new TailStreams(this.#options);
    if (this.#hasEnded) this.#tail.close();
    const state = this.#tail.stateFor(who);
    if (state === "ended") return problem(call, "overloaded", { detail: "The gateway is being shut down." });
    if (state === "full")
      return problem(call, "overloaded", { detail: "Too many streams are open.", headers: retryAfter(5000) });
    const body = method === "HEAD" ? null : this.#tail.open(who.isLive, target, who.user);
    if (typeof body === "string") return problem(call, "request_invalid", { detail: body });
    // X-Accel-Buffering: a proxy like nginx must forward each event at once.
    return { status: 200, headers: ["Content-Type", "text/event-stream", "X-Accel-Buffering", "no"], body };
  }

  async #health({ headers }: Inbound): Promise<Reply> {
    const { version } = this.#options;
    return json(
      200,
      headerValue(headers, "cookie") !== undefined && (await this.#sessions()).hasCookie(headers)
        ? { status: "ok", version }
        : { status: "ok" },
    );
  }
}

/** Who uses what is open. */
const NOBODY: Who = { role: "viewer", user: "", expiresAt: null, isLive: () => true };
const MAY_NOT = {
  viewer: "A viewer reads, and may do nothing else.",
  operator: "An operator reloads, drains and purges, and changes no configuration: that is for administrators.",
};
/** In front of the id of a request. */
const REQUESTS = "/gateway/requests/";
const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);
/** They show configured secrets, unless ADMIN_REDACT_SECRETS is set. */
const COOKIE_ONLY: ReadonlySet<string> = new Set(["/gateway", "/gateway/config", "/gateway/source"]);
const COMMON: HeaderList = [...NO_STORE, "Vary", "Origin"];
const CORS = [
  "Access-Control-Allow-Credentials",
  "true",
  "Access-Control-Expose-Headers",
  "X-Request-Id, Retry-After, ETag",
];
const PREFLIGHT = [
  "Access-Control-Allow-Headers",
  "Authorization, Content-Type, If-Match",
  "Access-Control-Max-Age",
  "600",
];

const REALM = "edge-gateway admin";
const BASIC_CHALLENGE: HeaderList = ["WWW-Authenticate", `Basic realm="${REALM}", charset="UTF-8"`];
const SCRAPER_CHALLENGE: HeaderList = [...BASIC_CHALLENGE, "WWW-Authenticate", `Bearer realm="${REALM}"`];

/**
 * Every 401 names a scheme (RFC 9110 §15.5.2). Browsers ignore this one: for "Basic" Chromium opens its own dialog even
 * if a script sent the credentials.
 */
function scriptChallenge(cookie: string): HeaderList {
  return ["WWW-Authenticate", `Cookie realm="${REALM}", form-action="/login", cookie-name="${cookie}"`];
}

function whyForeign(cookie: string): string {
  return (
    `Sign in again: the gateway was restarted, which sessions outlive with STATE_DIR or ADMIN_JWT_SECRET, or another ` +
    `application of this host name has a cookie “${cookie}”, which ADMIN_COOKIE_NAME avoids.`
  );
}

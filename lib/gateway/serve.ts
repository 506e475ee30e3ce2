/**
 * The data path, top to bottom: a received request is admitted and logged (`Requests`), then read, matched, and sent
 * through its route's plugins to an upstream, which returns a Reply (`serve`). `server/` has the sockets before and
 * after it.
 */
import { callerAddress } from "../base/ip_address.ts";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { ThreadCount } from "../base/threads.ts";
import { Exchange, stopPluginTime, type Call } from "../http/exchange.ts";
import { headersAskedFor, headerValue, headerValues, isHost, withHeader, type HeaderList } from "../http/headers.ts";
import { faultReply, problem, type Reply } from "../http/reply.ts";
import type { AccessLog } from "../observe/access_log.ts";
import type { Link } from "../plugins/plugin.ts";
import { readTarget, type Target } from "../route/path.ts";
import type { Found } from "../route/table.ts";
import type { Inbound, ReceiveOptions } from "../server/inbound.ts";
import { mostOfClient } from "../upstream/leases.ts";
import type { CompileTools } from "./compile_types.ts";
import type { RecentRequests } from "./recent_requests.ts";
import type { Runtime } from "./runtime.ts";
import type { RouteTarget, Snapshot } from "./snapshot.ts";

export interface ServeTools {
  readonly clock: Clock;
  readonly log: Log;
  /** Gets every request that is looked up in the route table. Default, and null: nobody asks for them. */
  readonly recent?: Pick<RecentRequests, "add"> | null;
  /** See `sessionRemover`. */
  readonly withoutSessions?: ((headers: HeaderList) => HeaderList) | undefined;
}

export interface RequestsTools extends ServeTools, Pick<CompileTools, "metrics" | "tracer"> {
  readonly configuration: { readonly snapshot: Snapshot };
  readonly runtime: Pick<Runtime, "threads" | "inFlight">;
  /** Called once, before the first request. */
  readonly activate: () => void;
  readonly accessLog: AccessLog;
}

/** The requests that a gateway is answering: admits, counts, logs and traces them. */
export class Requests {
  readonly #tools: RequestsTools;
  /** The requests in flight of all workers; null without workers. */
  readonly #sum: ThreadCount | null;
  #inFlight = 0;
  /** How many requests of each client this thread is answering, by `Call.holder`. */
  readonly #inFlightByClient = new Map<string, number>();
  /** Requests that were refused because there are too many: they are not in the counts, however slowly clients read. */
  readonly #shed = new Set<Inbound>();
  #noneInFlight: (() => void) | null = null;
  #state: "new" | "active" | "closed" = "new";

  constructor(tools: RequestsTools) {
    this.#tools = tools;
    this.#sum = tools.runtime.inFlight;
  }

  /** Requests that are being answered, and open WebSockets, of all workers. */
  get inFlight(): number {
    return this.#sum?.total ?? this.#inFlight;
  }

  /** Answers a request. `ended` must be called when its reply was sent. */
  readonly serve = (inbound: Inbound): Reply | Promise<Reply> => {
    if (this.#state === "new") this.activate();
    const { clock, accessLog, tracer, configuration } = this.#tools;
    const { snapshot } = configuration;
    const { call } = inbound;
    this.#inFlight++;
    call.notes.logged = accessLog.isOn;
    call.notes.digest = snapshot.digest;
    tracer?.begin(inbound);
    const isAdmitted = this.#admit(inbound, snapshot.global.limits);
    const first = isAdmitted ? serve(inbound, snapshot, this.#tools) : this.#refuse(inbound, snapshot);
    const { serverTiming, beforeRoutes } = snapshot;
    // Global plugins complete what is answered before a route is known.
    const isUnrouted = beforeRoutes !== null && call.notes.route === null && !(first instanceof Promise);
    const reply = isUnrouted ? beforeRoutes(inbound, first) : first;
    if (serverTiming === null) return reply;
    const timed = (later: Reply) => serverTiming(later, call, clock.now());
    return reply instanceof Promise ? reply.then(timed) : timed(reply);
  };

  /** To be called before requests can arrive; the first request does it otherwise. Does nothing later on. */
  activate(): void {
    if (this.#state !== "new") return;
    this.#state = "active";
    this.#tools.activate();
  }

  /** Whether there is room for one more request in all, and for one of this client. */
  #admit(
    { call, clientAddress }: Inbound,
    { maxRequestsInFlight: most, maxClientShare: share }: Snapshot["global"]["limits"],
  ): boolean {
    const { configuration, runtime } = this.#tools;
    const isProxy = call.trustedRemote && configuration.snapshot.receiving.proxies?.has(clientAddress) === true;
    const client = isProxy ? "" : clientAddress.includes(":") ? callerAddress(clientAddress) : clientAddress;
    const ofClient = this.#inFlightByClient.get(client) ?? 0;
    if (
      this.#state === "closed" ||
      (most > 0 && client !== "" && ofClient >= mostOfClient(most / runtime.threads.count, share))
    )
      return false;
    if (this.#sum === null ? most > 0 && this.#inFlight - this.#shed.size > most : !this.#sum.take(most)) return false;
    this.#inFlightByClient.set((call.holder = client), ofClient + 1);
    return true;
  }

  #refuse(inbound: Inbound, { errors }: Snapshot): Reply {
    this.#shed.add(inbound);
    errors?.ofRequest(inbound);
    if (this.#state === "closed")
      return problem(inbound.call, "overloaded", { detail: "The gateway has been shut down." });
    return problem(inbound.call, "overloaded", {
      detail: "Too many requests are in progress. Try again shortly.",
      headers: ["Retry-After", "1"],
    });
  }

  /** The reply of a request was sent, or its client has disconnected. */
  readonly ended = (inbound: Inbound): void => {
    const { clock, accessLog, metrics, tracer } = this.#tools;
    const { call, method } = inbound;
    const now = clock.now();
    if (metrics !== null) {
      if (call.notes.plugin !== null && call.notes.answeredAt !== null) call.notes.plugin.answered++;
      stopPluginTime(call.notes, call.notes.answeredAt ?? now);
      metrics.decisions?.add(inbound, now);
      metrics.durations?.ended(inbound, now - call.startedAt);
      (call.notes.meter ?? metrics.unrouted).ended(method, call.notes, now - call.startedAt);
    }
    if (call.notes.logged) accessLog.write(inbound, now);
    tracer?.end(call.notes);
    if (this.#shed.size === 0 || !this.#shed.delete(inbound)) {
      this.#sum?.give();
      const ofClient = this.#inFlightByClient.get(call.holder)!;
      if (ofClient > 1) this.#inFlightByClient.set(call.holder, ofClient - 1);
      else this.#inFlightByClient.delete(call.holder);
    }
    if (--this.#inFlight === 0) this.#noneInFlight?.();
  };

  readonly receiving = (): ReceiveOptions => this.#tools.configuration.snapshot.receiving;

  /** Resolves when no request is being answered. */
  untilNone(): Promise<void> {
    if (this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#noneInFlight = resolve;
    });
  }

  close(): void {
    this.#state = "closed";
  }
}

/** Never throws, and its promise never rejects: any fault becomes a 500 that says nothing about its cause. */
export function serve(
  inbound: Inbound,
  snapshot: Pick<Snapshot, "table"> & Partial<Pick<Snapshot, "early" | "errors">>,
  tools: ServeTools,
): Reply | Promise<Reply> {
  const { call, method } = inbound;
  snapshot.errors?.ofRequest(inbound);

  // 1. Refuse requests that two parsers could read in two ways.
  if (inbound.refusal !== null) return problem(call, inbound.refusal.code, { detail: inbound.refusal.detail });
  const target = readTarget(inbound.target);
  if ("code" in target) return problem(call, target.code, { detail: sentence(target.detail) });
  if (target.authority !== null && !isHost(target.authority)) return problem(call, "bad_request", NO_HOST);

  // 2. Find the route by host, path and method.
  const authority = target.authority ?? inbound.authority;
  const early = snapshot.early?.(inbound, authority);
  if (early) return early;
  const { path, query } = target;
  tools.recent?.add(method, authority, path);
  const found = findRoute(inbound, authority, target, snapshot.table);
  if (found.kind !== "route") return noRoute(call, found);
  const { params, upstreamPath } = found;
  const { service, route, pattern, handler, meter, errors } = found.target;

  // 3. Note the route for logs and metrics.
  const { notes } = call;
  notes.meter = meter;
  if (meter !== null) meter.inFlight++;
  notes.service = service.name;
  notes.route = route.name;
  notes.pattern = pattern;
  errors?.ofRequest(inbound);

  // 4. Describe the request to the plugins.
  const { httpVersion, scheme, clientAddress, body, trailers, upgrade } = inbound;
  const headers =
    method === "OPTIONS" || method === "TRACE"
      ? withForwardsLeft(inbound, authority, target, snapshot.table)
      : inbound.headers;
  if ("status" in headers) return headers;
  const exchange = new Exchange({
    call,
    method,
    target: inbound.target,
    httpVersion,
    scheme,
    authority,
    path,
    upstreamPath,
    query,
    headers: tools.withoutSessions?.(headers) ?? headers,
    params,
    clientAddress,
    service,
    route,
    identity: null,
    claims: null,
    groups: NO_GROUPS,
    body,
    trailers,
    upgrade,
  });

  // 5. Run global, service and route plugins, then an upstream, and back: compiled into one handler for each route.
  try {
    const reply = handler(exchange);
    if (!(reply instanceof Promise)) return answered(call, reply, tools.clock);
    return reply.then(
      (later) => answered(call, later, tools.clock),
      (error: unknown) => fault(call, error, tools.log),
    );
  } catch (error) {
    return fault(call, error, tools.log);
  }
}

const NO_GROUPS: readonly string[] = Object.freeze([]);
const NO_CONDITIONS = {
  detail: "No route of this path fits the headers, the query, the cookies and the scheme of the request.",
};
const NO_HOST = { detail: "The request target names no host with an optional port." };

/**
 * The headers with `Max-Forwards` less one, or the reply where the request may not be forwarded: the gateway is its
 * last recipient (RFC 9110 §7.6.2). It reflects no TRACE, whose headers may hold credentials (RFC 9110 §9.3.8).
 */
function withForwardsLeft(
  { call, method, headers, scheme }: Inbound,
  authority: string,
  target: Target,
  table: Snapshot["table"],
): HeaderList | Reply {
  const [stated, second] = headerValues(headers, "max-forwards");
  if (stated === undefined) return headers;
  if (second !== undefined || !/^\d+$/.test(stated))
    return problem(call, "bad_request", { detail: "Max-Forwards is not one whole number." });
  const most = Math.min(Number(stated), MAX_FORWARDS);
  if (most > 0) return withHeader(headers, "Max-Forwards", String(most - 1));
  // No route names this method: the table says which methods the routes of this path name, unless one of them accepts
  // all.
  const found = findRoute({ method: "", headers, scheme }, authority, target, table);
  const allow = (found.kind === "method" ? found.allow.split(", ") : USUAL_METHODS)
    .filter((each) => each !== "TRACE")
    .join(", ");
  if (method === "OPTIONS") return { status: 204, headers: ["Allow", allow], body: null };
  return problem(call, "method_not_allowed", {
    detail: `The gateway itself accepts ${allow}.`,
    headers: ["Allow", allow],
  });
}

/** More is written as this number: the RFC allows a recipient a maximum of its own. */
const MAX_FORWARDS = 2 ** 31;
const USUAL_METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY"];

type Asked = Pick<Inbound, "method" | "headers" | "scheme">;

/** The route that serves a request for the host `authority`. */
export function findRoute(
  { method, headers, scheme }: Asked,
  authority: string,
  { path, query, encodedSlash }: Target,
  table: Snapshot["table"],
): Found<RouteTarget> {
  const preflight =
    method === "OPTIONS"
      ? findPreflight(headers, (asked, sent) => table.find(authority, asked, path, encodedSlash, sent, query, scheme))
      : null;
  return preflight ?? table.find(authority, method, path, encodedSlash, headers, query, scheme);
}

type Find = (method: string, headers: HeaderList) => Found<RouteTarget>;

/**
 * The route that a CORS preflight (Fetch §3.2.2) asks about, where one of its plugins handles preflights; null for all
 * else.
 */
function findPreflight(headers: HeaderList, find: Find): Found<RouteTarget> | null {
  const asked = headerValue(headers, "access-control-request-method");
  if (asked === undefined || headerValue(headers, "origin") === undefined) return null;
  const found = find(asked, headersAskedFor(headers));
  return found.kind === "route" && found.target.takesPreflights ? found : null;
}

function noRoute(call: Call, found: Exclude<Found<RouteTarget>, { readonly kind: "route" }>): Reply {
  if (found.kind === "refused") return problem(call, found.refusal.code, { detail: sentence(found.refusal.detail) });
  if (found.kind === "none")
    return problem(call, "route_not_found", { detail: "No service and route of this gateway match the path." });
  if (found.kind === "conditions") return problem(call, "route_not_found", NO_CONDITIONS);
  return problem(call, "method_not_allowed", {
    detail: `This path accepts ${found.allow}.`,
    headers: ["Allow", found.allow],
  });
}

/** The time is needed by the access log, and by the time of the outermost plugin. */
function answered({ notes }: Call, reply: Reply, clock: Clock): Reply {
  if (notes.logged || notes.plugin !== null) notes.answeredAt = clock.now();
  return reply;
}

/** A fault outside the plugins: plugins handle their own (`plugins/chain.ts`). */
function fault(call: Call, error: unknown, log: Log): Reply {
  logFault(log, call, error, null);
  return faultReply(call, error);
}

/** `link` is the plugin at fault; null where it was none. */
export function logFault(log: Log, call: Call, error: unknown, link: Link | null): void {
  log.error("a plugin or the gateway failed", {
    request_id: call.id,
    service: call.notes.service,
    route: call.notes.route,
    ...(link === null ? null : { plugin: link.name, plugin_id: link.scope.id, plugin_level: link.scope.level }),
    error: messageOf(error, "stack"),
  });
}

/** Refusals of `route/` are clauses: "the path has a “..” segment". */
function sentence(clause: string): string {
  return `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`;
}

/**
 * The data path, top to bottom: a received request is read, matched, sent through its route's plugins to an upstream, and comes
 * back as a Reply. Receiving and sending bytes is `server/`.
 */
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { Exchange, type Call } from "../http/exchange.ts";
import { headerValue } from "../http/headers.ts";
import { faultReply, problem, type Reply } from "../http/reply.ts";
import type { Link } from "../plugins/chain.ts";
import { readTarget } from "../route/path.ts";
import type { Found } from "../route/table.ts";
import { isHost } from "../server/framing.ts";
import type { Inbound } from "../server/receive.ts";
import type { RouteTarget, Snapshot } from "./snapshot.ts";

export interface ServeTools {
  readonly clock: Clock;
  readonly log: Log;
}

/** Never throws, and its promise never rejects: whatever goes wrong inside is a 500 without a word about the inside. */
export function serve(inbound: Inbound, snapshot: Snapshot, tools: ServeTools): Reply | Promise<Reply> {
  const { call, method } = inbound;

  // 1. Refuse what two readers would read in two ways.
  if (inbound.refusal !== null) return problem(call, inbound.refusal.code, { detail: inbound.refusal.detail });
  // CONNECT asks for a tunnel, which only a forward proxy gives (RFC 9110 §9.3.6).
  if (method === "CONNECT") return problem(call, "bad_request", { detail: "The gateway does not serve this method." });
  const target = readTarget(inbound.target);
  if ("code" in target) return problem(call, target.code, { detail: sentence(target.detail) });
  if (target.authority !== null && !isHost(target.authority)) {
    return problem(call, "bad_request", { detail: "The request target names no host with an optional port." });
  }

  // 2. Match: service by host and base_path, route by the rest, both at once.
  const authority = target.authority ?? inbound.authority;
  const { path, encodedSlash } = target;
  const asked = method === "OPTIONS" ? preflighted(inbound, (wanted) => snapshot.table.find(authority, wanted, path, encodedSlash)) : null;
  const found = asked ?? snapshot.table.find(authority, method, path, encodedSlash);
  if (found.kind !== "route") {
    if (found.kind === "refused") return problem(call, found.refusal.code, { detail: sentence(found.refusal.detail) });
    if (found.kind === "none") return problem(call, "route_not_found", { detail: "No service and route of this gateway match the path." });
    return problem(call, "method_not_allowed", { detail: `This path accepts ${found.allow}.`, headers: ["Allow", found.allow] });
  }
  const { service, route, pattern, handler, meter } = found.target;
  call.notes.meter = meter;
  meter.inFlight++;
  call.notes.service = service.name;
  call.notes.route = route.name;
  call.notes.pattern = pattern;

  // 3. Plugins, upstream, and back: the route's handler is all of it, folded when the configuration was compiled.
  const exchange = new Exchange({
    call,
    method,
    httpVersion: inbound.httpVersion,
    scheme: inbound.scheme,
    authority,
    path: target.path,
    upstreamPath: found.upstreamPath,
    query: target.query,
    headers: inbound.headers,
    params: found.params,
    clientAddress: inbound.clientAddress,
    service,
    route,
    identity: null,
    claims: null,
    body: inbound.body,
    trailers: inbound.trailers,
    upgrade: inbound.upgrade,
  });
  try {
    const reply = handler(exchange);
    if (!(reply instanceof Promise)) return answered(inbound, reply, tools.clock);
    return reply.then(
      (later) => answered(inbound, later, tools.clock),
      (error: unknown) => fault(inbound, error, tools.log),
    );
  } catch (error) {
    return fault(inbound, error, tools.log);
  }
}

/** The route that a CORS preflight (Fetch §3.2.2) asks about, where one of its plugins wants to be asked; null for all else. */
function preflighted({ headers }: Inbound, find: (method: string) => Found<RouteTarget>): Found<RouteTarget> | null {
  const wanted = headerValue(headers, "access-control-request-method");
  if (wanted === undefined || headerValue(headers, "origin") === undefined) return null;
  const found = find(wanted);
  return found.kind === "route" && found.target.takesPreflights ? found : null;
}

function answered({ call: { notes } }: Inbound, reply: Reply, clock: Clock): Reply {
  if (notes.logged || notes.plugin !== null) notes.answeredAt = clock.now();
  return reply;
}

/** What no plugin was at fault for: those that were have given their own reply. */
function fault({ call }: Inbound, error: unknown, log: Log): Reply {
  logFault(log, call, error, null);
  return faultReply(call, error);
}

/** `link`: the plugin at fault; null where it was none. */
export function logFault(log: Log, call: Call, error: unknown, link: Link | null): void {
  log.error("a plugin or the gateway failed", {
    request_id: call.id,
    service: call.notes.service,
    route: call.notes.route,
    ...(link === null ? null : { plugin: link.name, plugin_id: link.scope.id, plugin_level: link.scope.level }),
    error: messageOf(error, "stack"),
  });
}

/** Details of the router are clauses: "the path has a “..” segment". */
function sentence(clause: string): string {
  return `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`;
}

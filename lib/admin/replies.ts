/**
 * What the admin interface and the listener for probes have in common: the path of a request, JSON replies, readiness,
 * and who may read metrics.
 */
import { sameText } from "../base/password.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";

export const NO_STORE: HeaderList = ["Cache-Control", "no-store", "X-Content-Type-Options", "nosniff"];

/** Prometheus' text format. */
export const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

const READY = json(200, { status: "ready" });
const NOT_READY = json(503, { status: "not_ready" });

export function readiness(isReady: boolean): Reply {
  return isReady ? READY : NOT_READY;
}

export function json(status: number, value: unknown, headers: HeaderList = []): Reply {
  return jsonReply(Buffer.from(JSON.stringify(value) + "\n"), headers, status);
}

/** `body` is JSON. */
export function jsonReply(body: Buffer, headers: HeaderList = [], status = 200): Reply {
  return {
    status,
    headers: ["Content-Type", "application/json", "Content-Length", String(body.length), ...headers],
    body,
  };
}

export function retryAfter(ms: number): HeaderList {
  return ["Retry-After", String(Math.ceil(ms / 1000))];
}

/** The query of a target; empty without one. */
export function queryOf(target: string): URLSearchParams {
  return new URLSearchParams(target.slice(target.indexOf("?") + 1 || target.length));
}

/**
 * Whether the Authorization header has this bearer token (RFC 6750 §2.1), compared in constant time. Null: there is
 * none.
 */
export function hasMetricsToken(headers: HeaderList, token: string | null): boolean {
  return (
    token !== null && sameText(/^bearer +(\S+) *$/i.exec(headerValue(headers, "authorization") ?? "")?.[1] ?? "", token)
  );
}

/**
 * The path, without the query, of a target in origin-form or absolute-form (RFC 9112 §3.2), and the authority: that of
 * absolute-form overrides Host. Or the reply to what is refused for every path.
 */
export function askedOf({
  call,
  refusal,
  upgrade,
  target,
  authority,
}: Inbound): Reply | { readonly path: string; readonly authority: string } {
  if (refusal !== null) return problem(call, refusal.code, { detail: refusal.detail });
  // Over HTTP/2 any 2xx would open the WebSocket (RFC 8441 §5).
  if (upgrade !== null) return problem(call, "bad_request", { detail: "There are no WebSockets here." });
  const [prefix = "", named = authority] = /^https?:\/\/([^/?]+)/i.exec(target) ?? [];
  const path = target.slice(prefix.length).split("?", 1)[0]!;
  return path.startsWith("/") ? { path, authority: named } : problem(call, "bad_request");
}

/**
 * What the admin interface and the listener for probes have in common: the path of a request, JSON replies, readiness, and who may read metrics.
 */
import { sameText } from "../base/password.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";

export const NO_STORE: HeaderList = ["Cache-Control", "no-store", "X-Content-Type-Options", "nosniff"];

/** Prometheus' text format. */
export const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

const READY = json(200, { status: "ready" });
const NOT_READY = json(503, { status: "not_ready" });

export function readiness(isReady: boolean): Reply {
  return isReady ? READY : NOT_READY;
}

export function json(status: number, value: unknown, headers: HeaderList = []): Reply {
  const body = Buffer.from(JSON.stringify(value) + "\n");
  return { status, headers: ["Content-Type", "application/json", "Content-Length", String(body.length), ...headers], body };
}

export function retryAfter(ms: number): HeaderList {
  return ["Retry-After", String(Math.ceil(ms / 1000))];
}

/** The query of a target; empty without one. */
export function queryOf(target: string): URLSearchParams {
  return new URLSearchParams(target.slice(target.indexOf("?") + 1 || target.length));
}

/** Whether the Authorization header has this bearer token (RFC 6750 §2.1), compared in constant time. Null: there is none. */
export function hasMetricsToken(headers: HeaderList, token: string | null): boolean {
  return token !== null && sameText(/^bearer +(\S+) *$/i.exec(headerValue(headers, "authorization") ?? "")?.[1] ?? "", token);
}

/**
 * The path, without the query, of a target in origin-form or absolute-form (RFC 9112 §3.2); null for other forms. For absolute-form also
 * the authority, which overrides Host: `admin.example:8081` of http://admin.example:8081/gateway.
 */
export function targetOf(target: string): { readonly path: string | null; readonly authority?: string } {
  const [prefix = "", authority] = /^https?:\/\/([^/?]+)/i.exec(target) ?? [];
  const path = target.slice(prefix.length).split("?", 1)[0]!;
  return { path: path.startsWith("/") ? path : null, ...(authority !== undefined && { authority }) };
}

/**
 * Distinguishes requests of a server's own pages from requests that pages of other origins cause a browser to send
 * (CSRF).
 */
import { headerValues } from "./headers.ts";
import type { RequestFacts } from "./request_facts.ts";

/**
 * Whether a request that changes something comes from another page than this server's. `authority` is the host that the
 * request is for.
 * Clients that are not browsers send none of these headers, and carry no cookies of a victim.
 */
export function isForeign({ headers, scheme }: Pick<RequestFacts, "headers" | "scheme">, authority: string): boolean {
  // Browsers set Fetch Metadata and pages cannot, so it holds also behind a proxy that has changed the Host header.
  const sites = headerValues(headers, "sec-fetch-site");
  if (sites.length > 0) return !sites.every((site) => site === "same-origin" || site === "none");
  // Not sent on plain HTTP, except by pages of localhost. "null" (sandboxed pages, data: URLs) is never our own origin.
  return !headerValues(headers, "origin").every((origin) => isOwn(origin, authority, scheme));
}

/** On plain HTTP a proxy may have terminated TLS: the origin is https then, and this server sees http. */
function isOwn(origin: string, authority: string, scheme: RequestFacts["scheme"]): boolean {
  const secure = origin.startsWith("https://");
  if (!secure && (scheme === "https" || !origin.startsWith("http://"))) return false;
  const defaultPort = secure ? ":443" : ":80";
  const own = authority.toLowerCase();
  return origin.slice(secure ? 8 : 7) === (own.endsWith(defaultPort) ? own.slice(0, -defaultPort.length) : own);
}

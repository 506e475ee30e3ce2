/**
 * Tells requests that the UI's own pages make from those that pages of others have a browser make (CSRF). The admin interface behind it
 * does not see where a request came from. Who is logged in is the admin interface's affair.
 */
import { headerValues } from "../http/headers.ts";
import type { Inbound } from "../server/receive.ts";

/**
 * Whether a request that changes something comes from another page than this server's. `authority` is what the request is for. Clients
 * that are no browsers say nothing of it, and bear no cookies of a victim.
 */
export function isForeign({ headers, scheme }: Pick<Inbound, "headers" | "scheme">, authority: string): boolean {
  // Browsers say it themselves (Fetch Metadata), pages cannot: it holds also behind a proxy that has changed the Host header.
  const sites = headerValues(headers, "sec-fetch-site");
  if (sites.length > 0) return !sites.every((site) => site === "same-origin" || site === "none");
  // Not sent on plain HTTP, except by pages of localhost. "null" (sandboxed pages, data: URLs) names nobody.
  return !headerValues(headers, "origin").every((origin) => isOwn(origin, authority, scheme));
}

/** On plain HTTP a proxy before this server may have taken the TLS off: then the page says https and this server http. */
function isOwn(origin: string, authority: string, scheme: Inbound["scheme"]): boolean {
  const secure = origin.startsWith("https://");
  if (!secure && (scheme === "https" || !origin.startsWith("http://"))) return false;
  const defaultPort = secure ? ":443" : ":80";
  const own = authority.toLowerCase();
  return origin.slice(secure ? 8 : 7) === (own.endsWith(defaultPort) ? own.slice(0, -defaultPort.length) : own);
}

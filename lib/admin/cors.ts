/**
 * Which foreign web pages may use the admin interface (the Fetch standard's CORS protocol), and which of their requests are refused.
 * Who is logged in is `session.ts`.
 */

export interface Cors {
  /** Headers for every answer to a page of this origin. */
  headers(origin: string | undefined): readonly string[];
  /** Further headers for the answer to a preflight request. */
  preflight(origin: string | undefined, methods: string): readonly string[];
  /** Whether a request that changes something comes from a page that has no business here. `host` is the Host header. */
  foreign(origin: string | undefined, host: string | undefined): boolean;
}

/** `origins` as browsers write them: `https://ui.example.com`, without a path. There is no wildcard: credentials forbid one. */
export function createCors(origins: readonly string[]): Cors {
  const allowed = new Set(origins.map((origin) => origin.trim().replace(/\/$/, "").toLowerCase()));
  const knows = (origin: string | undefined): origin is string => origin !== undefined && allowed.has(origin);
  return {
    headers: (origin) => (knows(origin) ? [...VARY, "Access-Control-Allow-Origin", origin, ...SHARED] : VARY),
    preflight: (origin, methods) => (knows(origin) ? ["Access-Control-Allow-Methods", methods, ...PREFLIGHT] : []),
    // Clients that are no browsers send no Origin. "null" (sandboxed pages, data: URLs) names nobody.
    foreign: (origin, host) => origin !== undefined && !allowed.has(origin) && !sameHost(origin, host),
  };
}

const VARY = ["Vary", "Origin"];
const SHARED = ["Access-Control-Allow-Credentials", "true", "Access-Control-Expose-Headers", "X-Request-Id, Retry-After"];
const PREFLIGHT = ["Access-Control-Allow-Headers", "Authorization, Content-Type", "Access-Control-Max-Age", "600"];

function sameHost(origin: string, host: string | undefined): boolean {
  const scheme = origin.startsWith("https://") ? "https://" : "http://";
  return host !== undefined && origin === scheme + host.toLowerCase();
}

/**
 * Adds the header Server-Timing (W3C Server Timing), by which browsers show where the time of a request went.
 */
import type { Call } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";

/**
 * Adds `Server-Timing: gateway;dur=13.9, plugins;dur=1.5, upstream;dur=12.4` after the upstream's own: milliseconds
 * until now in total, in routing and plugins, and in tries of upstreams. Parts that did not happen are left out.
 */
export function withServerTiming(reply: Reply, { notes, startedAt }: Call, now: number): Reply {
  const total = now - startedAt;
  const { upstreamMs, route } = notes;
  let value = `gateway;dur=${rounded(total)}`;
  if (route !== null) value += `, plugins;dur=${rounded(total - (upstreamMs ?? 0))}`;
  if (upstreamMs !== null) value += `, upstream;dur=${rounded(upstreamMs)}`;
  return { ...reply, headers: [...reply.headers, "Server-Timing", value] };
}

/** To the tenth: finer figures would reveal more of the machine than of the request. */
function rounded(ms: number): string {
  return String(Math.max(0, Math.round(ms * 10) / 10));
}

/**
 * Tells a client's browser where the time of its request went, in the header Server-Timing (W3C Server Timing). Whether it is told is
 * `global.server_timing`.
 */
import type { Call } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";

/**
 * The reply with `Server-Timing: gateway;dur=13.9, plugins;dur=1.5, upstream;dur=12.4` behind what others say there: milliseconds up to now,
 * all in all, in plugins and the routing around them, and in tries of upstreams; without those that there were not.
 */
export function withServerTiming(reply: Reply, { notes, startedAt }: Call, now: number): Reply {
  const total = now - startedAt;
  const { upstreamMs, route } = notes;
  let value = `gateway;dur=${rounded(total)}`;
  if (route !== null) value += `, plugins;dur=${rounded(total - (upstreamMs ?? 0))}`;
  if (upstreamMs !== null) value += `, upstream;dur=${rounded(upstreamMs)}`;
  return { ...reply, headers: [...reply.headers, "Server-Timing", value] };
}

/** To the tenth: what is finer tells more of the machine than of the request. */
function rounded(ms: number): string {
  return String(Math.max(0, Math.round(ms * 10) / 10));
}

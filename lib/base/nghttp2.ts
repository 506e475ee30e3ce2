/**
 * Warns of a Node that clients or upstreams over HTTP/2 can abort.
 */
import type { Log } from "./log.ts";

/** The first nghttp2 whose process the other end of a connection cannot abort (CVE-2026-27135). */
const FIXED_NGHTTP2 = "1.68.1";

/**
 * Logs a warning if clients or upstreams use HTTP/2 and the nghttp2 of this Node ("1.61.0") is older than the fixed
 * one.
 */
export function warnOfNode({ global, services, https }: Http2Uses, log: Log, nghttp2 = process.versions.nghttp2): void {
  const ends = (https.length > 0 && global.http2) || global.h2c ? ["clients"] : [];
  if (services.some(({ protocol }) => protocol === "h2" || protocol === "h2c")) ends.push("upstreams");
  if (nghttp2 === undefined || ends.length === 0) return;
  if (nghttp2.localeCompare(FIXED_NGHTTP2, "en", { numeric: true }) >= 0) return;
  const remedy = "run the gateway with Node 24 or the newest Node 22";
  const message =
    `HTTP/2 ${ends.join(" and ")} can abort this process: ` +
    `the nghttp2 of this Node is older than ${FIXED_NGHTTP2} (CVE-2026-27135); ${remedy}`;
  log.warn(message, { node: process.version, nghttp2 });
}

interface Http2Uses {
  readonly global: { readonly http2: boolean; readonly h2c: boolean };
  readonly services: readonly { readonly protocol: string }[];
  readonly https: readonly string[];
}

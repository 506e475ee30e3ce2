/**
 * Warns of a Node whose HTTP/2 its peers can abort.
 */
import type { Log } from "./log.ts";

/** The first nghttp2 whose process its peers cannot abort (CVE-2026-27135). */
const FIXED_NGHTTP2 = "1.68.1";

/**
 * Logs a warning if clients or upstreams use HTTP/2 and the nghttp2 of this Node ("1.61.0") is older than the fixed
 * one.
 */
export function warnOfNode({ global, services, https }: Peers, log: Log, nghttp2 = process.versions.nghttp2): void {
  const peers = (https.length > 0 && global.http2) || global.h2c ? ["clients"] : [];
  if (services.some(({ protocol }) => protocol === "h2" || protocol === "h2c")) peers.push("upstreams");
  if (nghttp2 === undefined || peers.length === 0) return;
  if (nghttp2.localeCompare(FIXED_NGHTTP2, "en", { numeric: true }) >= 0) return;
  const remedy = "run the gateway with Node 24 or the newest Node 22";
  const message =
    `HTTP/2 ${peers.join(" and ")} can abort this process: ` +
    `the nghttp2 of this Node is older than ${FIXED_NGHTTP2} (CVE-2026-27135); ${remedy}`;
  log.warn(message, { node: process.version, nghttp2 });
}

interface Peers {
  readonly global: { readonly http2: boolean; readonly h2c: boolean };
  readonly services: readonly { readonly protocol: string }[];
  readonly https: readonly string[];
}

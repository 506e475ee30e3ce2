/**
 * Numbers of things in words, and warnings up to a number.
 */
import type { Log } from "../base/log.ts";
import type { GatewayCore } from "../gateway/gateway.ts";
import type { Warning } from "../gateway/status.ts";

/** "1 service, 2 routes, 3 upstreams" */
export function describeCounts({ services, routes, upstreams }: GatewayCore["counts"]): string {
  return `${counted(services, "service")}, ${counted(routes, "route")}, ${counted(upstreams, "upstream")}`;
}

/** "1 route", "2 routes" */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

const MAX_LOGGED = 100;

/** Logs each warning on a line of its own, at most 100. */
export function logWarnings(log: Log, warnings: readonly Warning[]): void {
  for (const { code, path, message, example, remedy } of warnings.slice(0, MAX_LOGGED)) {
    log.warn(message, { code, ...(path !== null && { path }), ...(example !== null && { example }), remedy });
  }
  const more = warnings.length - MAX_LOGGED;
  if (more > 0) log.warn(`${more} more warnings: edge-gateway validate lists all of them`);
}

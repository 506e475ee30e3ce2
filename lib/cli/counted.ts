/**
 * Numbers of things in words.
 */
import type { GatewayCore } from "../gateway/gateway.ts";

/** "1 service, 2 routes, 3 upstreams" */
export function describeCounts({ services, routes, upstreams }: GatewayCore["counts"]): string {
  return `${counted(services, "service")}, ${counted(routes, "route")}, ${counted(upstreams, "upstream")}`;
}

/** "1 route", "2 routes" */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

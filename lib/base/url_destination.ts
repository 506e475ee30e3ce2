/**
 * Reads the servers of URLs, and tells which are this machine.
 */
import type { Destination } from "./egress.ts";

/** The server of a URL, such as that of http, https, redis, or of any scheme with a port. */
export function destinationOf({ protocol, hostname, port }: URL, why: string): Destination {
  const host = hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
  return { host, port: Number(port || DEFAULT_PORTS[protocol]), why };
}

export const DEFAULT_PORTS: Readonly<Record<string, number>> = {
  "http:": 80,
  "https:": 443,
  "redis:": 6379,
  "rediss:": 6379,
};

/**
 * Whether a host, as URLs and settings have it, is this machine by its name. IPv6 addresses with brackets or without.
 */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || host === "[::1]" || /^127(\.\d+){3}$/.test(host);
}

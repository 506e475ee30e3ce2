/**
 * Formats listener addresses for messages and for browsers.
 */
import type { AddressInfo } from "node:net";

/** "127.0.0.1:8008", "[::1]:8008" */
export function where(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

export function urlOf(scheme: string, { address, port }: Pick<AddressInfo, "address" | "port">): string {
  return `${scheme}://${where(address, port)}`;
}

/** The listener's URL for a client on this machine: "http://0.0.0.0:8008" -> "http://localhost:8008". */
export function reachable(listener: string): string {
  const url = new URL(listener);
  if (["0.0.0.0", "[::]", "127.0.0.1", "[::1]"].includes(url.hostname)) url.hostname = "localhost";
  return url.origin;
}

/** Whether a listener on this host can be reached from this machine only. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d+){3}$/.test(host);
}

/**
 * Writes addresses of listeners as people and their browsers use them.
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

/** The same with an IP address, since a name may have other addresses: "http://0.0.0.0:8081" -> "http://127.0.0.1:8081". */
export function near(listener: string): string {
  const url = new URL(listener);
  if (url.hostname === "0.0.0.0") url.hostname = "127.0.0.1";
  if (url.hostname === "[::]") url.hostname = "[::1]";
  return url.origin;
}

/** Whether a listener on this host can be reached from this machine only. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d+){3}$/.test(host);
}

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

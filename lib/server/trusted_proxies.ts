/**
 * What the proxies in `global.trusted_proxies` say about the requests that they pass on.
 */
import { isIP } from "node:net";
import { cidrSet } from "../base/cidr.ts";
import { headerValue, headerValues, sameName, type HeaderList } from "../http/headers.ts";
import { REQUEST_ID } from "../http/request_id.ts";
import { plainAddress, type TrustedProxies } from "./inbound.ts";

/**
 * `blocks`: addresses and CIDR ranges. Throws for others. `headers`: the first that is there once, and is one address,
 * is the client's; where none is, X-Forwarded-For tells it.
 */
export function trustedProxies(blocks: readonly string[], headers: readonly string[] = []): TrustedProxies {
  const { has } = cidrSet(blocks);
  const names = headers.map((name) => name.toLowerCase());
  return {
    has,
    givenId,
    givenScheme,
    clientAddress: (headers, remoteAddress) =>
      namedAddress(headers, names) ?? clientAddress(headers, remoteAddress, has),
  };
}

/** The first X-Request-Id counts. */
function givenId(headers: HeaderList): string | undefined {
  const id = headerValue(headers, "x-request-id");
  return id !== undefined && REQUEST_ID.test(id) ? id : undefined;
}

function givenScheme(headers: HeaderList, own: "http" | "https"): "http" | "https" {
  const given = headerValue(headers, "x-forwarded-proto")?.trim().toLowerCase();
  return given === "https" || given === "http" ? given : own;
}

function namedAddress(headers: HeaderList, names: readonly string[]): string | null {
  for (const name of names) {
    const [value, ...others] = headerValues(headers, name);
    if (value === undefined || others.length > 0) continue;
    const address = plainAddress(value.trim());
    if (isIP(address) !== 0) return address;
  }
  return null;
}

/**
 * Walks X-Forwarded-For from the right, over trusted proxies, to the first address that is not trusted. An entry that
 * is no address ends the walk: nothing to the left of it can be trusted.
 */
function clientAddress(headers: HeaderList, remoteAddress: string, isTrusted: (address: string) => boolean): string {
  let client = remoteAddress;
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    if (!sameName(headers[i]!, "x-forwarded-for")) continue;
    const hops = headers[i + 1]!.split(",");
    for (let hop = hops.length - 1; hop >= 0; hop--) {
      const address = plainAddress(hopAddress(hops[hop]!.trim()));
      if (isIP(address) === 0) return client;
      client = address;
      if (!isTrusted(address)) return client;
    }
  }
  return client;
}

/** `[2001:db8::1]:443` and `192.0.2.1:443` come from some proxies: the address without the port. */
function hopAddress(hop: string): string {
  if (hop.startsWith("[")) return hop.slice(1, Math.max(hop.indexOf("]"), 1));
  const colon = hop.indexOf(":");
  return colon > 0 && colon === hop.lastIndexOf(":") ? hop.slice(0, colon) : hop;
}

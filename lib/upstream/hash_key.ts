/**
 * Reads the part of a request that `hash_on` names, as a number of 32 bits: equal for equal values, in every gateway.
 */
import { parseAddress } from "../base/ip_address.ts";
import { mix, textHash } from "../base/mix.ts";
import { findCookie } from "../http/cookies.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValue } from "../http/headers.ts";

/** Null: the request has no such value, or an empty one. Unsigned, with all bits mixed. */
export type HashKey = (exchange: Exchange) => number | null;

/**
 * `hashOn` is valid by the schema of `hash_on`. Of headers and cookies with several values the first counts; a path parameter counts as it
 * is forwarded, percent-encoded.
 */
export function hashKey(hashOn: string): HashKey {
  if (hashOn === "client_ip") return ({ clientAddress }) => addressHash(clientAddress);
  if (hashOn === "credential") return ({ identity }) => valueHash(identity);
  const name = hashOn.slice(hashOn.indexOf(":") + 1);
  if (hashOn.startsWith("param:")) return ({ params }) => valueHash(params[name]);
  if (hashOn.startsWith("cookie:")) return ({ headers }) => findCookie(headers, name, valueHash);
  const lower = name.toLowerCase();
  // Requests over HTTP/2 have no Host header (RFC 9113 §8.3.1).
  if (lower === "host") return ({ authority }) => valueHash(authority);
  return ({ headers }) => valueHash(headerValue(headers, lower));
}

function valueHash(text: string | null | undefined): number | null {
  return typeof text !== "string" || text === "" ? null : textHash(text);
}

/** One client: an IPv4 address in any of its spellings, or the /64 of an IPv6 address. */
function addressHash(address: string): number {
  const parsed = parseAddress(address);
  if (parsed === null) return textHash(address);
  const { version, words } = parsed;
  return version === 4 ? mix(words[3]) : mix(mix(words[0]) ^ words[1]);
}

/**
 * The strategies `hash` and `ip_hash`: equal requests go to the same upstream.
 */
import { parseAddress } from "../base/ip_address.ts";
import { mix, textHash } from "../base/mix.ts";
import { findCookie } from "../http/cookies.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValue } from "../http/headers.ts";
import { rotate, type Balancer } from "./balance.ts";
import type { WeighedUpstream } from "./contracts.ts";

export { fields } from "../config/hash_on.ts";

/**
 * The same upstream for the same key: every upstream draws a number for it, and the best wins (weighted rendezvous
 * hashing). Without one of them its keys spread over the others, and no other key moves. Requests without a key go to
 * each upstream in turn.
 *
 * With a balance factor above 0 an upstream that has its share of the load, times that factor, is passed over for the
 * next best draw (consistent hashing with bounded loads, Mirrokni, Thorup and Zadimoghaddam 2017).
 */
export function hashing(hashOn: string, balanceFactor: number): Balancer {
  const keyOf = hashKey(hashOn);
  /** Of the ids of upstreams. */
  const hashes = new Map<string, number>();
  return {
    pick(peers, exchange) {
      const key = keyOf(exchange);
      if (key === null) return rotate(peers, Infinity);
      const perWeight = balanceFactor === 0 ? Infinity : (loadPerWeight(peers) * balanceFactor) / 100;
      let best = null;
      let lowest = Infinity;
      for (const peer of peers) {
        const weight = peer.weightNow;
        // Rounded up, so that all together have room for every request, and each for one.
        if (perWeight !== Infinity && peer.load >= Math.ceil(perWeight * weight)) continue;
        let idHash = hashes.get(peer.id);
        if (idHash === undefined) hashes.set(peer.id, (idHash = textHash(peer.id)));
        // The least -ln(u)/w falls to each in proportion to its weight. +0.5 keeps u off 0.
        const u = (mix(key ^ idHash) + 0.5) / 0x1_0000_0000;
        const draw = -Math.log(u) / weight;
        if (draw < lowest) {
          lowest = draw;
          best = peer;
        }
      }
      return best;
    },
  };
}

/** The mean, with the request that is to be placed. */
function loadPerWeight(peers: readonly WeighedUpstream[]): number {
  let load = 1;
  let weight = 0;
  for (const peer of peers) {
    load += peer.load;
    weight += peer.weightNow;
  }
  return load / weight;
}

/**
 * The part of a request that `hash_on` names, as an unsigned number of 32 bits with all of them mixed: equal for equal
 * values, in every gateway.
 * Null: the request has no such value, or an empty one.
 */
export type HashKey = (exchange: Exchange) => number | null;

/**
 * `hashOn` is valid by the schema of `hash_on`. Of headers and cookies with several values the first counts; a path
 * parameter counts as it is forwarded, percent-encoded.
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

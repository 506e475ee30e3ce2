/**
 * The strategies `hash` and `ip_hash`: equal requests go to the same upstream.
 */
import { mix, textHash } from "../base/mix.ts";
import { rotate, type Balancer, type Candidate } from "./balance.ts";
import { hashKey } from "./hash_key.ts";

export { fields } from "../config/hash_on.ts";
export { hashKey };

/**
 * The same upstream for the same key: every upstream draws a number for it, and the best wins (weighted rendezvous hashing). Without one of
 * them its keys spread over the others, and no other key moves. Requests without a key go to each upstream in turn.
 *
 * With a balance factor above 0 an upstream that has its share of the load, times that factor, is passed over for the next best draw
 * (consistent hashing with bounded loads, Mirrokni, Thorup and Zadimoghaddam 2017).
 */
export function hashing(hashOn: string, balanceFactor: number): Balancer {
  const keyOf = hashKey(hashOn);
  /** Of the ids of upstreams. */
  const hashes = new Map<string, number>();
  return {
    pick(candidates, exchange) {
      const key = keyOf(exchange);
      if (key === null) return rotate(candidates, Infinity);
      const perWeight = balanceFactor === 0 ? Infinity : (loadPerWeight(candidates) * balanceFactor) / 100;
      let best = null;
      let lowest = Infinity;
      for (const peer of candidates) {
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
function loadPerWeight(candidates: readonly Candidate[]): number {
  let load = 1;
  let weight = 0;
  for (const peer of candidates) {
    load += peer.load;
    weight += peer.weightNow;
  }
  return load / weight;
}

/**
 * The strategies `least_connections` and `random_two_choices`: less loaded upstreams get more requests.
 */
import { rotate, type Balancer, type Candidate } from "./balance.ts";

/** The upstream with the least load for its weight; equal ones in turn. */
export const leastConnections: Balancer = {
  pick(candidates) {
    let least = Infinity;
    for (const peer of candidates) least = Math.min(least, peer.load / peer.weightNow);
    return rotate(candidates, least);
  },
};

/** The less loaded of two upstreams drawn by weight: nearly as even as comparing all, and many gateways do not all choose the same one. */
export function randomTwoChoices(random: () => number): Balancer {
  function draw<Peer extends Candidate>(candidates: readonly Peer[], except: Peer | null): Peer {
    let left = 0;
    for (const peer of candidates) if (peer !== except) left += peer.weightNow;
    left *= random();
    let last = candidates[0]!;
    for (const peer of candidates) {
      if (peer === except) continue;
      last = peer;
      left -= peer.weightNow;
      if (left < 0) break;
    }
    return last;
  }
  return {
    pick(candidates) {
      if (candidates.length < 2) return candidates[0] ?? null;
      const first = draw(candidates, null);
      const second = draw(candidates, first);
      return second.load / second.weightNow < first.load / first.weightNow ? second : first;
    },
  };
}

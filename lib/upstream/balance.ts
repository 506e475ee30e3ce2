/**
 * Load-balancing strategies: each chooses among the upstreams that can be used. Here are those by turns and by load;
 * `hash.ts` is loaded where it is chosen.
 */
import type { Service, STRATEGIES } from "../config/model.ts";
import type { Exchange } from "../http/exchange.ts";
import type { WeighedUpstream } from "./contracts.ts";

export interface Balancer {
  /** One of `peers`, or null when there are none. */
  pick<Peer extends WeighedUpstream>(peers: readonly Peer[], exchange: Exchange): Peer | null;
}

export type Strategy = (typeof STRATEGIES)[number];

/**
 * Each in turn, as often as its weight says, and spread out: with 5:1:1, a a b a c a a. With equal weights, in their
 * configured order.
 */
const smoothRotation: Balancer = { pick: (peers) => rotate(peers, Infinity) };

/**
 * Smooth weighted round robin among the peers with at most this load for their weight: each gains its weight; the
 * highest is chosen and loses the sum.
 */
export function rotate<Peer extends WeighedUpstream>(peers: readonly Peer[], mostLoad: number): Peer | null {
  let foremost: Peer | null = null;
  let sum = 0;
  for (let i = 0; i < peers.length; i++) {
    const peer = peers[i]!;
    const weight = peer.weightNow;
    if (mostLoad !== Infinity && peer.load / weight > mostLoad) continue;
    sum += weight;
    peer.turn += weight;
    if (foremost === null || peer.turn > foremost.turn) foremost = peer;
  }
  if (foremost !== null) foremost.turn -= sum;
  return foremost;
}

/** The upstream with the least load for its weight; equal ones in turn. */
const leastConnections: Balancer = {
  pick(peers) {
    let least = Infinity;
    for (const peer of peers) least = Math.min(least, peer.load / peer.weightNow);
    return rotate(peers, least);
  },
};

/**
 * The less loaded of two upstreams drawn by weight: nearly as even as comparing all, and many gateways do not all
 * choose the same one.
 */
function randomTwoChoices(random: () => number): Balancer {
  function draw<Peer extends WeighedUpstream>(peers: readonly Peer[], except: Peer | null): Peer {
    let left = 0;
    for (const peer of peers) if (peer !== except) left += peer.weightNow;
    left *= random();
    let last = peers[0]!;
    for (const peer of peers) {
      if (peer === except) continue;
      last = peer;
      left -= peer.weightNow;
      if (left < 0) break;
    }
    return last;
  }
  return {
    pick(peers) {
      if (peers.length < 2) return peers[0] ?? null;
      const first = draw(peers, null);
      const second = draw(peers, first);
      return second.load / second.weightNow < first.load / first.weightNow ? second : first;
    },
  };
}

/** The settings of a service that concern the choice. */
export type StrategySettings = Pick<Service, "loadBalancingStrategy"> &
  Partial<Pick<Service, "hashOn" | "hashBalanceFactor">>;

/** `hashing`: of `hash.ts`. `random` gives numbers from 0 to below 1. */
export function balancerOf(
  balancing: StrategySettings,
  hashing: (hashOn: string, balanceFactor: number) => Balancer,
  random = Math.random,
): Balancer {
  const { loadBalancingStrategy, hashOn = "client_ip", hashBalanceFactor = 0 } = balancing;
  switch (loadBalancingStrategy) {
    case "round_robin":
    case "weighted":
      return smoothRotation;
    case "least_connections":
      return leastConnections;
    case "random_two_choices":
      return randomTwoChoices(random);
    case "ip_hash":
      return hashing("client_ip", hashBalanceFactor);
    case "hash":
      return hashing(hashOn, hashBalanceFactor);
  }
}

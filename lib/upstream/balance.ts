/**
 * Load-balancing strategies: each chooses among the upstreams that can be used.
 */
import { mix } from "../base/mix.ts";
import type { STRATEGIES } from "../config/model.ts";
import type { Exchange } from "../http/exchange.ts";
import { hashKey, type HashKey } from "./hash_key.ts";

/** The properties of an upstream that a strategy uses. */
export interface Candidate {
  /** Unique within the service. */
  readonly id: string;
  /** `textHash` of the id. */
  readonly idHash: number;
  /** Above 0; its share of the requests beside the others', reduced during a slow start. */
  readonly weightNow: number;
  /** Requests in progress and waiting. */
  readonly load: number;
  /** The state of smooth rotation; kept across reloads, so that a new configuration does not start at the first upstream again. */
  turn: number;
}

export interface Balancer {
  /** One of `candidates`, or null when there are none. */
  pick<Peer extends Candidate>(candidates: readonly Peer[], exchange: Exchange): Peer | null;
}

export type Strategy = (typeof STRATEGIES)[number];

/** The settings of a service that concern the choice. */
export interface Balancing {
  readonly loadBalancingStrategy: Strategy;
  /** For `hash`: see `hashKey`. Default: the client's address. */
  readonly hashOn?: string;
  /** For `hash` and `ip_hash`: most load of an upstream in percent of the mean; 0, the default: no bound. */
  readonly hashBalanceFactor?: number;
}

/** `random` gives numbers from 0 to below 1. */
export function balancer({ loadBalancingStrategy, hashOn = "client_ip", hashBalanceFactor = 0 }: Balancing, random: () => number = Math.random): Balancer {
  switch (loadBalancingStrategy) {
    case "round_robin":
    case "weighted":
      return smoothRotation;
    case "least_connections":
      return leastConnections;
    case "random_two_choices":
      return randomTwoChoices(random);
    case "ip_hash":
      return hashing(hashKey("client_ip"), hashBalanceFactor);
    case "hash":
      return hashing(hashKey(hashOn), hashBalanceFactor);
  }
}

/** Each in turn, as often as its weight says, and spread out: with 5:1:1, a a b a c a a. With equal weights, in their configured order. */
const smoothRotation: Balancer = { pick: (candidates) => rotate(candidates, Infinity) };

/** The upstream with the least load for its weight; equal ones in turn. */
const leastConnections: Balancer = {
  pick(candidates) {
    let least = Infinity;
    for (const peer of candidates) least = Math.min(least, relativeLoad(peer, peer.weightNow));
    return rotate(candidates, least);
  },
};

/** Smooth weighted round robin among the peers with at most this load: each gains its weight; the highest is chosen and loses the sum. */
function rotate<Peer extends Candidate>(candidates: readonly Peer[], mostLoad: number): Peer | null {
  let foremost: Peer | null = null;
  let sum = 0;
  for (let i = 0; i < candidates.length; i++) {
    const peer = candidates[i]!;
    const weight = peer.weightNow;
    if (mostLoad !== Infinity && relativeLoad(peer, weight) > mostLoad) continue;
    sum += weight;
    peer.turn += weight;
    if (foremost === null || peer.turn > foremost.turn) foremost = peer;
  }
  if (foremost !== null) foremost.turn -= sum;
  return foremost;
}

/** Idle upstreams are equal, whatever their weights. */
function relativeLoad(peer: Candidate, weight: number): number {
  return peer.load / weight;
}

/** The less loaded of two upstreams drawn by weight: nearly as even as comparing all, and many gateways do not all choose the same one. */
function randomTwoChoices(random: () => number): Balancer {
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
      return relativeLoad(second, second.weightNow) < relativeLoad(first, first.weightNow) ? second : first;
    },
  };
}

/**
 * The same upstream for the same key: every upstream draws a number for it, and the best wins (weighted rendezvous hashing). Without one of
 * them its keys spread over the others, and no other key moves. Requests without a key go to each upstream in turn.
 *
 * With a balance factor above 0 an upstream that has its share of the load, times that factor, is passed over for the next best draw
 * (consistent hashing with bounded loads, Mirrokni, Thorup and Zadimoghaddam 2017).
 */
function hashing(keyOf: HashKey, balanceFactor: number): Balancer {
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
        // The least -ln(u)/w falls to each in proportion to its weight. +0.5 keeps u off 0.
        const u = (mix(key ^ peer.idHash) + 0.5) / 0x1_0000_0000;
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

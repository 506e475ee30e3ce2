/**
 * Load-balancing strategies: one-method objects that choose a peer. Sending to it is `attempts.ts`.
 */
import type { Exchange } from "../http/exchange.ts";
import type { Peer } from "./peer.ts";

export interface Balancer {
  /** The peer for this exchange, or null when none can be used. */
  pick(exchange: Exchange): Peer | null;
}

/** Where a rotation stands; kept across reloads so that a new configuration does not start at the first upstream again. */
export interface Rotation {
  turn: number;
}

/** Each upstream in turn, in the order of the configuration. */
export function roundRobin(peers: readonly Peer[], rotation: Rotation): Balancer {
  return {
    pick() {
      const turn = rotation.turn < peers.length ? rotation.turn : 0;
      rotation.turn = turn + 1;
      return peers[turn] ?? null;
    },
  };
}

/**
 * Which of several upstreams can be used now.
 */
import type { Peer } from "./upstream_set.ts";

/** If none is healthy, the ejected ones: they may answer after all. */
export function usableOf(peers: readonly Peer[]): readonly Peer[] {
  const healthy = healthyOf(peers);
  return healthy.length > 0 ? healthy : peers.filter(({ weight, health }) => weight > 0 && health.ejected);
}

/** Those of usable upstreams that get requests: those of the lowest rank. */
export function servingOf(usable: readonly Peer[]): readonly Peer[] {
  const best = usable.reduce((least, { rank }) => Math.min(least, rank), Infinity);
  return usable.every(({ rank }) => rank === best) ? usable : usable.filter(({ rank }) => rank === best);
}

export function healthyOf(peers: readonly Peer[]): readonly Peer[] {
  return peers.filter(({ weight, health }) => weight > 0 && health.usable);
}

/**
 * Which of several upstreams can be used now.
 */
import type { Peer } from "./upstream_set.ts";

/** If none is healthy, the ejected ones: they may answer after all. */
export function usableOf(peers: readonly Peer[]): readonly Peer[] {
  const healthy = healthyOf(peers);
  return healthy.length > 0 ? healthy : peers.filter(({ weight, health }) => weight > 0 && health.ejected);
}

/** Those of usable upstreams that get requests: backups only if there are no others. */
export function servingOf(usable: readonly Peer[]): readonly Peer[] {
  const primaries = primariesOf(usable);
  return primaries.length > 0 ? primaries : usable;
}

export function primariesOf(peers: readonly Peer[]): readonly Peer[] {
  return peers.filter(({ isBackup }) => !isBackup);
}

export function healthyOf(peers: readonly Peer[]): readonly Peer[] {
  return peers.filter(({ weight, health }) => weight > 0 && health.usable);
}

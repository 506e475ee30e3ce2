/**
 * Upstreams that the administrator has taken out of traffic, until they are used again. "drain": they get no requests
 * but those of their sticky sessions; "eject": none. Requests in flight end as they are.
 *
 * An upstream of the configuration is taken out with all its endpoints, also those that it has later; one endpoint is
 * taken out by its own id, which goes before.
 *
 * Their weight is 0 meanwhile, with which no picker chooses an upstream: not at first, not for a retry, and not if no
 * other is healthy.
 */
import type { HealthTools } from "./contracts.ts";
import type { UpstreamSet } from "./upstream_set.ts";

export interface UpstreamState {
  readonly service: string;
  /** Of an upstream of the configuration, or of an endpoint. */
  readonly id: string;
  readonly state: "drain" | "eject" | "use";
  /** Since when it has been taken out, in milliseconds since 1970. Default: not known. */
  readonly since?: number | null;
}

export interface TakenOut extends UpstreamState {
  readonly state: "drain" | "eject";
}

/**
 * "use" brings it back with its weight. There may be no endpoint of this id yet: threads look names up at different
 * times. `changes`: of `HealthTools`: each thread says that another choice is possible.
 */
export function takeOut(
  upstreamSet: UpstreamSet,
  { id, state, since = null }: Omit<UpstreamState, "service">,
  changes: HealthTools["changes"],
): void {
  if (state === "use") upstreamSet.takenOut.delete(id);
  else upstreamSet.takenOut.set(id, { state, since });
  for (const peer of upstreamSet.peers)
    if (peer.id === id || peer.upstream === id) upstreamSet.weigh(peer, peer.takenOut?.weight ?? peer.weight);
  Atomics.add(changes, 0, 1);
}

/** All that are taken out. */
export function takenOut(upstreamSets: readonly UpstreamSet[]): readonly TakenOut[] {
  return upstreamSets.flatMap((upstreamSet) =>
    Array.from(upstreamSet.takenOut, ([id, { state, since }]) => ({ service: upstreamSet.service, id, state, since })),
  );
}

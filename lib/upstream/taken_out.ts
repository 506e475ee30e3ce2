/**
 * Upstreams that the administrator has taken out of traffic, until they are used again. "drain": they get no requests
 * but those of their sticky sessions; "eject": none. Requests in flight end as they are.
 *
 * Their weight is 0 meanwhile, with which no picker chooses an upstream: not at first, not for a retry, and not if no
 * other is healthy.
 */
import type { HealthTools } from "./contracts.ts";
import type { Peer, UpstreamSet } from "./upstream_set.ts";

export interface UpstreamState {
  readonly service: string;
  readonly id: string;
  readonly state: "drain" | "eject" | "use";
  /** Since when it has been taken out, in milliseconds since 1970. Default: not known. */
  readonly since?: number | null;
}

export interface TakenOut extends UpstreamState {
  readonly state: "drain" | "eject";
}

/**
 * "use" brings it back with its weight. `changes`: of `HealthTools`: each thread says that another choice is possible.
 */
export function takeOut(
  peer: Peer,
  { state, since = null }: Pick<UpstreamState, "state" | "since">,
  changes: HealthTools["changes"],
): void {
  const weight = peer.takenOut?.weight ?? peer.weight;
  peer.takenOut = state === "use" ? null : { state, since, weight };
  peer.weight = state === "use" ? weight : 0;
  Atomics.add(changes, 0, 1);
}

/**
 * The same by name. An endpoint of a record or a name may not be there yet: threads look it up at different times.
 * `following`: whether the service has such upstreams.
 */
export function takeOutNamed(
  { upstreamSet, following }: { readonly upstreamSet: UpstreamSet; readonly following?: object },
  { id, state, since = null }: Omit<UpstreamState, "service">,
  changes: HealthTools["changes"],
): void {
  if (following === undefined || state === "use") upstreamSet.awaited.delete(id);
  else upstreamSet.awaited.set(id, { state, since });
  const peer = upstreamSet.withId(id);
  if (peer !== undefined) takeOut(peer, { state, since }, changes);
}

/** All that are taken out. */
export function takenOut(upstreamSets: readonly UpstreamSet[]): readonly TakenOut[] {
  return upstreamSets.flatMap(({ service, peers }) =>
    peers.flatMap(({ id, takenOut }) =>
      takenOut === null ? [] : [{ service, id, state: takenOut.state, since: takenOut.since }],
    ),
  );
}

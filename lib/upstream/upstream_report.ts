/**
 * What is shown of the upstreams of a service.
 */
import type { BreakerReport } from "./breaker.ts";
import type { HealthReport } from "./health.ts";
import type { UpstreamSet } from "./upstream_set.ts";
import { usableOf } from "./usable.ts";

export interface UpstreamReport extends Omit<HealthReport, "state"> {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  readonly weight: number;
  readonly group: string | null;
  /** "draining": its configured weight is 0. */
  readonly state: HealthReport["state"] | "draining";
  /** Whether it gets requests now. */
  readonly usable: boolean;
  readonly inFlight: number;
  /** What the administrator has said since the last reload. */
  readonly adminState: "drain" | "eject" | null;
}

export interface UpstreamSetReport {
  readonly name: string;
  readonly circuitBreaker: BreakerReport | null;
  readonly upstreams: readonly UpstreamReport[];
}

export function upstreamSetReport({ service, breaker, peers }: UpstreamSet): UpstreamSetReport {
  const usable = usableOf(peers);
  const upstreams = peers.map((peer): UpstreamReport => {
    const { id, host, port, takenOut, group, inFlight } = peer;
    const weight = takenOut?.weight ?? peer.weight;
    const { state, since, until, reason } = peer.health.report;
    return { id, host, port, weight, group, state: weight === 0 ? "draining" : state, usable: usable.includes(peer), since, until, reason, inFlight, adminState: takenOut?.state ?? null };
  });
  return { name: service, circuitBreaker: breaker?.report ?? null, upstreams };
}

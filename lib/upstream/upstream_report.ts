/**
 * What is shown of the upstreams of a service.
 */
import type { BreakerReport } from "./contracts.ts";
import type { HealthReport } from "./contracts.ts";
import type { RequestSplit, SplitDestination } from "./balancing.ts";
import type { Peer, UpstreamSet } from "./upstream_set.ts";
import { servingOf, usableOf } from "./usable.ts";

export interface UpstreamReport extends Omit<HealthReport, "state"> {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  readonly weight: number;
  readonly group: string | null;
  /** Whether it gets requests only while no other upstream can be used. */
  readonly backup: boolean;
  /** "draining": its configured weight is 0. */
  readonly state: HealthReport["state"] | "draining";
  /** Whether it can get requests now; a backup waits for them. */
  readonly usable: boolean;
  readonly inFlight: number;
  /** How an administrator or operator has taken it out, and since when; null: not, or not known. */
  readonly adminState: "drain" | "eject" | null;
  readonly adminSince: number | null;
  /** The id by which it was taken out: its own, or that of its upstream; null: it is not. */
  readonly adminId: string | null;
  /** Of the requests that meet no condition of a split, 0 to 1, as things stand. */
  readonly share: number;
  /** Whether it gets what no split takes. */
  readonly rest: boolean;
}

export interface UpstreamSetReport {
  readonly name: string;
  readonly circuitBreaker: BreakerReport | null;
  readonly upstreams: readonly UpstreamReport[];
}

/** `destinations`: where the requests that are asked about go; default: those of any callers that fit no `match`. */
export function upstreamSetReport(
  { service, breaker, peers }: UpstreamSet,
  split: RequestSplit | null = null,
  destinations?: readonly SplitDestination[],
): UpstreamSetReport {
  const usable = new Set(usableOf(peers));
  const isOpen = breaker?.report.state === "open";
  const shares = sharesOf(
    isOpen ? [] : (destinations ?? split?.destinations(null) ?? [{ peers: servingOf([...usable]), share: 1 }]),
  );
  const rest = split && new Set(split.rest);
  const upstreams = peers.map((peer): UpstreamReport => {
    const { id, host, port, takenOut, group, inFlight, isBackup: backup } = peer;
    const weight = takenOut?.weight ?? peer.weight;
    const { state, since, until, reason } = peer.health.report;
    const now = {
      state: weight === 0 ? ("draining" as const) : state,
      usable: usable.has(peer),
      since,
      until,
      reason,
      inFlight,
      adminState: takenOut?.state ?? null,
      adminSince: takenOut?.since ?? null,
      adminId: takenOut?.as ?? null,
    };
    const isOfRest = rest?.has(peer) ?? !backup;
    return { id, host, port, weight, group, backup, ...now, share: shares.get(peer) ?? 0, rest: isOfRest };
  });
  return { name: service, circuitBreaker: breaker?.report ?? null, upstreams };
}

function sharesOf(destinations: readonly SplitDestination[]): ReadonlyMap<Peer, number> {
  const shares = new Map<Peer, number>();
  for (const { peers, share } of destinations) {
    const sum = peers.reduce((all, { weightNow }) => all + weightNow, 0);
    // A sticky session may lead to weight 0.
    for (const peer of peers)
      shares.set(peer, (shares.get(peer) ?? 0) + (sum === 0 ? share : (share * peer.weightNow) / sum));
  }
  return shares;
}

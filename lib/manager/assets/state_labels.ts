/**
 * The labels shown for the state of an upstream, of a circuit breaker, and of all upstreams of a service.
 */
import type { ServiceHealth, UpstreamHealth } from "./api.ts";

/** The text of a badge; the tone gives it a colour and a shape. */
export interface Label {
  readonly text: string;
  readonly tone: "good" | "warn" | "bad" | "idle";
}

interface UpstreamLabel extends Label {
  /** Higher is worse. */
  readonly rank: number;
}

/** The words of docs/health-and-resilience.md. */
const UPSTREAMS: Readonly<Record<UpstreamHealth["state"], UpstreamLabel>> = {
  healthy: { text: "Healthy", tone: "good", rank: 0 },
  unknown: { text: "Not checked", tone: "idle", rank: 1 },
  // Configured by a weight of 0: not a fault.
  draining: { text: "Drained", tone: "warn", rank: 2 },
  ejected: { text: "Ejected", tone: "bad", rank: 4 },
  unhealthy: { text: "Unhealthy", tone: "bad", rank: 5 },
};

/** Null: not known. */
export function upstreamLabel(upstream: Pick<UpstreamHealth, "state" | "admin_state"> | null): UpstreamLabel {
  if (upstream === null) return { text: "Not known", tone: "idle", rank: 1 };
  const { state, admin_state: adminState } = upstream;
  // By an administrator or operator: it gets no requests, healthy or not.
  return adminState === null
    ? UPSTREAMS[state]
    : { text: `Taken out: ${adminState === "drain" ? "drained" : "ejected"}`, tone: "warn", rank: 3 };
}

type Breaker = NonNullable<ServiceHealth["circuit_breaker"]>;

const CIRCUITS: Readonly<Record<Breaker["state"], Label>> = {
  closed: { text: "Circuit closed", tone: "good" },
  open: { text: "Circuit open", tone: "bad" },
  half_open: { text: "Circuit half open", tone: "warn" },
};

/** The state of a circuit breaker; null where there is none, or it is not known. */
export function circuitLabel(breaker: Pick<Breaker, "state"> | null | undefined): Label | null {
  return breaker ? CIRCUITS[breaker.state] : null;
}

/** How many of a service's upstreams are usable. */
export function usableLabel(upstreams: readonly { readonly usable: boolean }[] | null, configured: number): Label {
  if (upstreams === null) return { text: `${configured}`, tone: "idle" };
  const usable = upstreams.filter((upstream) => upstream.usable).length;
  const tone = usable === upstreams.length ? "good" : usable === 0 ? "bad" : "warn";
  return { text: `${usable} of ${upstreams.length} usable`, tone };
}

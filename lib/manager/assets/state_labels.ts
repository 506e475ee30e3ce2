/**
 * The labels shown for the state of an upstream, of a circuit breaker, and of all upstreams of a service.
 */
import type { UpstreamHealth } from "./api.ts";

/** The text of a badge; the tone gives it a colour and a shape. */
export interface Label {
  readonly text: string;
  readonly tone: "good" | "warn" | "bad" | "idle";
}

export interface UpstreamLabel extends Label {
  /** Higher is worse. */
  readonly rank: number;
}

/** Null: not known. */
export function upstreamLabel(upstream: Pick<UpstreamHealth, "state" | "usable" | "admin_state"> | null): UpstreamLabel {
  if (upstream === null) return { text: "Not known", tone: "idle", rank: 1 };
  const { state, usable, admin_state: adminState = null } = upstream;
  // By an administrator: it gets no requests, healthy or not.
  if (adminState !== null) return { text: adminState === "drain" ? "Drained" : "Taken out", tone: "warn", rank: 3 };
  if (state === "unhealthy") return { text: "Unhealthy", tone: "bad", rank: 5 };
  if (state === "ejected") return { text: "Ejected", tone: "bad", rank: 4 };
  // Configured by a weight of 0: not a fault.
  if (state === "draining") return { text: "Draining", tone: "warn", rank: 2 };
  if (!usable) return { text: capital(state), tone: "warn", rank: 3 };
  if (state === "healthy") return { text: "Healthy", tone: "good", rank: 0 };
  return { text: state === "unknown" ? "Not checked" : capital(state), tone: "idle", rank: 1 };
}

/** The state of a circuit breaker; null where there is none. */
export function circuitLabel(breaker: { readonly state: string } | null | undefined): Label | null {
  if (breaker === null || breaker === undefined) return null;
  if (breaker.state === "closed") return { text: "Circuit closed", tone: "good" };
  if (breaker.state === "open") return { text: "Circuit open", tone: "bad" };
  return { text: breaker.state === "half_open" ? "Circuit half open" : capital(breaker.state), tone: "warn" };
}

/** How many of a service's upstreams are usable. */
export function usableLabel(upstreams: readonly { readonly usable: boolean }[] | null, configured: number): Label {
  if (upstreams === null) return { text: `${configured}`, tone: "idle" };
  const usable = upstreams.filter((upstream) => upstream.usable).length;
  const tone = usable === upstreams.length ? "good" : usable === 0 ? "bad" : "warn";
  return { text: `${usable} of ${upstreams.length} usable`, tone };
}

function capital(state: string): string {
  return state.charAt(0).toUpperCase() + state.slice(1).replaceAll("_", " ");
}

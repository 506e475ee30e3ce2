/**
 * Names for the state of an upstream, of a circuit breaker, and of all upstreams of a service.
 */
import type { UpstreamHealth } from "./api.ts";

/** The name of a state; the tone gives it a colour and a shape. */
export interface Mark {
  readonly word: string;
  readonly tone: "good" | "warn" | "bad" | "idle";
}

export interface Condition extends Mark {
  /** Higher is worse. */
  readonly rank: number;
}

/** Null: not known. */
export function conditionOf(upstream: Pick<UpstreamHealth, "state" | "usable"> | null): Condition {
  if (upstream === null) return { word: "Not known", tone: "idle", rank: 1 };
  const { state, usable } = upstream;
  if (state === "unhealthy") return { word: "Unhealthy", tone: "bad", rank: 5 };
  if (state === "ejected") return { word: "Ejected", tone: "bad", rank: 4 };
  // Configured so by a weight of 0: no fault, but worth knowing.
  if (state === "draining") return { word: "Draining", tone: "warn", rank: 2 };
  if (!usable) return { word: capital(state), tone: "warn", rank: 3 };
  if (state === "healthy") return { word: "Healthy", tone: "good", rank: 0 };
  return { word: state === "unknown" ? "Not checked" : capital(state), tone: "idle", rank: 1 };
}

/** The state of a circuit breaker; null where there is none. */
export function circuitCondition(breaker: { readonly state: string } | null | undefined): Mark | null {
  if (breaker === null || breaker === undefined) return null;
  if (breaker.state === "closed") return { word: "Circuit closed", tone: "good" };
  if (breaker.state === "open") return { word: "Circuit open", tone: "bad" };
  return { word: breaker.state === "half_open" ? "Circuit half open" : capital(breaker.state), tone: "warn" };
}

/** How many of a service's upstreams are usable. */
export function usableText(upstreams: readonly { readonly usable: boolean }[] | null, configured: number): Mark {
  if (upstreams === null) return { word: `${configured}`, tone: "idle" };
  const usable = upstreams.filter((upstream) => upstream.usable).length;
  const tone = usable === upstreams.length ? "good" : usable === 0 ? "bad" : "warn";
  return { word: `${usable} of ${upstreams.length} usable`, tone };
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1).replaceAll("_", " ");
}

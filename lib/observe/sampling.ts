/**
 * Decides which traces are recorded, under the names that OpenTelemetry gives the ways to do so. Where they are told of is `otlp.ts`.
 */
import type { TracesSampler } from "../config/tracing.ts";
import type { RemoteParent } from "./traceparent.ts";

/** Whether the trace is recorded here; `parent` is null where it begins here. */
export type Sampler = (parent: RemoteParent | null, traceId: string) => boolean;

/** `ratio`, 0–1, is the share that those with a ratio record. */
export function createSampler(name: TracesSampler, ratio: number): Sampler {
  switch (name) {
    case "always_on":
      return always;
    case "always_off":
      return never;
    case "traceidratio":
      return share(ratio);
    case "parentbased_always_on":
      return asParent(always);
    case "parentbased_always_off":
      return asParent(never);
    case "parentbased_traceidratio":
      return asParent(share(ratio));
  }
}

function asParent(ofOwn: Sampler): Sampler {
  return (parent, traceId) => (parent === null ? ofOwn(null, traceId) : parent.sampled);
}

/**
 * By the trace id alone, so that all who record a share of a trace's requests take the same traces: those whose last digits, which are
 * the random ones in every version, are as high as OpenTelemetry's consistent sampling has it.
 */
function share(ratio: number): Sampler {
  const least = (1 - ratio) * 2 ** (4 * DIGITS);
  return (_parent, traceId) => ratio > 0 && parseInt(traceId.slice(-DIGITS), 16) >= least;
}

/** What a number holds exactly. */
const DIGITS = 13;

function always(): boolean {
  return true;
}

function never(): boolean {
  return false;
}

/**
 * Decides which traces are recorded, with the samplers of OpenTelemetry.
 */
import type { TracesSampler } from "../config/settings_types.ts";
import type { RemoteParent } from "./trace_context.ts";

/** Whether the trace is recorded; `parent` is null where it begins here. */
export type Sampler = (parent: RemoteParent | null, traceId: string) => boolean;

/** `ratio`, 0–1: the share that the samplers with a ratio record. */
export function createSampler(name: TracesSampler, ratio: number): Sampler {
  const share = name.endsWith("always_on") ? 1 : name.endsWith("always_off") ? 0 : ratio;
  // The trace id alone decides, by OpenTelemetry's consistent sampling: all programs that record a share of the traces
  // record the same ones.
  const least = (1 - share) * 2 ** (4 * DIGITS);
  const own = (traceId: string) => share === 1 || (share > 0 && parseInt(traceId.slice(-DIGITS), 16) >= least);
  return name.startsWith("parentbased_")
    ? (parent, traceId) => parent?.sampled ?? own(traceId)
    : (_parent, traceId) => own(traceId);
}

/** The last digits of an id, random in every version; as many as a number holds exactly. */
const DIGITS = 13;

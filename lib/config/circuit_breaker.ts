/**
 * The schema of `circuit_breaker`.
 */
import { boundedInteger, milliseconds, share } from "./fields.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./schema.ts";

export const CIRCUIT_BREAKER = s.object(
  {
    error_ratio: share(0.01, 0.5, "Share of failed requests that opens the circuit."),
    min_requests: boundedInteger(1, 1_000_000, 20, "Fewer requests within window_ms say nothing."),
    window_ms: milliseconds(10, 10_000, "Time within which they count"),
    open_ms: milliseconds(1, 10_000, "How long requests are refused before probes are let through"),
    probes: boundedInteger(1, 1000, 1, "Requests that are let through then, all of which have to pass."),
  },
  { describe: "Refuses requests at once while too many of them fail; off unless given." },
);

export const fields: FeatureFields = { schemas: { circuit_breaker: CIRCUIT_BREAKER } };

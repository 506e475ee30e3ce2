/**
 * The schema of a route's `timeouts`, which take the place of its service's.
 */
import type { FeatureFields } from "./feature_fields.ts";
import { DAY_MS } from "./fields.ts";
import * as s from "./schema.ts";

const limit = (min: number, describe: string) => s.optional(s.integer({ min, max: DAY_MS, describe }));

export const ROUTE_TIMEOUTS = s.object(
  {
    response_ms: limit(1, "Longest wait for the headers of the response, in milliseconds."),
    idle_ms: limit(1, "Longest silence between bytes, either way, in milliseconds."),
    total_ms: limit(0, "Longest time for a whole exchange, retries included, in milliseconds; 0: no limit."),
  },
  { describe: "Time limits in place of the service's." },
);

export const fields: FeatureFields = { schemas: { route_timeouts: ROUTE_TIMEOUTS } };

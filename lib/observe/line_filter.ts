/**
 * Decides which requests get no line in the access log: those of excluded paths, and of the others all but a sample.
 */
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { UNLOGGED_PATH } from "../config/log_fields.ts";
import type { FeatureFields } from "../config/feature_fields.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import type { Notes } from "../http/exchange.ts";
import { pathOf } from "./access_line.ts";

export const fields: FeatureFields = { schemas: { unlogged_path: UNLOGGED_PATH } };

/** Share of the requests that get a line, and paths that get none: exact paths, or prefixes that end with `*`. */
interface Filter {
  readonly sample: number;
  readonly exclude: readonly string[];
}

/** Returns whether a request that has ended gets a line. `random`: numbers from 0 to below 1. */
export function lineFilter({ sample, exclude }: Filter, random = Math.random): (entry: RequestFacts) => boolean {
  const isExcluded = matcher(exclude);
  return ({ target, call }) => !isExcluded(target) && (sample === 1 || random() < sample || isFailure(call.notes));
}

/** Faults of the gateway or an upstream are logged whatever `sample` is, also when the 200 had been sent already. */
function isFailure({ status, code, fault }: Notes): boolean {
  if (status !== null && status >= 500) return true;
  return fault !== null && (status === null || status < 400) && ERRORS[code as ErrorCode]?.side !== "client";
}

/** Compares the target as it was sent: another spelling of the path is logged. */
function matcher(patterns: readonly string[]): (target: string) => boolean {
  const exact = new Set(patterns.filter((pattern) => !pattern.endsWith("*")));
  const prefixes = patterns.filter((pattern) => pattern.endsWith("*")).map((pattern) => pattern.slice(0, -1));
  return (target) => {
    const path = pathOf(target);
    return exact.has(path) || prefixes.some((prefix) => path.startsWith(prefix));
  };
}

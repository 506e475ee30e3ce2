/**
 * The types of the JSON of the admin interface about changes and tests, as `admin_types.ts`.
 */
import type { Change, Issue, Warning } from "./admin_types.ts";

export interface RoutePlace {
  readonly service: string;
  readonly route: string;
}

/** POST /gateway/validate */
export interface Validation {
  readonly outcome: "accepted" | "refused";
  readonly issues: readonly Issue[];
  readonly warnings: readonly Warning[];
  /** Null: there are none. */
  readonly tests: { readonly passed: number; readonly failed: number; readonly not_run: number; readonly failures?: readonly TestFailure[] } | null;
  /** Why tests were not run. */
  readonly untested: string | null;
  /** Null: the text has errors. */
  readonly diff: RouteDiff | null;
  readonly requests: MovedRequests | null;
}

export interface TestFailure {
  readonly name: string;
  readonly line: number | null;
  readonly column: number | null;
  readonly differences: readonly string[];
}

/** GET /gateway/tests: the last run of the configuration's tests, also of a configuration that was refused. */
export interface TestRun {
  /** Absent or null: no tests have run. */
  readonly at?: string | null;
  /** Of the configuration that was tested. */
  readonly digest?: string | null;
  readonly passed: number;
  readonly failed: number;
  readonly tests: readonly TestResult[];
}

export interface TestResult {
  readonly name: string;
  readonly passed: boolean;
  /** `expect` of the test, as written. */
  readonly expected: unknown;
  /** The same members. */
  readonly found: unknown;
  /** "status: expected 401, found 200" */
  readonly differences: readonly string[];
  /** The members that differ, in the order of their sentences, which come first: "status". Older gateways send none. */
  readonly differing?: readonly string[];
}

export interface RouteDiff {
  /** `altered`: the guards among them that are there with another configuration. */
  readonly guards_lost: readonly (RoutePlace & { readonly guards: readonly string[]; readonly altered: readonly string[]; readonly example: string | null })[];
  readonly added: readonly RoutePlace[];
  readonly removed: readonly RoutePlace[];
  readonly changed: readonly (RoutePlace & { readonly changes: readonly string[] })[];
  readonly other: readonly string[];
}

/** Recent requests that would meet another route, or none. */
export interface MovedRequests {
  readonly checked: number;
  readonly other_route: number;
  readonly no_route: number;
  readonly undecided: number;
  readonly examples: readonly { readonly request: string; readonly before: RoutePlace | null; readonly after: RoutePlace | null }[];
}

/** GET /gateway/history */
export interface HistoryEntry {
  readonly digest: string;
  readonly at: string;
  readonly by: { readonly user: string; readonly address: string } | { readonly cause: string };
  readonly changes: readonly Change[];
  readonly in_force: boolean;
  readonly can_roll_back: boolean;
  /** Why it cannot be rolled back to. */
  readonly reason: string | null;
}

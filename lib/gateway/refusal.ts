/**
 * The reasons why a configuration was refused, as data for reports, and as the lines that the log and commands print.
 */
import { messageOf } from "../base/errors.ts";
import { formatPath, type Issue } from "../config/json.ts";
import { formatIssues } from "../config/load.ts";
import { ConfigError } from "./config_error.ts";
import type { Refusal, ShownIssue } from "./status.ts";

/** Of what was thrown instead of a configuration. */
export function whyRefused(error: unknown): Refusal {
  if (error instanceof ConfigError) return { file: error.file ?? null, issues: error.issues.map(shownIssue) };
  return { file: null, issues: [unplacedIssue(messageOf(error))] };
}

export function shownIssue({ at, message, position, file, more }: Issue): ShownIssue {
  return {
    path: formatPath(at),
    line: position?.line ?? null,
    column: position?.column ?? null,
    message,
    ...(file !== undefined && { file }),
    ...(more !== undefined && { more }),
  };
}

/** Of a whole text, or of none. */
export function unplacedIssue(message: string): ShownIssue {
  return { path: "", line: null, column: null, message };
}

/** As `ConfigError.message` has them. */
export function linesOf({ file, issues }: Refusal): readonly string[] {
  const placed = issues.map(({ path: at, line, column, ...rest }) => ({
    ...rest,
    at,
    position: line === null || column === null ? null : { line, column },
  }));
  return issues.length === 0
    ? []
    : formatIssues(placed, file ?? undefined)
        .trimEnd()
        .split("\n");
}

/**
 * The error of a configuration that is refused.
 */
import type { Issue } from "../config/json.ts";
import { formatIssues } from "../config/load.ts";

/** A configuration that is refused; `message` lists every issue on a line of its own. */
export class ConfigError extends Error {
  readonly issues: readonly Issue[];
  /** The configuration file; undefined: it is a value. */
  readonly file: string | undefined;

  /** `cause`: what a plugin threw when it was created. */
  constructor(issues: readonly Issue[], file: string | undefined, cause?: unknown) {
    super(formatIssues(issues, file), cause === undefined ? {} : { cause });
    this.name = "ConfigError";
    this.issues = issues;
    this.file = file;
  }
}

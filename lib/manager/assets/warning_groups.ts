/**
 * Arranges warnings: by how serious they are, and those that have one cause as one.
 */
import type { Status, Warning } from "./api.ts";

/**
 * "failing": requests or reloads fail at this moment. "risk": they may, or more is open than is meant. "advice":
 * something has no use.
 */
export type Severity = "failing" | "risk" | "advice";

export interface WarningGroup {
  readonly severity: Severity;
  readonly first: Warning;
  /** Of the same outage, or of the same kind. */
  readonly others: readonly Warning[];
}

/** Of one service they have one cause; the first one says most. */
const OUTAGE = ["no_upstream", "srv_unresolved", "backups_serve", "circuit_open", "upstream_down", "upstream_ejected"];
const FAILING = new Set<string>([
  ...OUTAGE,
  "reload_refused",
  "source_unreachable",
  "program_replaced",
  "tests_failed",
  "certificate_expired",
  "acme_unusable",
  "crl_expired",
  "counters_down",
  "workers_missing",
  "plugin_faults",
  "mtls_idle",
]);
const ADVICE = new Set<string>([
  "certificates_unused",
  "crl_unused",
  "route_unreachable",
  "group_unknown",
  "caller_unused",
  "retries_unused",
  "errors_unused",
  "names_mixed",
  "stale_acceptance",
  "more",
]);
/** Not failing yet, or on purpose, and not to be forgotten. */
const PROBLEMS = ["certificate_expires", "crl_expires", "key_expires", "upstream_taken_out"];
const ORDER: readonly Severity[] = ["failing", "risk", "advice"];

function severityOf({ code }: Pick<Warning, "code">): Severity {
  return FAILING.has(code) ? "failing" : ADVICE.has(code) ? "advice" : "risk";
}

/** The most serious first, otherwise in the order of the gateway. */
export function groupsOf(warnings: readonly Warning[]): readonly WarningGroup[] {
  const groups = new Map<string, Warning[]>();
  for (const warning of warnings) {
    const key = JSON.stringify(OUTAGE.includes(warning.code) ? ["outage", warning.service] : [warning.code]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [warning]);
    else group.push(warning);
  }
  const made = [...groups.values()].map((all) => {
    const [first, ...others] = all.sort((a, b) => OUTAGE.indexOf(a.code) - OUTAGE.indexOf(b.code));
    return { severity: severityOf(first!), first: first!, others };
  });
  return made.sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
}

/** What is wrong or out of use at this moment or within days, failed tests included, and all other warnings. */
export function problemsOf({ warnings, tests }: Pick<Status, "warnings" | "tests">): {
  readonly problems: readonly Warning[];
  readonly others: readonly Warning[];
} {
  const isProblem = (warning: Warning): boolean => severityOf(warning) === "failing" || PROBLEMS.includes(warning.code);
  return {
    problems: [...testsWarning(tests), ...warnings.filter(isProblem)],
    others: warnings.filter((warning) => !isProblem(warning)),
  };
}

function testsWarning(tests: Status["tests"]): readonly Warning[] {
  if (tests === null || tests.failed === 0) return [];
  const message = `${tests.failed} of ${tests.failed + tests.passed} tests of the configuration failed.`;
  const remedy = "Correct the configuration, or the tests.";
  return [
    {
      code: "tests_failed",
      message,
      remedy,
      path: null,
      line: null,
      column: null,
      example: null,
      service: null,
      route: null,
    },
  ];
}

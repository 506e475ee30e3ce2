import { describe, expect, it } from "vitest";
import type { Warning } from "../../../lib/manager/assets/admin_types.ts";
import { groupsOf, problemsOf } from "../../../lib/manager/assets/warning_groups.ts";

const OTHERS = { path: null, line: null, column: null, example: null, remedy: "", route: null };
const warning = (code: Warning["code"], service: string | null = null, message: string = code): Warning => ({
  ...OTHERS,
  code,
  message,
  service,
});
const shown = (warnings: readonly Warning[]) =>
  groupsOf(warnings).map(({ severity, first, others }) => [
    severity,
    first.message,
    others.map(({ message }) => message),
  ]);

describe("groups of warnings", () => {
  it("an outage of a service is one, told by what says most; that of another service is another one", () => {
    const down = ["a", "b", "c"].map((id) => warning("upstream_down", "shop", id));
    expect(
      shown([
        ...down,
        warning("no_upstream", "shop"),
        warning("circuit_open", "shop"),
        warning("upstream_ejected", "pay"),
      ]),
    ).toEqual([
      ["failing", "no_upstream", ["circuit_open", "a", "b", "c"]],
      ["failing", "upstream_ejected", []],
    ]);
  });

  it("those of one kind are one, in the order of the gateway, and what fails comes first", () => {
    const given = [
      warning("stale_acceptance", null, "old"),
      warning("guard_bypassed", "a", "1"),
      warning("reload_refused"),
      warning("guard_bypassed", "b", "2"),
      warning("faults_injected"),
    ];
    expect(shown(given)).toEqual([
      ["failing", "reload_refused", []],
      ["risk", "1", ["2"]],
      ["risk", "faults_injected", []],
      ["advice", "old", []],
    ]);
  });

  it("none are none, and a service of the name null is not the gateway", () => {
    expect(groupsOf([])).toEqual([]);
    expect(groupsOf([warning("upstream_down", "null"), warning("upstream_down")])).toHaveLength(2);
  });
});

describe("what is wrong", () => {
  it(
    "is what fails, failed tests, certificates near their end, and upstreams out of use; " +
      "all else are other warnings",
    () => {
      const warnings = (
        ["guard_bypassed", "plugin_faults", "certificate_expires", "upstream_taken_out", "caller_unused"] as const
      ).map((code) => warning(code));
      const { problems, others } = problemsOf({ warnings, tests: { passed: 1, failed: 2 } });
      expect(problems.map(({ message }) => message)).toEqual([
        "2 of 3 tests of the configuration failed.",
        "plugin_faults",
        "certificate_expires",
        "upstream_taken_out",
      ]);
      expect(others.map(({ code }) => code)).toEqual(["guard_bypassed", "caller_unused"]);
    },
  );

  it.each([null, { passed: 3, failed: 0 }])("is nothing with the tests %j and without warnings", (tests) => {
    expect(problemsOf({ warnings: [], tests })).toEqual({ problems: [], others: [] });
  });
});

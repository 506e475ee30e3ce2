import { describe, expect, it } from "vitest";
import { comparisonsOf, failedFirst, otherDifferences, searchTextOf } from "../../../lib/manager/assets/test_results.ts";

const result = (name: string, passed: boolean) => ({ name, passed, expected: {}, found: {}, differences: [] });

const FAILED = {
  name: "orders need a key",
  passed: false,
  expected: { status: 401, code: null, upstream_path: "/7?x=1", headers: { "WWW-Authenticate": { matches: "^Key" }, Via: null }, body: { a: [1] }, caller: "" },
  found: { status: 200, code: "key_missing", upstream_path: null, headers: { "WWW-Authenticate": "Basic", Via: null }, body: { a: [2] }, caller: "ada" },
  differences: ["status: expected 401, found 200", "headers.WWW-Authenticate: expected a match of ^Key, found Basic", "did not end within 2 s"],
};

describe("the results of tests", () => {
  it("begin with the failed ones, otherwise in the order of the configuration", () => {
    const tests = [result("a", true), result("b", false), result("c", true), result("d", false)];
    expect(failedFirst(tests).map(({ name }) => name)).toEqual(["b", "d", "a", "c"]);
  });

  it("show what was expected beside what was found, header by header, and which of it differs", () => {
    expect(comparisonsOf(FAILED)).toEqual([
      { name: "status", expected: "401", found: "200", differs: true },
      { name: "code", expected: "none", found: "key_missing", differs: false },
      { name: "upstream_path", expected: "/7?x=1", found: "none", differs: false },
      { name: "headers.WWW-Authenticate", expected: "matches ^Key", found: "Basic", differs: true },
      { name: "headers.Via", expected: "none", found: "none", differs: false },
      { name: "body", expected: '{"a":[1]}', found: '{"a":[2]}', differs: false },
      { name: "caller", expected: '""', found: "ada", differs: false },
    ]);
  });

  it("list the differences that belong to no expectation", () => {
    expect(otherDifferences(FAILED)).toEqual(["did not end within 2 s"]);
  });

  it("read a missing or unusual member as none", () => {
    expect(comparisonsOf({ ...FAILED, found: null }).every(({ found }) => found === "none")).toBe(true);
    expect(comparisonsOf({ ...FAILED, expected: "x" })).toEqual([]);
  });

  it("are found by name and by difference", () => {
    expect(searchTextOf(FAILED)).toContain("orders need a key");
    expect(searchTextOf(FAILED)).toContain("expected 401, found 200");
  });
});

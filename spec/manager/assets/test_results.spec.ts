import { describe, expect, it } from "vitest";
import {
  comparisonsOf,
  failedFirst,
  otherDifferences,
  searchTextOf,
} from "../../../lib/manager/assets/test_results.ts";

const UNPLACED = { line: null, column: null };
const result = (name: string, passed: boolean) => ({
  ...UNPLACED,
  name,
  passed,
  expected: {},
  found: {},
  differences: [],
  differing: [],
});

const FAILED = {
  ...UNPLACED,
  name: "orders need a key",
  passed: false,
  expected: {
    status: 401,
    code: null,
    upstream_path: "/7?x=1",
    headers: { "WWW-Authenticate": { matches: "^Key" }, Via: null },
    body: { a: [1] },
    caller: "",
  },
  found: {
    status: 200,
    code: "key_missing",
    upstream_path: null,
    headers: { "WWW-Authenticate": "Basic", Via: null },
    body: { a: [2] },
    caller: "ada",
  },
  differences: [
    "status: expected 401, found 200",
    "headers.WWW-Authenticate: expected a match of ^Key, found Basic",
    "did not end within 2 s",
  ],
  differing: ["status", "headers.WWW-Authenticate"],
};

describe("the results of tests", () => {
  it("begin with the failed ones, otherwise in the order of the configuration", () => {
    const tests = [result("a", true), result("b", false), result("c", true), result("d", false)];
    expect(failedFirst(tests).map(({ name }) => name)).toEqual(["b", "d", "a", "c"]);
  });

  it("show what was expected beside what was found, header by header, and which of it differs", () => {
    expect(comparisonsOf(FAILED).map(({ name, expected, found, differs }) => [name, expected, found, differs])).toEqual(
      [
        ["status", "401", "200", true],
        ["code", "none", "key_missing", false],
        ["upstream_path", "/7?x=1", "none", false],
        ["headers.WWW-Authenticate", "matches ^Key", "Basic", true],
        ["headers.Via", "none", "none", false],
        ["body", '{"a":[1]}', '{"a":[2]}', false],
        ["caller", '""', "ada", false],
      ],
    );
  });

  it("list the differences that belong to no expectation", () => {
    expect(otherDifferences(FAILED)).toEqual(["did not end within 2 s"]);
  });

  it("say without the headers that the upstream got no request", () => {
    const result = {
      ...FAILED,
      expected: { upstream_headers: { Authorization: "Bearer t0ken" } },
      found: { upstream_headers: null },
    };
    const differences = ['upstream_headers: expected {"Authorization":"Bearer t0ken"}, found null'];
    expect(otherDifferences({ ...result, differences, differing: ["upstream_headers"] })).toEqual([
      "upstream_headers: the upstream got no request",
    ]);
  });

  it("read a missing or unusual member as none", () => {
    expect(comparisonsOf({ ...FAILED, found: null }).every(({ found }) => found === "none")).toBe(true);
    expect(comparisonsOf({ ...FAILED, expected: "x" })).toEqual([]);
  });

  it("are found by name and by difference", () => {
    expect(searchTextOf(FAILED)).toContain("orders need a key");
    expect(searchTextOf(FAILED)).toContain("did not end within 2 s");
    expect(searchTextOf({ ...FAILED, differences: FAILED.differences.slice(0, 1), differing: ["status"] })).toContain(
      "status",
    );
  });
});

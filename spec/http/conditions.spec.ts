import { describe, expect, it } from "vitest";
import { findCookie } from "../../lib/http/cookies.ts";
import type { Conditions, Scheme } from "../../lib/http/condition_types.ts";
import { compileConditions, conditionTests } from "../../lib/http/conditions.ts";
import type { HeaderList } from "../../lib/http/headers.ts";

/** Whether they hold over http, unless the scheme is given. */
function compile(conditions: Partial<Conditions>) {
  const holds = compileConditions({ headers: {}, query: {}, cookies: {}, ...conditions });
  return (headers: HeaderList, query: string, scheme: Scheme = "http") => holds(headers, query, scheme);
}

describe("the scheme", () => {
  it("is compared, besides all else", () => {
    const https = compile({ scheme: "https", headers: { "X-Version": "2" } });
    expect([https(["X-Version", "2"], "", "https"), https(["X-Version", "2"], ""), https([], "", "https")]).toEqual([
      true,
      false,
      false,
    ]);
    expect(compile({ scheme: "http" })([], "")).toBe(true);
  });
});

describe("headers", () => {
  const holds = (wanted: Conditions["headers"], ...list: string[]) => compile({ headers: wanted })(list, "");

  it("an exact value is compared with case, its name without", () => {
    expect(holds({ "X-Version": "b" }, "x-vERSION", "b")).toBe(true);
    expect(holds({ "X-Version": "b" }, "X-Version", "B")).toBe(false);
    expect(holds({ "X-Version": "b" }, "X-Version", "b, c")).toBe(false);
    expect(holds({ "X-Version": "" }, "X-Version", "")).toBe(true);
    expect(holds({ "X-Version": "" }, "X-Other", "")).toBe(false);
  });

  it("of several lines of one name, one that fits is enough", () => {
    expect(holds({ a: "2" }, "A", "1", "b", "2")).toBe(false);
    expect(holds({ a: "2" }, "A", "1", "a", "2", "a", "3")).toBe(true);
    expect(holds({ a: { matches: "^2" } }, "A", "1", "a", "2x", "a", "3")).toBe(true);
  });

  it("true wants any value, an empty one too, and null none", () => {
    expect(holds({ a: true }, "A", "")).toBe(true);
    expect(holds({ a: true }, "B", "")).toBe(false);
    expect(holds({ a: null }, "A", "")).toBe(false);
    expect(holds({ a: null }, "B", "")).toBe(true);
  });

  it("a pattern matches anywhere in the value, unless it is anchored", () => {
    expect(holds({ a: { matches: "Chrome/1[0-9]" } }, "A", "Mozilla Chrome/12")).toBe(true);
    expect(holds({ a: { matches: "^Chrome" } }, "A", "Mozilla Chrome/12")).toBe(false);
  });

  it("a value for which a pattern needs too many steps does not fit, and the next request is decided anew", () => {
    const check = compile({ headers: { a: { matches: `${"(a|b)*".repeat(50)}c` } } });
    expect(check(["a", `${"ab".repeat(10_000)}c`], "")).toBe(false);
    expect(check(["a", "abc"], "")).toBe(true);
  });
});

describe("the query", () => {
  const holds = (wanted: Conditions["query"], query: string) => compile({ query: wanted })([], query);

  it.each([
    ["", false],
    ["?", false],
    ["?a=1", true],
    ["?a=1&b=2", true],
    ["?b=2&a=1", true],
    ["?&&a=1&", true],
    ["?a=0&a=1", true],
    ["?%61=%31", true],
    ["?a=11", false],
    ["?a=", false],
    ["?a", false],
    ["?ba=1", false],
    ["?A=1", false],
    ["?b=a=1", false],
    ["?a=1=", false],
    ["?a=1;b", false],
    ["?a=1%", false],
    ["?a=%FF&a%FF=1", false],
  ])("{a: 1} and %s: %s", (query, expected) => {
    expect(holds({ a: "1" }, query)).toBe(expected);
  });

  it.each([
    ["a b", "?p=a+b"],
    ["a b", "?p=a%20b"],
    ["a+b", "?p=a%2Bb"],
    ["a+b", "?p=a%2bb"],
    ["ü/日&", "?p=%C3%BC%2F%e6%97%a5%26"],
    ["ü", "?p=\xc3\xbc"],
    ["100%", "?p=100%"],
    ["100%", "?p=100%25"],
    ["%zz%4", "?p=%zz%4"],
    ["=", "?p=="],
    ["", "?p"],
    ["", "?p="],
  ])("the value %j is that of %s, and a pattern sees the same text", (value, query) => {
    expect(holds({ p: value }, query)).toBe(true);
    expect(holds({ p: { matches: `^${value.replace("+", "\\+")}$` } }, query)).toBe(true);
    expect(holds({ p: `${value}x` }, query)).toBe(false);
  });

  it("names are compared percent-decoded, too", () => {
    expect(holds({ "a b": true }, "?a+b")).toBe(true);
    expect(holds({ "a b": true }, "?a%20b=1")).toBe(true);
    expect(holds({ "filter[id]": "1" }, "?filter%5Bid%5D=1")).toBe(true);
    expect(holds({ "a b": null }, "?a%20b=1")).toBe(false);
    expect(holds({ "a b": null }, "?ab=1")).toBe(true);
  });

  it("is no part of the name or value before it: parameters of the path are not looked at", () => {
    expect(holds({ a: true }, "")).toBe(false);
  });
});

describe("cookies", () => {
  const holds = (wanted: Conditions["cookies"], ...lines: string[]) =>
    compile({ cookies: wanted })(
      lines.flatMap((line) => ["Cookie", line]),
      "",
    );

  it("are read as all else in the gateway reads them: with spaces and tabs around names and values left aside", () => {
    for (const line of ["c=1", "d;\tc=1", "d=2; c = 1 ;e", "c=\t1"])
      expect([holds({ c: "1" }, line), findCookie(["cookie", line], "c", (value) => value)], line).toEqual([true, "1"]);
  });

  it.each([
    [["a=1"], true],
    [["b=2; a=1"], true],
    [["b=2;a=1;c=3"], true],
    [["a=0; a=1"], true],
    [["b=2", "a=1"], true],
    [["; ;a=1 "], true],
    [["a=11"], false],
    [["A=1"], false],
    [["ba=1"], false],
    [["b=a=1"], false],
    [["a=1,b=2"], false],
    [["a"], false],
    [['a="1"'], false],
    [[""], false],
    [[], false],
  ])("{a: 1} and %j: %s", (lines, expected) => {
    expect(holds({ a: "1" }, ...lines)).toBe(expected);
  });

  it("true, null and patterns are as with headers", () => {
    expect(holds({ a: true }, "a=")).toBe(true);
    expect(holds({ a: null }, "b=1; aa=2")).toBe(true);
    expect(holds({ a: null }, "b=1; a=2")).toBe(false);
    expect(holds({ a: { matches: "^beta-" } }, "a=x; a=beta-7")).toBe(true);
  });
});

describe("several conditions", () => {
  it("all have to hold", () => {
    const check = compile({ headers: { h: "1" }, query: { q: true }, cookies: { c: null } });
    expect(check(["h", "1"], "?q")).toBe(true);
    expect(check(["h", "2"], "?q")).toBe(false);
    expect(check(["h", "1"], "?p")).toBe(false);
    expect(check(["h", "1", "cookie", "c=1"], "?q")).toBe(false);
  });

  it("are tested in the order of their cost: exact headers, presence of headers, query, cookies, patterns", () => {
    const tests = conditionTests({
      headers: { pattern: { matches: "a" }, present: true, absent: null, exact: "a" },
      query: { parameter: "1", pattern: { matches: "a" } },
      cookies: { cookie: true },
    });
    expect(tests.map(({ place, name }) => `${place}.${name}`)).toEqual([
      "headers.exact",
      "headers.present",
      "headers.absent",
      "query.parameter",
      "cookies.cookie",
      "headers.pattern",
      "query.pattern",
    ]);
  });

  it("none hold for every request", () => {
    expect(compile({})([], "")).toBe(true);
  });

  it("a name like __proto__ is a name like any other", () => {
    expect(compile({ query: JSON.parse('{"__proto__":"1"}') as Conditions["query"] })([], "?__proto__=1")).toBe(true);
    expect(compile({ query: JSON.parse('{"__proto__":"1"}') as Conditions["query"] })([], "")).toBe(false);
  });
});

it("throws for a pattern that cannot be compiled", () => {
  expect(() => compile({ headers: { a: { matches: "(?=a)" } } })).toThrow('the pattern "(?=a)" uses lookahead');
});

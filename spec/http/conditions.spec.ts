import { describe, expect, it } from "vitest";
import { findCookie } from "../../lib/http/cookies.ts";
import type { Conditions, Scheme } from "../../lib/http/condition_types.ts";
import { compileConditions, conditionTests } from "../../lib/http/conditions.ts";
import { headersAskedFor, type HeaderList } from "../../lib/http/headers.ts";

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

describe("not", () => {
  const holds = (wanted: Conditions["headers"], ...list: string[]) => compile({ headers: wanted })(list, "");

  it.each<[Conditions["headers"][string], readonly (readonly string[])[], readonly (readonly string[])[]]>([
    [{ not: "1" }, [[], ["2"], [""], ["2", "3"]], [["1"], ["2", "1"], ["1", "2"]]],
    [{ not: { matches: "^1" } }, [[], ["21"], ["", "2"]], [["1"], ["12"], ["2", "1x"]]],
    [{ not: true }, [[]], [[""], ["1"], ["1", "2"]]],
    [{ not: null }, [[""], ["1"], ["1", "2"]], [[]]],
  ])("%j holds exactly when the condition in it does not: any value that fits ends it", (wanted, yes, no) => {
    const list = (values: readonly string[]) => values.flatMap((value) => ["A", value]);
    expect(yes.map((values) => holds({ a: wanted }, ...list(values)))).toEqual(yes.map(() => true));
    expect(no.map((values) => holds({ a: wanted }, ...list(values)))).toEqual(no.map(() => false));
    const cookies = compile({ cookies: { a: wanted } });
    const line = (values: readonly string[]) =>
      values.length === 0 ? [] : ["cookie", values.map((value) => `a=${value}`).join("; ")];
    expect(yes.map((values) => cookies(line(values), ""))).toEqual(yes.map(() => true));
    expect(no.map((values) => cookies(line(values), ""))).toEqual(no.map(() => false));
    const query = compile({ query: { a: wanted } });
    const asked = (values: readonly string[]) => `?b&${values.map((value) => `%61=${value}`).join("&")}`;
    expect(yes.map((values) => query([], asked(values)))).toEqual(yes.map(() => true));
    expect(no.map((values) => query([], asked(values)))).toEqual(no.map(() => false));
  });

  it("of a scheme is the other one", () => {
    const conditions = compile({ scheme: { not: "https" } });
    expect([conditions([], "", "http"), conditions([], "", "https")]).toEqual([true, false]);
  });

  it("counts as one condition, and is tested as early as the condition in it", () => {
    const conditions = { headers: { a: { not: { matches: "x" } }, b: { not: "1" } }, query: {}, cookies: {} };
    expect(conditionTests(conditions).map(({ name }) => name)).toEqual(["b", "a"]);
  });

  it("of a header whose value a preflight does not tell holds, unless the header has to be absent", () => {
    const asked = headersAskedFor(["Access-Control-Request-Headers", "a"]);
    const wanted: readonly Conditions["headers"][string][] = [
      { not: "1" },
      { not: { matches: "" } },
      { not: null },
      "1",
      { matches: "^x$" },
      { not: true },
      null,
    ];
    expect(wanted.map((each) => holds({ a: each }, ...asked))).toEqual([true, true, true, true, true, false, false]);
  });

  it("holds for a value for which its pattern needs too many steps: that one does not hold", () => {
    const check = compile({ headers: { a: { not: { matches: `${"(a|b)*".repeat(50)}c` } } } });
    expect(check(["a", `${"ab".repeat(10_000)}c`], "")).toBe(true);
    expect(check(["a", "abc"], "")).toBe(false);
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

import { describe, expect, it } from "vitest";
import { conditionTexts, exampleFor, whereText } from "../../../lib/manager/assets/conditions.ts";
import { MASK } from "../../../lib/manager/assets/setting_lines.ts";

const MATCH = {
  headers: { "X-Version": "2", "X-Old": null, "X-Tenant": { matches: "^a" } },
  query: { beta: true, "a b": "c&d", empty: "" },
  cookies: { plan: "gold", seen: true },
} as const;

describe("the texts of conditions", () => {
  it("name the header, query parameter or cookie, and what it has to be", () => {
    expect(conditionTexts(MATCH)).toEqual([
      "header X-Version = 2",
      "header X-Old absent",
      "header X-Tenant matches ^a",
      "query beta present",
      "query a b = c&d",
      "query empty empty",
      "cookie plan = gold",
      "cookie seen present",
    ]);
  });

  it("say what must not be", () => {
    const named = {
      "X-A": { not: "2" },
      "X-B": { not: { matches: "^a" } },
      "X-C": { not: true },
      "X-D": { not: null },
    } as const;
    expect(conditionTexts({ headers: named, scheme: { not: "http" } } as const)).toEqual([
      "header X-A not = 2",
      "header X-B not matches ^a",
      "header X-C not present",
      "header X-D not absent",
      "scheme not = http",
    ]);
    expect(exampleFor({ headers: named } as const)).toEqual({ query: "", headers: "X-D: 1" });
  });

  it.each([undefined, {}, { headers: {} }])("are empty for %j", (match) => expect(conditionTexts(match)).toEqual([]));
});

describe("the clause of conditions", () => {
  it("joins them, and is empty without any", () => {
    expect(whereText({ headers: { "X-Version": "2" }, cookies: { seen: true } })).toBe(
      " where header X-Version = 2 and cookie seen present",
    );
    expect(whereText(undefined)).toBe("");
  });
});

describe("the example of a request that meets conditions", () => {
  it("has the exact values, encoded in the query, and 1 for what only has to be present", () => {
    expect(exampleFor(MATCH)).toEqual({
      query: "beta=1&a+b=c%26d&empty=",
      headers: "X-Version: 2\nCookie: plan=gold; seen=1",
    });
  });

  it("leaves out what the gateway has masked, and is empty without conditions", () => {
    expect(
      exampleFor({
        headers: { Authorization: MASK },
        query: { token: `\${env:A}${MASK}` },
        cookies: { password: MASK },
      }),
    ).toEqual({ query: "", headers: "" });
    expect(exampleFor(undefined)).toEqual({ query: "", headers: "" });
  });

  it("accepts half of a surrogate pair, which JSON can hold", () =>
    expect(exampleFor({ query: { "\ud800": "1" } }).query).toBe("%EF%BF%BD=1"));
});

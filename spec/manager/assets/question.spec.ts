import { describe, expect, it } from "vitest";
import { readQuestion } from "../../../lib/manager/assets/question.ts";

const read = (form: Partial<Record<"method" | "url" | "headers", string>>) => readQuestion({ method: "GET", url: "/shop", headers: "", ...form });
const problemsOf = (form: Parameters<typeof read>[0]) => {
  const answer = read(form);
  return "problems" in answer ? answer.problems.map(({ field, message }) => `${field}: ${message}`) : [];
};

describe("what somebody enters", () => {
  it("is a question, without the spaces around", () => {
    expect(read({ method: " POST ", url: " /shop/items?x=1 ", headers: "Host: api.example.com\r\n\n  X-Tenant :  a:b  " })).toEqual({
      question: { method: "POST", url: "/shop/items?x=1", headers: { Host: "api.example.com", "X-Tenant": "a:b" } },
    });
  });

  it("may be a whole address", () => expect(problemsOf({ url: "https://api.example.com:8443/v1" })).toEqual([]));

  it("joins lines of one name, whatever its case, and cookies by semicolons", () => {
    expect(read({ headers: "Accept: a\naccept: b\nCookie: x=1\ncookie: y=2" })).toMatchObject({
      question: { headers: { Accept: "a, b", Cookie: "x=1; y=2" } },
    });
  });

  it("takes no name of a header for more than a name", () => {
    const answer = read({ headers: "__proto__: x\nconstructor: y" });
    expect("question" in answer && Object.entries(answer.question.headers)).toEqual([
      ["__proto__", "x"],
      ["constructor", "y"],
    ]);
  });

  it.each([
    [{ method: "" }, /^method: Enter a method/],
    [{ method: "GE T" }, /^method: “GE T” is no method/],
    [{ url: "" }, /^url: Enter a path/],
    [{ url: "shop" }, /^url: A path begins with “\/”/],
    [{ url: "ftp://x/" }, /^url: A path begins with “\/”/],
    [{ url: "http:///x" }, /^url: A path begins with “\/”/],
    [{ url: "/a b" }, /^url: A path has no spaces: write %20/],
    [{ url: "/a#b" }, /^url: What stands behind “#”/],
    [{ headers: "Host: a\nbroken" }, /^headers: Line 2: “Name: value”/],
    [{ headers: ": x" }, /^headers: Line 1: no name before the colon/],
    [{ headers: "a b: x" }, /^headers: Line 1: “a b” is no name/],
    [{ headers: "X: a\u0001b" }, /^headers: Line 1: the value of X has a control character/],
  ])("%j is told what is wrong with it, and where", (form, message) => {
    expect(problemsOf(form)).toEqual([expect.stringMatching(message)]);
  });

  it("is told all that is wrong at once", () => expect(problemsOf({ method: "", url: "x", headers: "a\nb" })).toHaveLength(4));
});

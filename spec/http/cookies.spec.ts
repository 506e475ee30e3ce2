import { describe, expect, it } from "vitest";
import { findCookie } from "../../lib/http/cookies.ts";

const first = (headers: readonly string[], name = "a") => findCookie(headers, name, (value) => value);

describe("findCookie", () => {
  it.each([
    ["the only cookie", ["Cookie", "a=1"], "1"],
    ["one among others", ["Cookie", "b=2; a=1; c=3"], "1"],
    ["one without a space before it", ["Cookie", "b=2;a=1"], "1"],
    ["one with spaces around name and value", ["Cookie", "b=2;  a = 1 ; c=3"], "1"],
    ["the first of several lines", ["Cookie", "b=2", "X", "a=9", "cookie", "a=1", "Cookie", "a=7"], "1"],
    ["a value with equals signs", ["Cookie", "a=b=c="], "b=c="],
    ["a quoted value with its quotes", ["Cookie", 'a="1"'], '"1"'],
    ["an empty value", ["Cookie", "a=; b=2"], ""],
    ["none whose name only begins like it", ["Cookie", "ab=2; a"], null],
    ["none whose name only ends like it", ["Cookie", "ba=2"], null],
    ["none with the name in other case", ["Cookie", "A=2"], null],
    ["none in a pair without an equals sign, even when a later pair has one", ["Cookie", "a; b=2"], null],
    ["none in the value of another cookie", ["Cookie", "b=a=2"], null],
    ["none without cookies", ["X", "a=1"], null],
    ["none in an empty line", ["Cookie", " ;; "], null],
  ])("gives %s", (_title, headers, value) => {
    expect(first(headers)).toBe(value);
  });

  it("goes on to the next cookie of that name until one is accepted", () => {
    const seen: string[] = [];
    const found = findCookie(
      ["Cookie", "a=1; a=2", "Cookie", "a=3; a=4"],
      "a",
      (value) => (seen.push(value), value === "3" ? 33 : null),
    );
    expect(found).toBe(33);
    expect(seen).toEqual(["1", "2", "3"]);
  });
});

import { describe, expect, it } from "vitest";
import { concealing } from "../../lib/config/secrets.ts";

const conceal = concealing(
  new Map([
    ["the-token", "${env:TOKEN}"],
    ["the-token-of-ada", "${file:ada}"],
    ['two "lines"\n', "${file:quoted}"],
    ["abc", "${env:SHORT}"],
  ]),
);

describe("a text in which secrets are concealed", () => {
  it.each([
    ["Bearer the-token, the-token", "Bearer ${env:TOKEN}, ${env:TOKEN}"],
    ["the-token-of-ada and the-token-of-bob", "${file:ada} and ${env:TOKEN}-of-bob"],
    ["host THE-TOKEN.example", "host ${env:TOKEN}.example"],
    ['"two \\"lines\\"\\n"', '"${file:quoted}"'],
    ['two "lines"\n', "${file:quoted}"],
    ["abc", "${env:SHORT}"],
    ["", ""],
    ["nothing here", "nothing here"],
  ])(
    "shows the reference in place of each whole value, in any case, longest first, also as written in JSON: %j",
    (text, shown) => {
      expect(conceal(text)).toBe(shown);
    },
  );

  it("shows the beginning of a value, so that nobody can guess a value piece by piece", () => {
    expect(conceal("the-toke")).toBe("the-toke");
    expect(conceal("Bearer the-toke")).toBe("Bearer the-toke");
  });

  it("shows a value of less than four characters within other words", () => {
    expect(conceal("xabcx")).toBe("xabcx");
  });

  it("is masked as a whole if its letters change their number in lower case", () => {
    expect(conceal("İ the-token")).toBe("********");
    expect(concealing(new Map())("İ")).toBe("İ");
  });

  it("is searched once, however many secrets there are", () => {
    const many = concealing(new Map(Array.from({ length: 20_000 }, (_, i) => [`key-number-${i}-of-many`, "********"])));
    expect(many(`${"x".repeat(10_000)} key-number-19999-of-many`)).toBe(`${"x".repeat(10_000)} ********`);
  });
});

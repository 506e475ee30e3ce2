import { describe, expect, it } from "vitest";
import { charactersUpTo, examplePattern, linearPattern, type LinearPattern } from "../../lib/base/linear_pattern.ts";
import { random } from "../support/random.ts";

const free = { spend() {}, isDue: false, pause: () => Promise.resolve() };

function test(source: string, text: string): boolean | Promise<boolean> {
  const made = linearPattern(source);
  if (typeof made === "string") throw new Error(made);
  return made.test(text, free);
}

describe("the matches of a linear pattern", () => {
  it.each([
    "",
    "a",
    "^a$",
    "^$",
    "a|b",
    "^(a|bc)+$",
    "a*b",
    "a+?b",
    "^a{2,3}$",
    "^a{2}$",
    "^a{2,}$",
    "^a{0}$",
    "(?:ab)*c",
    "(?<name>ab)c",
    "[a-c]x",
    "[^a-c]",
    "[\\]a]",
    "\\d+",
    "\\w\\s\\S",
    "\\bfoo\\b",
    "\\Boo",
    "^\\p{L}+$",
    "^\\P{L}+$",
    "\\u{1F600}",
    "^.$",
    "^..$",
    "\\x41",
    "\\u0042",
    "\\.",
    "\\/",
    "\\n",
    "^(a*)*$",
    "(a|aa)+$",
    "^(?:a?){5}a{5}$",
    "(|a)b",
    "a**".slice(0, 2),
    "[.]",
    "^[\\d-]+$",
    "\\cJ",
    "^[A-Z]{3}-\\d{1,4}$",
  ])("the matches of a linear pattern agree with the matches of Node's engine: %j", (source) => {
    const texts = [
      "",
      "a",
      "b",
      "aa",
      "aaa",
      "aaaa",
      "aaaaa",
      "ab",
      "aab",
      "abab",
      "ababc",
      "bc",
      "abc",
      "abcbc",
      "ax",
      "dx",
      "]",
      "1 x",
      "a b",
      "foo",
      "a foo b",
      "foobar",
      "é",
      "éa",
      "1é",
      "😀",
      "😀a",
      "A",
      "B",
      ".",
      "/",
      "\n",
      "a\n",
      "ABC-12",
      "ABC-12345",
      "1-2",
      "c",
    ];
    for (const text of texts) expect([text, test(source, text)]).toEqual([text, new RegExp(source, "u").test(text)]);
  });

  it(
    "the matches of a linear pattern agree with the matches of Node's engine for random " + "combinations of operators",
    () => {
      const from = random(11);
      const atom = (depth: number): string => {
        const quantifier = from.pick(["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"]);
        if (depth > 0 && from.pick([true, false]))
          return `(${from.list(1, 3, () => from.list(0, 3, () => atom(depth - 1)).join("")).join("|")})${quantifier}`;
        const plain = from.pick(["a", "b", "[ab]", "[^a]", ".", "\\w", "^", "$", "\\b"]);
        return plain.length > 1 && "[.".includes(plain[0]!)
          ? plain + quantifier
          : /^[ab]$/.test(plain)
            ? plain + quantifier
            : plain;
      };
      for (let i = 0; i < 1_500; i++) {
        const source = from.list(1, 4, () => atom(2)).join("");
        const text = from.list(0, 6, () => from.pick(["a", "b", "c", " ", "\n"])).join("");
        expect([source, text, test(source, text)]).toEqual([source, text, new RegExp(source, "u").test(text)]);
      }
    },
  );
});

describe("the time of a linear pattern", () => {
  it.each([
    "^(a+)+$",
    "^(a|aa)+$",
    "(a*)*b",
    "^(a|a)*$",
    "(.*)*x",
    "a*a*a*a*a*b",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "\\s+$",
  ])("the time of a linear pattern grows in proportion to the text: %s", (source) => {
    const made = linearPattern(source);
    if (typeof made === "string") throw new Error(made);
    const steps = (length: number) => {
      let sum = 0;
      made.test(`${(source.includes("s") ? " " : "a").repeat(length)}!`, {
        ...free,
        spend: (each) => void (sum += each),
      });
      return sum;
    };
    expect(steps(20_000) / steps(2_000)).toBeLessThan(11);
  });

  it("the time of a linear pattern includes pauses between characters, while other texts can be tested", async () => {
    const made = linearPattern("^(ab)*$");
    if (typeof made === "string") throw new Error(made);
    const others: unknown[] = [];
    const meter = {
      spend() {},
      isDue: true,
      pause: async () => void others.push(made.test("abab", free), made.test("aba", free)),
    };
    expect(await Promise.all([made.test("ab".repeat(50), meter), made.test(`${"ab".repeat(50)}a`, meter)])).toEqual([
      true,
      false,
    ]);
    expect(others.length).toBeGreaterThan(300);
    expect(others.every((each, i) => each === (i % 2 === 0))).toBe(true);
  });

  it("the time of a linear pattern ends when the meter throws", () => {
    const made = linearPattern("^[^b]*$");
    let left = 1_000;
    const meter = {
      ...free,
      spend(steps: number) {
        left -= steps;
        if (left < 0) throw new Error("enough");
      },
    };
    expect(() => typeof made !== "string" && made.test("a".repeat(10_000), meter)).toThrow("enough");
    // Nothing is left of that text in the next.
    expect(typeof made !== "string" && [made.test("aaa", free), made.test("aab", free), made.test("", free)]).toEqual([
      true,
      false,
      true,
    ]);
  });
});

describe("an example of a linear pattern", () => {
  it.each([
    ["^v[12]$", "v1"],
    ["^(?:beta|b)$", "b"],
    ["a{2,3}b+c*", "aab"],
    ["\\d+-\\w", "0-a"],
    [".", "a"],
    ["", ""],
    ["[^a0A-]", "!"],
    ["^ $", " "],
    ["日|\\u{1f600}", "日"],
    ["\\bfoo\\b", "foo"],
  ])("is a short text that it matches: %s", (source, example) => {
    const found = examplePattern(source);
    expect(test(source, found!)).toBe(true);
    expect(found).toBe(example);
  });

  it.each([
    ["has a boundary before a space", "a\\b", "a"],
    ["needs something behind it", "a\\B", "aa"],
    ["needs something before it", "\\B-", "-"],
    ["needs a word before it", "\\b-\\B", "a-"],
    ["has a boundary in its middle", "[a-c-]\\b[a-c-]", "a-"],
    ["has only control characters", "^[\\x00-\\x1f]$", "\0"],
    ["has only characters of more than 16 bits", "^[\\u{1f600}-\\u{1f64f}]$", "😀"],
    ["has a property of characters of more than 16 bits", "^\\p{Script=Linear_B}$", "𐀀"],
  ])("is found if the pattern %s: %s", (_title, source, example) => {
    expect(new RegExp(source, "u").test(examplePattern(source)!)).toBe(true);
    expect(examplePattern(source)).toBe(example);
  });

  it("has only allowed characters", () => {
    expect([".", "[日é]", "日", "日|b"].map((source) => examplePattern(source, charactersUpTo(0xff)))).toEqual([
      "a",
      "é",
      null,
      "b",
    ]);
    expect(examplePattern("^.$", ";")).toBe(";");
  });

  it.each(["a^b", "a\\bb", "[^\\s\\S]", "$a", "a\\b\\Bb", "^\\b$", "\\b\\w\\b\\w", "a(?:\\b|$)b", "(?=a)", "("])(
    "is null if there is none: %s",
    (source) => {
      expect(examplePattern(source)).toBe(null);
    },
  );

  it("is found for random combinations of operators exactly where Node's engine finds a short text", () => {
    const from = random(12);
    const PARTS = ["a", "-", "[a-]", "[^a]", "^", "$", "\\b", "\\B", "(?:a|-)", "(?:\\b|-)", "a?", "-*", "(?:^|a)"];
    const texts = [""];
    for (const text of texts) if (text.length < 5) texts.push(...["a", "-", "b"].map((each) => text + each));
    let none = 0;
    for (let i = 0; i < 3_000; i++) {
      const source = from.list(1, 4, () => from.pick(PARTS)).join("");
      const expression = new RegExp(source, "u");
      const example = examplePattern(source);
      if (example === null) none++;
      else expect([source, example, expression.test(example)]).toEqual([source, example, true]);
      expect([source, example === null]).toEqual([source, !texts.some((text) => expression.test(text))]);
    }
    expect(none).toBeGreaterThan(100);
  });
});

describe("a pattern that repeats what has no states", () => {
  it.each(["^(?:(?:(?:(?:){2000}){2000}){2000}){2000}$", "^(?:a{0}){2000}$", "^(?:(?:a{0}|b{0}){900}c){1,2}$"])(
    "is compiled at once, and matches as in Node's engine: %s",
    (source) => {
      for (const text of ["", "c", "cc", "b"]) expect(test(source, text)).toBe(new RegExp(source, "u").test(text));
    },
  );

  it("costs as many steps as states are looked at: hundreds of equal alternatives are one", () => {
    const pattern = linearPattern(`(?:${"|".repeat(900)}){1900}!`) as LinearPattern;
    let followed = 0;
    expect(pattern.test("a", { ...free, spend: (steps) => void (followed += steps) })).toBe(false);
    expect(followed).toBeLessThan(4_000);
  });
});

describe("unsupported and invalid patterns", () => {
  it.each<[string, RegExp]>([
    ["(", /is no regular expression: \/\(\/u?: Unterminated group/],
    ["[", /is no regular expression/],
    ["a{2,1}", /is no regular expression/],
    ["a**", /is no regular expression/],
    ["(?=a)", /uses lookahead or lookbehind/],
    ["(?!a)", /uses lookahead or lookbehind/],
    ["(?<=a)b", /uses lookahead or lookbehind/],
    ["(?<!a)b", /uses lookahead or lookbehind/],
    ["(a)\\1", /uses a back reference/],
    ["(?<x>a)\\k<x>", /uses a back reference/],
    ["(?:){99999999999999}", /is too long once its repetitions are written out/],
    ["(?:){0,99999999999999}", /is too long once its repetitions are written out/],
    ["(?:){99999999999999,}", /is too long once its repetitions are written out/],
    [`(?:){${"9".repeat(400)}}`, /is too long once its repetitions are written out/],
    ["(?:a{0}){99999999999999}", /is too long once its repetitions are written out/],
    ["a{3000}", /is too long once its repetitions are written out/],
    ["((a{100}){100}){100}", /is too long/],
    ["a".repeat(1001), /has more than 1000 characters/],
  ])("have an error that says why: %s", (source, message) => {
    expect(linearPattern(source)).toMatch(message);
  });
});

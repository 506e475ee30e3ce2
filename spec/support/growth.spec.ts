import { expect, it } from "vitest";
import { counted, growth, LINEAR } from "./growth.ts";
import { regexpSteps } from "./regexp_steps.ts";
import { linear, quadratic } from "./growth_planted.ts";

const planted = () => counted(() => import("./growth_planted.ts"));

it.each(Object.keys(linear))("growth says that %s is linear, and twice the same", async (name) => {
  const work = (await planted()).linear[name]!;
  const found = growth(work, 100);
  expect(found).toBeGreaterThan(5);
  expect(found).toBeLessThan(LINEAR);
  for (let i = 0; i < 300; i++) work(100);
  expect(growth(work, 100)).toBe(found);
});

it.each(Object.keys(quadratic))("growth says that %s is quadratic, and twice the same", async (name) => {
  const work = (await planted()).quadratic[name]!;
  const found = growth(work, 100);
  expect(found).toBeGreaterThan(40);
  expect(growth(work, 100)).toBe(found);
});

it("growth ends with an error for an exponential regular expression", async () => {
  const { exponential } = await planted();
  expect(() => growth(exponential, 8)).toThrow("takes more than 20000000 steps");
});

it("growth refuses code that was loaded before blocks are counted", async () => {
  expect(() => growth(linear["a loop"]!, 10)).toThrow("loads with `counted`");
  await planted();
  expect(() => growth(() => {}, 10)).toThrow("no code was executed that was loaded with `counted`");
});

it("the built-in functions are as before once the steps are counted", async () => {
  const { exec } = RegExp.prototype;
  const work = (await planted()).linear["one join"]!;
  expect(growth(work, 10)).toBeLessThan(LINEAR);
  const failing = (size: number) => {
    if (size > 10) throw new Error("work fails");
    work(size);
  };
  expect(() => growth(failing, 10)).toThrow("work fails");
  expect(RegExp.prototype.exec).toBe(exec);
});

it.each([
  [/b/, "aaa", 4],
  [/^a/, "baa", 5],
  [/a{2}b?$/, "aa", 6],
  [/(?:ab|a)c/, "ac", 5],
  [/a(?=b)/, "ab", 3],
  [/(?<=[x\d])\u0061/, "1a", 5],
  [/(?:a|)*b/, "ab", 13],
  [/(?<name>a)+?/, "aa", 2],
  [/./u, "\u{1f600}", 1],
])("the steps of %s over %j are counted as a backtracking engine takes them", (pattern, text, expected) => {
  expect(regexpSteps(pattern, text)).toBe(expected);
});

it("a regular expression with a back reference is refused", () => {
  expect(() => regexpSteps(/(a)\1/, "aa")).toThrow("cannot be counted");
});

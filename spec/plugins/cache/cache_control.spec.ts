import { describe, expect, it } from "vitest";
import { deltaSeconds, directives, fieldNames } from "../../../lib/plugins/cache/cache_control.ts";
import { counted, growth, LINEAR } from "../../support/growth.ts";

describe("directives", () => {
  it.each<[readonly string[], Record<string, string | null>]>([
    [["max-age=60, Public"], { "max-age": "60", public: null }],
    [["a", "b=1"], { a: null, b: "1" }],
    [['private="X-A, x-b" , no-store'], { private: "X-A, x-b", "no-store": null }],
    [['a="say \\"no-store\\"", b'], { a: 'say "no-store"', b: null }],
    [["a=1, a=1"], { a: "1" }],
    [["a=1, a=2"], { a: "1,2" }],
    [['no-cache="x", no-cache'], { "no-cache": null }],
    [[",, a ,,"], { a: null }],
    [["max-age = 5, b"], { "max-age": null, b: null }],
    [['a="open, no-store'], { a: "", "no-store": null }],
    [[""], {}],
    [["=1, b"], { b: null }],
  ])("have the expected values in %j", (lines, expected) => {
    expect(
      Object.fromEntries(
        directives(
          lines.flatMap((line) => ["Cache-Control", line]),
          "cache-control",
        ),
      ),
    ).toEqual(expected);
  });

  it("directives are parsed in a time that grows linearly with their length", async () => {
    const control = await counted(() => import("../../../lib/plugins/cache/cache_control.ts"));
    for (const [start, part] of [
      ["", " "],
      ["", ","],
      ["", '"'],
      ['a="', "\\"],
      ["", "a="],
      ["", 'a="'],
    ] as const) {
      const parse = (size: number) =>
        control.directives(["Cache-Control", start + part.repeat(size / part.length)], "cache-control");
      expect(growth(parse, 1_000), part).toBeLessThan(LINEAR);
    }
  });
});

describe("numbers and names", () => {
  it("numbers are read as digits only, with 2^31 as the largest number of seconds", () => {
    expect(["0", "60", "007", "99999999999"].map(deltaSeconds)).toEqual([0, 60, 7, 2 ** 31]);
    expect(["", "-1", "1.5", "1e3", " 1", null].map(deltaSeconds)).toEqual([NaN, NaN, NaN, NaN, NaN, NaN]);
  });

  it("names are read from comma-separated lists, in lower case", () => {
    expect(fieldNames(" X-A,,x-b ")).toEqual(["x-a", "x-b"]);
  });
});

import { describe, expect, test } from "vitest";
import { changesOf } from "./changes.ts";
import { reasonOf } from "./equivalent.ts";
import { specsOf, type Reach } from "./reach.ts";

const changed = (text: string) => {
  return changesOf("a.ts", text).map(({ start, end, after }) => text.slice(0, start) + after + text.slice(end));
};

describe("changesOf", () => {
  test("swaps comparisons and joints, also over a comment", () => {
    expect(changed("f(a < b);")).toContain("f(a <= b);");
    expect(changed("f(a /* not > */ >= b);")).toContain("f(a /* not > */ > b);");
    expect(changed("f(a === b && c);")).toEqual(expect.arrayContaining(["f(a !== b && c);", "f(a === b || c);", ";"]));
    expect(changed("const a = b + c - d;")).toEqual(["const a = b - c - d;", "const a = b + c + d;"]);
  });

  test("moves constants by one, and turns those that are true or false", () => {
    expect(changed("const a = 0x10;")).toEqual(["const a = 17;"]);
    expect(changed("const a = true;")).toEqual(["const a = false;"]);
    expect(changed('const a = "1"; const b = 1.5;')).toEqual([]);
  });

  test("negates conditions", () => {
    expect(changed("if (a) b; else c;")).toEqual(["if (!(a)) b; else c;"]);
    expect(changed("const a = b ? c : d;")).toEqual(["const a = !(b) ? c : d;"]);
    expect(changed("while (a) b;")).toEqual(["while (!(a)) b;"]);
  });

  test("removes calls and assignments, but not what a class needs to begin", () => {
    expect(changed("void a();")).toEqual([";"]);
    expect(changed("await a();")).toEqual([";"]);
    expect(changed("a = b;")).toEqual([";"]);
    expect(changed("a++;")).toEqual([";"]);
    expect(changed("class A extends B { constructor() { super(); } }")).toEqual([]);
  });

  test("leaves types and imports alone", () => {
    expect(changed('import a from "a" with { type: "json" }; type B = 1 | true; let c: 2;')).toEqual([]);
    expect(changed("const a = 1 as 1;")).toEqual(["const a = 2 as 1;"]);
  });

  test("says in which line", () => {
    expect(changesOf("a.ts", "// é 💡\nconst a = 1;")).toMatchObject([{ line: 2, before: "1", after: "2" }]);
  });

  test("says of a text that cannot be parsed in which file it is", () => {
    expect(() => changesOf("a.ts", "if (")).toThrow(/^a\.ts: /);
  });
});

describe("specsOf", () => {
  const spec = (name: string, functions: number[]) => ({ spec: name, milliseconds: 1, functions });
  const reach: Reach = {
    functions: [
      { file: "a.ts", start: 10, end: 100 },
      { file: "a.ts", start: 20, end: 30 },
      { file: "b.ts", start: 0, end: 100 },
    ],
    specs: [spec("wide", [0, 1, 2]), spec("outer", [0, 2]), spec("inner", [1]), spec("other", [2])],
    leftOut: [],
  };
  const names = (file: string, start: number) => specsOf(reach, file, start).map((each) => each.spec);

  test("those that reach the innermost function, nearest first", () => {
    expect(names("a.ts", 20)).toEqual(["inner", "wide"]);
    expect(names("a.ts", 30)).toEqual(["outer", "wide"]);
  });

  test("of a place outside of functions, those that reach its file", () => {
    expect(names("a.ts", 5)).toEqual(["inner", "outer", "wide"]);
    expect(names("c.ts", 5)).toEqual([]);
  });
});

test("a change is looked at anew where its line has been edited", () => {
  const text = "const kept = 1;\n";
  const [change] = changesOf("lib/none.ts", text);
  expect(reasonOf(change!, text)).toBeNull();
});

import { describe, expect, it } from "vitest";
import { readJson } from "../../lib/json_schema/read_json.ts";
import { random } from "../support/random.ts";

function whole(bytes: Buffer) {
  const reading = readJson(bytes);
  for (let pauses = 0; ; pauses++) {
    const { done, value } = reading.next();
    if (done === true) return { pauses, read: value };
  }
}

const read = (text: string) => whole(Buffer.from(text)).read;

describe("readJson", () => {
  it("reads every value as JSON.parse does", () => {
    const from = random(5);
    const value = (depth: number): unknown => {
      if (depth === 0 || from.pick([true, false]))
        return from.pick([null, true, 0, -1.5e3, "", 'a"\\/{}[],:é😀\u0000', "\\\\"]);
      if (from.pick([true, false])) return from.list(0, 4, () => value(depth - 1));
      return Object.fromEntries(
        from.list(0, 4, () => [from.pick(["a", "b", '"', "\\", "{", "__proto__", "é", ""]), value(depth - 1)]),
      );
    };
    for (let i = 0; i < 500; i++) {
      const made = value(5);
      expect(read(JSON.stringify(made, null, from.pick([0, 2])))).toEqual({ value: JSON.parse(JSON.stringify(made)) });
    }
  });

  it.each([
    "",
    " ",
    "{",
    "{a:1}",
    "{'a':1}",
    "[1,]",
    "01",
    "NaN",
    "1 2",
    "\ufeff{}",
    "// x\n1",
    '"\n"',
    '"\\ud800',
    "nul",
  ])("refuses %j, which is not JSON", (text) => {
    expect(read(text)).toEqual({ at: "", problem: "is not JSON" });
  });

  it("refuses invalid UTF-8", () => {
    expect(whole(Buffer.from([0x22, 0xff, 0x22])).read).toEqual({ at: "", problem: "is not encoded in UTF-8" });
  });

  it.each([
    ['{"a":1,"a":2}', "/a"],
    ['{"a":1,"\\u0061":2}', "/a"],
    ['[0,{"x":{"b/c":[],"b/c":{}}}]', "/1/x/b~1c"],
    ['{"a":{"k":1},"b":{"k":1,"k":1}}', "/b/k"],
    ['{"\\"":1,"\\u0022":2}', '/"'],
    ['{"a\\\\":1,"a\\\\":2}', "/a\\"],
    ['{"__proto__":1,"__proto__":2}', "/__proto__"],
  ])("refuses a duplicate key: %s", (text, at) => {
    expect(read(text)).toEqual({ at, problem: "is a duplicate key" });
  });

  it.each([
    '{"a":"a","b":"a"}',
    '[{"a":1},{"a":1}]',
    '{"a":{"a":{"a":1}}}',
    '{"a":["a","a"],"A":"a"}',
    '{"x":"\\\\","y":"x"}',
  ])("accepts the same text in other places: %s", (text) => {
    expect(read(text)).toEqual({ value: JSON.parse(text) });
  });

  it("pauses every 64 KiB, with the same result", () => {
    const value = Array.from({ length: 20_000 }, (_, i) => ({ id: i, text: '"{[' }));
    const { pauses, read } = whole(Buffer.from(JSON.stringify(value)));
    expect(pauses).toBe(Math.floor(JSON.stringify(value).length / 65_536));
    expect(read).toEqual({ value });
    expect(whole(Buffer.from("[1]")).pauses).toBe(0);
  });

  it("accepts a hundred levels of nesting, and does not crash for a million brackets", () => {
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
    expect(read(nested(100))).toHaveProperty("value");
    expect(read(nested(101))).toEqual({ at: "", problem: "is nested deeper than 100 levels" });
    expect(read(nested(500_000))).toEqual({ at: "", problem: "is nested deeper than 100 levels" });
    expect(read("[".repeat(1_000_000))).toEqual({ at: "", problem: "is not JSON" });
  });
});

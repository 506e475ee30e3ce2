import { describe, expect, it } from "vitest";
import { changeJson, dropJson, putJson, readJson, startOf } from "../../../lib/manager/assets/edit_json.ts";
import type { JsonPath } from "../../../lib/manager/assets/json_text.ts";
import { counted, growth, LINEAR } from "../../support/growth.ts";
import { random, type Random } from "../../support/random.ts";

const NAMES = [
  "name",
  "routes",
  "a b",
  "",
  '"',
  "\\",
  "__proto__",
  "constructor",
  "}",
  "[",
  "ключ",
  "\u2028",
  "<img>",
  ",",
];
const PLAIN = [
  null,
  true,
  false,
  0,
  -1.5,
  1e21,
  "",
  "text",
  '"quoted"',
  "back\\slash",
  "line\nfeed",
  "[{,}]",
  "日本",
  "\uFEFF",
];

function anyValue(r: Random, depth: number): unknown {
  const kind = depth === 0 ? 0 : r.int(0, 2);
  if (kind === 0) return r.pick(PLAIN);
  if (kind === 1) return r.list(0, 3, () => anyValue(r, depth - 1));
  return Object.fromEntries(r.list(0, 3, () => [r.pick(NAMES), anyValue(r, depth - 1)]));
}

/** With any white space that JSON allows, and escapes where none is needed. */
function anyText(r: Random, value: unknown, spaces: readonly string[]): string {
  const space = () => r.pick(spaces);
  const escaped = (each: string) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const written = (each: string) =>
    each.length > 1 || r.chance(0.5) ? JSON.stringify(each).slice(1, -1) : escaped(each);
  const text = (of: string) => (r.chance(0.2) ? `"${[...of].map(written).join("")}"` : JSON.stringify(of));
  if (typeof value === "string") return text(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const items = Array.isArray(value)
    ? value.map((item) => `${space()}${anyText(r, item, spaces)}${space()}`)
    : Object.entries(value).map(
        ([key, item]) => `${space()}${text(key)}${space()}:${space()}${anyText(r, item, spaces)}${space()}`,
      );
  return `${open}${items.length === 0 ? space() : items.join(",")}${close}`;
}

/** A place in the value, or a new one. */
function anyPath(r: Random, value: unknown): JsonPath {
  if (typeof value !== "object" || value === null || r.chance(0.2)) return [];
  if (Array.isArray(value)) {
    const i = r.int(0, value.length);
    return i === value.length ? [i, ...newPath(r)] : [i, ...anyPath(r, value[i])];
  }
  const names = Object.keys(value);
  const name = r.pick([...names, r.pick(NAMES)]);
  return names.includes(name) ? [name, ...anyPath(r, (value as Record<string, unknown>)[name])] : [name, ...newPath(r)];
}

function newPath(r: Random): JsonPath {
  return r.list(0, 2, () => (r.chance(0.5) ? 0 : r.pick(NAMES)));
}

/** What the document is to be, without the text. */
function intended(value: unknown, [step, ...rest]: JsonPath, put: unknown): unknown {
  if (step === undefined) return put;
  if (typeof step === "number") {
    const copy = [...((value ?? []) as unknown[])];
    copy[step] = intended(copy[step], rest, put);
    return copy;
  }
  const members = new Map(Object.entries((value ?? {}) as object));
  members.set(step, intended(members.get(step), rest, put));
  return Object.fromEntries(members);
}

describe("an edit of a JSON text", () => {
  it(
    "gives the intended value and keeps every byte outside of what it has written, " +
      "whatever the document looks like",
    () => {
      for (let seed = 0; seed < 4000; seed++) {
        const r = random(seed);
        const spaces = r.pick([[""], ["", " "], ["", " ", "\n", "\r\n", "\t", "\r", "  \n  "], ["\n    "], ["\r\n\t"]]);
        const value = anyValue(r, 4);
        const text = `${r.chance(0.1) ? "\uFEFF" : ""}${r.pick(spaces)}${anyText(r, value, spaces)}${r.pick(spaces)}`;
        const path = anyPath(r, value);
        const put = anyValue(r, 2);
        const edit = putJson(text, path, put);
        expect(readJson(edit.text), `seed ${seed}`).toEqual(intended(value, path, put));
        const kept = text.length - (edit.text.length - (edit.end - edit.start));
        expect(edit.text.slice(0, edit.start), `seed ${seed}`).toBe(text.slice(0, edit.start));
        expect(edit.text.slice(edit.end), `seed ${seed}`).toBe(text.slice(edit.start + kept));
      }
    },
  );

  it("refuses a place inside of a plain value, behind the end of a list, and a name in a list, and says so", () => {
    for (const path of [["a", "b"], ["list", 5], ["list", "x"], [0]] as JsonPath[]) {
      expect(() => putJson('{"a": 1, "list": [1]}', path, 0)).toThrow(/There is no place for/);
    }
  });

  it("refuses a text with an error, a comment, equal names, and one that is nested too deeply for the gateway", () => {
    for (const text of [
      "",
      "{",
      '{"a": 1,}',
      '{"a": 1} x',
      '// a\n{"a": 1}',
      '{"a": 1, "a": 2}',
      `${"[".repeat(101)}${"]".repeat(101)}`,
    ]) {
      expect(() => putJson(text, ["a"], 3), text).toThrow(/The text has an error/);
    }
  });

  it("takes time in proportion to the text", async () => {
    const fresh = await counted(() => import("../../../lib/manager/assets/edit_json.ts"));
    const texts = new Map(
      [100, 800].map((size) => [
        size,
        JSON.stringify(
          { services: Array.from({ length: size }, (_, i) => ({ name: `s${i}`, note: "{[".repeat(20) })) },
          null,
          2,
        ),
      ]),
    );
    expect(
      growth((size) => void fresh.putJson(texts.get(size)!, ["services", size - 1, "routes", 0], { name: "x" }), 100),
    ).toBeLessThan(LINEAR);
  });
});

describe("what is added is written as its surroundings are", () => {
  const cases: readonly (readonly [string, string, JsonPath, unknown, string])[] = [
    ["behind siblings in lines of their own", '{\n  "a": 1\n}\n', ["b"], 2, '{\n  "a": 1,\n  "b": 2\n}\n'],
    [
      "with tabs",
      '{\n\t"a": {\n\t\t"x": 1\n\t}\n}',
      ["a", "y"],
      { z: 1 },
      '{\n\t"a": {\n\t\t"x": 1,\n\t\t"y": {\n\t\t\t"z": 1\n\t\t}\n\t}\n}',
    ],
    [
      "with the line ends of Windows",
      '{\r\n    "a": []\r\n}\r\n',
      ["a", 0],
      { x: 1 },
      '{\r\n    "a": [\r\n        {\r\n            "x": 1\r\n        }\r\n    ]\r\n}\r\n',
    ],
    [
      "in one line beside siblings in one line",
      '{\n  "r": [\n    { "n": 1 }\n  ]\n}',
      ["r", 1],
      { n: 2, m: ["GET", "POST"] },
      '{\n  "r": [\n    { "n": 1 },\n    { "n": 2, "m": ["GET", "POST"] }\n  ]\n}',
    ],
    [
      "without braces' padding where there is none",
      '{\n  "r": [\n    {"n": 1}\n  ]\n}',
      ["r", 1],
      { n: 2 },
      '{\n  "r": [\n    {"n": 1},\n    {"n": 2}\n  ]\n}',
    ],
    [
      "within one line",
      '{\n  "r": [{ "n": 1 }]\n}',
      ["r", 0, "plugins"],
      [{ name: "x" }],
      '{\n  "r": [{ "n": 1, "plugins": [{ "name": "x" }] }]\n}',
    ],
    [
      "without any space in a text that has none",
      '{"a":[{"b":1}]}',
      ["a", 1],
      { b: 2, c: [1, 2] },
      '{"a":[{"b":1},{"b":2,"c":[1,2]}]}',
    ],
    [
      "with the space around the colon",
      '{\n  "a" : 1\n}',
      ["b"],
      { c: 1 },
      '{\n  "a" : 1,\n  "b" : {\n    "c" : 1\n  }\n}',
    ],
    [
      "creating what is missing on the way",
      '{\n  "a": 1\n}',
      ["s", 0, "x"],
      1,
      '{\n  "a": 1,\n  "s": [\n    {\n      "x": 1\n    }\n  ]\n}',
    ],
    [
      "replacing a number alone",
      '{\n  "split": [{ "group": "canary",   "percent": 5 }]\n}',
      ["split", 0, "percent"],
      25,
      '{\n  "split": [{ "group": "canary",   "percent": 25 }]\n}',
    ],
    [
      "replacing an object in one line by one in one line",
      '{\n  "h": { "a": 1 }\n}',
      ["h"],
      { a: 2 },
      '{\n  "h": { "a": 2 }\n}',
    ],
  ];
  for (const [title, text, path, value, expected] of cases)
    it(title, () => expect(putJson(text, path, value).text).toBe(expected));
});

describe("a change of a JSON value", () => {
  const TEXT = '{\n  "a": { "b": 1, "c": [ 1,2, 3 ] },\n  "d":  "x"\n}\n';

  it.each<readonly [string, unknown, string]>([
    ["keeps all that both have", { a: { b: 2, c: [1, 2, 3] }, d: "x" }, TEXT.replace("1,", "2,")],
    ["removes a member between others", { a: { c: [1, 2, 3] }, d: "x" }, TEXT.replace('"b": 1, ', "")],
    ["removes the last member", { a: { b: 1 }, d: "x" }, TEXT.replace(', "c": [ 1,2, 3 ]', "")],
    ["removes an item", { a: { b: 1, c: [1, 3] }, d: "x" }, TEXT.replace(",2", "")],
    ["adds an item behind the others", { a: { b: 1, c: [1, 2, 3, 4] }, d: "x" }, TEXT.replace("3 ", "3, 4 ")],
    ["adds a member", { a: { b: 1, c: [1, 2, 3] }, d: "x", e: 5 }, TEXT.replace('"x"', '"x",\n  "e":  5')],
    ["changes nothing where nothing differs", JSON.parse(TEXT), TEXT],
  ])("%s", (_what, after, expected) => {
    expect(changeJson(TEXT, [], JSON.parse(TEXT), after)).toBe(expected);
  });

  it("gives the value that was asked for, whatever changes", () => {
    const { int, pick } = random(7);
    const value = (depth: number): unknown => {
      if (depth === 0 || int(0, 2) === 0) return pick([1, "x", null, true, [], {}]);
      const items = Array.from({ length: int(0, 4) }, () => value(depth - 1));
      return int(0, 1) === 0 ? items : Object.fromEntries(items.map((each, i) => [pick(["a", "b", "c"]) + i, each]));
    };
    for (let i = 0; i < 300; i++) {
      const [before, after] = [value(4), value(4)];
      const text = JSON.stringify({ at: before }, null, int(0, 3));
      expect(JSON.parse(changeJson(text, ["at"], before, after))).toEqual({ at: after });
    }
  });

  it("removes the only member, and refuses to remove what is not there", () => {
    expect(dropJson('{ "a": [ 1 ] }', ["a", 0])).toBe('{ "a": [] }');
    expect(dropJson('{ "a": [ 1 ] }', ["a"])).toBe("{}");
    for (const path of [["b"], ["a", 3], []]) expect(() => dropJson('{"a":[1]}', path)).toThrow(RangeError);
  });

  it("is found in the text, by the value or by what is there of the way", () => {
    expect([startOf(TEXT, ["a", "b"]), startOf(TEXT, ["a", "x", "y"]), startOf(TEXT, [])]).toEqual([
      TEXT.indexOf("1"),
      TEXT.indexOf("{ "),
      0,
    ]);
  });
});

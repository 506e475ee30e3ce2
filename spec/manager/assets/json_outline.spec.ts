import { describe, expect, it } from "vitest";
import {
  OutlineReader,
  outlineOf,
  placeAt,
  textsAt,
  type JsonValue,
} from "../../../lib/manager/assets/json_outline.ts";
import { Lines } from "../../../lib/manager/assets/text_lines.ts";
import { random } from "../../support/random.ts";

/** The outline as nested data, with the text of what is no container. */
function shown(text: string, value: JsonValue): unknown {
  if (value.kind === "array") return value.items.map((item) => shown(text, item));
  if (value.kind !== "object") return value.kind === "missing" ? "?" : text.slice(value.start, value.end);
  return Object.fromEntries(value.members.map(({ key, value: own }) => [key, own === null ? null : shown(text, own)]));
}

function read(text: string) {
  const { root, faults } = outlineOf(text);
  return { root: shown(text, root), faults: faults.map(({ from, to, message }) => `${from}-${to} ${message}`) };
}

/** The place of "|" in the text. */
function at(marked: string) {
  const offset = marked.indexOf("|");
  const text = marked.replace("|", "");
  const { path, at: kind, token } = placeAt(outlineOf(text), offset);
  return [path.join("."), kind, token === null ? null : text.slice(token.start, token.end)];
}

describe("the outline of a text", () => {
  it("has all values of a valid document, and no faults", () => {
    const text = ' {"a": [1, -2.5e3, "x\\"y"], "b": {"c": null, "d": true}, "e": []}\r\n';
    expect(read(text)).toEqual({
      root: { a: ["1", "-2.5e3", '"x\\"y"'], b: { c: "null", d: "true" }, e: [] },
      faults: [],
    });
    expect(read('\uFEFF{"a":1}').faults).toEqual([]);
    // A pattern.
    expect(read('["^\\\\d+\\\\.$", "\\\\"]').faults).toEqual([]);
  });

  it("names the first error of syntax with its place, and reads on behind it", () => {
    expect(read('{"a": 1,}').faults).toEqual(["7-8 remove the trailing comma"]);
    expect(read('{"a": 1 "b": 2}')).toEqual({ root: { a: "1", b: "2" }, faults: ['8-9 expected "," or "}"'] });
    expect(read('{"a": , "b": 2}')).toEqual({ root: { a: "?", b: "2" }, faults: ["6-7 expected a value"] });
    expect(read('{"a" 1, "b": 2}').faults).toEqual(['5-6 expected ":" after the key "a"']);
    expect(read("{a: 1}")).toEqual({ root: { a: "1" }, faults: ["1-2 expected a key in double quotes"] });
    expect(read('["a, 1]\n, 2]')).toMatchObject({ faults: ["1-7 expected the closing quote of this string"] });
    expect(read('{"a": tru}').faults).toEqual(["6-9 expected a value: write strings in double quotes"]);
    expect(read('{"a": 01}').faults).toEqual(["6-8 expected a number such as 80 or -1.5e3"]);
    expect(read('["\\x"]').faults).toEqual([expect.stringMatching(/^2-3 expected a printable character/)]);
    expect(read('["\t"]').faults).toEqual([expect.stringMatching(/^2-3 expected a printable character/)]);
    expect(read('{"a": [1, 2}').faults).toEqual(['6-7 the "[" is not closed']);
    expect(read('{"a": {').faults).toEqual(['6-7 the "{" is not closed']);
    expect(read("{} x").faults).toEqual(["3-4 expected the end of the file"]);
    expect(read("").faults).toEqual(["0-1 expected a value"]);
  });

  it("refuses comments as the gateway does, and reads what is behind them", () => {
    expect(read('{ // why\n "a": 1, /* and\n more */ "b": 2 # end\n}')).toEqual({
      root: { a: "1", b: "2" },
      faults: ["2-8 JSON has no comments"],
    });
    expect(read("{ /* open").faults).toEqual(["2-9 JSON has no comments"]);
  });

  it("names every duplicate key with the line of the first one, also behind an error of syntax", () => {
    expect(read('{\n"a": 1,\n"a": 2, "b": {"a": 3},\n"a": 4,}').faults).toEqual([
      '10-13 duplicate key: the first "a" is at line 2',
      '33-36 duplicate key: the first "a" is at line 2',
      "39-40 remove the trailing comma",
    ]);
    expect(read('{"__proto__": 1, "constructor": 2}').faults).toEqual([]);
  });

  it("ends with every text, however broken or deep", () => {
    for (const text of [
      "{{",
      "{[}]",
      "[:]",
      "{:}",
      "{,,}",
      "[,]",
      "}",
      "]",
      '{"',
      "{1:{[",
      "/",
      '{"a"/',
      "\\",
      ...["[", '{"a":', "[[]"].map((part) => part.repeat(200_000)),
    ]) {
      expect(outlineOf(text).faults.length).toBeGreaterThan(0);
    }
    expect(read(`${"[".repeat(100)}${"]".repeat(100)}`).faults).toEqual([]);
    expect(read(`${"[".repeat(101)}${"]".repeat(101)}`).faults).toEqual(["100-101 nested deeper than 100 levels"]);
  });
});

describe("the outline of a text under edit", () => {
  const routes = Array.from({ length: 3000 }, (_, i) => ({ name: `r${i}`, path: `/${i}`, plugins: [{ name: "x" }] }));
  const TEXT = JSON.stringify({ services: [{ name: "shop", routes }], callers: [{ id: "a" }] }, null, 2);

  it("is what it would be of the whole text after each edit, whatever is typed or removed where", () => {
    const { next } = random(5);
    const lines = new Lines(TEXT.slice(0, 60_000));
    const reader = new OutlineReader(lines);
    const pick = (below: number) => Math.floor(next() * below);
    for (let i = 0; i < 300; i++) {
      const [from, length] = [pick(lines.length), pick(3) === 0 ? pick(40) : 0];
      const to = Math.min(from + length, lines.length);
      lines.replace(from, to, ["", "{", "}", '"', "[", "]", ",", "\n", '"a": 1,', "7", "/* ", "*/", "// x"][pick(13)]!);
      reader.edited(from);
      reader.readTo(pick(2) === 0 ? from + 100 : Infinity);
      if (i % 10 > 0) continue;
      reader.readTo(Infinity);
      const { root, faults } = outlineOf(lines.text);
      expect({ root: reader.root, faults: reader.faults }).toEqual({ root, faults });
    }
  });

  it("is what it would be of the whole text where a long line is edited behind what has been read of it", () => {
    const { next } = random(7);
    const pick = (below: number) => Math.floor(next() * below);
    const lines = new Lines(JSON.stringify(JSON.parse(TEXT)).slice(0, 30_000));
    const reader = new OutlineReader(lines);
    for (let i = 0; i < 200; i++) {
      reader.readTo(pick(lines.length));
      const from = Math.min(reader.at + 1 + pick(500), lines.length);
      const to = Math.min(from + pick(20), lines.length);
      lines.replace(from, to, ["", "{", "}", '"', ",", "\n", '"a": 1,', "7", "/* ", "*/"][pick(10)]!);
      reader.edited(from);
      if (i % 5 > 0) continue;
      reader.readTo(Infinity);
      const { root, faults } = outlineOf(lines.text);
      expect({ root: reader.root, faults: reader.faults }).toEqual({ root, faults });
      lines.replace(0, 1, "{");
      reader.edited(0);
    }
  });

  it("reads a few thousand characters after a key in the middle, and finds the place of the caret in them", () => {
    const lines = new Lines(TEXT);
    const reader = new OutlineReader(lines);
    reader.readTo(Infinity);
    const from = TEXT.indexOf('"r1500"') + 1;
    for (const typed of ["x", "{", '"', "\n"]) {
      lines.replace(from, from, typed);
      reader.edited(from);
      expect(from - reader.at).toBeLessThan(5_000);
      reader.readTo(from + 10);
      expect(reader.at - from).toBeLessThan(300);
      lines.replace(from, from + 1, "");
      reader.edited(from);
      reader.readTo(from + 10);
      expect(placeAt(reader, from).path).toEqual(["services", 0, "routes", 1500, "name"]);
    }
    expect([reader.isDone, reader.readTo(Infinity)]).toEqual([false, true]);
    expect(reader.faults).toEqual([]);
  });
});

describe("the place of the caret", () => {
  it("is a key, a value or neither, with what is written there", () => {
    expect(at('{"na|me": "x"}')).toEqual(["name", "key", '"name"']);
    expect(at('{"na|')).toEqual(["na", "key", '"na']);
    expect(at("{|}")).toEqual(["", "key", null]);
    expect(at('{"a": 1, | "b": 2}')).toEqual(["", "key", null]);
    expect(at('{"a": "x|y"}')).toEqual(["a", "value", '"xy"']);
    expect(at('{"a": |}')).toEqual(["a", "value", null]);
    expect(at('{"a":|\n "b": 1}')).toEqual(["a", null, null]);
    expect(at('{"a" |: 1}')).toEqual(["a", null, null]);
    expect(at('{"a": {"b": [{"c": t|r}]}}')).toEqual(["a.b.0.c", "value", "tr"]);
    expect(at('{"a": [|]}')).toEqual(["a", "value", null]);
    expect(at('{"a": ["x", "y|"]}')).toEqual(["a.1", "value", '"y"']);
    expect(at('{"a": {}|}')).toEqual(["a", null, null]);
    expect(at("{} |")).toEqual(["", null, null]);
    expect(at("|")).toEqual(["", "value", null]);
  });

  it("finds the texts at a path, everywhere", () => {
    const outline = outlineOf(
      '{"services": [{"name": "a", "routes": [{"name": "r\\u0031"}]}, {"name": 5}, {"name": "b"}, {}]}',
    );
    expect(textsAt(outline, "services[].name")).toEqual(["a", "b"]);
    expect(textsAt(outline, "services[].routes[].name")).toEqual(["r1"]);
    expect(textsAt(outline, "callers[].id")).toEqual([]);
  });
});

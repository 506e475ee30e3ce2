import { describe, expect, it } from "vitest";
import { inSlices } from "../../lib/base/time_slices.ts";
import { formatPath, nodeAt, nodeFrom, offsetAt, type Issue, type JsonNode } from "../../lib/config/json.ts";
import { parseJson, parseSteps } from "../../lib/config/json_parser.ts";
import { positionsIn } from "../../lib/config/positions.ts";
import { random } from "../support/random.ts";

function parsed(text: string | Buffer): JsonNode {
  const { node, issues } = parseJson(text);
  expect(issues).toEqual([]);
  return node!;
}

function plain(node: JsonNode): unknown {
  switch (node.kind) {
    case "null":
      return null;
    case "array":
      return node.items.map(plain);
    case "object":
      return Object.fromEntries([...node.members].map(([key, member]) => [key, plain(member)]));
    case "other":
      throw new Error(node.text);
    default:
      return node.value;
  }
}

function failure(text: string | Buffer): string {
  const { node, issues } = parseJson(text);
  expect(node).toBeNull();
  expect(issues).toHaveLength(1);
  const [{ position, message }] = issues as [(typeof issues)[number]];
  return `${position!.line}:${position!.column} ${message}`;
}

describe("parseJson", () => {
  it("reads what JSON.stringify writes, and reads it as JSON.parse does", () => {
    const chance = random(7);
    const text = () =>
      String.fromCodePoint(...chance.list(0, 6, () => chance.pick([9, 10, 34, 47, 92, 65, 0xe9, 0x2028, 0x1f600, 0])));
    const value = (depth: number): unknown => {
      const kind = chance.int(0, depth > 4 ? 4 : 6);
      if (kind === 0) return null;
      if (kind === 1) return chance.chance(0.5);
      if (kind === 2) return chance.int(-1000, 1000);
      if (kind === 3) return (chance.next() - 0.5) * 10 ** chance.int(-30, 30);
      if (kind === 4) return text();
      if (kind === 5) return chance.list(0, 4, () => value(depth + 1));
      return Object.fromEntries(chance.list(0, 4, () => [text(), value(depth + 1)]));
    };
    for (let i = 0; i < 500; i++) {
      const original = value(0);
      const written = JSON.stringify(original, null, chance.pick([0, 2]));
      expect(plain(parsed(written))).toEqual(JSON.parse(written));
    }
  });

  it("accepts and refuses as JSON.parse does, whatever character is put in or taken out", () => {
    const chance = random(11);
    const sample = '{"a": [1, -2.5e3, "x\\u00e9\\n"], "b": {"c": true, "d": null}}';
    for (let i = 0; i < 3000; i++) {
      const at = chance.int(0, sample.length);
      const put = chance.pick(["", ",", "}", "]", '"', "0", "-", ".", "e", "\\", " ", "\n", "x", ":", "/", "\u0001"]);
      const text = sample.slice(0, at) + put + sample.slice(at + chance.int(0, 1));
      const ours = parseJson(text);
      let theirs: unknown;
      try {
        theirs = JSON.parse(text);
      } catch {
        expect(ours.node, text).toBeNull();
        continue;
      }
      expect(plain(ours.node!), text).toEqual(theirs);
    }
  });

  it("gives line and column of every value and key, counted in characters", () => {
    const { node, positionOf } = parseJson('{\r\n  "é😀": [1,\n    "two"]\n}');
    const root = node!;
    expect(positionOf(root.offset)).toEqual({ line: 1, column: 1 });
    expect(positionOf(nodeAt(root, ["é😀"])!.offset)).toEqual({ line: 2, column: 9 });
    expect(positionOf(nodeAt(root, ["é😀"])!.keyOffset)).toEqual({ line: 2, column: 3 });
    expect(positionOf(nodeAt(root, ["é😀", 1])!.offset)).toEqual({ line: 3, column: 5 });
    expect(positionOf(offsetAt(root, ["é😀", 1, "deeper"]))).toEqual({ line: 3, column: 5 });
    expect(positionOf(root.keyOffset)).toBeNull();
  });

  it("finds every value of a document where its text begins, whatever is around it", () => {
    const chance = random(31);
    const text = () => String.fromCodePoint(...chance.list(0, 4, () => chance.pick([9, 34, 44, 92, 93, 65, 0x1f600])));
    const value = (depth: number): unknown => {
      if (depth > 3 || chance.chance(0.4)) return chance.pick([null, true, -2.5e3, text()]);
      const entries = chance.list(0, 4, () => [text(), value(depth + 1)] as const);
      return chance.chance(0.5) ? entries.map(([, item]) => item) : Object.fromEntries(entries);
    };
    const check = (node: JsonNode, json: string): void => {
      const opening = { null: "n", boolean: "t", number: "-", string: '"', array: "[", object: "{", other: "" };
      expect(json.startsWith(opening[node.kind], node.offset), json.slice(node.offset)).toBe(true);
      if (node.kind === "array") for (const item of node.items) check(item, json);
      if (node.kind !== "object") return;
      for (const [key, member] of node.members) {
        expect(json.startsWith(JSON.stringify(key), member.keyOffset)).toBe(true);
        check(member, json);
      }
    };
    for (let i = 0; i < 200; i++) {
      const written = `${chance.pick(["", " \n\t\r\n"])}${JSON.stringify(value(0), null, chance.pick([0, 2]))} \n`;
      check(parseJson(chance.pick(["", "\uFEFF"]) + written).node!, written);
    }
  });

  it("skips a byte order mark, in bytes and in text", () => {
    expect(plain(parsed(Buffer.from("\uFEFF[1]")))).toEqual([1]);
    expect(plain(parsed("\uFEFF[1]"))).toEqual([1]);
    const { node, positionOf } = parseJson("\uFEFF[1]");
    expect(positionOf(node!.offset)).toEqual({ line: 1, column: 1 });
  });

  it("gives line and column of the first byte that is not UTF-8", () => {
    const bytes = Buffer.concat([Buffer.from('{\n "é": "'), Buffer.from([0xe9]), Buffer.from('"\n}')]);
    expect(failure(bytes)).toBe("2:8 expected UTF-8, found bytes that are not UTF-8: save the file as UTF-8");
  });

  it(
    "finds that byte at every place, whatever is before it, " + "also the character that stands for unreadable ones",
    () => {
      const before = ["", "\n", "a\r\n", "\uFFFD", "é", "€", "😀", "\uFEFF", "x".repeat(70_000), "€".repeat(30_000)];
      for (const first of before) {
        for (const second of before) {
          for (const wrong of [[0xe9], [0x80], [0xf0, 0x9f, 0x98], [0xed, 0xa0, 0x80]]) {
            const text = `${first}\n"${second}`;
            const bytes = Buffer.concat([Buffer.from(text), Buffer.from(wrong), Buffer.from('"')]);
            const lines = text.replace(/^\uFEFF/, "").split("\n");
            expect(failure(bytes)).toMatch(`${lines.length}:${[...lines.at(-1)!].length + 1} expected UTF-8`);
          }
        }
      }
    },
  );

  it("names UTF-16 in its message", () => {
    expect(failure(Buffer.from("\uFEFF{}", "utf16le"))).toContain("found UTF-16");
  });

  it("reports every duplicate key with the position of the first, and continues", () => {
    const { node, issues } = parseJson('{"a": 1,\n "b": {"c": 1, "c": 2},\n "a": 3}');
    expect(issues).toEqual([
      { at: ["b", "c"], message: 'duplicate key: the first "c" is at 2:8', position: { line: 2, column: 16 } },
      { at: ["a"], message: 'duplicate key: the first "a" is at 1:2', position: { line: 3, column: 2 } },
    ]);
    expect(plain(node!)).toEqual({ a: 1, b: { c: 1 } });
  });

  it(
    "reports every string and key with half a surrogate pair at its position, and continues; " +
      "whole pairs are characters",
    () => {
      const { node, issues } = parseJson(
        '{"a": "x\\ud800y", "pair": "\\ud83d\\ude00",\n "\\udc00": ["\\ude00\\ud83d"]}',
      );
      const message = expect.stringMatching(/^contains half a surrogate pair: write the character itself/);
      expect(issues).toEqual([
        { at: ["a"], message, position: { line: 1, column: 7 } },
        { at: [], message, position: { line: 2, column: 2 } },
        { at: ["\udc00", 0], message, position: { line: 2, column: 13 } },
      ]);
      expect(plain(node!)).toMatchObject({ pair: "\u{1f600}" });
      expect(parseJson('["\ud800"]').issues).toHaveLength(1);
    },
  );

  it("does not accept JavaScript strings and keys with half a surrogate pair", () => {
    expect(nodeFrom("a\ud800")).toMatchObject({ kind: "other", text: "a string with half a surrogate pair" });
    expect(nodeFrom({ "\ud800": 1 })).toMatchObject({ kind: "other" });
    expect(nodeFrom({ "\u{1f600}": "\u{1f600}" })).toMatchObject({ kind: "object" });
  });

  it("treats __proto__ and constructor like any other key", () => {
    const root = parsed('{"__proto__": {"x": 1}, "constructor": 2}');
    expect(root.kind === "object" && [...root.members.keys()]).toEqual(["__proto__", "constructor"]);
    expect(nodeAt(root, ["toString"])).toBeUndefined();
  });

  it("refuses nesting beyond the limit instead of running out of stack", () => {
    expect(failure("[".repeat(100_000))).toBe("1:101 nested deeper than 100 levels");
    expect(parseJson("[".repeat(100) + "]".repeat(100)).issues).toEqual([]);
  });

  it.each([
    ["", "1:1 expected a value, found the end of the file"],
    ['{"a": 1,}', '1:8 expected a key after ",", found "}": remove the trailing comma'],
    ["[1, 2,\n]", '1:6 expected a value after ",", found "]": remove the trailing comma'],
    ["[1,,2]", '1:4 expected a value, found ","'],
    ["// x\n{}", '1:1 expected a value, found "/": JSON has no comments'],
    ["{ /* x */ }", '1:3 expected a key in double quotes, found "/": JSON has no comments'],
    ['{"a": 1 # x\n}', '1:9 expected "," or "}", found "#": JSON has no comments'],
    ["{'a': 1}", `1:2 expected a key in double quotes, found "'": JSON has only straight double quotes (")`],
    ["{\"a\": 'b'}", `1:7 expected a value, found "'": JSON has only straight double quotes (")`],
    ["{“a”: 1}", '1:2 expected a key in double quotes, found "“": JSON has only straight double quotes (")'],
    ["{port: 1}", '1:2 expected a key in double quotes, found port: write "port"'],
    ['{"a": 1\n "b": 2}', '2:2 expected "," or "}", found a string: a comma is missing before it'],
    ["[1 2]", '1:4 expected "," or "]", found a number: a comma is missing before it'],
    [
      '{"a": NaN}',
      "1:7 expected a value, found a word: write strings in double quotes; " +
        "the only words in JSON are true, false and null",
    ],
    [
      '{"a": http}',
      "1:7 expected a value, found a word: write strings in double quotes; " +
        "the only words in JSON are true, false and null",
    ],
    ['{"a" 1}', '1:6 expected ":" after the key "a", found a number'],
    ['{"a": [1}', '1:9 expected "," or "]", found "}": the "[" at 1:7 is not closed'],
    ['{"a": 1', '1:8 expected "," or "}", found the end of the file: the "{" at 1:1 is not closed'],
    ["{} {}", '1:4 expected the end of the file, found "{"'],
    ["[01]", "1:2 expected a number such as 80 or -1.5e3, found a number in another form"],
    ["[1.]", "1:2 expected a number such as 80 or -1.5e3, found a number in another form"],
    ["[0x1f]", "1:2 expected a number such as 80 or -1.5e3, found a number in another form"],
    ["[+1]", '1:2 expected a value, found "+": a number starts with a digit or a minus sign'],
    ["[.5]", '1:2 expected a value, found ".": a number starts with a digit or a minus sign'],
    ['["a\nb"]', "1:2 expected the closing quote of this string, found the end of the line"],
    ['["ab', "1:2 expected the closing quote of this string, found the end of the file"],
    ['["a\tb"]', "1:4 expected printable characters, found U+0009: write \\u0009 inside a string"],
    [
      '["a\\x"]',
      '1:4 expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX (four hexadecimal digits), found another escape',
    ],
    [
      '["\\u12g4"]',
      '1:3 expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX (four hexadecimal digits), found another escape',
    ],
    ["[\u00a01]", "1:2 expected a value, found U+00A0"],
  ])("explains %j", (text, message) => {
    expect(failure(text)).toBe(message);
  });

  it("quotes no more than the beginning of a key, in messages and paths", () => {
    const key = "k".repeat(1_000_000);
    for (const text of [`{"${key}": {"a": 1, "a": 2}}`, `{"${key}": 1, "${key}": 2}`, `{"${key}"}`, `{${key}: 1}`]) {
      const [{ at, message }] = parseJson(text).issues as [Issue];
      expect(formatPath(at).length + message.length).toBeLessThan(250);
    }
    expect(formatPath(["a", key, "b"])).toBe(`a["${"k".repeat(57)}…"].b`);
  });

  it("gives the path of the value in which the syntax is wrong", () => {
    expect(parseJson('{"services": [{"port": x}]}').issues[0]!.at).toEqual(["services", 0, "port"]);
  });
});

describe("parseSteps", () => {
  it("reads a large text in steps of a thousand values, so that others run between them", async () => {
    const items = Array.from({ length: 10_000 }, (_, i) => ({ i }));
    let steps = 0;
    const { node } = await inSlices(parseSteps(JSON.stringify(items)), () => (steps++, Promise.resolve()));
    expect(plain(node!)).toEqual(items);
    expect(steps).toBe(20);
  });

  it("makes a step of a hundred thousand characters, too, however few values they are", async () => {
    let steps = 0;
    const text = JSON.stringify(Array.from({ length: 100 }, () => "x".repeat(50_000)));
    await inSlices(parseSteps(text), () => (steps++, Promise.resolve()));
    expect(steps).toBeGreaterThan(45);
    expect(steps).toBeLessThan(55);
  });

  it("finds line and column of every offset of a text, as counting from its beginning does", () => {
    const { list, pick } = random(7);
    const pieces = ["\n", "\r\n", "\t", "a", "é", "€", "😀", "x".repeat(600), "\n".repeat(600), "😀".repeat(300)];
    const text = list(300, 300, () => pick(pieces)).join("");
    const positionOf = positionsIn(text);
    const [found, expected]: [unknown[], unknown[]] = [[], []];
    let [line, column, offset] = [1, 1, 0];
    for (const char of text) {
      found.push(positionOf(offset));
      expected.push({ line, column });
      [line, column] = char === "\n" ? [line + 1, 1] : [line, column + 1];
      offset += char.length;
    }
    expect([...found, positionOf(offset)]).toEqual([...expected, { line, column }]);
  });

  it("hands over the items of an array one by one, at their places, and keeps none of them", async () => {
    const found: unknown[] = [];
    const text = '[1,\n {"a": [2, 3]}, []]';
    const { node } = await inSlices(
      parseSteps(text, { each: (item, positionOf) => void found.push([plain(item), positionOf(item.offset)]) }),
      () => Promise.resolve(),
    );
    expect(found).toEqual([
      [1, { line: 1, column: 2 }],
      [{ a: [2, 3] }, { line: 2, column: 2 }],
      [[], { line: 2, column: 17 }],
    ]);
    expect(plain(node!)).toEqual([]);
  });

  it("gives the path of an error among items that are handed over", async () => {
    const { issues } = await inSlices(parseSteps('[{}, {"a": x}]', { each: () => {} }), () => Promise.resolve());
    expect(issues.map(({ at }) => at)).toEqual([[1, "a"]]);
  });
});

describe("nodeFrom", () => {
  it("makes the same nodes as a document, without positions", () => {
    const value = { a: [1, "x", null, true], b: {} };
    expect(plain(nodeFrom(value))).toEqual(value);
    expect(nodeFrom(value)).toMatchObject({ offset: -1, keyOffset: -1 });
  });

  it.each([
    [undefined, "undefined"],
    [NaN, "NaN"],
    [() => 1, "a function"],
    [1n, "a bigint"],
    [new Date(0), "an instance of Date"],
  ])("names %s, which JSON cannot hold", (value, text) => {
    expect(nodeFrom(value)).toMatchObject({ kind: "other", text });
  });

  it("accepts a value that contains itself", () => {
    const value: Record<string, unknown> = {};
    value["self"] = value;
    expect(nodeFrom(value).kind).toBe("object");
  });
});

describe("formatPath", () => {
  it("writes a path as an expression, with unusual keys quoted", () => {
    expect(formatPath(["services", 0, "upstreams", 1, "port"])).toBe("services[0].upstreams[1].port");
    expect(formatPath(["headers", "X-A", "a b"])).toBe('headers["X-A"]["a b"]');
    expect(formatPath([])).toBe("");
  });
});

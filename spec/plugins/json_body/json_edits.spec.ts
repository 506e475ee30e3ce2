import { describe, expect, it } from "vitest";
import type { JsonNode } from "../../../lib/config/json.ts";
import { parseJson } from "../../../lib/config/json_parser.ts";
import { BeyondEnd, editedJson, type Edit, type Pointer } from "../../../lib/plugins/json_body/json_edits.ts";
import { random, type Random } from "../../support/random.ts";

const steps = (pointer: string): Pointer =>
  pointer
    .split("/")
    .slice(1)
    .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
const remove = (at: string): Edit => ({ change: "remove", at: steps(at) });
const set = (at: string, value: string): Edit => ({ change: "set", at: steps(at), value });
const byDefault = (at: string, value: string): Edit => ({ change: "default", at: steps(at), value });
const rename = (at: string, to: string): Edit => ({ change: "rename", at: steps(at), to: steps(to) });

describe("edits of a text of JSON", () => {
  it.each<[string, string, Edit, string]>([
    ["a member is removed", '{"a":1, "b" : 2 ,"c":3}', remove("/b"), '{"a":1,"c":3}'],
    ["the last member is removed", '{ "a": 1.0, "user": "ada" }', remove("/user"), '{ "a": 1.0}'],
    ["the only member is removed", '\n{ "a": 1 }\n', remove("/a"), "\n{}\n"],
    ["an item is removed", "[1, 2, 3]", remove("/1"), "[1, 3]"],
    ["nothing is removed that is not there", '{ "a": { }, "b": [ ] }', remove("/a/x"), '{ "a": { }, "b": [ ] }'],
    ["an index has no leading zero", "[1,2]", remove("/01"), "[1,2]"],
    ["a member of a text is none", '{"a":"xyz"}', remove("/a/0"), '{"a":"xyz"}'],
    ["a value is replaced, and white space stays", '{\n  "a": 1\n}\n', set("/a", '"x"'), '{\n  "a": "x"\n}\n'],
    ["a member is added behind the others", '{"a":1}', set("/b", "[1]"), '{"a":1,"b":[1]}'],
    ["missing parents are made", "{}", set("/a/b/c", "true"), '{"a":{"b":{"c":true}}}'],
    ["a parent that is no object is replaced", '{"a":null,"b":7}', set("/a/x", "1"), '{"a":{"x":1},"b":7}'],
    ["so is an array without an index", '{"a":[1]}', set("/a/x", "1"), '{"a":{"x":1}}'],
    ["so is a text", ' "x" ', set("/a", "1"), ' {"a":1} '],
    ["- is the place behind the last item", '{"a":[1]}', set("/a/-", "2"), '{"a":[1,2]}'],
    ["- of a missing parent makes an array", "{}", set("/a/-/b", "2"), '{"a":[{"b":2}]}'],
    ["an index of a missing parent is a name", "{}", set("/a/0", "2"), '{"a":{"0":2}}'],
    ["the index behind the last item adds one", "[1]", set("/1", "2"), "[1,2]"],
    ["a default fills a gap", '{"a":{}}', byDefault("/a/b", "1"), '{"a":{"b":1}}'],
    ["a default leaves what is there, also null", '{"a": null}', byDefault("/a", "1"), '{"a": null}'],
    ["a default leaves a parent that is no object", '{"a":null}', byDefault("/a/b", "1"), '{"a":null}'],
    [
      "a member keeps its place under another name",
      '{"a":1, "b" : 2,"c":3}',
      rename("/b", "/x"),
      '{"a":1, "x" : 2,"c":3}',
    ],
    ["a new name replaces what had it", '{"a":1,"b":2,"c":3}', rename("/c", "/a"), '{"b":2,"a":3}'],
    [
      "a value moves to another place",
      '{"a":{"n":1.50},"b":2}',
      rename("/a/n", "/c/d"),
      '{"a":{},"b":2,"c":{"d":1.50}}',
    ],
    ["a value takes the place of its parent", '{"a":{"b":[1]}}', rename("/a/b", "/a"), '{"a":[1]}'],
    ["an item moves to another one", "[1,2,3]", rename("/0", "/-"), "[2,3,1]"],
    ["nothing moves that is not there", '{"b":1}', rename("/a", "/b"), '{"b":1}'],
    ["names with escapes are found", '{"a\\u002fb":1,"c~d":2}', remove("/a~1b"), '{"c~d":2}'],
    ["~01 is ~1", '{"~1":1}', remove("/~01"), "{}"],
    ["names are written as JSON", "{}", set('/a"\n', "1"), '{"a\\"\\n":1}'],
    ["the empty name is a name", '{"":{"":1}}', set("//", "2"), '{"":{"":2}}'],
    ["__proto__ is a name", "{}", set("/__proto__/a", "1"), '{"__proto__":{"a":1}}'],
    ["brackets and quotes in texts count for nothing", '{"t":"}],\\"\\\\","a":1}', remove("/a"), '{"t":"}],\\"\\\\"}'],
  ])("%s: %s", (_title, text, edit, expected) => {
    expect(editedJson(text, [edit], "throw")).toBe(expected);
  });

  it("are made one after the other", () => {
    const edits = [rename("/model", "/wanted"), remove("/user"), byDefault("/n", "1"), set("/model", '"small"')];
    expect(editedJson('{"model":"big","user":"ada","x":12345678901234567890}', edits, "throw")).toBe(
      '{"wanted":"big","x":12345678901234567890,"n":1,"model":"small"}',
    );
  });

  it("throw, or are left out, where an index is beyond the end, and change nothing else", () => {
    expect(() => editedJson("[1]", [set("/2", "0")], "throw")).toThrow(BeyondEnd);
    expect(editedJson('{"a":[1],"b":2}', [rename("/b", "/a/7"), set("/c", "3")], "skip")).toBe('{"a":[1],"b":2,"c":3}');
    expect(editedJson("[1,[2,3]]", [rename("/1/0", "/5/a"), byDefault("/1/9", "0")], "skip")).toBe("[1,[2,3]]");
  });
});

/** Values with the digits of numbers and the order of members. */
type Plain = { number: string } | { members: [string, Plain][] } | Plain[] | string | boolean | null;

function plain(node: JsonNode): Plain {
  switch (node.kind) {
    case "number":
      return { number: node.text };
    case "object":
      return { members: [...node.members].map(([key, value]) => [key, plain(value)]) };
    case "array":
      return node.items.map(plain);
    case "null":
    case "other":
      return null;
    default:
      return node.value;
  }
}

const isObject = (value: Plain | undefined): value is { members: [string, Plain][] } =>
  typeof value === "object" && value !== null && "members" in value;
const isIndex = (step: string) => /^(0|[1-9]\d*)$/.test(step);

/** As the page of the plugin says it, on values. */
function naively(root: { it: Plain }, edit: Edit): void {
  const at = (value: Plain | undefined, step: string): Plain | undefined => {
    if (isObject(value)) return value.members.find(([key]) => key === step)?.[1];
    return Array.isArray(value) && isIndex(step) ? value[Number(step)] : undefined;
  };
  const get = (pointer: Pointer) => pointer.reduce<Plain | undefined>(at, root.it);
  const write = (pointer: Pointer, value: Plain) => {
    if (pointer.length === 0) return void (root.it = value);
    const parent = get(pointer.slice(0, -1));
    const step = pointer.at(-1)!;
    if (isObject(parent)) {
      const member = parent.members.find(([key]) => key === step);
      if (member === undefined) parent.members.push([step, value]);
      else member[1] = value;
    } else if (Array.isArray(parent)) parent[step === "-" ? parent.length : Number(step)] = value;
  };
  const takeOut = (pointer: Pointer) => {
    const parent = get(pointer.slice(0, -1));
    const step = pointer.at(-1)!;
    if (isObject(parent)) parent.members = parent.members.filter(([key]) => key !== step);
    else if (Array.isArray(parent)) parent.splice(Number(step), 1);
  };
  /** False: a parent is in the way. */
  const make = (pointer: Pointer, mayReplace: boolean): boolean => {
    for (let depth = 0; depth < pointer.length; depth++) {
      const step = pointer[depth]!;
      const fits = (parent: Plain | undefined) =>
        isObject(parent) || (Array.isArray(parent) && (step === "-" || isIndex(step)));
      const before = get(pointer.slice(0, depth));
      if (!fits(before) && before !== undefined && !mayReplace) return false;
      if (!fits(before)) write(pointer.slice(0, depth), step === "-" ? [] : { members: [] });
      const parent = get(pointer.slice(0, depth));
      if (!Array.isArray(parent)) continue;
      if (step !== "-" && Number(step) > parent.length) throw new BeyondEnd(pointer);
      if (step !== "-" || depth === pointer.length - 1) continue;
      // A new item, in which the rest is made.
      const inner = { it: null as Plain };
      naively(inner, { change: "set", at: pointer.slice(depth + 1), value: '"new"' });
      parent.push(inner.it);
      return false;
    }
    return true;
  };
  const isThere = get(edit.at) !== undefined;
  if (edit.change === "remove") return isThere ? takeOut(edit.at) : undefined;
  if (edit.change === "default" && isThere) return;
  if (edit.change !== "rename") {
    if (make(edit.at, edit.change === "set")) write(edit.at, "new");
    return;
  }
  if (!isThere) return;
  const value = get(edit.at)!;
  const parent = get(edit.at.slice(0, -1));
  const key = edit.to.at(-1)!;
  if (isObject(parent) && get(edit.to.slice(0, -1)) === parent) {
    if (key !== edit.at.at(-1)) parent.members = parent.members.filter(([each]) => each !== key);
    parent.members.find(([each]) => each === edit.at.at(-1))![0] = key;
    return;
  }
  takeOut(edit.at);
  if (make(edit.to, true)) write(edit.to, value);
}

const NAMES = ["a", "b", "c/d", "e~f", "é", "0", ""];
const NUMBERS = ["0", "-0", "1.0", "1e400", "12345678901234567890", "0.1000"];

function textOf(from: Random, depth: number): string {
  const white = () => from.list(0, 1, () => from.pick([" ", "\n", "\t", "\r\n"])).join("");
  const list = (open: string, close: string, items: string[]) =>
    items.length === 0
      ? open + white() + close
      : open + items.map((each) => white() + each + white()).join(",") + close;
  const kind = depth === 0 ? from.int(0, 3) : from.int(0, 9);
  if (kind === 0) return from.pick(NUMBERS);
  if (kind === 1) return from.pick(['"x"', '"]}\\"\\\\"', '"\\u00e9"', '""']);
  if (kind <= 3) return from.pick(["true", "false", "null"]);
  if (kind <= 5)
    return list(
      "[",
      "]",
      from.list(0, 3, () => textOf(from, depth - 1)),
    );
  const names = NAMES.filter(() => from.chance(0.4));
  return list(
    "{",
    "}",
    names.map((name) => `${JSON.stringify(name)}${white()}:${white()}${textOf(from, depth - 1)}`),
  );
}

const pointer = (from: Random) => from.list(1, 3, () => from.pick([...NAMES, "0", "1", "2", "-", "01"]));

describe("edits of random texts", () => {
  const leadsInto = (to: Pointer, at: Pointer) => at.length <= to.length && at.every((step, i) => step === to[i]);
  const edit = (from: Random): Edit => {
    const at = pointer(from);
    const change = from.pick(["rename", "remove", "default", "set"] as const);
    if (change === "remove") return { change, at };
    if (change !== "rename") return { change, at, value: '"new"' };
    const to = pointer(from);
    // The configuration refuses those that move a value into itself; "-" may lead to a new item.
    return leadsInto(to, at) || to.slice(0, -1).includes("-") ? { change: "remove", at } : { change, at, to };
  };

  it("have the values, the digits and the order that plain edits of the parsed values have", () => {
    const from = random(7);
    for (let i = 0; i < 8_000; i++) {
      const text = textOf(from, 3);
      const edits = from.list(1, 4, () => edit(from));
      const root = { it: plain(parseJson(text).node!) };
      for (const each of edits) {
        const before = structuredClone(root.it);
        try {
          naively(root, each);
        } catch (error) {
          if (!(error instanceof BeyondEnd)) throw error;
          root.it = before;
        }
      }
      const edited = editedJson(text, edits, "skip");
      expect(plain(parseJson(edited).node!), `${text} with ${JSON.stringify(edits)}: ${edited}`).toEqual(root.it);
    }
  });

  it("leave every byte where there is nothing to change", () => {
    const from = random(8);
    for (let i = 0; i < 2_000; i++) {
      const text = textOf(from, 3);
      const edits: Edit[] = from.list(1, 4, () => ({ change: "remove", at: [...pointer(from), "nowhere"] }));
      expect(editedJson(text, edits, "throw")).toBe(text);
    }
  });
});

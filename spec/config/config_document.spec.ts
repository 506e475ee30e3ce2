import { describe, expect, it } from "vitest";
import { atOnce } from "../../lib/base/time_slices.ts";
import { documentSteps, type Known } from "../../lib/config/config_document.ts";
import type { JsonDocument, JsonNode, Position } from "../../lib/config/json.ts";
import { parseJson } from "../../lib/config/json_parser.ts";
import { outlineSteps, type Outline } from "../../lib/config/outline.ts";
import { random } from "../support/random.ts";

const documentOf = (text: string | Buffer, known: Known | null = null) =>
  atOnce(documentSteps(Buffer.from(text), known));
const outlineOf = (text: string, before: Outline | null = null) => atOnce(outlineSteps(Buffer.from(text), before));
const all = { has: () => true };
/** Of a text whose values all are taken over. */
const knownOf = (text: string): Known | null => {
  const outline = outlineOf(text);
  return outline && { outline, services: all };
};

interface Placed {
  readonly value: unknown;
  readonly at: Position | null;
  readonly keyAt: Position | null;
}

/** All that a document tells. */
function told({ node, issues, positionOf }: JsonDocument): { readonly issues: unknown; readonly placed: Placed[] } {
  const placed: Placed[] = [];
  const visit = (each: JsonNode) => {
    const [at, keyAt] = [positionOf(each.offset), positionOf(each.keyOffset)];
    const value = each.kind === "array" || each.kind === "object" || each.kind === "null" ? each.kind : each;
    placed.push({ value: typeof value === "string" ? value : "value" in value ? value.value : value.text, at, keyAt });
    if (each.kind === "array") each.items.forEach(visit);
    if (each.kind === "object")
      for (const [key, member] of each.members) {
        placed.push({ value: key, at: null, keyAt: null });
        visit(member);
      }
  };
  if (node !== null) visit(node);
  return { issues, placed };
}

const SERVICES = [
  '{"a": [1, "\\"]}"], "b": {}}',
  '{ "\u00e9\u{10000}": "\u{1f600}", "c":\n [true, null, -1.5e3, "\u20ac"] }',
  "{}",
  "[[]]",
  '[7, "x"]',
];
const textOf = (list: readonly string[], beside = '"x": {"\u00e4":\n[1]}, ', end = ', "y": 1') =>
  `{${beside}"services": [${list.join(" ,\n")} ]${end}}`;

describe("the document of a configuration", () => {
  it("tells what a reading of the text as a whole tells, also of texts with errors, whatever is known", () => {
    const chance = random(11);
    const marks = ["", ",", "}", "]", "{", "[", '"', "0", "\\", " ", "\n", "x", ":", "\u00e9", "\u{1f600}", "\ufeff"];
    let [read, wrong] = [0, 0];
    for (let i = 0; i < 4000; i++) {
      const before = textOf(chance.list(0, 5, () => chance.pick(SERVICES)));
      const sample = chance.chance(0.3) ? before : textOf(chance.list(0, 5, () => chance.pick(SERVICES)));
      const at = chance.int(0, sample.length);
      const text = sample.slice(0, at) + chance.pick(marks) + sample.slice(at + chance.int(0, 1));
      const whole = parseJson(Buffer.from(text));
      const expected = told(whole);
      expect(told(documentOf(text)), text).toEqual(expected);
      const outline = outlineOf(before);
      // As of a configuration that was accepted.
      const services = { has: (digest: string) => outline!.named.some((each) => each.digest === digest) };
      const known = outline !== null && parseJson(before).issues.length === 0 ? { outline, services } : null;
      expect(told(documentOf(text, known)), text).toEqual(expected);
      if (whole.issues.length === 0) read++;
      else wrong++;
    }
    expect(read).toBeGreaterThan(500);
    expect(wrong).toBeGreaterThan(500);
  });

  it.each<readonly [what: string, text: string | Buffer]>([
    ["a byte order mark", `\ufeff${textOf(SERVICES)}`],
    ["a duplicate key", '{"services": [], "x": 1, "x": 2}'],
    ["services twice", '{"services": [{}], "services": []}'],
    ["an escaped name of services", '{"\\u0073ervices": [{"a": 1}]}'],
    ["half a surrogate pair in a key", '{"\\ud800": [1]}'],
    ["half a surrogate pair in a service", '{"services": [{"a": "\\ud800"}]}'],
    ["services that are an object", '{"services": {"a": [1]}}'],
    ["no members", "{}"],
    ["a list", "[{}]"],
    ["nothing", ""],
    ["a hundred members", `{${Array.from({ length: 100 }, (_none, i) => `"k${i}": [${i}]`).join()}}`],
    ["more members", `{${Array.from({ length: 101 }, (_none, i) => `"k${i}": [${i}]`).join()}}`],
    ["services that are none", '{"services": [1, "x", null, {"a": 1}]}'],
    ["bytes that are not UTF-8 in a service", Buffer.from('{"services": [{"a": "\xff"}]}', "latin1")],
    ["bytes that are not UTF-8 in a key", Buffer.from('{"\xff": [1]}', "latin1")],
    ["UTF-16", Buffer.from('\ufeff{"a": 1}', "utf16le")],
    ["the deepest nesting", `{"services": [${"[".repeat(98)}${"]".repeat(98)}]}`],
    ["a deeper nesting", `{"services": [${"[".repeat(99)}${"]".repeat(99)}]}`],
    ["the deepest nesting beside services", `{"x": ${"[".repeat(99)}${"]".repeat(99)}}`],
    ["a deeper nesting beside services", `{"x": ${"[".repeat(100)}${"]".repeat(100)}}`],
    ["a comma too many", '{"services": [{"a": 1},]}'],
    ["a comma too many beside services", '{"services": [],}'],
    ["something behind it", '{"services": []} x'],
  ])("is as that of the text as a whole: %s", (_what, text) => {
    expect(told(documentOf(text))).toEqual(told(parseJson(Buffer.from(text))));
  });

  it("takes a text that is no bytes as it is", () => {
    const text = '{"services": [{"a": "\ud800"}]}';
    expect(told(atOnce(documentSteps(text, null)))).toEqual(told(parseJson(text)));
    expect(parseJson(text).issues).toHaveLength(1);
  });

  it("pauses among values that are as they were", () => {
    const text = textOf(Array.from({ length: 2_000 }, (_none, i) => `{"service": ${i}}`));
    const steps = documentSteps(Buffer.from(text), knownOf(text));
    let count = 0;
    while (steps.next().done !== true) count++;
    expect(count).toBeGreaterThanOrEqual(2 * Math.floor(2_000 / 64));
  });

  it("reads a value whose text is known when somebody asks for its members", () => {
    const document = documentOf(textOf([SERVICES[0]!, '{"new": 1}', SERVICES[2]!, '{"other": 7}']), {
      ...knownOf(textOf(SERVICES))!,
      services: { has: (digest) => knownOf(textOf(SERVICES))!.outline.named.some((each) => each.digest === digest) },
    });
    const services = document.node?.kind === "object" ? document.node.members.get("services") : undefined;
    const items = services?.kind === "array" ? services.items : [];
    expect(items.map(({ readSteps }) => readSteps !== undefined)).toEqual([true, false, true, false]);
    expect(items.map(({ digest }) => digest?.length)).toEqual([64, 64, 64, 64]);
    expect(document.node?.kind === "object" && document.node.members.get("x")?.readSteps !== undefined).toBe(true);
  });
});

describe("an outline", () => {
  const list = Array.from({ length: 6 }, (_none, i) => `{"service": ${i}}`);
  const before = outlineOf(textOf(list))!;
  // So a digest tells whether the text was looked at.
  const marked = { ...before, named: before.named.map((value, i) => ({ ...value, digest: `kept ${i}` })) };
  const digests = (text: string) =>
    outlineOf(text, marked)!.named.map(({ digest }) => (digest!.startsWith("kept") ? Number(digest!.slice(5)) : "new"));

  it.each<readonly [what: string, text: string, digests: readonly unknown[]]>([
    ["nothing has changed", textOf(list), [0, 1, 2, 3, 4, 5, 6]],
    ["a service has changed", textOf(list.with(2, '{"other": 2}')), [0, 1, 2, "new", 4, 5, 6]],
    ["the first has changed", textOf(list.with(0, '{"longer": [0, 0]}')), [0, "new", 2, 3, 4, 5, 6]],
    ["two have changed", textOf(list.with(1, "{}").with(4, "{}")), [0, 1, "new", 3, 4, "new", 6]],
    ["one is gone", textOf(list.toSpliced(2, 1)), [0, 1, 2, 4, 5, 6]],
    ["what is beside them has changed", textOf(list, '"x": {"other": 1}, '), ["new", 1, 2, 3, 4, 5, 6]],
    ["what is beside them is longer", textOf(list, ' "z": 12345,\n "x": {"\u00e4":\n[1]}, '), [0, 1, 2, 3, 4, 5, 6]],
  ])("neither looks through nor hashes what is where it was: %s", (_what, text, expected) => {
    expect(digests(text)).toEqual(expected);
  });

  it("goes on with what follows one that has moved", () => {
    // Those of `marked` are not the digests of their texts: by them nothing is found again.
    const [first, ...others] = outlineOf(textOf([...list.slice(3), ...list.slice(0, 3)]), before)!.named;
    expect(first!.digest).toBe(before.named[0]!.digest);
    expect(others.map(({ digest }) => before.named.findIndex((each) => each.digest === digest))).toEqual([
      4, 5, 6, 1, 2, 3,
    ]);
    const mixed = {
      ...marked,
      named: marked.named.map((value, i) => (i === 4 ? { ...value, digest: before.named[4]!.digest! } : value)),
    };
    const moved = outlineOf(textOf([...list.slice(3), ...list.slice(0, 3)]), mixed)!.named;
    expect(moved.slice(1, 4).map(({ digest }) => digest)).toEqual([before.named[4]!.digest, "kept 5", "kept 6"]);
  });

  it("does not take what merely begins as it did for what was there", () => {
    const text = textOf(['{"service": 0}x', ...list.slice(1)]);
    expect(outlineOf(text, marked)).toBeNull();
    expect(outlineOf('{"services": [{"service": 0}', marked)).toBeNull();
  });
});

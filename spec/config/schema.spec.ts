import { describe, expect, expectTypeOf, it } from "vitest";
import * as references from "../../lib/config/references.ts";
import { suggest } from "../../lib/base/suggest.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import { parseJson } from "../../lib/config/json_parser.ts";
import * as s from "../../lib/config/whole_schema.ts";

const sources = {
  references,
  suggest,
  environment: { SECRET: "hush", UPPER: "ABC", NONE: "" },
  readFile: () => "",
  folder: "/",
};

/** The value, or the issues as "path: message". */
function check(schema: s.AnySchema, value: unknown): unknown {
  const issues: s.Issue[] = [];
  const out = schema.check(nodeFrom(value), [], { issues, sources });
  expect(out === s.INVALID).toBe(issues.length > 0);
  return out === s.INVALID ? issues.map(({ at, message }) => `${s.formatPath(at)}: ${message}`) : out;
}

const show = (schema: s.AnySchema, value: unknown) => schema.show(nodeFrom(value));

describe("scalars", () => {
  it.each<[s.AnySchema, unknown, unknown]>([
    [s.integer({ min: 1, max: 65535 }), 80, 80],
    [s.integer({ min: 1, max: 65535 }), "80a", [': expected an integer 1–65535, found "80a"']],
    [s.integer({ min: 1, max: 65535 }), 0, [": expected an integer 1–65535, found 0"]],
    [s.integer({ min: 1 }), 1.5, [": expected an integer ≥ 1, found 1.5"]],
    [s.integer({ max: 3 }), null, [": expected an integer ≤ 3, found null"]],
    [s.integer(), NaN, [": expected an integer, found NaN"]],
    [s.number({ min: 0, max: 1 }), 0.5, 0.5],
    [s.number({ min: 0, max: 1 }), 2, [": expected a number 0–1, found 2"]],
    [s.percent(), 0, 0],
    [s.percent(), 33.07, 33.07],
    [s.percent(), 100, 100],
    [s.percent(), 100.01, [": expected a number 0–100 with at most two decimals, found 100.01"]],
    [s.percent(), -1, [": expected a number 0–100 with at most two decimals, found -1"]],
    [s.percent(), 0.125, [": expected a number 0–100 with at most two decimals, found 0.125"]],
    [s.percent(), "5 %", [': expected a number 0–100 with at most two decimals, found "5 %"']],
    [s.boolean(), true, true],
    [s.boolean(), "true", [': expected true or false, found "true"']],
    [s.string(), undefined, [": expected a string, found undefined"]],
    [s.string({ min: 1 }), "", [': expected a non-empty string, found ""']],
    [s.string({ max: 2 }), "abc", [': expected a string of at most 2 characters, found "abc"']],
    [s.string({ pattern: /^a+$/, hint: "a word of a" }), "b", [': expected a word of a, found "b"']],
    [s.string({ lowerCase: true }), "A.Example", "a.example"],
    [s.oneOf(["http", "https"]), "https", "https"],
    [s.oneOf(["http", "https"]), "htps", [': expected "http" or "https", found "htps": did you mean "https"?']],
    [s.oneOf([1, 2, "x"]), 3, [': expected 1, 2 or "x", found 3']],
    [s.string(), { a: 1 }, [": expected a string, found an object"]],
  ])("a scalar schema accepts a value or reports the full error (case %#)", (schema, value, result) => {
    expect(check(schema, value)).toEqual(result);
  });

  it("shortens a long value in the message", () => {
    expect(String(check(s.boolean(), "x".repeat(500))).length).toBeLessThan(120);
  });

  it("shows a huge number as it was written", () => {
    const issues: s.Issue[] = [];
    s.integer().check(parseJson("1e400").node!, [], { issues, sources });
    expect(issues[0]!.message).toBe("expected an integer, found 1e400");
  });
});

describe("references", () => {
  it("references are resolved for the code and kept for display", () => {
    expect(check(s.string(), "Bearer ${env:SECRET}")).toBe("Bearer hush");
    expect(show(s.string(), "Bearer ${env:SECRET}")).toBe("Bearer ${env:SECRET}");
  });

  it("never show a value that does not fit, not even in the remedy", () => {
    const schema = s.string({
      hint: "lower case",
      check: (text) => (text === text.toLowerCase() ? undefined : `write ${text.toLowerCase()}`),
    });
    const said = String(check(schema, "${env:UPPER}"));
    expect(said).toBe(': expected lower case, found "${env:UPPER}": the value of the reference does not fit');
    expect(String(check(schema, "ABC"))).toContain("write abc");
    expect(String(check(s.string({ min: 1 }), "${env:NONE}"))).toBe(
      ': expected a non-empty string, found "${env:NONE}": the value of the reference is empty',
    );
  });

  it("references are one issue each when the variable is not set", () => {
    expect(check(s.string(), "${env:A}-${env:B}")).toEqual([
      ": ${env:A} cannot be resolved: the environment variable A is not set",
      ": ${env:B} cannot be resolved: the environment variable B is not set",
    ]);
  });

  it("references are allowed in place of a pattern, in the JSON Schema too", () => {
    expect(s.string({ pattern: /^a$/ }).jsonSchema()).toEqual({
      type: "string",
      anyOf: [{ pattern: "^a$" }, { pattern: "\\$\\{(env|file):" }],
    });
  });
});

describe("object", () => {
  const schema = s.object({
    limit_min: s.integer({ min: 1, describe: "Requests per minute." }),
    hide_credentials: s.withDefault(s.boolean(), false),
    label: s.optional(s.string()),
    key_sha256: s.optional(s.string()),
    slug: s.derived(s.string(), ({ limit_min }) => `at-${limit_min}`),
    nested: s.withDefault(s.object({ idle_ms: s.withDefault(s.integer({ min: 1 }), 5) }), {}),
  });

  it("converts snake_case to camelCase and fills in defaults", () => {
    expect(check(schema, { limit_min: 3, key_sha256: "x" })).toEqual({
      limitMin: 3,
      hideCredentials: false,
      keySha256: "x",
      slug: "at-3",
      nested: { idleMs: 5 },
    });
  });

  it("leaves an absent optional field out", () => {
    expect(Object.keys(check(schema, { limit_min: 3 }) as object)).not.toContain("label");
  });

  it("freezes shown defaults, which other configurations show too", () => {
    const schema = s.object({ names: s.withDefault(s.array(s.object({ of: s.array(s.string()) })), [{ of: ["a"] }]) });
    const shown = show(schema, {}) as { names: { of: string[] }[] };
    expect(() => shown.names.push({ of: [] })).toThrow(TypeError);
    expect(() => shown.names[0]!.of.push("b")).toThrow(TypeError);
    expect(show(schema, {})).toEqual({ names: [{ of: ["a"] }] });
  });

  it("gives each object its own empty list when the list is left out", () => {
    const schema = s.object({ tags: s.withDefault(s.array(s.string()), []) });
    const [first, second, third] = [1, 2, 3].map(() => check(schema, {}) as { tags: string[] });
    second!.tags.push("mine");
    expect([first, second, third]).toEqual([{ tags: [] }, { tags: ["mine"] }, { tags: [] }]);
  });

  it("checks defaults that depend on nothing else once, and never those of texts, which look at their context", () => {
    let checked = 0;
    const counted = s.string({ check: () => void checked++ });
    const list = s.array(s.string());
    let lists = 0;
    const countedList = { ...list, check: ((...given) => (lists++, list.check(...given))) as typeof list.check };
    const schema = s.object({ text: s.withDefault(counted, "a"), tags: s.withDefault(countedList, []) });
    const [first, second] = [check(schema, {}), check(schema, {})];
    expect([checked, lists]).toEqual([2, 1]);
    expect([first, second]).toEqual([1, 2].map(() => ({ text: "a", tags: [] })));
  });

  it("reports an empty default that is not allowed, for each object", () => {
    const schema = s.object({ tags: s.withDefault(s.array(s.string(), { min: 1 }), []) });
    for (let i = 0; i < 3; i++) expect(check(schema, {})).toEqual(["tags: expected at least 1 item, found none"]);
  });

  it("shows snake_case with defaults, in the declared order", () => {
    expect(JSON.stringify(show(schema, { slug: "mine", limit_min: 3 }))).toBe(
      '{"limit_min":3,"hide_credentials":false,"slug":"mine","nested":{"idle_ms":5}}',
    );
  });

  it("gives code and people their own types", () => {
    expectTypeOf<s.Infer<typeof schema>>().toEqualTypeOf<{
      readonly limitMin: number;
      readonly hideCredentials: boolean;
      readonly slug: string;
      readonly nested: { readonly idleMs: number };
      readonly label?: string;
      readonly keySha256?: string;
    }>();
    expectTypeOf<{ limit_min: 3 }>().toExtend<s.InputOf<typeof schema>>();
    expectTypeOf<{ limit_min: "3" }>().not.toExtend<s.InputOf<typeof schema>>();
    expectTypeOf<{}>().not.toExtend<s.InputOf<typeof schema>>();
  });

  it("reports everything at once: unknown, missing and wrong", () => {
    expect(check(schema, { limit_minute: 3, colour: 1, label: 5, nested: { idle_ms: 0 } })).toEqual([
      'limit_minute: is not a known field; did you mean "limit_min"?',
      "colour: is not a known field (known here: limit_min, hide_credentials, label, key_sha256, slug, nested)",
      "limit_min: is required (Requests per minute.)",
      "label: expected a string, found 5",
      "nested.idle_ms: expected an integer ≥ 1, found 0",
    ]);
  });

  it(
    "takes a field that is undefined in JavaScript as absent: optional, by its default, " +
      "or missing where it is required",
    () => {
      expect(check(schema, { limit_min: 3, label: undefined, hide_credentials: undefined })).toEqual(
        check(schema, { limit_min: 3 }),
      );
      expect(check(schema, { limit_min: undefined })).toEqual(["limit_min: is required (Requests per minute.)"]);
      expect(check(s.object({}), { colour: undefined })).toEqual({});
      expect(check(s.record(s.string()), { a: undefined, b: "c" })).toEqual({ b: "c" });
      expect(check(s.array(s.string()), [undefined])).toEqual(["[0]: expected a string, found undefined"]);
    },
  );

  it("does not accept inherited names as fields", () => {
    expect(check(s.object({ a: s.optional(s.string()) }), JSON.parse('{"toString": 1, "__proto__": 2}'))).toHaveLength(
      2,
    );
  });

  it("calls refine when all fields are valid, and reports at the path of the field", () => {
    const range = s.object(
      { low: s.integer(), high: s.integer() },
      { refine: ({ low, high }, report) => void (low > high && report("is below low", "high")) },
    );
    expect(check(range, { low: 1, high: 2 })).toEqual({ low: 1, high: 2 });
    expect(check(range, { low: 3, high: 2 })).toEqual(["high: is below low"]);
    expect(check(range, { low: "3", high: 2 })).toHaveLength(1);
  });

  it("gives line and column of the unknown key, and of the object that lacks a key", () => {
    const issues: s.Issue[] = [];
    const { node, positionOf } = parseJson('{\n  "x1": 1 }');
    schema.check(node!, [], { issues, positionOf, sources });
    expect(issues.map((issue) => issue.position)).toEqual([
      { line: 2, column: 3 },
      { line: 1, column: 1 },
    ]);
  });
});

describe("collections", () => {
  const names = s.array(s.object({ name: s.string(), port: s.integer() }), { min: 1, max: 3, unique: "name" });

  it("checks every item", () => {
    expect(check(s.array(s.integer()), [1, "2", 3, false])).toEqual([
      '[1]: expected an integer, found "2"',
      "[3]: expected an integer, found false",
    ]);
  });

  it("counts its items", () => {
    expect(check(names, [])).toEqual([": expected 1–3 items, found none"]);
    expect(check(s.array(s.integer(), { min: 2 }), [1])).toEqual([": expected at least 2 items, found 1"]);
  });

  it("finds names used twice, also on items that are wrong elsewhere", () => {
    expect(
      check(names, [
        { name: "a", port: 1 },
        { name: "b", port: 1 },
        { name: "a", port: "x" },
      ]),
    ).toEqual(['[2].port: expected an integer, found "x"', '[2].name: "a" is already used by [0]']);
  });

  it("compares the values of references without showing them", () => {
    expect(
      check(names, [
        { name: "hush", port: 1 },
        { name: "${env:SECRET}", port: 1 },
      ]),
    ).toEqual(['[1].name: "${env:SECRET}" is already used by [0]']);
  });

  it("keeps the keys of a record as they are", () => {
    const headers = s.record(s.string());
    expect(check(headers, { "X-Some_Thing": "1" })).toEqual({ "X-Some_Thing": "1" });
    expect(check(headers, { "X-A": 1 })).toEqual(['["X-A"]: expected a string, found 1']);
    expect(Object.hasOwn(check(headers, JSON.parse('{"__proto__": "x"}')) as object, "__proto__")).toBe(true);
  });

  it("accepts any of several schemas, and reports the errors of the only one for this kind", () => {
    const either = s.anyOf([
      s.array(s.integer()),
      s.string({ pattern: /^\d+-\d+$/, hint: 'a range such as "200-399"' }),
    ]);
    expect(check(either, [200])).toEqual([200]);
    expect(check(either, "200-399")).toBe("200-399");
    expect(check(either, ["x"])).toEqual(['[0]: expected an integer, found "x"']);
    expect(check(either, 200)).toEqual([': expected an array or a range such as "200-399", found 200']);
  });

  it("shows the shape that fits when several are objects", () => {
    const either = s.anyOf([
      s.object({ a: s.string(), n: s.withDefault(s.integer(), 1) }),
      s.object({ b: s.string(), m: s.withDefault(s.integer(), 2) }),
    ]);
    expect(show(either, { b: "x" })).toEqual({ b: "x", m: 2 });
    expect(check(either, { c: 1 })).toEqual([": expected an object or an object, found an object"]);
  });
});

describe("jsonSchema", () => {
  it("carries ranges, defaults, descriptions and what is required", () => {
    const schema = s.object({
      port: s.integer({ min: 1, max: 65535, describe: "Backend port." }),
      mode: s.withDefault(s.oneOf(["a", "b"]), "a"),
      tags: s.optional(s.array(s.string(), { max: 2 })),
      extra: s.optional(s.record(s.boolean())),
    });
    expect(schema.jsonSchema()).toEqual({
      type: "object",
      properties: {
        port: { description: "Backend port.", type: "integer", minimum: 1, maximum: 65535 },
        mode: { enum: ["a", "b"], default: "a" },
        tags: { type: "array", items: { type: "string" }, maxItems: 2 },
        extra: { type: "object", additionalProperties: { type: "boolean" } },
      },
      required: ["port"],
      additionalProperties: false,
    });
  });

  it("contains a named schema once", () => {
    const point = s.named("Point", s.object({ x: s.integer() }));
    const definitions: Record<string, s.JsonSchema> = {};
    const schema = s.object({ a: point, b: point }).jsonSchema(definitions);
    expect(schema).toMatchObject({ properties: { a: { $ref: "#/$defs/Point" }, b: { $ref: "#/$defs/Point" } } });
    expect(definitions).toEqual({ Point: point.jsonSchema() });
  });
});

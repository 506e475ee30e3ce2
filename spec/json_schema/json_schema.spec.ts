import { describe, expect, it } from "vitest";
import { formatPath } from "../../lib/config/json.ts";
import { compileJsonSchema, Run, TooMuchWork, Work, type CompiledSchema } from "../../lib/json_schema/json_schema.ts";

function problems(schema: unknown): string[] {
  const made = compileJsonSchema(schema);
  return "check" in made ? [] : made.map(({ at, message }) => `${formatPath(at)}: ${message}`);
}

function compiled(schema: unknown): CompiledSchema {
  const made = compileJsonSchema(schema);
  if (!("check" in made)) throw new Error(problems(schema).join("\n"));
  return made;
}

function violations(schema: unknown, value: unknown, most = 50): string[] {
  const run = new Run(most, workFor(1_000_000));
  expect(compiled(schema).check(value, run)).toBeUndefined();
  return run.violations.map(({ at, message }) => `${at}: ${message}`);
}

/** The same, with a pause wherever there can be one. */
async function violationsInSlices(
  schema: unknown,
  value: unknown,
): Promise<{ readonly found: string[]; readonly pauses: number }> {
  let pauses = 0;
  const run = new Run(50, new Work(1_000_000, async () => void pauses++, 0));
  await compiled(schema).check(value, run);
  return { found: run.violations.map(({ at, message }) => `${at}: ${message}`), pauses };
}

const workFor = (steps: number) => new Work(steps, () => Promise.resolve());

const tree = {
  $ref: "#/$defs/node",
  $defs: {
    node: {
      type: "object",
      properties: { value: { type: "integer" }, children: { type: "array", items: { $ref: "#/$defs/node" } } },
      required: ["value"],
    },
  },
};

/** Schema, values that fit, values that do not. */
const CASES: readonly [schema: unknown, fits: readonly unknown[], not: readonly unknown[]][] = [
  [true, [1, null, {}], []],
  [false, [], [1, null, {}]],
  [{}, [1, "a", null, []], []],
  [{ type: "integer" }, [1, 1.0, -0, 1e3], [1.5, "1", true, null, 1e400]],
  [{ type: "number" }, [1, 1.5], ["1", null]],
  [{ type: "boolean" }, [true, false], [0, "true", null]],
  [{ type: "null" }, [null], [0, false, ""]],
  [{ type: "object" }, [{}], [[], null]],
  [{ type: "array" }, [[]], [{}, "[]"]],
  [{ type: ["string", "null"] }, ["", null], [1]],
  [
    { enum: [1, "a", null, { a: 1, b: [2] }] },
    [1, "a", null, { b: [2], a: 1 }],
    ["1", 2, {}, { a: 1, b: [3] }, [1], false],
  ],
  [{ const: 0 }, [0, -0], [false, "0", null, []]],
  [{ const: null }, [null], [Infinity, -Infinity]],
  [{ const: [1, { a: null }] }, [[1, { a: null }]], [[1], [1, {}], "1"]],
  [{ minimum: 1, maximum: 3 }, [1, 3, "0"], [0.9, 3.1]],
  [{ exclusiveMinimum: 1, exclusiveMaximum: 3 }, [2, 1.1], [1, 3]],
  [{ multipleOf: 0.1 }, [0.3, 1, 0, -0.7, 1.1, 4.35e3], [0.35, 0.05]],
  [{ multipleOf: 2 }, [4, -2, 0, 1e308], [3, 1e-300, 9007199254740991, Infinity]],
  [{ multipleOf: 1 }, [2251799813685249], [2251799813685248.5]],
  [{ multipleOf: 0.01 }, [19.99, 1234567890123.45], [1234567890123.456, 19.999, 5e-324]],
  [{ multipleOf: 1e-8 }, [12391239123, 0.0000001], [1.5e-9]],
  [{ multipleOf: 0.5 }, [1e308], [1e-308]],
  [{ minLength: 2, maxLength: 3 }, ["ab", "abc", "😀😀", "😀😀😀", 1], ["a", "abcd", "😀", "😀😀😀😀"]],
  [{ pattern: "^[a-z]+$" }, ["abc", 1], ["", "aB", "a\n"]],
  [{ pattern: "b" }, ["abc"], ["ac"]],
  [{ items: { type: "integer" } }, [[], [1, 2], "x"], [[1, "2"]]],
  [
    { prefixItems: [{ type: "integer" }, { type: "string" }], items: false },
    [[], [1], [1, "a"]],
    [["a"], [1, 2], [1, "a", 1]],
  ],
  [{ prefixItems: [{ type: "integer" }] }, [[1, "x", null]], [["x"]]],
  [{ minItems: 1, maxItems: 2 }, [[1], [1, 2], {}], [[], [1, 2, 3]]],
  [
    { uniqueItems: true },
    [[], [1, "1", true, null, [1], { a: 1 }], "aa"],
    [
      [1, 1],
      [
        { a: 1, b: 2 },
        { b: 2, a: 1 },
      ],
      [[1], [1]],
    ],
  ],
  [
    { uniqueItems: true },
    [[null, Infinity, -Infinity, "Infinity"]],
    [
      [0, -0],
      [1, 1.0],
    ],
  ],
  [{ const: JSON.parse('{"__proto__":1}') }, [JSON.parse('{"__proto__":1}')], [{}]],
  [{ $ref: "#/$defs/a", maximum: 3, $defs: { a: { type: "integer" } } }, [3], [4, 2.5]],
  [
    {
      properties: { a: { type: "integer" } },
      patternProperties: { "^a": { minimum: 3 } },
      additionalProperties: false,
    },
    [{ a: 3 }, { ab: "x" }],
    [{ a: 2 }, { a: "x" }, { ab: 2 }, { b: 1 }],
  ],
  [{ properties: JSON.parse('{"__proto__":{"type":"integer"}}') }, [{}, { a: 1 }], [JSON.parse('{"__proto__":"x"}')]],
  [{ minLength: 2 }, ["\ud83d\ud83d"], ["\ud83d\ude00", "\ud800"]],
  [{ const: "é" }, ["\u00e9"], ["e\u0301"]],
  [{ uniqueItems: false }, [[1, 1]], []],
  [{ contains: { type: "string" } }, [[1, "a"], {}], [[], [1]]],
  [
    { contains: { type: "string" }, minContains: 2, maxContains: 3 },
    [
      ["a", "b"],
      ["a", "b", "c", 1],
    ],
    [["a"], ["a", "b", "c", "d"]],
  ],
  [{ contains: { type: "string" }, minContains: 0 }, [[], [1]], []],
  [{ properties: { a: { type: "integer" } } }, [{}, { a: 1 }, { b: "x" }, []], [{ a: "1" }]],
  [{ properties: { a: true }, required: ["a", "b"] }, [{ a: 1, b: undefined }], [{}, { a: 1 }, { b: 1 }]],
  [{ required: ["constructor", "__proto__"] }, [JSON.parse('{"constructor":1,"__proto__":2}')], [{}]],
  [
    { properties: { a: true }, additionalProperties: false },
    [{}, { a: 1 }],
    [{ b: 1 }, { toString: 1 }, JSON.parse('{"__proto__":1}')],
  ],
  [{ additionalProperties: { type: "integer" } }, [{ a: 1 }], [{ a: "1" }]],
  [
    { patternProperties: { "^x-": { type: "string" } }, additionalProperties: false },
    [{ "x-a": "1" }],
    [{ "x-a": 1 }, { y: "1" }],
  ],
  [{ propertyNames: { maxLength: 2 } }, [{ ab: 1 }], [{ abc: 1 }]],
  [{ minProperties: 1, maxProperties: 2 }, [{ a: 1 }], [{}, { a: 1, b: 2, c: 3 }]],
  [{ dependentRequired: { a: ["b"] } }, [{}, { b: 1 }, { a: 1, b: 2 }], [{ a: 1 }]],
  [{ allOf: [{ minimum: 1 }, { maximum: 2 }] }, [1, 2], [0, 3]],
  [{ anyOf: [{ type: "string" }, { minimum: 2 }] }, ["a", 2], [1]],
  [{ oneOf: [{ multipleOf: 2 }, { multipleOf: 3 }] }, [2, 3], [6, 1]],
  [{ not: { type: "string" } }, [1], ["a"]],
  [{ if: { type: "string" }, then: { minLength: 1 }, else: { minimum: 0 } }, ["a", 0], ["", -1]],
  [{ if: { type: "string" }, then: { minLength: 1 } }, [1, "a"], [""]],
  [{ $ref: "#/$defs/a~1b%20c", $defs: { "a/b c": { type: "string" } } }, ["a"], [1]],
  [{ type: "object", additionalProperties: { $ref: "#" } }, [{ a: { b: {} } }], [{ a: { b: 1 } }]],
  [
    tree,
    [{ value: 1, children: [{ value: 2 }] }],
    [{ value: 1, children: [{ value: 2, children: [{ value: "3" }] }] }],
  ],
  [
    { format: "date-time" },
    [
      "2026-02-28T23:59:60Z",
      "2024-02-29t00:00:00.123+01:00",
      "2026-01-01T00:00:00.12345678901234567890z",
      "1990-12-31T15:59:60-08:00",
      1,
    ],
    [
      ...["2026-02-28T22:59:60Z", "1990-12-31T15:59:60+08:00", "2026-01-01T00:00:00.Z"],
      `2026-01-01T00:00:00.${"1".repeat(60)}Z`,
      "2026-02-29T00:00:00Z",
      "2026-01-01 00:00:00Z",
      "2026-01-01T00:00:00",
      "2026-01-01T24:00:00Z",
      "",
    ],
  ],
  [{ format: "date" }, ["2000-02-29"], ["1900-02-29", "2026-13-01", "2026-00-01", "2026-1-1", "2026-04-31"]],
  [
    { format: "time" },
    ["12:00:00Z", "12:00:00.5-08:00", "00:29:60+00:30"],
    ["12:00Z", "25:00:00Z", "12:00:00", "12:00:60Z"],
  ],
  [
    { format: "email" },
    [
      ...["a@example.com", "a.b+c@x.org", '"joe bloggs"@example.com', '"joe..b@x"@example.com', '"a\\"b"@x.org'],
      ...["a@[192.0.2.1]", "a@[IPv6:2001:db8::1]", "a@xn--bcher-kva.example"],
    ],
    [
      ...['"a"b"@x.org', '"a@x.org', "a@[192.0.2.256]", "a@[2001:db8::1]", "a@[IPv6:1]", "a@xn--x.org"],
      "a",
      "@x.org",
      "a@",
      "a..b@x.org",
      ".a@x.org",
      "a@-x.org",
      "a b@x.org",
      `${"a".repeat(65)}@x.org`,
    ],
  ],
  [
    { format: "hostname" },
    ["a", "a.example.com", "xn--e1afmkfd.xn--p1ai"],
    ["", "-a", "a-", "xn--x", "a.xn--", "a..b", "a_b", "a".repeat(64), "a."],
  ],
  [{ format: "ipv4" }, ["192.0.2.1"], ["256.0.0.1", "1.2.3", "::1", "01.2.3.4"]],
  [{ format: "ipv6" }, ["::1", "2001:db8::1"], ["1.2.3.4", ":::", "fe80::1%eth0"]],
  [
    { format: "uuid" },
    ["2EB8AA08-aa98-11ea-b4aa-73b441d16380"],
    ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638", "x"],
  ],
  [
    { format: "uri" },
    [
      ...["https://example.com/a?b#c", "urn:isbn:1", "mailto:a@b.c", "http://[2001:db8::1]:8080/", "ftp://a:b@x.org/"],
      ...["http://[v1.fe80:a]/", "file:///a/b", "ldap://[::1]/c=GB?one", "tel:+1-816", "http://x.org:99999/", "x-a:"],
    ],
    [
      ...["http://x.org/[a]", "http://a@b@x.org/", "http://[::1", "http://[1::2::3]/", "http://x.org:80a/", "a:#b#c"],
      "/a",
      "//a/b",
      "https://a b",
      "http://[",
      "a",
      "https://x/%zz",
    ],
  ],
];

describe("the verdict of a schema", () => {
  it.each(CASES.map(([schema, fits, not]) => [JSON.stringify(schema), schema, fits, not] as const))(
    "the verdict of a schema accepts and refuses values: %s",
    (_text, schema, fits, not) => {
      for (const value of fits) expect([value, violations(schema, value)]).toEqual([value, []]);
      for (const value of not) expect([value, violations(schema, value).length > 0]).toEqual([value, true]);
    },
  );

  it.each(CASES.map(([schema, fits, not]) => [JSON.stringify(schema), schema, fits, not] as const))(
    "the verdict of a schema gives the same violations when the check pauses: %s",
    async (_text, schema, fits, not) => {
      for (const value of [...fits, ...not]) {
        const { found, pauses } = await violationsInSlices(schema, value);
        expect([value, found]).toEqual([value, violations(schema, value)]);
        expect(pauses > 0).toBe(schema !== false);
      }
    },
  );
});

describe("a long check", () => {
  it.each<[string, unknown, unknown]>([
    ["items", { items: { type: "integer" } }, Array(100_000).fill(1)],
    [
      "items among forms",
      { items: { anyOf: [...Array<object>(12).fill({ type: "object" }), { type: "integer" }] } },
      Array(10_000).fill(1),
    ],
    [
      "members",
      { additionalProperties: { type: "integer" } },
      Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`k${i}`, i])),
    ],
    [
      "names",
      { propertyNames: { maxLength: 9 } },
      Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`k${i}`, i])),
    ],
    ["unique items", { uniqueItems: true }, Array.from({ length: 100_000 }, (_, i) => i)],
    ["items that it has to contain", { contains: { const: 1 }, minContains: 100_000 }, Array(100_000).fill(1)],
    ["a text under a pattern", { pattern: "^[a-z]*$" }, "a".repeat(50_000)],
    [
      "a text under a pattern of a name",
      { patternProperties: { "^[a-z]*$": true }, additionalProperties: false },
      { ["a".repeat(50_000)]: 1 },
    ],
  ])("a long check pauses at least every 50,000 steps: %s", async (what, schema, value) => {
    let last = 0;
    let longest = 0;
    let pauses = 0;
    class Counted extends Work {
      override spend(steps: number): void {
        super.spend(steps);
        last += steps;
        longest = Math.max(longest, last);
      }
    }
    const run = new Run(50, new Counted(10_000_000, async () => void (pauses++, (last = 0))));
    await compiled(schema).check(value, run);
    expect(run.violations).toEqual([]);
    expect(pauses).toBeGreaterThan(1);
    // The names of an object are gone through at once.
    expect(longest).toBeLessThan(what === "members" || what === "names" ? 110_000 : 50_000);
  });

  const many = Array.from({ length: 30_000 }, (_, i) => i);
  const wide = Object.fromEntries(many.map((i) => [`k${i}`, i]));
  const TWELVE = Array.from({ length: 12 }, (_, i) => i);
  it.each<[string, unknown, unknown]>([
    ["const", { oneOf: [...TWELVE.map((i) => ({ const: { i } })), true] }, wide],
    ["const, arrays", { oneOf: [...TWELVE.map((i) => ({ const: [i] })), true] }, many],
    ["const of the same size", { anyOf: [{ const: { ...wide, k0: 1 } }, { const: wide }] }, wide],
    ["enum", { enum: [wide, 1] }, wide],
    ["enum, arrays", { allOf: TWELVE.map(() => ({ enum: [many, 1] })) }, many],
    ["minProperties", { allOf: TWELVE.map((i) => ({ minProperties: i, maxProperties: 70_000 })) }, wide],
    ["properties", { allOf: TWELVE.map((i) => ({ properties: { [i]: true } })) }, wide],
    ["patternProperties", { allOf: TWELVE.map(() => ({ patternProperties: { x: false } })) }, wide],
    ["additionalProperties", { allOf: TWELVE.map(() => ({ additionalProperties: true })) }, wide],
    ["propertyNames", { allOf: TWELVE.map(() => ({ propertyNames: true })) }, wide],
    ["uniqueItems", { allOf: TWELVE.map(() => ({ uniqueItems: true })) }, many],
    ["uniqueItems of one huge item", { items: { uniqueItems: true } }, [[wide, many, 1]]],
    ["items", { allOf: TWELVE.map(() => ({ items: true })) }, many],
    ["prefixItems", { allOf: TWELVE.map(() => ({ prefixItems: [true] })) }, many],
    ["contains", { allOf: TWELVE.map(() => ({ contains: true })) }, many],
    ["contains that looks at all", { allOf: TWELVE.map(() => ({ contains: { const: 29_999 } })) }, many],
  ])(
    "a long check looks at 25,000 parts at most between two pauses, and lists names once: %s",
    async (_keyword, schema, value) => {
      let looks = 0;
      let most = 0;
      const listed = new Map<object, number>();
      const look = () => void (most = Math.max(most, ++looks));
      const watched = (target: any): any =>
        typeof target !== "object" || target === null
          ? target
          : new Proxy(target, {
              get(_, name) {
                if (name !== "length") look();
                return watched(target[name]);
              },
              ownKeys() {
                listed.set(target, (listed.get(target) ?? 0) + 1);
                return Reflect.ownKeys(target);
              },
            });
      const run = new Run(50, new Work(100_000_000, async () => void (looks = 0)));
      const seen = Array.isArray(value) ? value : [value];
      await compiled(Array.isArray(value) ? schema : { items: schema }).check(watched(seen), run);
      expect(run.violations).toEqual([]);
      expect(most).toBeLessThan(26_000);
      for (const times of listed.values()) expect(times).toBe(1);
    },
  );

  it("a long check ends when the pause is rejected", async () => {
    const run = new Run(50, new Work(10_000_000, () => Promise.reject(new Error("enough"))));
    await expect(compiled({ items: { type: "integer" } }).check(Array(100_000).fill(1), run)).rejects.toThrow("enough");
  });
});

describe("violations", () => {
  it("violations name the path and the expected value, never the value found", () => {
    const schema = {
      type: "object",
      properties: {
        items: {
          type: "array",
          items: {
            type: "object",
            properties: { id: { type: "integer", minimum: 1 }, "a/b~c": { const: 1 } },
            required: ["id"],
            additionalProperties: false,
          },
        },
        state: { enum: ["new", "old"] },
        name: { type: ["string", "null"], minLength: 2, pattern: "^[A-Z]" },
      },
      required: ["items", "secret"],
    };
    expect(
      violations(schema, {
        items: [{ id: "hidden" }, {}, { id: 0, "a/b~c": 2, more: 1 }, 5],
        state: "hidden",
        name: "x",
      }),
    ).toEqual([
      "/secret: is required",
      "/items/0/id: expected an integer, found a string",
      "/items/1/id: is required",
      "/items/2/id: expected at least 1",
      "/items/2/a~1b~0c: expected 1",
      "/items/2/more: is not a known property",
      "/items/3: expected an object, found a number",
      '/state: expected one of "new", "old"',
      "/name: expected at least 2 characters",
      "/name: does not match the pattern ^[A-Z]",
    ]);
  });

  it("violations state how many choices fit", () => {
    expect(violations({ anyOf: [{ type: "string" }, { type: "null" }] }, 1)).toEqual([
      ": fits none of the 2 forms that are allowed",
    ]);
    expect(violations({ oneOf: [true, true, false] }, 1)).toEqual([
      ": fits 2 of the 3 forms of which it has to fit one",
    ]);
    expect(violations({ not: {} }, 1)).toEqual([": has a form that is not allowed"]);
  });

  it("violations have a maximum number, and shortened names", () => {
    expect(violations({ items: false }, Array(1000).fill(0), 7).length).toBe(7);
    expect(violations(false, 1, 0)).toEqual([]);
    const [long] = violations({ additionalProperties: false }, { ["k".repeat(5_000)]: 1 });
    expect(long!.length).toBeLessThan(600);
  });
});

describe("the limit of the work for a value", () => {
  const work = (schema: unknown, value: unknown, left: number) =>
    new Promise((resolve) => resolve(compiled(schema).check(value, new Run(50, workFor(left)))));

  it("the limit of the work for a value stops the check of nested choices that multiply at each level", async () => {
    const doubling = {
      $ref: "#/$defs/a",
      $defs: {
        a: {
          anyOf: [
            { items: { $ref: "#/$defs/a" }, maxItems: 0 },
            { items: { $ref: "#/$defs/a" }, minItems: 5 },
            { type: "string" },
          ],
        },
      },
    };
    const both = {
      $ref: "#/$defs/a",
      $defs: { a: { oneOf: [{ items: { $ref: "#/$defs/a" } }, { items: { $ref: "#/$defs/a" } }] } },
    };
    let nested: unknown = [];
    for (let i = 0; i < 40; i++) nested = [nested];
    await expect(work(both, nested, 100_000)).rejects.toBeInstanceOf(TooMuchWork);
    await work(doubling, nested, 100_000).catch((error: unknown) => expect(error).toBeInstanceOf(TooMuchWork));
  });

  it(
    "the limit of the work for a value leaves room for comparing huge values, " + "which pauses like all work",
    async () => {
      await work({ uniqueItems: true }, [Array(600_000).fill(1), 2], 10_000_000);
      await expect(work({ uniqueItems: true }, [Array(600_000).fill(1), 2], 500_000)).rejects.toBeInstanceOf(
        TooMuchWork,
      );
      await work({ enum: [[1, [2]]] }, Array(600_000).fill(1), 100_000);
      await work({ type: "string" }, "a".repeat(20_000_000), 10_000_000);
    },
  );

  it(
    "the limit of the work for a value stops the check of long texts under a complex pattern, " +
      "and of large values that are compared",
    async () => {
      await expect(work({ pattern: "(a|b|c|[a-z]|\\w){50}!" }, "a".repeat(10_000), 100_000)).rejects.toBeInstanceOf(
        TooMuchWork,
      );
      await expect(
        work(
          { uniqueItems: true },
          Array.from({ length: 1_000 }, (_, i) => [i]),
          100,
        ),
      ).rejects.toBeInstanceOf(TooMuchWork);
    },
  );

  it.each<[string, object, unknown]>([
    ["texts that are compared", { enum: ["x"] }, "a".repeat(100_000)],
    ["texts that are compared within others", { uniqueItems: true }, [["a".repeat(100_000)], 1]],
    ["names that are compared", { enum: [{ a: 1 }] }, { ["a".repeat(100_000)]: 1 }],
    [
      "names that are gone through",
      { properties: { a: true } },
      Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`k${i}`, i])),
    ],
    [
      "names that are counted",
      { minProperties: 1 },
      Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`k${i}`, i])),
    ],
    ["numbers whose digits are divided", { items: { multipleOf: 0.5 } }, Array(300).fill(1e308)],
    ["items that are gone through", { items: true }, Array(100_000).fill(0)],
  ])("the limit of the work for a value counts more steps for long values: %s", async (_what, schema, value) => {
    await expect(work(schema, value, 5_000)).rejects.toBeInstanceOf(TooMuchWork);
    await work(schema, value, 25_000);
  });

  it("the limit of the work for a value counts a few steps for each of a thousand objects", async () => {
    await work(
      { items: { type: "object", properties: { id: { type: "integer" } } } },
      Array.from({ length: 1_000 }, (_, id) => ({ id })),
      3_100,
    );
  });
});

describe("the types that a schema states for a property", () => {
  it("the types that a schema states for a property include types from properties, through references", () => {
    const { typesOf } = compiled({
      $ref: "#/$defs/q",
      $defs: {
        q: {
          properties: { n: { $ref: "#/$defs/n" }, l: { type: "array", items: { $ref: "#/$defs/n" } } },
          additionalProperties: { type: "boolean" },
        },
        n: { type: ["integer", "null"] },
      },
    });
    expect(typesOf("n")).toEqual({ types: ["integer", "null"], itemTypes: null });
    expect(typesOf("l")).toEqual({ types: ["array"], itemTypes: ["integer", "null"] });
    expect(typesOf("x")).toEqual({ types: ["boolean"], itemTypes: null });
    expect(compiled(true).typesOf("x")).toEqual({ types: null, itemTypes: null });
  });

  it(
    "the types that a schema states for a property include types from beside a reference, " +
      "from patterns and from each of allOf, also in a circle",
    () => {
      const { typesOf } = compiled({
        $ref: "#/$defs/common",
        properties: { page: { $ref: "#/$defs/least", type: "integer" } },
        allOf: [
          { properties: { size: { allOf: [{ type: "number" }] } } },
          { patternProperties: { "^is_": { type: "boolean" } } },
        ],
        additionalProperties: { type: "array", items: { allOf: [{ type: "integer" }] } },
        $defs: { common: { properties: { all: { type: "boolean" }, self: { $ref: "#" } } }, least: { minimum: 1 } },
      });
      expect(
        ["page", "all", "size", "is_new", "self", "x"].map(typesOf).map(({ types, itemTypes }) => [types, itemTypes]),
      ).toEqual([
        [["integer"], null],
        [["boolean"], null],
        [["number"], null],
        [["boolean"], null],
        [null, null],
        [["array"], ["integer"]],
      ]);
    },
  );
});

describe("the configuration of a schema", () => {
  it.each<[unknown, RegExp]>([
    [1, /expected a schema: an object, true or false, found 1/],
    [{ tpye: "string" }, /^tpye: is not a known keyword; did you mean "type"\?/],
    [
      { properties: { a: { unevaluatedProperties: false } } },
      /^properties\.a\.unevaluatedProperties: is not a known keyword/,
    ],
    [{ type: "int" }, /^type: expected one of null, boolean, integer, number, string, array, object, found "int"/],
    [{ type: ["string", 1] }, /^type\[1\]: expected one of/],
    [{ type: [] }, /^type: expected at least one type/],
    [{ enum: [] }, /^enum: expected an array with at least one value/],
    [{ minLength: -1 }, /^minLength: expected an integer ≥ 0/],
    [{ minimum: "1" }, /^minimum: expected a number/],
    [{ multipleOf: 0 }, /^multipleOf: expected a number above 0/],
    [{ uniqueItems: 1 }, /^uniqueItems: expected true or false/],
    [{ required: "a" }, /^required: expected an array of names/],
    [{ properties: [] }, /^properties: expected an object of schemas/],
    [{ properties: { a: 1 } }, /^properties\.a: expected a schema: an object, true or false, found 1/],
    [{ items: [{}] }, /^items: expected a schema/],
    [{ prefixItems: [] }, /^prefixItems: expected an array with at least one schema/],
    [{ prefixItems: {}, items: true }, /^prefixItems: expected an array with at least one schema/],
    [{ properties: { a: true }, patternProperties: [] }, /^patternProperties: expected an object of schemas/],
    [{ contains: {}, minContains: "1" }, /^minContains: expected an integer ≥ 0/],
    [{ type: [["string"]] }, /^type\[0\]: expected one of/],
    [{ anyOf: {} }, /^anyOf: expected an array with at least one schema/],
    [{ pattern: "(" }, /^pattern: the pattern is no regular expression/],
    [{ pattern: "(?=a)" }, /^pattern: the pattern uses lookahead or lookbehind/],
    [{ patternProperties: { "(a)\\1": {} } }, /^patternProperties\["\(a\)\\\\1"\]: the pattern uses a back reference/],
    [{ format: "phone" }, /^format: expected one of date-time, date,/],
    [{ then: {} }, /"then" and "else" need an "if"/],
    [{ dependentRequired: { a: "b" } }, /^dependentRequired\.a: expected an array of names/],
    [{ $ref: "#/$defs/x" }, /^\$ref: "\$ref" leads nowhere/],
    [{ $ref: "https://example.com/schema" }, /leads nowhere/],
    [{ $ref: "#/properties/a", properties: { a: {} } }, /leads nowhere/],
    [{ $ref: "#" }, /"\$ref" leads in a circle: # refers to itself/],
    [
      { $defs: { a: { anyOf: [{ $ref: "#/$defs/b" }] }, b: { not: { $ref: "#/$defs/a" } } } },
      /leads in a circle: #\/\$defs\/a/,
    ],
    [{ $defs: { a: { type: "x" } } }, /^\$defs\.a\.type: expected one of/],
    [{ $defs: [] }, /^\$defs: expected an object of schemas/],
    [{ properties: { a: { $defs: {} } } }, /^properties\.a\.\$defs: is allowed only at the top of a schema/],
    [{ $schema: "http://json-schema.org/draft-07/schema#" }, /^\$schema: has to name draft 2020-12/],
  ])("the configuration of a schema refuses %j", (schema, message) => {
    expect(problems(schema).length).toBe(1);
    expect(problems(schema)[0]).toMatch(message);
  });

  it("the configuration of a schema accepts annotations, and reports all errors at once", () => {
    expect(
      problems({
        $schema: "https://json-schema.org/draft/2020-12/schema",
        $comment: "c",
        title: "t",
        description: "d",
        default: 1,
        examples: [1],
        deprecated: true,
        readOnly: true,
        writeOnly: false,
      }),
    ).toEqual([]);
    expect(problems({ type: "x", properties: { a: { minimum: "1" } }, foo: 1 }).length).toBe(3);
    expect(problems({ type: ["foo", "bar"], dependentRequired: { a: 1, b: 2 } }).length).toBe(4);
    expect(
      problems({ patternProperties: { "(?=a)": true, "\\1": true, "b(": true }, additionalProperties: { bogus: 1 } })
        .length,
    ).toBe(4);
    expect(problems({ then: { bogus: 1, typ: "x" }, prefixItems: [], items: { bogus: 1 } }).length).toBe(5);
  });
});

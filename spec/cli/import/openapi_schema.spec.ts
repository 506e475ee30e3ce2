import { describe, expect, it } from "vitest";
import { ImportNotes } from "../../../lib/cli/import/source_value.ts";
import { SchemaReader } from "../../../lib/cli/import/openapi_schema.ts";
import { compileJsonSchema, Run, Work } from "../../../lib/json_schema/json_schema.ts";

interface Options {
  readonly openapi?: string;
  readonly schemas?: object;
  readonly checksFormats?: boolean;
}

function converted(schema: unknown, { openapi = "3.0.3", schemas = {}, checksFormats }: Options = {}) {
  const notes = new ImportNotes();
  const reader = new SchemaReader({ openapi, components: { schemas } }, notes, checksFormats);
  const made = reader.convert(schema, []);
  return { schema: reader.whole(made, []), isExact: made.isExact, notes: notes.lines(9) };
}

/** Whether the converted schema accepts a value. */
function accepts(schema: unknown, value: unknown, options?: Parameters<typeof converted>[1]): boolean {
  const compiled = compileJsonSchema(converted(schema, options).schema);
  if (!("check" in compiled)) throw new Error(JSON.stringify(compiled));
  const run = new Run(1, new Work(100_000, () => Promise.reject(new Error("too long"))));
  void compiled.check(value, run);
  return run.violations.length === 0;
}

describe("schemas of OpenAPI as JSON Schema", () => {
  it.each([
    ["nullable types", { type: "string", minLength: 2, nullable: true }, { type: ["string", "null"], minLength: 2 }],
    [
      "nullable enumerations",
      { type: "string", enum: ["a"], nullable: true },
      { type: ["string", "null"], enum: ["a", null] },
    ],
    [
      "nullable references",
      { nullable: true, allOf: [{ type: "object" }] },
      { anyOf: [{ type: "null" }, { allOf: [{ type: "object" }] }] },
    ],
    [
      "exclusive bounds of 3.0",
      { minimum: 1, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: false },
      { exclusiveMinimum: 1, maximum: 9 },
    ],
    [
      "exclusive bounds of 3.1",
      { exclusiveMinimum: 1, exclusiveMaximum: 9 },
      { exclusiveMinimum: 1, exclusiveMaximum: 9 },
    ],
    [
      "read-only properties",
      { required: ["id", "name"], properties: { id: { readOnly: true } } },
      { properties: { id: {} }, required: ["name"] },
    ],
    ["lists of item schemas", { items: [{ type: "string" }] }, { prefixItems: [{ type: "string" }] }],
    [
      "annotations",
      {
        title: "t",
        description: "d",
        example: 1,
        discriminator: {},
        xml: {},
        "x-a": 1,
        deprecated: true,
        type: "string",
      },
      { type: "string" },
    ],
    ["formats that say how a value is stored", { type: "integer", format: "int64" }, { type: "integer" }],
    ["formats, which are annotations", { type: "string", format: "phone" }, { type: "string" }],
    [
      "names of properties that are not harmless in JavaScript",
      JSON.parse('{"properties":{"__proto__":{"type":"string"}}}'),
      JSON.parse('{"properties":{"__proto__":{"type":"string"}}}'),
    ],
  ])("carries over %s without a note", (_what, given, expected) => {
    expect(converted(given)).toEqual({ schema: expected, isExact: true, notes: [] });
  });

  it.each([
    ["a pattern that needs backtracking", { pattern: "(?=a)b" }, {}, "pattern: the pattern uses lookahead"],
    ["a pattern with a mistake", { pattern: "(" }, {}, "pattern: the pattern is no regular expression"],
    [
      "a keyword that is not supported",
      { unevaluatedProperties: false },
      {},
      'unevaluatedProperties: request_validation has no "unevaluatedProperties": it is not checked',
    ],
    ["a keyword of the wrong form", { minLength: "3" }, {}, 'minLength: "minLength" has a value of the wrong form'],
    ["a type that is none", { type: "file" }, {}, 'type: "type" has a value of the wrong form'],
    [
      "a schema that is none",
      { properties: { a: 3 } },
      { properties: { a: true } },
      "properties.a: expected a schema, found 3: every value is accepted",
    ],
    [
      "a reference to another document",
      { items: { $ref: "other.json#/a" } },
      { items: true },
      'items: "$ref" leads to nothing in this document',
    ],
    [
      "a reference to nothing",
      { items: { $ref: "#/components/schemas/%zz" } },
      { items: true },
      'items: "$ref" leads to nothing in this document',
    ],
    ["then without if", { then: { type: "string" } }, {}, undefined],
  ])("leaves out %s, and notes it", (_what, given, expected, note) => {
    const { schema, notes } = converted(given);
    expect(schema).toEqual(expected);
    expect(notes).toEqual(note === undefined ? [] : [expect.stringContaining(note)]);
  });

  it("notes an unknown format, which constrains nothing", () => {
    expect(converted({ format: "iban" }, { checksFormats: true })).toEqual({
      schema: {},
      isExact: true,
      notes: ['format: the format "iban" is unknown: it is not checked'],
    });
  });

  it("ignores what stands beside a reference in 3.0, and checks it in 3.1", () => {
    const schemas = { A: { type: "string" } };
    const beside = { $ref: "#/components/schemas/A", minLength: 3 };
    expect(accepts(beside, "ab", { schemas })).toBe(true);
    expect(accepts(beside, "ab", { schemas, openapi: "3.1.0" })).toBe(false);
    expect(
      converted({ $ref: "#/components/schemas/A", description: "d" }, { schemas, openapi: "3.1.0" }).schema,
    ).toMatchObject({ $ref: "#/$defs/A" });
  });

  it("never refuses what the document accepts because a part was left out", () => {
    const lost = { pattern: "^(?!x)" };
    expect(
      accepts(
        {
          oneOf: [
            { type: "string", ...lost },
            { type: "string", maxLength: 3 },
          ],
        },
        "xyz",
      ),
    ).toBe(true);
    expect(accepts({ oneOf: [{ type: "string", ...lost }], anyOf: [{ type: "string" }] }, 7)).toBe(false);
    expect(accepts({ not: { type: "string", ...lost } }, "xyz")).toBe(true);
    expect(accepts({ if: lost, then: { maxLength: 1 } }, "xyz")).toBe(true);
    expect(accepts({ contains: { type: "string", ...lost }, maxContains: 1 }, ["a", "x"])).toBe(true);
    expect(accepts({ patternProperties: { "^(?!x)": {} }, additionalProperties: false }, { a: 1 })).toBe(true);
    const schemas = { A: { type: "string", ...lost } };
    expect(
      accepts({ oneOf: [{ $ref: "#/components/schemas/A" }, { type: "string", maxLength: 3 }] }, "xyz", { schemas }),
    ).toBe(true);
  });

  it("keeps oneOf and not where all of their parts are carried over", () => {
    expect(accepts({ oneOf: [{ type: "string" }, { maxLength: 3 }] }, "abc")).toBe(false);
    expect(accepts({ not: { type: "string" } }, "abc")).toBe(false);
    expect(
      accepts({ type: "object", properties: { a: { pattern: "(?=a)" } }, additionalProperties: false }, { b: 1 }),
    ).toBe(false);
  });

  it("gives two definitions of one name different names", () => {
    const schemas = {
      A: { properties: { b: { $ref: "#/components/schemas/A/properties/A" }, A: { type: "integer" } } },
    };
    const { schema } = converted({ $ref: "#/components/schemas/A" }, { schemas });
    expect(Object.keys((schema as { $defs: object }).$defs).sort()).toEqual(["A", "A_2"]);
  });

  it("follows chains of thousands of references, and accepts everything below a schema that is nested too deep", () => {
    const schemas = Object.fromEntries(
      Array.from({ length: 5_000 }, (_, i) => [
        `S${i}`,
        i === 4_999 ? { type: "string" } : { properties: { n: { $ref: `#/components/schemas/S${i + 1}` } } },
      ]),
    );
    const { schema, notes } = converted({ $ref: "#/components/schemas/S0" }, { schemas });
    expect(Object.keys((schema as { $defs: object }).$defs)).toHaveLength(5_000);
    expect(notes).toEqual([]);
    let deep: object = { type: "string" };
    for (let i = 0; i < 10_000; i++) deep = { items: deep };
    expect(converted(deep).notes).toEqual([
      expect.stringContaining("the schema is nested too deep: every value is accepted"),
    ]);
  });

  it("bounds what all schemas of a document hold together, however often they are used", () => {
    const properties = Object.fromEntries(Array.from({ length: 9_000 }, (_, i) => [`p${i}`, { type: "string" }]));
    const notes = new ImportNotes();
    const reader = new SchemaReader({ openapi: "3.0.3", components: { schemas: { Wide: { properties } } } }, notes);
    const made = Array.from({ length: 20 }, (_, i) =>
      reader.whole(reader.convert({ $ref: "#/components/schemas/Wide" }, []), [`a${i}`]),
    );
    expect(made.filter((schema) => schema !== undefined)).toHaveLength(13);
    expect(notes.lines(1)).toEqual([
      "a13 and 6 more: the schema is too large: at most 20000 values each, and 250000 in all",
    ]);
  });

  it("has formats that are checked with --check-formats, and notes them without it", () => {
    const schema = { type: "string", format: "uuid" };
    expect(converted(schema, { checksFormats: true })).toEqual({ schema, isExact: true, notes: [] });
    expect(converted(schema)).toEqual({
      schema: { type: "string" },
      isExact: true,
      notes: [
        'format: "format" is an annotation: values are not checked for it, unless you import with --check-formats',
      ],
    });
  });

  it("notes values that the type next to them excludes, as YAML 1.1 makes them of NO", () => {
    expect(converted({ type: "string", enum: ["DE", false, null] }).notes).toEqual([
      'enum[1]: false is never valid, since "type" is "string": ' +
        "YAML 1.1 reads NO, on and 1.10 as false, true and 1.1: quote it, or convert as YAML 1.2",
    ]);
    expect(converted({ type: ["integer", "string"], enum: [1, "a", 2] }).notes).toEqual([]);
  });
});

describe("a read-only property that is required", () => {
  const ID = { properties: { id: { readOnly: true } } };
  const REQUIRED = { required: ["id", "name"] };
  it.each<[string, object, Options?]>([
    ["beside it", { ...ID, ...REQUIRED }],
    ["by the schema around an allOf", { ...REQUIRED, allOf: [ID] }],
    ["by one part of an allOf, of another", { allOf: [REQUIRED, ID] }],
    ["by a part of an allOf, of the schema around it", { ...ID, allOf: [REQUIRED] }],
    [
      "by a schema that is referred to",
      { allOf: [{ $ref: "#/components/schemas/R" }, ID] },
      { schemas: { R: REQUIRED } },
    ],
    [
      "by the schema around, of one that is referred to",
      { ...REQUIRED, allOf: [{ $ref: "#/components/schemas/I" }] },
      { schemas: { I: ID } },
    ],
    [
      "beside the reference (3.1)",
      { ...REQUIRED, $ref: "#/components/schemas/I" },
      { openapi: "3.1.0", schemas: { I: ID } },
    ],
    [
      "by two references behind one another",
      { allOf: [{ $ref: "#/components/schemas/A" }, ID] },
      { schemas: { A: { allOf: [{ $ref: "#/components/schemas/R" }] }, R: REQUIRED } },
    ],
    [
      "where its own schema is referred to",
      { ...REQUIRED, properties: { id: { $ref: "#/components/schemas/Id" } } },
      { schemas: { Id: { readOnly: true } } },
    ],
    ["where its own schema has parts", { ...REQUIRED, properties: { id: { allOf: [{ readOnly: true }] } } }],
    ["by the schema around a choice", { ...REQUIRED, anyOf: [ID, { properties: { kind: {} } }] }],
    ["in a choice", { ...ID, oneOf: [REQUIRED] }],
  ])("may be missing in a request: required %s", (_, schema, options) => {
    expect(accepts(schema, { name: "a" }, options)).toBe(true);
    expect(accepts(schema, { id: 1 }, options)).toBe(false);
  });

  it(
    "stays required where another schema refers to it, another property has the name, " +
      "or only another choice says so",
    () => {
      const schemas = { R: REQUIRED, Made: { allOf: [{ $ref: "#/components/schemas/R" }, ID] } };
      expect(accepts({ $ref: "#/components/schemas/R" }, { name: "a" }, { schemas })).toBe(false);
      const both = {
        properties: { made: { $ref: "#/components/schemas/Made" }, kept: { $ref: "#/components/schemas/R" } },
      };
      expect(accepts(both, { made: { name: "a" } }, { schemas })).toBe(true);
      expect(accepts(both, { kept: { name: "a" } }, { schemas })).toBe(false);
      expect(accepts({ ...REQUIRED, properties: { a: ID } }, { name: "a" })).toBe(false);
      const choices = {
        oneOf: [
          { ...ID, ...REQUIRED, maxProperties: 1 },
          { ...REQUIRED, minProperties: 2 },
        ],
      };
      expect([{ name: "a" }, { name: "a", b: 1 }].map((value) => accepts(choices, value))).toEqual([true, false]);
    },
  );

  it("is looked for in schemas that contain themselves", () => {
    const schemas = { A: { ...REQUIRED, allOf: [{ $ref: "#/components/schemas/B" }] }, B: { ...ID, anyOf: [true] } };
    const loop = { ...schemas, B: { ...schemas.B, allOf: [{ $ref: "#/components/schemas/A" }] } };
    expect(converted({ $ref: "#/components/schemas/A" }, { schemas: loop }).notes).toEqual([]);
  });
});

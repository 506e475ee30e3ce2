import { describe, expect, it } from "vitest";
import {
  fits,
  holdsSecret,
  lineOf,
  membersOf,
  nodeOf,
  schemaOf,
  unitOf,
  valueOfLine,
} from "../../../lib/manager/assets/schema_nodes.ts";
import { isWithin } from "../../../lib/manager/assets/schema_form.ts";
import type { Schema } from "../../../lib/manager/assets/schema_help.ts";
import { schemaDocument } from "../../../lib/config/json_schema_document.ts";
import { FEATURES } from "../../../lib/features/table.ts";
import { fieldsIn, loadCode } from "../../../lib/gateway/loaded_features.ts";
import { builtinPlugins } from "../../../lib/plugins/builtin.ts";

const features = await Promise.all(Object.values(FEATURES).map((load) => loadCode<object>(load)));
const ROOT = schemaDocument(builtinPlugins, fieldsIn(features)) as Schema;
const node = (schema: Schema) => nodeOf(ROOT, schema);
const text: Schema = { type: "string" };
const MATCHES: Schema = { type: "object", properties: { matches: text }, required: ["matches"] };
const NOT: Schema = { type: "object", properties: { not: text }, required: ["not"] };

/** The places of the schema for which a form has only JSON. */
function shownAsJson(schema: Schema, path: string, found: string[] = []): readonly string[] {
  const own = schemaOf(ROOT, schema);
  const shown = node(own);
  if (shown.is === "json") found.push(path);
  if (shown.is === "list" || shown.is === "map") shownAsJson(shown.item, `${path}[]`, found);
  if (shown.is === "one of") shown.schemas.forEach((each, i) => shownAsJson(each, `${path}|${i}`, found));
  if (shown.is === "object")
    for (const [name, each] of Object.entries(membersOf(own, {}).members)) shownAsJson(each, `${path}.${name}`, found);
  return found;
}

describe("what a form shows for a value", () => {
  it.each<readonly [string, Schema, object]>([
    ["a text", { type: "string", anyOf: [{ minLength: 1 }, { pattern: "x" }] }, { is: "text" }],
    ["a whole number", { type: "integer", minimum: 1 }, { is: "number", isWhole: true }],
    ["a number", { type: "number" }, { is: "number", isWhole: false }],
    ["a switch", { type: "boolean" }, { is: "switch" }],
    ["a choice", { enum: ["a", "b"] }, { is: "choice", values: ["a", "b"] }],
    ["lines", { type: "array", items: text }, { is: "lines", isNumeric: false, isText: true, isSingle: false }],
    ["lines of one or more", { anyOf: [text, { type: "array", items: text }] }, { is: "lines", isSingle: true }],
    [
      "lines of numbers and words",
      { type: "array", items: { anyOf: [{ enum: ["reset"] }, { type: "integer" }] } },
      { is: "lines", isNumeric: true, isText: false },
    ],
    [
      "a list",
      { type: "array", items: { type: "object", properties: { a: text } }, minItems: 2 },
      { is: "list", atLeast: 2 },
    ],
    ["a map", { type: "object", additionalProperties: text }, { is: "map", item: text }],
    ["an object", { type: "object", properties: { a: text } }, { is: "object" }],
    ["alternatives", { anyOf: [text, { type: "null" }] }, { is: "one of" }],
    ["JSON for what the schema leaves open", {}, { is: "json" }],
    ["JSON for an object of anything", { type: "object", additionalProperties: {} }, { is: "json" }],
  ])("is %s", (_what, schema, expected) => {
    expect(node(schema)).toMatchObject(expected);
  });

  it("is more than JSON for each setting of each built-in plugin kind, but what may be any JSON", () => {
    const kinds = ROOT.$defs!.Plugin!.allOf!.map((each) => String(each.if!.properties!.name!.const));
    expect(kinds).toHaveLength(builtinPlugins.length);
    const found = kinds.flatMap((name) => {
      const { members } = membersOf(ROOT.$defs!.Plugin!, { name });
      return shownAsJson(members.config!, name);
    });
    expect(found).toEqual(OPEN);
    // The settings of a plugin are known once its kind is.
    for (const name of ["Service", "Route", "Upstream", "Caller"])
      expect(shownAsJson(ROOT.$defs![name]!, name).filter((path) => !path.endsWith("plugins[].config"))).toEqual([]);
  });

  it("is JSON for the settings of a kind that the schema does not have", () => {
    expect(node(membersOf(ROOT.$defs!.Plugin!, { name: "of a module" }).members.config!)).toEqual({ is: "json" });
  });

  it("has the unit that its name ends with", () => {
    expect(["timeout_ms", "ttl_s", "max_bytes", "percent", "limit_min"].map(unitOf)).toEqual([
      "milliseconds",
      "seconds",
      "bytes",
      "percent",
      null,
    ]);
  });
});

describe("a value that the form cannot show", () => {
  it.each<readonly [Schema, unknown, boolean]>([
    [text, "a", true],
    [text, 7, false],
    [{ type: "integer" }, "${env:PORT}", false],
    [{ type: "boolean" }, null, false],
    [{ enum: ["a"] }, "b", false],
    [{ type: "array", items: text }, ["a", "b"], true],
    [{ type: "array", items: text }, ["two\nlines"], false],
    [{ type: "array", items: text }, [" a"], false],
    [{ type: "array", items: text }, [["a"]], false],
    [{ type: "array", items: text }, "a", false],
    [{ anyOf: [text, { type: "array", items: text }] }, "a", true],
    [{ type: "object", properties: {} }, [], false],
    [{ anyOf: [text, { type: "null" }] }, null, true],
    [{ anyOf: [text, { type: "null" }] }, 5, false],
    [{}, { any: 1 }, true],
    [{ type: "array", items: text }, ["a\rb"], false],
    // An object alone may have errors, which the gateway tells; one of several is told by its members.
    [MATCHES, { not: "x" }, true],
    [{ anyOf: [text, MATCHES] }, { not: "x" }, false],
    [{ anyOf: [text, MATCHES] }, {}, false],
    [{ anyOf: [text, MATCHES] }, { matches: "x" }, true],
    [{ anyOf: [{ anyOf: [text, MATCHES] }, NOT] }, { not: "x" }, true],
  ])("of %j is told: %j", (schema, value, expected) => {
    expect(fits(ROOT, schema, value)).toBe(expected);
  });
});

describe("a line of a list", () => {
  const MIXED = { isNumeric: true, isBoolean: true, isText: true };
  it.each<readonly [unknown, string]>([
    [5, "5"],
    ["5", '"5"'],
    [-1.5, "-1.5"],
    [true, "true"],
    ["true", '"true"'],
    ["2xx", "2xx"],
    ["null", "null"],
    ['"a"', '"\\"a\\""'],
    ["12345678901234567890", "12345678901234567890"],
  ])("is %j as %s, and is read as the same value, where texts, numbers and switches may stand", (value, line) => {
    expect(lineOf(MIXED, value)).toBe(line);
    expect(valueOfLine(MIXED, line)).toBe(value);
  });

  it("is a text where only texts may stand, and no switch where none may", () => {
    const only = { isNumeric: false, isBoolean: false, isText: true };
    expect(['"5"', "5", "true"].map((line) => valueOfLine(only, line))).toEqual(['"5"', "5", "true"]);
    const statuses = { isNumeric: true, isBoolean: false, isText: false };
    expect(["502", "reset", "true", "1e999"].map((line) => valueOfLine(statuses, line))).toEqual([
      502,
      "reset",
      "true",
      "1e999",
    ]);
  });

  it("can be a number or a switch for a claim of a token", () => {
    const { config } = membersOf(ROOT.$defs!.Plugin!, { name: "jwt" }).members;
    const { additionalProperties } = schemaOf(ROOT, membersOf(schemaOf(ROOT, config!), {}).members.claims!);
    expect(node(schemaOf(ROOT, additionalProperties as Schema))).toMatchObject({ is: "lines", ...MIXED });
  });
});

describe("a schema", () => {
  it("holds a secret where a value in it, at any depth, is one", () => {
    const { key_auth: keyAuth, cors } = Object.fromEntries(
      ["key_auth", "cors"].map((name) => [name, membersOf(ROOT.$defs!.Plugin!, { name }).members.config!]),
    );
    const { keys } = membersOf(schemaOf(ROOT, keyAuth!), {}).members;
    const secret = { type: "string", writeOnly: true };
    expect([keyAuth!, keys!, { anyOf: [text, { type: "array", items: secret }] }].map(holds)).toEqual([
      true,
      true,
      true,
    ]);
    expect([cors!, text, { $ref: "#/$defs/Upstream" }, { $ref: "#/$defs/Plugin" }].map(holds)).toEqual([
      false,
      false,
      true,
      true,
    ]);
    function holds(schema: Schema): boolean {
      return holdsSecret(ROOT, schema);
    }
  });
});

describe("an error of the gateway", () => {
  it.each<readonly [string, string, boolean]>([
    ["services[1]", "services[1]", true],
    ["services[1].routes[0]", "services[1]", true],
    ["services[10]", "services[1]", false],
    ["services[1].route", "services[1].routes", false],
    ["tests[0].name", "", true],
  ])("at %s is one of %j: %j", (path, place, expected) => {
    expect(isWithin(path, place)).toBe(expected);
  });
});

/** Schemas of messages, which are JSON Schemas themselves. */
const OPEN = [
  ...["body", "query", "headers"].map((name) => `request_validation.${name}`),
  ...["request.default", "request.set", "response.default", "response.set"].map((name) => `json_body.${name}[]`),
];

import { describe, expect, it } from "vitest";
import { completionAt } from "../../../lib/manager/assets/completion.ts";
import { outlineOf, placeAt } from "../../../lib/manager/assets/json_outline.ts";
import { helpOf, schemasAt, type Schema } from "../../../lib/manager/assets/schema_help.ts";

const kind = (name: string, config: Schema) => ({
  if: { properties: { name: { const: name } } },
  then: { properties: { config } },
});

/** In the form of GET /gateway/schema. */
const SCHEMA: Schema = {
  type: "object",
  properties: {
    services: { type: "array", items: { $ref: "#/$defs/Service" } },
    callers: {
      type: "array",
      items: {
        type: "object",
        properties: { id: { type: "string" }, groups: { type: "array", items: { type: "string" } } },
      },
    },
    expect: { type: "object", properties: { service: { anyOf: [{ type: "string" }, { type: "null" }] } } },
    loop: { $ref: "#/$defs/Loop" },
  },
  $defs: {
    Loop: { anyOf: [{ $ref: "#/$defs/Loop" }, { type: "string" }] },
    Service: {
      type: "object",
      required: ["name"],
      properties: {
        name: { description: "Its name.", type: "string", minLength: 1, maxLength: 200 },
        protocol: { description: "How it is spoken to.", enum: ["http", "h2c"], default: "http" },
        port: { type: "integer", minimum: 1, maximum: 65_535 },
        preserve_host: { type: "boolean", default: false },
        plugins: { type: "array", items: { $ref: "#/$defs/Plugin" } },
        labels: { type: "object", additionalProperties: { type: "integer" } },
      },
    },
    Plugin: {
      type: "object",
      properties: { name: { enum: ["key_auth", "rate_limit"] }, config: { type: "object", additionalProperties: {} } },
      allOf: [
        kind("key_auth", {
          description: "Requires an API key.",
          type: "object",
          properties: { key: { type: "string" } },
        }),
        kind("rate_limit", {
          description: "Limits requests.",
          type: "object",
          properties: { limit_min: { type: "integer", minimum: 1 } },
        }),
      ],
    },
  },
};

/** The suggestions at "|", and the text after the first one was accepted. */
function complete(marked: string, isAsked = false) {
  const offset = marked.indexOf("|");
  const text = marked.replace("|", "");
  const completion = completionAt(outlineOf(text), offset, SCHEMA, isAsked);
  if (completion === null) return null;
  const { insert, caret } = completion.suggestions[0]!;
  return {
    labels: completion.suggestions.map(({ label }) => label),
    details: completion.suggestions.map(({ detail }) => detail),
    text:
      `${text.slice(0, completion.from)}${insert.slice(0, caret)}|${insert.slice(caret)}` +
      `${text.slice(completion.to)}`,
  };
}

describe("completion", () => {
  it("suggests the fields that are not there yet, with what they mean, and adds an empty value", () => {
    expect(complete('{"services": [{"name": "a", "p|"}]}')).toEqual({
      labels: ["protocol", "port", "preserve_host", "plugins"],
      details: ["How it is spoken to.", "integer from 1 to 65,535", "boolean · default false", "array"],
      text: '{"services": [{"name": "a", "protocol": "|"}]}',
    });
    expect(complete('{"services": [{"pl|"}]}')?.text).toBe('{"services": [{"plugins": [|]}]}');
    expect(complete('{"services": [{"por|"}]}')?.text).toBe('{"services": [{"port": |}]}');
  });

  it("replaces only the name of a field that has a value, and finds names that contain what is typed", () => {
    expect(complete('{"services": [{"rot|": "http"}]}')).toMatchObject({
      labels: ["protocol"],
      text: '{"services": [{"protocol"|: "http"}]}',
    });
  });

  it("suggests nothing that nobody asked for, and nothing once a name is complete", () => {
    expect(complete('{"services": [{|}]}')).toBeNull();
    expect(complete('{"services": [{|}]}', true)?.labels).toContain("name");
    expect(complete('{"services": [{"port|": 1}]}')).toBeNull();
    expect(complete('{"services": [{"nothing of this|"}]}')).toBeNull();
    expect(complete('{"services": [{"name": |"a"}], "x": {}|}')).toBeNull();
  });

  it("suggests the values of an enumeration, of a boolean, and the default", () => {
    expect(complete('{"services": [{"protocol": "|"}]}')).toMatchObject({
      labels: ["http", "h2c"],
      details: ["default", ""],
      text: '{"services": [{"protocol": "http"|}]}',
    });
    expect(complete('{"services": [{"preserve_host": t|}]}')).toMatchObject({
      labels: ["true"],
      text: '{"services": [{"preserve_host": true|}]}',
    });
    expect(complete('{"services": [{"preserve_host": |}]}', true)?.labels).toEqual(["true", "false"]);
    expect(complete('{"services": |}', true)?.text).toBe('{"services": [|]}');
  });

  it("suggests kinds of plugins, and the fields of the kind that is written before or behind", () => {
    expect(complete('{"services": [{"plugins": [{"name": "r|"}]}]}')).toMatchObject({
      labels: ["rate_limit"],
      details: ["Limits requests."],
    });
    expect(complete('{"services": [{"plugins": [{"name": "rate_limit", "config": {"|"}}]}]}')?.labels).toEqual([
      "limit_min",
    ]);
    expect(complete('{"services": [{"plugins": [{"config": {"|"}, "name": "key_auth"}]}]}')?.labels).toEqual(["key"]);
    expect(complete('{"services": [{"plugins": [{"config": {"|"}, "name": "other"}]}]}')).toBeNull();
  });

  it("suggests names that the text defines", () => {
    expect(complete('{"services": [{"name": "a"}, {"name": "b"}], "expect": {"service": "|"}}')?.labels).toEqual([
      "a",
      "b",
      "null",
    ]);
    expect(complete('{"callers": [{"id": "x", "groups": ["gold", "g|"]}]}')?.labels).toEqual(["gold", "g"]);
    expect(complete('{"services": [{"name": "a"}], "nowhere": {"service": "|"}}')).toBeNull();
  });

  it("ends with a schema that refers to itself", () => {
    expect(complete('{"loop": "|"}')).toBeNull();
  });
});

describe("help", () => {
  const help = (marked: string) => {
    const outline = outlineOf(marked.replace("|", ""));
    const { path, values } = placeAt(outline, marked.indexOf("|"));
    return helpOf(schemasAt(SCHEMA, outline, { path, values }), false);
  };

  it("says what a field means, its type, its bounds and its default", () => {
    expect(help('{"services": [{"na|me": "a"}]}')).toEqual({
      description: "Its name.",
      facts: "string from 1 to 200 characters",
    });
    expect(help('{"services": [{"protocol": "ht|tp"}]}')).toEqual({
      description: "How it is spoken to.",
      facts: 'one of "http", "h2c" · default "http"',
    });
    expect(help('{"services": [{"plugins": [{"name": "key_auth", "con|fig": {}}]}]}')).toEqual({
      description: "Requires an API key.",
      facts: "object",
    });
    expect(help('{"services": [{"labels": {"any": |5}}]}').facts).toBe("integer");
    expect(help('{"toString|": 1}')).toEqual({ description: "", facts: "" });
  });
});

/**
 * The common part of all schemas: checking and error reports.
 */
import { addIssue, describeNode, type Json, type JsonNode, type Path } from "./json.ts";
import type { AnySchema, CheckContext, Described, Invalid, JsonSchema, Kind, NodeOf, Schema } from "./schema_types.ts";

export type * from "./schema_types.ts";

/** The result of `check` for a node that has been reported. */
export const INVALID: Invalid = Symbol("invalid") as Invalid;

/** In place of a secret. Its length does not depend on the secret. */
export const MASK = "********";

/**
 * Secrets that look like a template that nobody has filled in: `$NAME`, `${NAME}`, `{{NAME}}`, `<NAME>`, `%NAME%`,
 * "changeme".
 */
export const UNFILLED = /^(?:\$\w+|\$\{[^{}]*\}|\{\{[^{}]*\}\}|<[^<>]+>|%\w+%|change[-_ ]?(?:me|it|this))$/i;

interface Definition<K extends Kind, Out> extends Described {
  readonly expects: string;
  readonly kinds: readonly K[];
  readonly secret?: boolean;
  /** Called with nodes of these kinds only; others are reported as a mismatch. */
  check(node: NodeOf<K>, at: Path, context: CheckContext): Out | Invalid;
  /** Default: the value as written. */
  show?(node: NodeOf<K>, lists?: CheckContext["lists"]): Json;
  jsonSchema(definitions?: Record<string, JsonSchema>): JsonSchema;
}

export function define<K extends Kind, Out, In>(definition: Definition<K, Out>): Schema<Out, In> {
  const { expects, describe, kinds, secret = false } = definition;
  const fits = (node: JsonNode): node is NodeOf<K> => (kinds as readonly Kind[]).includes(node.kind);
  const show = definition.show ?? ((node) => ("value" in node ? node.value : null));
  return {
    expects,
    describe,
    kinds,
    secret,
    check: (node, at, context) =>
      fits(node) ? definition.check(node, at, context) : mismatch({ expects, secret }, node, at, context),
    show: (node, lists) => (fits(node) ? show(node, lists) : null),
    jsonSchema: (definitions) => ({
      ...(describe !== undefined && { description: describe }),
      ...definition.jsonSchema(definitions),
    }),
  };
}

/** The same schema, which a JSON Schema document contains once, under `$defs`, even if it is used several times. */
export function named<S extends AnySchema>(name: string, schema: S): S {
  return {
    ...schema,
    jsonSchema(definitions?: Record<string, JsonSchema>) {
      if (definitions === undefined) return schema.jsonSchema();
      if (definitions[name] === undefined) {
        definitions[name] = {}; // ends the recursion of a schema that contains itself
        definitions[name] = schema.jsonSchema(definitions);
      }
      return { $ref: `#/$defs/${name}` };
    },
  };
}

/** Reports an issue at a node. */
export function report(context: CheckContext, at: Path, node: JsonNode, message: string): Invalid {
  return reportAt(context, at, node.offset, message);
}

/** The same for a place that is not the beginning of a value, such as a key. `message`: made only if it is listed. */
export function reportAt(context: CheckContext, at: Path, offset: number, message: string | (() => string)): Invalid {
  const text = () => (typeof message === "string" ? message : message());
  addIssue(context.issues, () => ({ at, message: text(), position: context.positionOf?.(offset) ?? null }));
  return INVALID;
}

/** Reports that a node does not match the schema; `help` is the remedy. */
export function mismatch(
  schema: Pick<AnySchema, "expects" | "secret">,
  node: JsonNode,
  at: Path,
  context: CheckContext,
  help?: string,
): Invalid {
  return report(
    context,
    at,
    node,
    `expected ${schema.expects}, found ${describeNode(node, schema.secret)}${help ? `: ${help}` : ""}`,
  );
}

/** Records the masked form of a text. */
export function conceal(node: JsonNode, at: Path, context: CheckContext, mask: (text: string) => string): void {
  if (node.kind !== "string") return;
  const masked = mask(node.value);
  if (masked !== node.value) context.secrets?.push({ at, text: node.value, masked });
}

/** The name in code of a configured field. */
export function camel(key: string): string {
  return key.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

/** "1–3 characters", "at least 2 items" */
export function countText(min: number, max: number, unit: string): string {
  if (min > 0 && max < Infinity) return `${min}–${max} ${unit}s`;
  return min > 0 ? `at least ${min} ${unit}${min === 1 ? "" : "s"}` : `at most ${max} ${unit}${max === 1 ? "" : "s"}`;
}

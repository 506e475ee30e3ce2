/**
 * Checks the definition of a plugin kind that is not ours.
 */
import type { AnyPlugin } from "./plugin.ts";

/** Returns the error in a plugin's definition, for its author; undefined if it is valid. */
export function kindProblem(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return "a plugin is an object with name, schema and create";
  const { name, schema: own, create, takes, dials, secretParameters, ownHeaders, ...roles } = value as Partial<Record<keyof AnyPlugin, unknown>>;
  if (typeof name !== "string" || !KIND_NAME.test(name)) return `plugin name ${shown(name)}: use lower-case letters, digits and underscores`;
  const { check, show, jsonSchema } = (own ?? {}) as Partial<Record<string, unknown>>;
  if (![check, show, jsonSchema].every((part) => typeof part === "function")) return `plugin ${name}: "schema" is none: make it with schema.object({ … })`;
  if (typeof create !== "function") return `plugin ${name}: "create" is no function`;
  if (takes !== undefined && takes !== "preflights") return `plugin ${name}: "takes" is ${shown(takes)}; it may be "preflights" only`;
  for (const [field, names] of Object.entries({ secretParameters, ownHeaders })) {
    if (names !== undefined && typeof names !== "function") return `plugin ${name}: "${field}" is ${shown(names)}; it is a function that returns names`;
  }
  const { why, urls } = (dials ?? {}) as Partial<Record<string, unknown>>;
  if (dials !== undefined && (typeof why !== "string" || typeof urls !== "function")) return `plugin ${name}: "dials" is { why, urls }: a reason, and a function that returns the URLs of a configuration`;
  for (const role of ["guards", "identifies", "stores"] as const) {
    if (!["undefined", "boolean"].includes(typeof roles[role])) return `plugin ${name}: "${role}" is ${shown(roles[role])}; it is true or false`;
  }
  return roles.guards === true && roles.stores === true ? `plugin ${name}: it cannot guard and store: make two kinds of it` : undefined;
}

const KIND_NAME = /^[a-z][a-z0-9_]*$/;

function shown(value: unknown): string {
  return typeof value === "string" ? `"${value}"` : value === undefined ? "missing" : `a ${typeof value}`;
}

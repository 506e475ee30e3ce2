/**
 * What features add to the schema of a configuration: the schema has a place for each of their fields, so
 * that hints know all names, and the field's own schema is there once the feature has been loaded.
 */
import { report, type AnySchema, type Json, type Path } from "./schema.ts";
import { camel } from "./schema_core.ts";

export type Report = (message: string, ...under: Path) => void;

export interface FeatureFields {
  /** By the name of the field, as in `FeatureSchemas`. */
  readonly schemas: Readonly<Record<string, AnySchema>>;
  /** Checks an object as a whole, once each field is valid: the same, in camelCase. */
  readonly checkGlobal?: (global: any, report: Report) => void;
  readonly checkService?: (service: any, report: Report) => void;
  /** Checks the services together. */
  readonly checkServices?: (services: readonly any[], report: Report) => void;
}

interface Defaults {
  readonly [field: string]: Json | Defaults;
}

/**
 * The schema of a feature's field, as far as that has been loaded; until then an object of these `defaults` may be
 * empty. `S`: all of them.
 */
export function fieldsOf<S>(
  features: readonly FeatureFields[],
): <Name extends keyof S & string>(name: Name, defaults?: Defaults) => S[Name] {
  const schemas: Readonly<Record<string, AnySchema>> = Object.assign({}, ...features.map(({ schemas }) => schemas));
  return (name, defaults) => (schemas[name] ?? unloaded(`the field "${name}"`, defaults)) as S[typeof name];
}

export const NOT_LOADED =
  "has not been loaded: await loadPluginModules(…) before createGateway, and gateway.loadModules() before reload";

/** Stands for a schema that has not been loaded: it accepts nothing but, where there are defaults, {}. */
export function unloaded(what: string, defaults?: Defaults): AnySchema {
  const check: AnySchema["check"] = (node, at, context) =>
    defaults !== undefined && node.kind === "object" && node.members.size === 0
      ? inCode(defaults)
      : report(context, at, node, `${what} ${NOT_LOADED}`);
  return {
    expects: "an object",
    describe: undefined,
    kinds: ["object"],
    check,
    show: () => (defaults ?? {}) as Json,
    jsonSchema: () => ({}),
  };
}

function inCode(fields: Defaults): object {
  const values = Object.entries(fields).map(([key, value]) => [
    camel(key),
    Object.getPrototypeOf(value) === Object.prototype ? inCode(value as Defaults) : value,
  ]);
  return Object.fromEntries(values) as object;
}

/**
 * What parts of the program add to the schema of a configuration: the schema has a place for each of their fields, so that hints know all
 * names, and the field's own schema is there once the part has been loaded.
 */
import { report, type AnySchema, type Path } from "./schema.ts";

export type Report = (message: string, ...under: Path) => void;

export interface PartFields {
  /** By the name of the field, as in `PartSchemas`. */
  readonly schemas: Readonly<Record<string, AnySchema>>;
  /** Checks an object as a whole, once each field is valid: the same, in camelCase. */
  readonly checkGlobal?: (global: any, report: Report) => void;
  readonly checkService?: (service: any, report: Report) => void;
  /** Checks the services together. */
  readonly checkServices?: (services: readonly any[], report: Report) => void;
}

/** The schema of a part's field, as far as the part has been loaded. `S`: all of them. */
export function fieldsOf<S>(parts: readonly PartFields[]): <Name extends keyof S & string>(name: Name) => S[Name] {
  const schemas: Readonly<Record<string, AnySchema>> = Object.assign({}, ...parts.map((part) => part.schemas));
  return (name) => (schemas[name] ?? unloaded(`the field "${name}"`)) as S[typeof name];
}

export const NOT_LOADED = "has not been loaded: await loadPluginModules(…) before createGateway, and gateway.loadModules() before reload";

/** Stands for a schema that has not been loaded: it accepts nothing. */
export function unloaded(what: string): AnySchema {
  const check: AnySchema["check"] = (node, at, context) => report(context, at, node, `${what} ${NOT_LOADED}`);
  return { expects: "an object", describe: undefined, kinds: ["object"], check, show: () => ({}), jsonSchema: () => ({}) };
}

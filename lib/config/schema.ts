/**
 * A small language of schemas: one description yields the validator, the defaults, the TypeScript types and the JSON
 * Schema.
 *
 *   const schema = object({
 *     key: string({ min: 1, describe: "The API key that requests must present." }),
 *     hide_credentials: withDefault(boolean(), false),
 *   });
 *   type Config = Infer<typeof schema>;   // { readonly key: string; readonly hideCredentials: boolean }
 *   type Input = InputOf<typeof schema>;  // { key: string; hide_credentials?: boolean }
 */
export { formatPath, type Issue, type Json, type JsonNode, type Path } from "./json.ts";
export { conceal, INVALID, named, report, reportAt } from "./schema_core.ts";
export type {
  AnySchema,
  CheckContext,
  Infer,
  InputOf,
  Invalid,
  JsonSchema,
  NamedFile,
  Schema,
  Secret,
} from "./schema_core.ts";
export * from "./schema_values.ts";
export * from "./schema_objects.ts";

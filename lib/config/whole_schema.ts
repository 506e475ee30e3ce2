/**
 * The whole language of schemas, for plugins and features: that of the kernel, and `schema_further.ts`.
 */
export * from "./schema.ts";
export * from "./schema_further.ts";

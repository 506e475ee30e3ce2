/**
 * The whole language of schemas, for plugins and parts: that of the kernel, and `schema_further.ts`.
 */
export * from "./schema.ts";
export * from "./schema_further.ts";

/**
 * The value of a node of a JSON document, as `JSON.parse` gives it.
 */
import type { Json, JsonNode } from "./json.ts";

/** Null for what JSON cannot express. */
export function plainJson(node: JsonNode): Json {
  switch (node.kind) {
    case "array":
      return node.items.map(plainJson);
    case "object":
      return Object.fromEntries([...node.members].map(([key, value]) => [key, plainJson(value)]));
    case "null":
    case "other":
      return null;
    default:
      return node.value;
  }
}

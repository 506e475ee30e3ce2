/**
 * Finds names of request headers that a configuration waits for in vain: those with "_", which the gateway drops.
 */
import { nodeAt } from "./json.ts";
import type { CheckContext } from "./schema_types.ts";

export const DROPPED =
  'headers with "_" in their names are dropped, unless "underscore_headers" of "global" is "allow"';

/**
 * Undefined if requests can have this header, as far as its "_" is concerned, or the rest of the configuration is not
 * known.
 */
export function droppedProblem(name: string, { root }: Pick<CheckContext, "root">): string | undefined {
  if (root === undefined || !name.includes("_")) return undefined;
  const setting = nodeAt(root, ["global", "underscore_headers"]);
  return setting?.kind === "string" && setting.value === "allow" ? undefined : DROPPED;
}

/**
 * Finds the values at a place of a JSON document with the path to each, for errors about them.
 */
import type { JsonNode, Path } from "./json.ts";

/** The values at a place such as `services[].protocol`; `=h2` behind it: those that are this text. */
export function pathsTo(document: JsonNode, place: string): readonly { readonly at: Path; readonly value: JsonNode }[] {
  const [path, text] = place.split("=") as [string, string | undefined];
  let found: readonly { readonly at: Path; readonly value: JsonNode }[] = [{ at: [], value: document }];
  for (const step of path.replaceAll("[]", ".[]").split(".")) {
    found = found.flatMap(({ at, value }) => {
      if (step === "[]")
        return value.kind === "array" ? value.items.map((item, i) => ({ at: [...at, i], value: item })) : [];
      const member = value.kind === "object" ? value.members.get(step) : undefined;
      return member === undefined ? [] : [{ at: [...at, step], value: member }];
    });
  }
  return text === undefined ? found : found.filter(({ value }) => value.kind === "string" && value.value === text);
}

/**
 * Finds what a configuration names and the build that runs does not have.
 */
import { isInBuild } from "../base/version.ts";
import { addIssue, formatPath, listedIssues, type Issue, type JsonNode } from "../config/json.ts";
import { pathsTo } from "../config/json_paths.ts";
import { parsedFrom, type ConfigSource } from "../config/source.ts";
import type { Naming, Parts } from "./parts.ts";

export function lackingIn(
  source: ConfigSource,
  { named, kindNames }: Pick<Parts, "named" | "kindNames">,
): readonly Issue[] {
  const { node, positionOf } = parsedFrom(source);
  const has = kindNames.filter(isInBuild).join(", ") || "no plugin kind";
  const issues: Issue[] = [];
  const paths = new Set<string>();
  for (const [name, naming] of node === null ? [] : named.filter(([name]) => !isInBuild(name))) {
    for (const { at, what, offset } of namings(node!, naming)) {
      const ofKinds = kindNames.includes(name) ? `, which has ${has}` : "";
      const message =
        `${what ?? `needs the part "${name}", which `}is not in this build${ofKinds}: ` +
        `build again with this configuration, or with --with ${name}`;
      const path = formatPath(at);
      if (paths.has(path)) continue;
      paths.add(path);
      addIssue(issues, () => ({ at, message, position: positionOf(offset) }));
    }
  }
  return listedIssues(issues);
}

/**
 * Where a document names a part. `what`: the text that does, quoted; undefined: a rule finds that it needs the part.
 */
function namings(node: JsonNode, naming: Naming) {
  if (typeof naming === "function") return naming(node) ? [{ at: [], what: undefined, offset: node.offset }] : [];
  return naming.flatMap((place) => {
    const [, text] = place.split("=");
    return pathsTo(node, place).map(({ at, value: { offset } }) => ({
      at,
      what: text === undefined ? "" : `"${text}" `,
      offset,
    }));
  });
}

/**
 * Finds what a configuration names and the build that runs does not have.
 */
import { isInBuild } from "../base/version.ts";
import { addIssue, formatPath, listedIssues, type Issue } from "../config/json.ts";
import { needsIn } from "../config/needs.ts";
import { parsedFrom, type ConfigSource } from "../config/source.ts";
import { atOnce } from "../base/time_slices.ts";

/** `kinds`: the names of the built-in ones. */
export function lackingIn(source: ConfigSource, kinds: readonly string[]): readonly Issue[] {
  const { node, positionOf } = parsedFrom(source);
  if (node === null) return [];
  const has = kinds.filter(isInBuild).join(", ") || "no plugin kind";
  const issues: Issue[] = [];
  const paths = new Set<string>();
  const needs = needsIn(node, (name, named, at, by) => {
    const path = formatPath(at);
    const isKind = kinds.includes(name);
    if (isInBuild(name) || paths.has(path) || (by === "text" && at.at(-1) === "name" && !isKind)) return;
    const text = by === "text" && named.kind === "string" ? `"${named.value}" ` : "";
    const what = by === "rule" ? `needs the feature "${name}", which ` : text;
    const message =
      `${what}is not in this build${isKind ? `, which has ${has}` : ""}: ` +
      `build again with this configuration, or with --with ${name}`;
    paths.add(path);
    addIssue(issues, () => ({ at, message, position: positionOf(named.offset) }));
  });
  atOnce(needs);
  return listedIssues(issues);
}

/**
 * The schema of `global.plugin_modules`, and what of them can be read in a configuration with errors.
 */
import { hash } from "node:crypto";
import { itemsOf, listedIssues, nodeAt, type Issue, type JsonNode } from "./json.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { pinnedFile } from "./pinned_file.ts";
import * as s from "./whole_schema.ts";
import { parsedFrom, sourcesFor, type ConfigSource, type ReadOptions } from "./source.ts";

const MODULE_FIELDS = pinnedFile("An ES module with plugin kinds; relative to the configuration's folder.");

/** If the digest is missing, the message contains the digest of the file. */
export const PLUGIN_MODULE: typeof MODULE_FIELDS = {
  ...MODULE_FIELDS,
  check(node, at, context) {
    const before = context.issues.length;
    const [path, sha256] = [textAt(node, "path"), textAt(node, "sha256")];
    const { placeholders } = context.sources;
    if (placeholders?.isKnown(JSON.stringify([path, sha256?.toLowerCase()]), at, context.root) === false)
      return s.report(context, at, node, MODULE_UNKNOWN);
    const value = MODULE_FIELDS.check(node, at, context);
    const named = node.kind === "object" && !node.members.has("sha256") ? node.members.get("path") : undefined;
    const file = named === undefined ? s.INVALID : s.file().check(named, at, { ...context, issues: [] });
    if (file === s.INVALID) return value;
    const found = context.issues.findIndex((issue, i) => i >= before && issue.at.at(-1) === "sha256");
    if (found < 0) return value;
    context.issues[found] = {
      ...context.issues[found]!,
      message: `is required; once you trust the file: "${hash("sha256", file.content)}"`,
    };
    return value;
  },
};

function textAt(node: JsonNode, name: string): string | undefined {
  const value = node.kind === "object" ? node.members.get(name) : undefined;
  return value?.kind === "string" ? value.value : undefined;
}

const MODULE_UNKNOWN =
  "is not a module of the configuration in force: a text that is only tried loads no other, " +
  "put it into the gateway's own file";

export const fields: FeatureFields = { schemas: { plugin_module: PLUGIN_MODULE } };

export type PluginModule = s.Infer<typeof PLUGIN_MODULE>;

/** The kinds of a module, or its error. */
export type FindKinds<K extends { readonly name: string }> = (module: PluginModule) => readonly K[] | string;

/** The plugin modules of a configuration whose digest is right; other errors are ignored. */
export function pluginModulesOf(source: ConfigSource, options: ReadOptions): readonly PluginModule[] {
  const { node } = parsedFrom(source);
  return node === null
    ? []
    : modulesIn(node, { issues: [], sources: sourcesFor(source, options) }).map(({ module }) => module);
}

/** The given kinds and those of the modules of a configuration; its other errors are ignored. */
export function kindsWithModules<K extends { readonly name: string }>(
  source: ConfigSource,
  options: ReadOptions,
  kinds: readonly K[],
  kindsOf: FindKinds<K>,
): { readonly kinds: readonly K[]; readonly issues: readonly Issue[] } {
  const { node, issues: inText, positionOf } = parsedFrom(source);
  if (node === null) return { kinds, issues: inText };
  const context: s.CheckContext = { issues: [...inText], positionOf, sources: sourcesFor(source, options) };
  modulesIn(node, context);
  const found = withModules(node, kinds, context, kindsOf);
  return { kinds: found, issues: listedIssues(context.issues) };
}

/** The given kinds and those of the modules. Invalid modules are not reported here, but by the schema. */
export function withModules<K extends { readonly name: string }>(
  root: JsonNode,
  given: readonly K[],
  context: s.CheckContext,
  kindsOf: FindKinds<K>,
): readonly K[] {
  const kinds = [...given];
  for (const { at, node, module } of modulesIn(root, { ...context, issues: [] })) {
    const { path } = module.path;
    const found = kindsOf(module);
    if (typeof found === "string") s.report(context, at, node, `${path}: ${found}`);
    else {
      for (const kind of found) {
        if (!kinds.some(({ name }) => name === kind.name)) kinds.push(kind);
        else
          s.report(
            context,
            at,
            node,
            `${path}: there is already a plugin kind "${kind.name}": give this one another name`,
          );
      }
    }
  }
  return kinds;
}

const MODULES_AT = ["global", "plugin_modules"] as const;

/** Item by item: an invalid module does not hide the others. */
function modulesIn(root: JsonNode, context: s.CheckContext) {
  return itemsOf(nodeAt(root, MODULES_AT)).flatMap((node, i) => {
    const at = [...MODULES_AT, i];
    const module = PLUGIN_MODULE.check(node, at, context);
    return module === s.INVALID ? [] : [{ at, node, module }];
  });
}

/**
 * TaskQueue the text of a configuration into a Config, or into everything that is wrong with it at once.
 * What is allowed is `model.ts`; what path patterns mean comes in as `checkRoutes`; when to load is the callers' affair.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { formatPath, nodeAt, nodeFrom, parseJson, positionAt, type Issue, type Json, type JsonNode } from "./json.ts";
import {
  configSchema,
  defaultRouteName,
  PLUGIN_MODULE,
  type Config,
  type PluginKind,
  type PluginModule,
  type RouteDeclaration,
  type RouteIssue,
} from "./model.ts";
import { hasReference, resolveReferences, whyUnreadable, type Sources } from "./references.ts";
import { INVALID, report, type CheckContext, type Invalid, type NamedFile, type Path, type Secret } from "./schema.ts";

export type ConfigIssue = Issue;

/** A file that has been read, or a JavaScript value of the same shape. */
export type ConfigSource = { readonly text: Buffer | string; readonly file: string } | { readonly value: unknown };

export interface LoadOptions<K extends PluginKind = PluginKind> extends ReadOptions {
  readonly kinds: readonly K[];
  /** The kinds that a module brings, or what is wrong with it. Default: modules cannot be used. */
  readonly moduleKinds?: (module: PluginModule) => readonly K[] | string;
  /** Says what is wrong with path patterns, and which routes are in each other's way. */
  readonly checkRoutes?: (declarations: readonly RouteDeclaration[]) => readonly RouteIssue[];
}

export interface ReadOptions {
  /** Where `${env:NAME}` leads. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Where `${file:/path}` leads; default: the file system. */
  readonly readFile?: (path: string) => Buffer | string;
}

export type LoadResult<K extends PluginKind = PluginKind> =
  | {
      readonly ok: true;
      readonly config: Config;
      /** For display: as configured, with defaults filled in and references unresolved. */
      readonly shown: Json;
      /** The same for people who may not see secrets: a mask stands in the place of each literal one. */
      readonly masked: () => Json;
      /** The same for configurations that show the same: 12 hexadecimal digits of a SHA-256. */
      readonly digest: string;
      /** The files that it names, plugin modules among them, in the order in which they are named. */
      readonly files: readonly NamedFile[];
      /** Those that were given, and those of the modules. */
      readonly kinds: readonly K[];
    }
  | { readonly ok: false; readonly issues: readonly ConfigIssue[] };

export function loadConfig<K extends PluginKind>(source: ConfigSource, options: LoadOptions<K>): LoadResult<K> {
  const parsed = parsedFrom(source);
  const issues: Issue[] = [...parsed.issues];
  if (parsed.node === null) return { ok: false, issues };
  const root = parsed.node;
  const sources = sourcesFor(source, options);
  const files = new Map<string, NamedFile>();
  const secrets: Secret[] = [];
  const context: CheckContext = { issues, sources, root, files, secrets };
  const kinds = [...options.kinds];
  addModuleKinds(root, options.moduleKinds ?? noModules, kinds, context);
  const schema = configSchema(kinds);
  const config = schema.check(root, [], context);
  if (options.checkRoutes !== undefined) {
    const declared = declarations(root, sources);
    for (const issue of options.checkRoutes(declared.list)) {
      const { at } = issue;
      issues.push({ at, message: concealed(issue, nodeAt(root, at), declared.secrets), position: positionAt(root, at) });
    }
  }
  if (config === INVALID || issues.length > 0) return { ok: false, issues: issues.sort(byPosition) };
  const shown = schema.show(root);
  const digest = createHash("sha256").update(JSON.stringify(inKeyOrder(shown))).digest("hex").slice(0, 12);
  return { ok: true, config, shown, masked: maskedOnce(shown, secrets), digest, files: [...files.values()], kinds };
}

/** Made on first use, and kept: few ask for it, and a large configuration takes a while. */
function maskedOnce(shown: Json, secrets: readonly Secret[]): () => Json {
  let made: Json | undefined;
  return () => (made ??= secrets.length === 0 ? shown : masked(shown, secrets));
}

function masked(shown: Json, secrets: readonly Secret[]): Json {
  const copy = structuredClone(shown);
  for (const { at, masked: text } of secrets) {
    const last = at.at(-1)!;
    // What another schema than the one that noted it has taken is shown under the same path, or not at all.
    const parent = at.slice(0, -1).reduce<any>((found, step) => found?.[step], copy);
    if (typeof parent?.[last] === "string") parent[last] = text;
  }
  return copy;
}

/** The plugin modules that a configuration names and whose digest fits, whatever else is wrong with it. */
export function pluginModulesOf(source: ConfigSource, options: ReadOptions): readonly PluginModule[] {
  // Most name none: their text need not be read twice. Only an escape could hide the name.
  if ("text" in source && !source.text.includes(MODULES_AT[1]) && !source.text.includes("\\u")) return [];
  const { node } = parsedFrom(source);
  if (node === null) return [];
  return readModules(node, { issues: [], sources: sourcesFor(source, options) }).flatMap(({ module }) => (module === INVALID ? [] : [module]));
}

/** All kinds that a configuration can ask for, whatever else is wrong with it. */
export function kindsWithModules<K extends PluginKind>(
  source: ConfigSource,
  options: LoadOptions<K>,
): { readonly kinds: readonly K[]; readonly issues: readonly ConfigIssue[] } {
  const { node, issues } = parsedFrom(source);
  const kinds = [...options.kinds];
  if (node === null) return { kinds, issues };
  const context: CheckContext = { issues: [...issues], sources: sourcesFor(source, options) };
  readModules(node, context);
  addModuleKinds(node, options.moduleKinds ?? noModules, kinds, context);
  return { kinds, issues: context.issues };
}

/** Reads the file; one issue that says what to do when it cannot be read. The result, when ok, is a source for `loadConfig`. */
export function readConfigFile(
  file: string,
): { readonly ok: true; readonly text: Buffer; readonly file: string } | { readonly ok: false; readonly issues: readonly ConfigIssue[] } {
  try {
    return { ok: true, text: readFileSync(file), file };
  } catch (error) {
    const message = `cannot read ${resolve(file)}: ${whyUnreadable(error)}; name another file with --config PATH or CONFIG_FILE_PATH`;
    return { ok: false, issues: [{ at: [], message, position: null }] };
  }
}

/** One line an issue, in columns: `gw.json:3:14  services[0].upstreams[1].port  expected …`. Without `file`, no places in it. */
export function formatIssues(issues: readonly ConfigIssue[], file?: string): string {
  const rows = issues.map(({ at, message, position }) => ({
    place: file === undefined ? "" : position === null ? file : `${file}:${position.line}:${position.column}`,
    path: formatPath(at),
    message,
  }));
  const widest = (texts: readonly string[]) => Math.min(60, Math.max(0, ...texts.map((text) => text.length)));
  const placeWidth = widest(rows.map((row) => row.place));
  const pathWidth = widest(rows.map((row) => row.path));
  const column = (text: string, width: number) => (width === 0 ? "" : `${text.padEnd(width)}  `);
  return rows.map((row) => `${column(row.place, placeWidth)}${column(row.path, pathWidth)}${row.message}`).join("\n");
}

function parsedFrom(source: ConfigSource): ReturnType<typeof parseJson> {
  return "value" in source ? { node: nodeFrom(source.value), issues: [] } : parseJson(source.text);
}

function sourcesFor(source: ConfigSource, { environment, readFile = (path) => readFileSync(path) }: ReadOptions): Sources {
  return { environment, readFile: remembered(readFile), folder: "value" in source ? process.cwd() : dirname(resolve(source.file)) };
}

/** Item by item: one that is wrong does not make the others' kinds unknown. */
function readModules(root: JsonNode, context: CheckContext): { at: Path; node: JsonNode; module: PluginModule | Invalid }[] {
  return items(nodeAt(root, MODULES_AT)).map((node, i) => {
    const at = [...MODULES_AT, i];
    return { at, node, module: PLUGIN_MODULE.check(node, at, context) };
  });
}

function noModules(): string {
  return "plugin modules cannot be used here";
}

const MODULES_AT = ["global", "plugin_modules"] as const;

/** What is wrong with an entry itself is reported by the whole schema, and not here. */
function addModuleKinds<K extends PluginKind>(root: JsonNode, kindsOf: (module: PluginModule) => readonly K[] | string, kinds: K[], context: CheckContext): void {
  for (const { at, node, module } of readModules(root, { ...context, issues: [] })) {
    if (module === INVALID) continue;
    const found = kindsOf(module);
    if (typeof found === "string") report(context, at, node, `${module.path.path}: ${found}`);
    else {
      for (const kind of found) {
        if (!kinds.some(({ name }) => name === kind.name)) kinds.push(kind);
        else report(context, at, node, `${module.path.path} brings the plugin kind "${kind.name}", of which there is one already: give it another name`);
      }
    }
  }
}

/** Reads each file once, so that one load sees one state of it. */
function remembered(readFile: (path: string) => Buffer | string): (path: string) => Buffer | string {
  const contents = new Map<string, Buffer | string>();
  return (path) => {
    const content = contents.get(path) ?? readFile(path);
    contents.set(path, content);
    return content;
  };
}

interface Declared {
  readonly list: readonly RouteDeclaration[];
  /** Resolved text -> the text as it was written. */
  readonly secrets: ReadonlyMap<string, string>;
}

/**
 * The routes as far as they can be read, so that their patterns are checked in the same go as everything else. Paths that are
 * missing or wrong are left out: the schema reports them.
 */
function declarations(root: JsonNode, sources: Sources): Declared {
  const list: RouteDeclaration[] = [];
  const secrets = new Map<string, string>();
  const text = (node: JsonNode | undefined) => {
    if (node?.kind !== "string") return undefined;
    if (!hasReference(node.value)) return node.value;
    const resolved = resolveReferences(node.value, sources);
    if (resolved.problems.length > 0) return undefined;
    if (resolved.text !== "") secrets.set(resolved.text, node.value);
    return resolved.text;
  };
  const texts = (nodes: readonly JsonNode[]) => nodes.map(text).filter((found) => found !== undefined);
  const path = (node: JsonNode | undefined) => {
    const found = text(node);
    return found?.startsWith("/") ? found : undefined;
  };
  items(field(root, "services")).forEach((service, i) => {
    const basePath = path(field(service, "base_path")) ?? null;
    const hosts = texts(items(field(service, "hosts"))).map((host) => host.toLowerCase());
    const at: Path = ["services", i];
    const declaredService = { name: text(field(service, "name")) ?? formatPath(at), basePath, hosts, at };
    items(field(service, "routes")).forEach((route, j) => {
      const routePath = path(field(route, "path"));
      const written = items(field(route, "methods"));
      const methods = texts(written);
      // Without its broken methods the route would look as if it took all of them.
      if (routePath === undefined || methods.length < written.length) return;
      const name = text(field(route, "name")) ?? defaultRouteName(methods, routePath);
      list.push({ service: declaredService, route: { name, path: routePath, methods, at: at.concat("routes", j) } });
    });
  });
  return { list, secrets };
}

function field(node: JsonNode, name: string): JsonNode | undefined {
  return node.kind === "object" ? node.members.get(name)?.value : undefined;
}

function items(node: JsonNode | undefined): readonly JsonNode[] {
  return node?.kind === "array" ? node.items : [];
}

/** The message without what references stand for: it may quote the whole path, or, where the pattern itself is at fault, any part. */
function concealed({ about, message }: RouteIssue, node: JsonNode | undefined, secrets: ReadonlyMap<string, string>): string {
  if (about === "pattern" && node?.kind === "string" && hasReference(node.value)) {
    return `expected a path pattern, found ${JSON.stringify(node.value)}, which stands for something that is none`;
  }
  let shown = message;
  for (const [resolved, written] of secrets) shown = shown.replaceAll(resolved, () => written);
  return shown;
}

function byPosition(a: Issue, b: Issue): number {
  if (a.position === null || b.position === null) return (a.position === null ? 1 : 0) - (b.position === null ? 1 : 0);
  return a.position.line - b.position.line || a.position.column - b.position.column;
}

/** The same value, whatever order its keys were written in. */
function inKeyOrder(value: Json): Json {
  if (typeof value !== "object" || value === null) return value;
  if (isList(value)) return value.length === 0 ? value : value.map(inKeyOrder);
  const ordered: Record<string, Json> = {};
  for (const key of Object.keys(value).sort()) {
    const item = inKeyOrder(value[key]!);
    // Assigned, it would be the prototype, and no part of the text.
    if (key === "__proto__") Object.defineProperty(ordered, key, { value: item, enumerable: true });
    else ordered[key] = item;
  }
  return ordered;
}

function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value);
}

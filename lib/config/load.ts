/**
 * Turns the text of a configuration into a Config, or reports all its errors.
 */
import { createHash } from "node:crypto";
import { byPosition, formatPath, inKeyOrder, itemsOf, nodeAt, positionAt, type Issue, type Json, type JsonNode } from "./json.ts";
import { configSchema, defaultRouteName } from "./model.ts";
import type { Config, PartSchemas, PluginKind, RouteDeclaration, RouteIssue } from "./model.ts";
import { fieldsOf, unloaded, type PartFields } from "./part_fields.ts";
import type { readTests } from "./read_tests.ts";
import type { ConfigSecrets } from "./secrets.ts";
import { INVALID, type CheckContext, type NamedFile, type Path, type Secret } from "./schema.ts";
import type { Sources } from "./schema_core.ts";
import { forgetParsed, parsedFrom, sourcesFor, type CheckSignature, type ConfigSource, type ReadOptions } from "./source.ts";
import type { ConfigTest } from "./tests.ts";

export interface LoadOptions<K extends PluginKind = PluginKind> extends ReadOptions {
  readonly kinds: readonly K[];
  /** The fields of the parts that have been loaded. */
  readonly parts?: readonly PartFields[];
  /** Reads the tests, once the part has been loaded. */
  readonly readTests?: typeof readTests | undefined;
  /** Returns the given kinds and those of the plugin modules, once the part has been loaded. */
  readonly withModules?: ((root: JsonNode, kinds: readonly K[], context: CheckContext) => readonly K[]) | undefined;
  /** Finds wrong path patterns and routes that conflict. */
  readonly checkRoutes?: (declarations: readonly RouteDeclaration[]) => readonly RouteIssue[];
  /** Checks the files of `test_files`. Default: they need no signature. */
  readonly checkSignature?: CheckSignature | undefined;
}

export type LoadResult<K extends PluginKind = PluginKind> =
  | {
      readonly ok: true;
      readonly config: Config;
      /** Of the field `tests`, then of each file of `test_files`. They are not part of what is displayed, and not of the digest. */
      readonly tests: readonly ConfigTest[];
      /** Those of `files` that hold tests. */
      readonly testFiles: readonly string[];
      /** For display: as configured, defaults filled in, references unresolved. */
      readonly shown: Json;
      /** For `masked.ts` and `secrets.ts`. */
      readonly secrets: ConfigSecrets;
      /** Of the source; undefined: it is a value. */
      readonly file: string | undefined;
      /** Of `shown`, whatever the order of its keys: 12 hexadecimal digits of a SHA-256. */
      readonly digest: string;
      /** The values of references that no random text could stand for, by reference: see `Placeholders`. */
      readonly formed: ReadonlyMap<string, string>;
      /** The files that it names, including plugin modules, in order. */
      readonly files: readonly NamedFile[];
      /** The given kinds and the kinds of the modules. */
      readonly kinds: readonly K[];
    }
  | { readonly ok: false; readonly issues: readonly Issue[] };

export function loadConfig<K extends PluginKind>(source: ConfigSource, options: LoadOptions<K>): LoadResult<K> {
  const { node, issues: inText } = parsedFrom(source);
  forgetParsed(source);
  const issues: Issue[] = [...inText];
  if (node === null) return { ok: false, issues };
  const root = withoutTests(node);
  const sources = sourcesFor(source, options);
  const files = new Map<string, NamedFile>();
  const secrets: Secret[] = [];
  const context: CheckContext = { issues, sources, root, files, secrets };
  const kinds = options.withModules?.(root, options.kinds, context) ?? options.kinds;
  const schema = configSchema(kinds, options.parts);
  const config = schema.check(root, [], context);
  const declared = declarations(root, sources, options.parts);
  for (const { at, message } of options.checkRoutes?.(declared) ?? []) issues.push({ at, message, position: positionAt(root, at) });
  const { tests, testFiles, issues: inTestFiles } = (options.readTests ?? noTests)(node, declared, context, options.checkSignature);
  if (config === INVALID || issues.length + inTestFiles.length > 0) return { ok: false, issues: [...issues.sort(byPosition), ...inTestFiles] };
  const shown = schema.show(root);
  const digest = createHash("sha256").update(JSON.stringify(inKeyOrder(shown))).digest("hex").slice(0, 12);
  return {
    ...{ ok: true, config, tests, testFiles, shown, digest, kinds },
    secrets: { root, marked: secrets, sources },
    formed: sources.formed,
    file: "file" in source ? source.file : undefined,
    files: [...files.values()],
  };
}

/**
 * One line per issue, in columns: `gw.json:3:14  services[0].upstreams[1].port  expected …`. Without `file`, issues of the configuration
 * itself are without positions.
 */
export function formatIssues(issues: readonly Issue[], file?: string): string {
  const rows = issues.map(({ at, message, position, file: place = file }) => ({
    place: place === undefined ? "" : position === null ? place : `${place}:${position.line}:${position.column}`,
    path: formatPath(at),
    message,
  }));
  const width = (texts: readonly string[]) => Math.min(60, Math.max(0, ...texts.map((text) => text.length)));
  const [placeWidth, pathWidth] = [width(rows.map((row) => row.place)), width(rows.map((row) => row.path))];
  const column = (text: string, wide: number) => (wide === 0 ? "" : `${text.padEnd(wide)}  `);
  return rows.map((row) => `${column(row.place, placeWidth)}${column(row.path, pathWidth)}${row.message}`).join("\n");
}

/** The part that reads tests has not been loaded: the document must have none. */
const noTests: typeof readTests = (root, _declared, context) => {
  for (const name of ["tests", "test_files"]) {
    const found = nodeAt(root, [name]);
    if (found !== undefined) unloaded(`the field "${name}"`).check(found, [name], context);
  }
  return { tests: [], testFiles: [], issues: [] };
};

/** What the gateway does, without what is expected of it. */
function withoutTests(root: JsonNode): JsonNode {
  if (root.kind !== "object") return root;
  return { ...root, members: new Map([...root.members].filter(([key]) => key !== "tests" && key !== "test_files")) };
}

/**
 * The routes as far as they can be read, so that their patterns are checked together with everything else. Missing and wrong paths are
 * left out: the schema reports them.
 */
function declarations(root: JsonNode, sources: Sources, parts: readonly PartFields[] = []): RouteDeclaration[] {
  const matchSchema = fieldsOf<PartSchemas>(parts)("match");
  const nameIn = sources.references?.nameIn ?? ((node: JsonNode | undefined) => (node?.kind === "string" ? node.value : undefined));
  const texts = (nodes: readonly JsonNode[]) => nodes.map(nameIn).filter((found) => found !== undefined);
  const path = (node: JsonNode | undefined) => {
    const found = nameIn(node);
    return found?.startsWith("/") ? found : undefined;
  };
  return itemsOf(field(root, "services")).flatMap((service, i) => {
    const basePath = path(field(service, "base_path")) ?? null;
    const hosts = texts(itemsOf(field(service, "hosts"))).map((host) => host.toLowerCase());
    const at: Path = ["services", i];
    const declaredService = { name: nameIn(field(service, "name")) ?? formatPath(at), basePath, hosts, at };
    return itemsOf(field(service, "routes")).flatMap((route, j) => {
      const routePath = path(field(route, "path"));
      const written = itemsOf(field(route, "methods"));
      const methods = texts(written);
      const conditions = field(route, "match");
      const match = conditions === undefined ? undefined : matchSchema.check(conditions, [], { issues: [], sources, root });
      // Without its invalid methods or conditions the route would appear to accept all requests.
      if (routePath === undefined || methods.length < written.length || match === INVALID) return [];
      const name = nameIn(field(route, "name")) ?? defaultRouteName(methods, routePath);
      return { service: declaredService, route: { name, path: routePath, methods, match, at: at.concat("routes", j) } };
    });
  });
}

function field(node: JsonNode, name: string): JsonNode | undefined {
  return node.kind === "object" ? node.members.get(name)?.value : undefined;
}

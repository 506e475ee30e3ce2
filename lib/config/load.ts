/**
 * Turns the text of a configuration into a Config, or reports all its errors.
 */
import { hash } from "node:crypto";
import { atOnce } from "../base/time_slices.ts";
import { checkLists, checkServices, isGlobalSame, type CheckedServices } from "./checked_lists.ts";
import {
  formatPath,
  inKeyOrder,
  listedIssues,
  offsetAt,
  type Issue,
  type Json,
  type JsonNode,
  type Path,
} from "./json.ts";
import type { RouteDeclaration, RoutesRead } from "./declarations.ts";
import { configSchema, type CheckedConfig, type Config, type PluginKind, type Service } from "./model.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { INVALID, type CheckContext, type NamedFile, type Secret } from "./schema.ts";
import { reportAt, type CheckedList, type Sources } from "./schema_core.ts";
import { digestSteps } from "./value_text.ts";
import { forgetParsed, parsedFrom, sourcesFor, type ConfigSource, type ReadOptions } from "./source.ts";

export interface LoadOptions<K extends PluginKind = PluginKind> extends ReadOptions {
  readonly kinds: readonly K[];
  /** The fields of the features that have been loaded. */
  readonly features?: readonly FeatureFields[];
  /** Where the configuration has tests. */
  readonly tests?: TestReader | undefined;
  /** Where the configuration names callers. */
  readonly callers?: CallersReader | undefined;
  /** Returns the given kinds and those of the plugin modules, where it names some. */
  readonly withModules?: ((root: JsonNode, kinds: readonly K[], context: CheckContext) => readonly K[]) | undefined;
  /** Finds wrong path patterns and routes that conflict. `kept`: see `RoutesToRead`. */
  readonly readRoutes?:
    | ((root: JsonNode, sources: Sources, kept: ReadonlyMap<JsonNode, Service>) => Generator<void, RoutesRead>)
    | undefined;
  /** The configuration before, of which may stay what has not changed; default: there is none. */
  readonly before?: Reusable | undefined;
  /** Whether the files of `test_files` and `caller_files` need their digests. Default: no. */
  readonly mustPin?: boolean;
}

/** `read_tests.ts`: tests are not part of a `Config`. */
export interface TestReader {
  withoutTests(root: JsonNode): JsonNode;
  /**
   * `context` gets the issues of the configuration's own text. With `mustPin` each file needs its digest. `routes`: of
   * the valid configuration, else those that can be read.
   */
  readTests(
    root: JsonNode,
    routes: CheckedConfig | readonly RouteDeclaration[],
    context: CheckContext,
    mustPin?: boolean,
  ): {
    readonly tests: readonly NamedTest[];
    /** Files that were read for them. */
    readonly testFiles: readonly string[];
    /** Of the files. */
    readonly issues: readonly Issue[];
  };
}

/** What the kernel knows of a test. */
export interface NamedTest {
  readonly name: string;
}

/** `callers.ts` */
export interface CallersReader {
  /** As `readTests`. `lists`: null: the configuration names no callers. */
  readSteps(
    root: JsonNode,
    config: CheckedConfig,
    context: CheckContext,
    mustPin?: boolean,
  ): Generator<
    void,
    { readonly lists: readonly object[] | null; readonly files: readonly string[]; readonly issues: readonly Issue[] }
  >;
}

/** The secrets of a configuration. */
export interface ConfigSecrets {
  /** Those that its schemas have found. */
  readonly marked: readonly Secret[];
  readonly sources: ReturnType<typeof sourcesFor>;
}

/** What of a configuration the next one may take over. */
type Reusable = Pick<Extract<LoadResult, { readonly ok: true }>, "checked" | "config">;

export type LoadResult<K extends PluginKind = PluginKind> =
  | {
      readonly ok: true;
      readonly config: Config;
      /**
       * Those of the field `tests`, then of each file of `test_files`; see `testsOf`. They are not part of what is
       * displayed.
       */
      readonly tests: readonly NamedTest[];
      /** Those of `files` that hold tests. */
      readonly testFiles: readonly string[];
      /** For `plugins/callers.ts`. Null: it has none. */
      readonly callerLists: readonly object[] | null;
      /** Those of `files` that hold callers. */
      readonly callerFiles: readonly string[];
      /** For display: as configured, defaults filled in, references unresolved. */
      readonly shown: Json;
      /** For `masked.ts` and `secrets.ts`. */
      readonly secrets: ConfigSecrets;
      /** For the next configuration; null: it does not come from text, or its references have not been resolved. */
      readonly checked: CheckedServices | null;
      readonly source: ConfigSource;
      /** Of the source; undefined: it is a value. */
      readonly file: string | undefined;
      /** Of the file; of a value: of `shown`, whatever the order of its keys. 12 hexadecimal digits of a SHA-256. */
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
  return atOnce(loadSteps(source, options));
}

/** The same in steps, for `inSlices`. */
export function* loadSteps<K extends PluginKind>(
  source: ConfigSource,
  options: LoadOptions<K>,
): Generator<void, LoadResult<K>> {
  const { node, outline, issues: inText, positionOf } = parsedFrom(source, options.before?.checked);
  forgetParsed(source);
  const issues: Issue[] = [...inText];
  if (node === null) return { ok: false, issues };
  const root = options.tests?.withoutTests(node) ?? node;
  const sources = sourcesFor(source, options);
  const files = new Map<string, NamedFile>();
  const secrets: Secret[] = [];
  const lists = new Map<JsonNode, CheckedList>();
  const context = { issues, positionOf, sources, root, files, secrets, lists };
  const kinds = options.withModules?.(root, options.kinds, context) ?? options.kinds;
  const { features = [], before } = options;
  const schema = configSchema(kinds, features);
  const members = root.kind === "object" && outline !== undefined ? root.members : null;
  const kept = new Map<JsonNode, Service>();
  const checked =
    members &&
    (yield* checkServices(context, {
      schema,
      kinds,
      features,
      before: before?.checked ?? null,
      members,
      outline: outline!,
      kept,
    }));
  const readFile = (path: string) => {
    const content = sources.readFile(path);
    checked?.read.set(path, content);
    return content;
  };
  const around = { ...context, sources: { ...sources, readFile } };
  yield* checkLists(schema, root, [], around);
  const config = schema.check(root, [], around);
  if (config === INVALID) kept.clear();
  const routes = (yield* options.readRoutes?.(root, sources, kept) ?? []) ?? { declared: [], issues: [] };
  for (const { at, message } of routes.issues) reportAt(context, at, offsetAt(root, at), message);
  const {
    tests,
    testFiles,
    issues: inTestFiles,
  } = options.tests?.readTests(node, config === INVALID ? routes.declared : config, context, options.mustPin) ??
  NO_TESTS;
  const reading = config !== INVALID && options.callers?.readSteps(root, config, around, options.mustPin);
  const callers = (yield* reading || []) || NO_CALLERS;
  const inFiles = [...callers.issues, ...inTestFiles];
  if (config === INVALID || issues.length + inFiles.length > 0)
    return { ok: false, issues: [...listedIssues(issues), ...inFiles] };
  // The same object: what was compiled with it need not be compiled again.
  const isSame = !!before?.checked && checked !== null && isGlobalSame(before.checked, checked, sources);
  const shown = schema.show(root, lists);
  const written = "text" in source ? source.text : JSON.stringify(inKeyOrder(shown));
  const whole = typeof written === "string" ? Buffer.from(written) : written;
  const digest = (yield* digestSteps(whole, 0, whole.length)).slice(0, 12);
  return {
    ok: true,
    config: isSame ? { ...config, global: before.config.global } : config,
    tests,
    testFiles,
    callerLists: callers.lists,
    callerFiles: callers.files,
    shown,
    digest,
    kinds,
    secrets: { marked: secrets, sources },
    checked: sources.placeholders === undefined ? checked : null,
    formed: sources.formed,
    source,
    file: source.file,
    files: [...files.values()],
  };
}

/** As a configuration is named: 12 hexadecimal digits of the SHA-256 of its file. */
export function sourceDigest(text: Buffer | string): string {
  return hash("sha256", text).slice(0, 12);
}

/**
 * One line per issue, in columns: `gw.json:3:14  services[0].upstreams[1].port  expected …`. Without `file`, issues of
 * the configuration itself are without positions.
 */
export function formatIssues(
  issues: readonly (Omit<Issue, "at"> & { readonly at: Path | string })[],
  file?: string,
): string {
  const rows = issues.map(({ at, message, position, file: place = file }) => ({
    place: place === undefined ? "" : position === null ? place : `${place}:${position.line}:${position.column}`,
    path: typeof at === "string" ? at : formatPath(at),
    message,
  }));
  const width = (texts: readonly string[]) =>
    texts.reduce((most, { length }) => Math.min(60, Math.max(most, length)), 0);
  const [placeWidth, pathWidth] = [width(rows.map((row) => row.place)), width(rows.map((row) => row.path))];
  const column = (text: string, wide: number) => (wide === 0 ? "" : `${text.padEnd(wide)}  `);
  return rows.map((row) => `${column(row.place, placeWidth)}${column(row.path, pathWidth)}${row.message}`).join("\n");
}

const NO_CALLERS = { lists: null, files: [], issues: [] };
const NO_TESTS: ReturnType<TestReader["readTests"]> = { tests: [], testFiles: [], issues: [] };

/**
 * The features, plugin kinds and plugin modules that have been loaded for one gateway, by all configurations that it
 * has had. Whatever starts a gateway brings the table that says how each is loaded, `features/table.ts`.
 */
import { Fault, messageOf } from "../base/errors.ts";
import { importedLater } from "../base/own_code.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import { isInBuild } from "../base/version.ts";
import type { JsonNode } from "../config/json.ts";
import { needsIn } from "../config/needs.ts";
import { NOT_LOADED, unloaded, type FeatureFields } from "../config/feature_fields.ts";
import type { CheckContext } from "../config/schema.ts";
import { parsedFrom, parseInSlices, type ConfigSource } from "../config/source.ts";
import type { Environment } from "../config/start_settings.ts";
import type { AnyPlugin, ForeignKinds } from "../plugins/plugin.ts";
import type { Features, ModuleKinds, OnDemand } from "./features.ts";

export type FeatureName = keyof Features;
export type Load = () => Promise<object>;

/** How everything is loaded that a gateway may need. */
export interface FeatureTable {
  /** The built-in plugin kinds by their names, in the order in which messages list them. */
  readonly kinds: Readonly<Record<string, () => Promise<AnyPlugin>>>;
  readonly features: { readonly [Name in FeatureName]: () => Promise<Features[Name]> };
  readonly foreignKinds: () => Promise<ForeignKinds>;
  readonly onDemand: OnDemand;
}

type Partly<T> = { -readonly [Name in keyof T]?: T[Name] };

export class LoadedFeatures implements Features {
  /** Those that are there; no other may be used. */
  readonly loaded: Partly<Features> = {};
  /** For kinds that are not ours, of modules and of programs that embed a gateway; null: not loaded. */
  foreign: ForeignKinds | null = null;
  /** The functions of the table that have been called. */
  readonly called = new Set<Load>();
  readonly #table: FeatureTable | null;
  readonly #kinds = new Map<string, AnyPlugin>();
  /** Null: no configuration has named one. */
  #modules: ModuleKinds | null = null;

  /** `table`: what can be loaded; null: nothing. */
  constructor(table: FeatureTable | null = null) {
    this.#table = table;
  }

  get balancing(): Features["balancing"] {
    return this.#there("balancing");
  }
  get outbound(): Features["outbound"] {
    return this.#there("outbound");
  }
  get http2(): Features["http2"] {
    return this.#there("http2");
  }
  get nodeHttp1(): Features["nodeHttp1"] {
    return this.#there("nodeHttp1");
  }
  get serverTls(): Features["serverTls"] {
    return this.#there("serverTls");
  }
  get routing(): Features["routing"] {
    return this.#there("routing");
  }
  get plugins(): Features["plugins"] {
    return this.#there("plugins");
  }
  get callers(): Features["callers"] {
    return this.#there("callers");
  }
  get sharedCounters(): Features["sharedCounters"] {
    return this.#there("sharedCounters");
  }
  get workers(): Features["workers"] {
    return this.#there("workers");
  }
  get reporting(): Features["reporting"] {
    return this.#there("reporting");
  }
  get logs(): Features["logs"] {
    return this.#there("logs");
  }
  get tracing(): Features["tracing"] {
    return this.#there("tracing");
  }
  get proof(): Features["proof"] {
    return this.#there("proof");
  }
  get sources(): Features["sources"] {
    return this.#there("sources");
  }

  #there<Name extends FeatureName>(name: Name): Features[Name] {
    const feature = (this.loaded as Partial<Features>)[name];
    if (feature === undefined) throw new Error(`the feature "${name}" ${NOT_LOADED}`);
    return feature;
  }

  get kindNames(): readonly string[] {
    return Object.keys(this.#table?.kinds ?? {});
  }

  /** All built-in kinds. One that has not been loaded accepts no configuration. */
  get kinds(): readonly AnyPlugin[] {
    return this.kindNames.map((name) => this.#kinds.get(name) ?? notLoaded(name));
  }

  isBuiltIn(kind: AnyPlugin): boolean {
    return this.#kinds.get(kind.name) === kind;
  }

  get onDemand(): OnDemand {
    return this.#table!.onDemand;
  }

  /** What the features that are loaded add to the schema of a configuration. */
  get fields(): readonly FeatureFields[] {
    return fieldsIn(Object.values(this.loaded));
  }

  /**
   * Loads what a configuration names and is not loaded yet, plugin modules included. `readFile` defaults to the file
   * system.
   */
  async load(source: ConfigSource, environment: Environment, readFile?: (path: string) => Buffer): Promise<void> {
    await this.loadNeeded(source);
    await this.loadModules(source, environment, readFile);
  }

  /** The plugin modules, once all else has been loaded. */
  async loadModules(
    source: ConfigSource,
    environment: Environment,
    readFile?: (path: string) => Buffer,
  ): Promise<void> {
    const { sources } = this.loaded;
    if (sources === undefined) return;
    const modules = sources.pluginModulesOf(source, {
      references: sources,
      environment,
      ...(readFile && { readFile }),
    });
    if (modules.length > 0) await (this.#modules ??= new sources.LoadedModules()).load(modules);
  }

  /** Loads the features and kinds that a configuration names, as far as this build has them. */
  async loadNeeded(source: ConfigSource): Promise<void> {
    await parseInSlices(source);
    const { node } = parsedFrom(source);
    if (node === null) return;
    const names = new Set<string>();
    await inSlices(
      needsIn(node, (name) => names.add(name)),
      paced(),
    );
    await Promise.all([...names].filter(isInBuild).map((name) => this.#load(name)));
  }

  loadFeature(name: FeatureName): Promise<void> {
    return this.#load(name);
  }

  async #load(name: string): Promise<void> {
    const table = this.#table;
    if (table === null) return;
    if (Object.hasOwn(table.kinds, name)) {
      if (!this.#kinds.has(name)) this.#kinds.set(name, await this.#call(table.kinds[name]!));
    } else if (name === "foreignKinds") this.foreign ??= await this.#call(table.foreignKinds);
    else if (Object.hasOwn(table.features, name) && !Object.hasOwn(this.loaded, name))
      Object.assign(this.loaded, { [name]: await this.#call<object>(table.features[name as FeatureName]) });
  }

  #call<T extends object>(load: () => Promise<T>): Promise<T> {
    this.called.add(load);
    return loadCode(load);
  }

  /** The kinds of a module, or why there are none. */
  readonly kindsOf = (module: object): readonly AnyPlugin[] | string => this.#modules?.kindsOf(module) ?? NOT_LOADED;

  /** See `LoadOptions.withModules`. */
  withModules(kinds: readonly AnyPlugin[], root: JsonNode, context: CheckContext): readonly AnyPlugin[] {
    return this.loaded.sources?.withModules(root, kinds, context, this.kindsOf) ?? kinds;
  }

  /** Takes over what is there already. */
  add(features: Partial<Features>, kinds: readonly AnyPlugin[] = [], foreign = this.foreign): void {
    Object.assign(this.loaded, features);
    for (const kind of kinds) this.#kinds.set(kind.name, kind);
    this.foreign = foreign;
  }
}

/** What features add to the schema of a configuration; what two of them bring is there once. */
export function fieldsIn(features: readonly object[]): readonly FeatureFields[] {
  const all = features as readonly { readonly fields?: FeatureFields | readonly FeatureFields[] }[];
  return [...new Set(all.flatMap(({ fields = [] }) => fields))];
}

const missing = new Map<string, AnyPlugin>();

/** Stands for a kind that no configuration has named: it accepts no configuration. The same for all gateways. */
function notLoaded(name: string): AnyPlugin {
  const known = missing.get(name) ?? missingKind(name);
  missing.set(name, known);
  return known;
}

function missingKind(name: string): AnyPlugin {
  const what = `the plugin kind "${name}"`;
  const create = (): never => {
    throw new Error(`${what} ${NOT_LOADED}`);
  };
  return { name, schema: unloaded(what), create };
}

/** Imports code of the program. Rejects with a `Fault` when its files have been replaced since it started. */
export async function loadCode<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await importedLater(load);
  } catch (error) {
    if (error instanceof Fault) throw error;
    throw new Error(`a part of the program cannot be loaded: ${messageOf(error)}`, { cause: error });
  }
}

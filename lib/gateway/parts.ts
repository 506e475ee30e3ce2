/**
 * The parts of the program that not every gateway needs, as the kernel sees them: which have been loaded, what a
 * configuration names, and the types of what they do. Whatever starts a gateway brings the table that says how each is
 * loaded, `parts/table.ts`.
 */
import { Fault, messageOf } from "../base/errors.ts";
import { importedLater } from "../base/own_code.ts";
import { isInBuild } from "../base/version.ts";
import { valuesAt, type JsonNode } from "../config/json.ts";
import { NOT_LOADED, unloaded, type PartFields } from "../config/part_fields.ts";
import type { PluginModule } from "../config/plugin_modules.ts";
import type { CheckContext } from "../config/schema.ts";
import type { Environment } from "../config/start_settings.ts";
import { parsedFrom, parseInSlices, type ConfigSource } from "../config/source.ts";
import type { TABLE } from "../parts/table.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";

export type { KeptSeen, Validity } from "./validity.ts";
export type { Reloads } from "./reloads.ts";
export type { Change } from "../proof/config_diff.ts";
export type { Reporting } from "../report/reporting.ts";
export type { Listening } from "../report/reports.ts";
export type { WorkerReports } from "../report/worker_reports.ts";

/** The places of plugin kinds. */
export const KIND_PLACES = ["global.plugins[].name", "services[].plugins[].name", "services[].routes[].plugins[].name"];

/** What names a part: places of a configuration, see `valuesAt`, or a rule. */
export type Naming = readonly string[] | ((document: JsonNode) => boolean);

export type PartTable = typeof TABLE;
export type PartName = keyof PartTable["parts"];
type PartsByName = { readonly [Name in PartName]: Awaited<ReturnType<PartTable["parts"][Name]["load"]>> };

export interface LoadedParts extends PartsByName {
  readonly kinds: readonly AnyPlugin[];
}

type Load = () => Promise<unknown>;

const NO_TABLE = { kinds: {}, parts: {}, onDemand: {} } as PartTable;

/** The parts and plugin modules that have been loaded for one gateway, by all configurations that it has had. */
export class Parts {
  /** The functions of the table that have been called. */
  readonly called = new Set<Load>();
  readonly #table: PartTable;
  /** What can be named, and by what. */
  readonly named: readonly (readonly [string, Naming, Load])[];
  /** Kinds and parts by their names, no two of which are the same. */
  readonly #loaded = new Map<string, unknown>();
  /** Null: no configuration has named one. */
  #modules: InstanceType<PartsByName["modules"]["LoadedModules"]> | null = null;

  /** `table`: what can be loaded. Default: nothing. */
  constructor(table: PartTable = NO_TABLE) {
    this.#table = table;
    const kinds = Object.entries(table.kinds).map(
      ([name, load]) => [name, KIND_PLACES.map((place) => `${place}=${name}`), load] as const,
    );
    this.named = [
      ...kinds,
      ...Object.entries(table.parts).flatMap(([name, part]) =>
        "named" in part ? [[name, part.named, part.load] as const] : [],
      ),
    ];
  }

  get kindNames(): readonly string[] {
    return Object.keys(this.#table.kinds);
  }

  /** All built-in kinds. One that has not been loaded accepts no configuration. */
  get kinds(): readonly AnyPlugin[] {
    return this.kindNames.map((name) => (this.#loaded.get(name) as AnyPlugin | undefined) ?? notLoaded(name));
  }

  /** Whether it is a built-in kind. */
  hasKind(kind: AnyPlugin): boolean {
    return this.#loaded.get(kind.name) === kind;
  }

  /** What can wait until it is asked for. */
  get onDemand(): PartTable["onDemand"] {
    return this.#table.onDemand;
  }

  /** What the text of a dry run can name, whatever the configuration in force names. */
  get ofTexts(): readonly Load[] {
    return this.named.flatMap(([name, , load]) => (isInBuild(name) ? [load] : []));
  }

  /** What the parts add to the schema of a configuration. */
  get fields(): readonly PartFields[] {
    return fieldsOfParts(this.#loaded.values());
  }

  /**
   * Loads the parts and the plugin modules that a configuration names and that are not loaded yet. `readFile` defaults
   * to the file system.
   */
  async load(source: ConfigSource, environment: Environment, readFile?: (path: string) => Buffer): Promise<void> {
    await this.loadParts(source);
    const part = this.partIfLoaded("modules");
    if (part === null) return;
    this.#modules ??= new part.LoadedModules();
    const references = this.partIfLoaded("references") ?? undefined;
    await this.#modules.load(part.pluginModulesOf(source, { references, environment, ...(readFile && { readFile }) }));
  }

  /** Loads the parts that a configuration names, or what says which of them this build does not have. */
  async loadParts(source: ConfigSource): Promise<void> {
    await parseInSlices(source);
    const { node } = parsedFrom(source);
    if (node === null) return;
    // A configuration of 50,000 routes is walked through once, not for each of some 200 places.
    const known = new Map<string, readonly JsonNode[]>();
    const named = this.named.filter(([, naming]) =>
      typeof naming === "function" ? naming(node) : naming.some((place) => valuesAt(node, place, known).length > 0),
    );
    const there = named.filter(([name]) => isInBuild(name));
    if (there.length < named.length) await this.loadPart("lacking");
    await Promise.all(there.map(([name, , load]) => this.#load(name, load)));
  }

  loadPart(name: PartName): Promise<void> {
    return this.#load(name, this.#table.parts[name].load);
  }

  async #load(name: string, load: Load): Promise<void> {
    if (this.#loaded.has(name)) return;
    this.called.add(load);
    this.#loaded.set(name, await loaded(load));
  }

  /** The kinds of a module, or why there are none. */
  readonly kindsOf = (module: PluginModule): readonly AnyPlugin[] | string =>
    this.#modules?.kindsOf(module) ?? NOT_LOADED;

  /** See `LoadOptions.withModules`. */
  withModules(kinds: readonly AnyPlugin[], root: JsonNode, context: CheckContext): readonly AnyPlugin[] {
    return this.partIfLoaded("modules")?.withModules(root, kinds, context, this.kindsOf) ?? kinds;
  }

  /** Takes over parts that are there already. */
  add({ kinds = [], ...parts }: Partial<LoadedParts>): void {
    for (const [name, part] of [...kinds.map((kind) => [kind.name, kind] as const), ...Object.entries(parts)])
      this.#loaded.set(name, part);
  }

  /** Null: it has not been loaded. */
  partIfLoaded<Name extends PartName>(name: Name): PartsByName[Name] | null {
    return (this.#loaded.get(name) as PartsByName[Name] | undefined) ?? null;
  }

  /** Throws when it has not been loaded. */
  part<Name extends PartName>(name: Name): PartsByName[Name] {
    const part = this.partIfLoaded(name);
    if (part === null) throw new Error(`the part "${name}" ${NOT_LOADED}`);
    return part;
  }
}

export function fieldsOfParts(parts: Iterable<unknown>): readonly PartFields[] {
  return Array.from(parts as Iterable<{ readonly fields?: PartFields }>).flatMap(({ fields }) => fields ?? []);
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

/** `load` imports a part. Rejects with a `Fault` when the files of the program have been replaced since it started. */
export async function loaded<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await importedLater(load);
  } catch (error) {
    if (error instanceof Fault) throw error;
    throw new Error(`a part of the program cannot be loaded: ${messageOf(error)}`, { cause: error });
  }
}

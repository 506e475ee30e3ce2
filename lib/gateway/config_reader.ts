/**
 * Reads and checks a configuration, with all files that it names: from the disk, or in a worker from what the main
 * thread has read.
 */
import { atOnce } from "../base/time_slices.ts";
import { builtWith } from "../base/version.ts";
import { loadSteps } from "../config/load.ts";
import { NOT_LOADED } from "../config/feature_fields.ts";
import { FileTextSource } from "../config/file_source.ts";
import { textSteps, type ConfigSource, type Reading } from "../config/source.ts";
import type { ReadableSource } from "../config/text_source.ts";
import type { PlaceholderSource } from "../config/schema_core.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { readRoutes } from "../route/checks.ts";
import { ConfigError } from "./config_error.ts";
import type { Https } from "./features.ts";
import type { ConfigInput } from "./config_input.ts";
import type { ConfigurationOptions } from "./options.ts";
import type { ValidConfig } from "./compile_types.ts";
import { lackingIn } from "./lacking.ts";

/** The inputs of a configuration other than its own text. */
export interface Inputs {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Certificates, secrets, modules and other files that it names, by absolute path. */
  readonly files: ReadonlyMap<string, Buffer>;
}

/** A configuration without errors, and all that it was read from. */
export interface ReadConfig {
  readonly source: ConfigSource;
  readonly inputs: Inputs;
  readonly valid: ValidConfig;
}

interface ReadingOptions {
  /** See `ConfigReader.load`. */
  readonly known?: Inputs | undefined;
  readonly placeholders?: PlaceholderSource | undefined;
  /** See `LoadOptions`. */
  readonly before?: ValidConfig | undefined;
}

export class ConfigReader {
  readonly options: ConfigurationOptions;
  /** Null: the configuration is a value. */
  readonly textSource: ReadableSource | null;
  readonly #readFile: (path: string) => Buffer;
  /** The files that the source last read names, as absolute paths, also if it is refused or a file is missing. */
  namedFiles: readonly string[] = [];
  /** That of the options; from the first configuration on never false. */
  https: ConfigurationOptions["https"];

  /** `readFile` gives the files that `load` is not given. Throws a `TypeError` for plugin kinds that cannot be used. */
  constructor(options: ConfigurationOptions, readFile: (path: string) => Buffer) {
    this.options = options;
    this.textSource = textSourceOf(options);
    this.https = options.https;
    this.#readFile = readFile;
    this.#kinds();
  }

  /**
   * `config`, else that of the options, else their text. Throws a `ConfigError` when there is none, or it is not signed
   * as it must be.
   */
  source(config = this.options.config): ConfigSource {
    return atOnce(this.sourceSteps(config));
  }

  /** The same in steps, for `inSlices`. */
  *sourceSteps(config = this.options.config): Generator<void, ConfigSource> {
    const read = yield* readSteps(config, this.options);
    if (read.ok) return read;
    throw new ConfigError(read.issues, config === undefined ? this.textSource?.name : undefined);
  }

  /** Files that `known` has are not read again, and were checked when they were read. Throws a `ConfigError`. */
  load(source: ConfigSource, known?: Inputs, placeholders?: PlaceholderSource): ReadConfig {
    return atOnce(this.loadSteps(source, { known, placeholders }));
  }

  /** The same in steps, for `inSlices`. */
  *loadSteps(source: ConfigSource, { known, placeholders, before }: ReadingOptions = {}): Generator<void, ReadConfig> {
    const { modules: features } = this.options;
    const { callers, proof, routing = null, serverTls, sources } = features.loaded;
    const lacking = builtWith === null ? [] : lackingIn(source, features.kindNames);
    if (lacking.length > 0) throw new ConfigError(lacking, source.file);
    const environment = known?.environment ?? { ...(this.options.environment ?? process.env) };
    const files = new Map<string, Buffer>();
    const named = new Set<string>();
    const result = yield* loadSteps(source, {
      before,
      kinds: this.#kinds(),
      features: features.fields,
      references: sources,
      tests: proof,
      callers: callers?.callerReaderOf(features),
      withModules: (root, kinds, context) => features.withModules(kinds, root, context),
      environment,
      placeholders,
      readFile: (path) => {
        named.add(path);
        const content = known?.files.get(path) ?? this.#readFile(path);
        files.set(path, content);
        return content;
      },
      readRoutes: (root, sources, kept) =>
        readRoutes({ root, sources, fields: features.fields, matching: routing, kept }),
      mustPin: known === undefined && this.options.configKeyFile !== undefined,
    });
    if (known === undefined) this.namedFiles = [...named];
    if (!result.ok) throw new ConfigError(result.issues, source.file);
    if (this.https !== undefined) this.https = this.#httpsWith(result, this.https);
    serverTls?.refuseUnkept(result, this.options.acme);
    return {
      source,
      inputs: { environment, files },
      valid: {
        ...result,
        callers: this.#callersOf(result.callerLists, before),
        routing,
      },
    };
  }

  /**
   * See `httpsWith` in `https_port.ts`, which comes with certificates (`serverTls`) and with a redirect (`routing`): a
   * configuration that has neither opens no port.
   */
  #httpsWith(valid: Pick<ValidConfig, "config" | "source">, https: Https): Https {
    const { serverTls, routing } = this.options.modules.loaded;
    return (serverTls ?? routing)?.httpsWith(valid, https) ?? (https === true ? https : "closed");
  }

  #callersOf(lists: ValidConfig["callerLists"], before: ValidConfig | undefined): ValidConfig["callers"] {
    if (lists === null) return null;
    const { CallerRegistry } = this.options.modules.callers;
    return lists === before?.callerLists ? before.callers : new CallerRegistry(lists);
  }

  /** See `Gateway.loadModules`. Code that a text without its signature names does not run. */
  async loadModules(config = this.options.config): Promise<void> {
    const source = atOnce(readSteps(config, this.options));
    if (source.ok) await this.options.modules.load(source, this.options.environment ?? process.env);
  }

  /** The built-in kinds and those of the options. */
  #kinds(): readonly AnyPlugin[] {
    const { modules: features, kinds: names = features.kindNames, plugins = [] } = this.options;
    const unknown = names.find((name) => !features.kindNames.includes(name));
    if (unknown !== undefined)
      throw new TypeError(
        `kinds: there is no built-in plugin kind "${unknown}"; there are ${features.kindNames.join(", ")}`,
      );
    const kinds = features.kinds.filter(({ name }) => names.includes(name));
    for (const kind of plugins) {
      const problem = features.foreign === null ? `kinds of a host ${NOT_LOADED}` : features.foreign.kindProblem(kind);
      if (problem !== undefined) throw new TypeError(problem);
      if (kinds.some(({ name }) => name === kind.name))
        throw new TypeError(`there is already a plugin named "${kind.name}"`);
      kinds.push(kind);
    }
    return kinds;
  }
}

/** Where options have a configuration that is no value; null: nowhere. */
function textSourceOf({ textSource, configFile, configKeyFile }: ConfigurationOptions): ReadableSource | null {
  return textSource ?? (configFile === undefined ? null : new FileTextSource(configFile, configKeyFile ?? null));
}

/**
 * Reads `config`, else the text that the options name; one that must be signed, once the feature `sources` has been
 * loaded. In steps, for `inSlices`. Throws a `TypeError` where there is neither.
 */
export function* readSteps(config: ConfigInput | undefined, options: ConfigurationOptions): Generator<void, Reading> {
  const { configKeyFile, modules } = options;
  if (config === undefined) {
    const source = textSourceOf(options);
    if (source === null) throw new TypeError("createGateway needs config or configFile");
    return yield* textSteps(source, configKeyFile === undefined ? undefined : modules.sources.signedBy(configKeyFile));
  }
  return configKeyFile === undefined ? { ok: true, value: config } : { ok: false, issues: [VALUE_UNSIGNED] };
}

const VALUE_UNSIGNED = {
  at: [],
  message: "a configuration that is given as a value has no signature: with configKeyFile it must be a file",
  position: null,
};

/** For another thread, which has what the main thread has read. */
export function readNoFile(path: string): never {
  throw new Error(`the main thread did not read ${path}`);
}

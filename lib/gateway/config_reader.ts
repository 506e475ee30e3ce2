/**
 * Reads and checks a configuration, with all files that it names: from the disk, or in a worker from what the main thread has read.
 */
import { parseJson, positionAt } from "../config/json.ts";
import { loadConfig } from "../config/load.ts";
import { readConfigFile, type CheckSignature, type ConfigSource } from "../config/source.ts";
import type { PlaceholderSource } from "../config/schema_core.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { checkRoutes } from "../route/checks.ts";
import { ConfigError } from "./config_error.ts";
import type { ConfigInput } from "./config_input.ts";
import type { Parts } from "./parts.ts";
import type { PluginModules } from "./plugin_modules.ts";
import type { Loaded } from "./snapshot.ts";

export interface ConfigurationOptions {
  /** The configuration as a value; either this or `configFile`. */
  readonly config?: ConfigInput;
  /** Path of the JSON configuration file. */
  readonly configFile?: string;
  /**
   * Path of a PEM file with one public Ed25519 key or more. The configuration file and its `test_files` must then be signed by one of them,
   * in `FILE.sig` beside each. The keys are read again at each reload. Default: no signature is needed.
   */
  readonly configKeyFile?: string;
  /** The names of the built-in plugin kinds that a configuration may use. Default: all. */
  readonly kinds?: readonly string[];
  /** Plugin kinds beside the built-in ones. */
  readonly plugins?: readonly AnyPlugin[];
  /** The result of `loadPluginModules` for the same configuration; needed where it has `global.plugin_modules`. */
  readonly modules: PluginModules;
  /** The variables that `${env:NAME}` refers to. Default `process.env`. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Whether the `tests` of the configuration run before the gateway listens, and before each reload. Default "run". */
  readonly tests?: "run" | "skip";
}

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
  readonly loaded: Loaded;
}

export class ConfigReader {
  readonly #options: ConfigurationOptions;
  readonly #modules: PluginModules;
  readonly #readFile: (path: string) => Buffer;
  /** The files that the source last read names, as absolute paths, also if it is refused or a file is missing. */
  named: readonly string[] = [];

  /** `readFile` gives the files that `load` is not given. Throws a `TypeError` for plugin kinds that cannot be used. */
  constructor(options: ConfigurationOptions, readFile: (path: string) => Buffer) {
    this.#options = options;
    this.#modules = options.modules;
    this.#kinds();
    this.#readFile = readFile;
  }

  /** For another reader of the same plugin kinds, modules and environment. */
  get options(): ConfigurationOptions {
    return { ...this.#options, modules: this.#modules };
  }

  /** `config`, else that of the options, else their file. Throws a `ConfigError` when the file cannot be read, or is not signed as it must be. */
  source(config = this.#options.config): ConfigSource {
    const { configFile: file, configKeyFile } = this.#options;
    if (config !== undefined && configKeyFile !== undefined) throw new ConfigError([{ at: [], message: VALUE_UNSIGNED, position: null }], undefined);
    if (config !== undefined) return { value: config };
    if (file === undefined) throw new TypeError("createGateway needs config or configFile");
    const read = readConfigFile(file, this.#checkSignature);
    if (!read.ok) throw new ConfigError(read.issues, file);
    return read;
  }

  /** Files that `known` has are not read again, and were checked when they were read. Throws a `ConfigError`. */
  load(source: ConfigSource, known?: Inputs, placeholders?: PlaceholderSource): ReadConfig {
    const lacking = this.#modules.parts.lacks(source);
    if (lacking.length > 0) throw new ConfigError(lacking, fileOf(source));
    const { environment, files: kept } = known ?? { environment: { ...(this.#options.environment ?? process.env) }, files: new Map<string, Buffer>() };
    const files = new Map<string, Buffer>();
    const named = new Set<string>();
    const read = this.#readFile;
    const { parts } = this.#modules;
    const conditions = parts.partIfLoaded("conditions");
    const loaded = loadConfig(source, {
      kinds: this.#kinds(),
      parts: parts.fields,
      references: parts.partIfLoaded("references") ?? undefined,
      readTests: parts.partIfLoaded("tests")?.readTests,
      withModules: (root, kinds, context) => this.#modules.addTo(kinds, root, context),
      environment,
      placeholders,
      readFile(path) {
        named.add(path);
        const content = kept.get(path) ?? read(path);
        files.set(path, content);
        return content;
      },
      checkRoutes: (list) => checkRoutes(list, conditions),
      checkSignature: known === undefined ? this.#checkSignature : undefined,
    });
    if (known === undefined) this.named = [...named];
    if (!loaded.ok) throw new ConfigError(loaded.issues, fileOf(source));
    return { source, inputs: { environment, files }, loaded: { ...loaded, conditions, upstreamPaths: parts.partIfLoaded("upstreamPath") } };
  }

  /** See `Gateway.loadModules`. */
  async loadModules(config = this.#options.config): Promise<void> {
    const { configFile, configKeyFile, environment = process.env } = this.#options;
    // Code that a text without its signature names must not run.
    if (config !== undefined && configKeyFile !== undefined) return;
    const source = config !== undefined ? { ok: true as const, value: config } : configFile === undefined ? null : readConfigFile(configFile, this.#checkSignature);
    if (source?.ok) await this.#modules.load(source, environment);
  }

  /** Loads the parts of the program that a reload to a source needs. */
  async loadParts(source: ConfigSource): Promise<void> {
    await this.#modules.parts.load(source);
    await this.#modules.parts.loadPart("changes");
  }

  /** As `loadModules`, of a source that was read with all of its files. */
  async loadModulesOf(source: ConfigSource, { environment, files }: Inputs): Promise<void> {
    await this.#modules.load(source, environment, (path) => files.get(path) ?? this.#readFile(path));
  }

  get #checkSignature(): CheckSignature | undefined {
    return signatureCheck(this.#modules.parts, this.#options.configKeyFile);
  }

  /** The built-in kinds and those of the options. */
  #kinds(): readonly AnyPlugin[] {
    const { parts } = this.#modules;
    const { kinds: names = parts.kindNames, plugins = [] } = this.#options;
    const unknown = names.find((name) => !parts.kindNames.includes(name));
    if (unknown !== undefined) throw new TypeError(`kinds: there is no built-in plugin kind "${unknown}"; there are ${parts.kindNames.join(", ")}`);
    const kinds = parts.kinds.filter(({ name }) => names.includes(name));
    for (const kind of plugins) {
      const problem = parts.part("embedding").kindProblem(kind);
      if (problem !== undefined) throw new TypeError(problem);
      if (kinds.some(({ name }) => name === kind.name)) throw new TypeError(`there is already a plugin named "${kind.name}"`);
      kinds.push(kind);
    }
    return kinds;
  }
}

/** For `readConfigFile`, once the part `signatures` has been loaded. */
export function signatureCheck(parts: Parts, keyFile: string | undefined): CheckSignature | undefined {
  return keyFile === undefined ? undefined : parts.part("signatures").signedBy(keyFile);
}

const VALUE_UNSIGNED = "a configuration that is given as a value has no signature: with configKeyFile it must be a file";

/** For another thread, which has what the main thread has read. */
export function readNoFile(path: string): never {
  throw new Error(`the main thread did not read ${path}`);
}

/** For a gateway without an HTTPS listener. Throws a `ConfigError` if the configuration leads clients to one. */
export function refuseHttpsRedirect({ loaded, source }: Pick<ReadConfig, "loaded" | "source">): void {
  if (loaded.config.global.httpsRedirect === undefined) return;
  const at = ["global", "https_redirect"];
  const node = "text" in source ? parseJson(source.text).node : null;
  const message = "needs an HTTPS listener: set SERVER_CERT_PATH and SERVER_KEY_PATH";
  throw new ConfigError([{ at, message, position: node === null ? null : positionAt(node, at) }], fileOf(source));
}

export function fileOf(source: ConfigSource): string | undefined {
  return "file" in source ? source.file : undefined;
}

/**
 * `edge-gateway validate`: checks a configuration without starting anything. It runs the code of plugin modules.
 */
import { resolve } from "node:path";
import { messageOf } from "../base/errors.ts";
import { silentLog } from "../base/log.ts";
import { readRegularFile } from "../base/regular_file.ts";
import type { Issue } from "../config/json.ts";
import { readValues } from "../config/start_settings.ts";
import { SETTINGS } from "../config/settings_table.ts";
import type { Settings, SourceSettings } from "../config/settings_types.ts";
import { readSourceSettings } from "../config/source_settings.ts";
import type { Kept, Seen } from "../gateway/features.ts";
import { ConfigError } from "../gateway/config_error.ts";
import type { ConfigurationOptions } from "../gateway/options.ts";
import { shownIssue } from "../gateway/refusal.ts";
import { readForStart } from "../features/load.ts";
import { Candidate } from "../proof/candidate.ts";
import { configWarnings } from "../proof/config_warnings.ts";
import type { Config } from "../config/model.ts";
import { placedWarnings } from "../proof/placed_warnings.ts";
import type { Arguments, RunCommand } from "./arguments.ts";
import { counted } from "./counted.ts";
import { accepted, Failure, refuseLacking } from "./failure.ts";
import { ON_DEMAND, settingsOf, sourceParts } from "./on_demand.ts";
import { printable } from "./terminal.ts";
import { warningLines } from "./warning_text.ts";

/**
 * Checks a configuration as `run` would, and reports its warnings. 2: it has errors, a test fails, or with --strict
 * there is a warning.
 */
export const validate: RunCommand = async (given) => {
  const named = namedFile(given);
  const isJson = given.flags.json !== undefined;
  const seen = await seenBefore(given);
  const settings = await settingsBeside(named, given);
  const config = await namedConfig(given, named);
  const file = config.configFile;
  const runsTests = (settings?.tests ?? (given.flags["no-tests"] === undefined ? "run" : "skip")) === "run";
  const result = await validated(config, seen, { runsTests, settings });
  const { error, warnings } = result;
  if (isJson) process.stdout.write(`${JSON.stringify(viewOf(result), null, 2)}\n`);
  else {
    if (warnings.length > 0) process.stderr.write(printable(warningLines(warnings, file)));
    if (error !== null) throw error;
    process.stdout.write(`${file} is valid (${summaryOf(result, runsTests)})\n`);
  }
  if (error !== null) return 2;
  if (given.flags.strict === undefined || warnings.length === 0) return 0;
  throw new Failure(
    `--strict accepts no warning: correct ${warnings.length === 1 ? "it, or name it" : "them, or name them"} ` +
      `in global.accept_warnings`,
    2,
  );
};

/**
 * What a start would take from flags and variables. Null: any settings may come. Throws a `Failure` for settings, and
 * users of the admin interface, that a start refuses.
 */
async function settingsBeside(file: string, { flags }: Arguments) {
  const { settings: which, strict: _strict, json: _json, ...given } = flags;
  if (which === "none") return null;
  if (which !== undefined) throw new Failure(`--settings: expected none, found ${JSON.stringify(which)}`, 2);
  const settings = await settingsOf({ ...given, config: file }, process.env, { readFile: readRegularFile });
  if (settings.admin?.usersPath) new (await ON_DEMAND.adminUsers()).UsersFile(settings.admin, silentLog);
  return settings;
}

type Validated = Awaited<ReturnType<typeof validated>>;

/** `tests`: null: not run. `error`: null: it is valid. */
async function validated(
  config: NamedConfig,
  seen: Seen,
  { runsTests, settings }: { readonly runsTests: boolean; readonly settings: Settings | null },
) {
  let candidate: Candidate;
  try {
    candidate = await openCandidate(
      config,
      { read: () => seen, write() {} },
      settings === null ? {} : besideSettings(settings),
    );
  } catch (error) {
    if (error instanceof ConfigError)
      return { counts: null, digest: null, signer: undefined, tests: null, warnings: [], undecided: [], error };
    throw error;
  }
  const { configuration } = candidate;
  try {
    const { https } = configuration.reader;
    if (settings !== null && (https !== "closed" || settings.needHttps))
      (await ON_DEMAND.serverTls()).tlsFilesOf(settings, https, silentLog);
    const error = runsTests
      ? await configuration.testFirst("strict").then(
          () => null,
          (failed: ConfigError) => failed,
        )
      : null;
    const { counts, digest } = configuration.snapshot;
    return {
      counts,
      digest,
      signer: configuration.signer,
      tests: configuration.lastTests?.report ?? null,
      undecided: undecidedIn(configuration.snapshot.config, settings),
      warnings: placedWarnings(configWarnings(configuration.snapshot), configuration.snapshot),
      error,
    };
  } finally {
    await candidate.close();
  }
}

/** What a start with these settings refuses, but for STATE_DIR: that may be on another machine. */
function besideSettings({ serverCertPath, httpPort }: Settings) {
  return { https: serverCertPath !== null, acme: { stateDir: true, plainPort: httpPort !== null } };
}

/** "12 services, 84 routes; 31 tests passed; 2 warnings" */
function summaryOf({ counts, signer, tests, warnings, undecided }: Validated, ranTests: boolean): string {
  const { services, routes } = counts!;
  const parts = [
    `${counted(services, "service")}, ${counted(routes, "route")}`,
    ...(tests === null || tests.passed === 0 ? [] : [`${counted(tests.passed, "test")} passed`]),
  ];
  return [
    ...parts,
    ...(ranTests ? [] : ["tests not run"]),
    ...(signer === undefined ? [] : ["signature valid"]),
    ...(warnings.length === 0 ? [] : [counted(warnings.length, "warning")]),
    ...(undecided.length === 0 ? [] : [`the settings decide about ${undecided.join(", ")}`]),
  ].join("; ");
}

/**
 * The warnings and errors of a start that its settings decide about: a file may be checked on another machine. The
 * error has the name of its field.
 */
function undecidedIn({ global, services }: Config, settings: Settings | null): string[] {
  const places = [global, ...services, ...services.flatMap(({ routes }) => routes)];
  const has = (kind: string) =>
    places.some(({ plugins }) => plugins.some(({ name, enabled }) => name === kind && enabled));
  return [
    ...(has("quota") && global.counters === undefined ? ["quota_not_durable"] : []),
    ...(has("mtls") ? ["mtls_idle"] : []),
    ...(global.httpsRedirect !== undefined &&
    settings === null &&
    global.certificates.length === 0 &&
    global.acme === undefined
      ? ["https_redirect"]
      : []),
  ];
}

function viewOf({ counts, digest, signer, tests, warnings, undecided, error }: Validated) {
  const shown = warnings.map(({ code, path, message, example, remedy }) => ({ code, path, message, example, remedy }));
  return {
    valid: error === null,
    digest,
    ...(signer !== undefined && { signed_by: signer }),
    counts,
    tests,
    warnings: shown,
    undecided,
    issues: (error?.issues ?? []).map((issue) => issueView(issue, error?.file)),
  };
}

function issueView(issue: Issue, configFile: string | undefined) {
  const { file = configFile ?? null, ...shown } = shownIssue(issue);
  return { ...{ file, line: shown.line, column: shown.column }, ...shown };
}

/**
 * The configuration file that a command names, as --config FILE, as FILE or by CONFIG_FILE_PATH; default gw.json.
 * Throws a `Failure`.
 */
export function namedFile(given: Arguments): string {
  const [operand] = given.operands;
  if (given.flags.config !== undefined && operand !== undefined)
    throw new Failure("name one file, as --config FILE or as FILE", 2);
  return operand ?? settingOf(given, "configPath")!;
}

/** Where a command finds a configuration. */
export type NamedConfig = Pick<ConfigurationOptions, "configKeyFile" | "textSource"> & { readonly configFile: string };

/** `named`: a file, or a URL, which is asked once. Throws a `Failure`. */
export async function namedConfig(given: Arguments, named = namedFile(given)): Promise<NamedConfig> {
  const keyPath = configKeyFile(given) ?? null;
  return configFrom(named, keyPath, accepted(readSourceSettings(named, given.flags, process.env)));
}

/** The same of all settings. */
export function configOf({ configPath, configKeyPath, source }: Settings): Promise<NamedConfig> {
  return configFrom(configPath, configKeyPath, source);
}

async function configFrom(
  configFile: string,
  keyPath: string | null,
  source: SourceSettings | null,
): Promise<NamedConfig> {
  const signed = keyPath === null ? {} : { configKeyFile: keyPath };
  if (source === null) return { configFile, ...signed };
  refuseLacking(sourceParts(source));
  const { receivedOnce } = await ON_DEMAND.remoteConfig();
  const textSource = await receivedOnce(source, keyPath, silentLog, ON_DEMAND);
  return { configFile: textSource.name, textSource, ...signed };
}

/** The value of --config-key or CONFIG_PUBLIC_KEY, for the option of the same name. Throws a `Failure`. */
export function configKeyFile(given: Arguments): string | undefined {
  const configKey = settingOf(given, "configKey");
  if (configKey !== null) refuseLacking(["sources"]);
  return configKey ?? undefined;
}

/** The signed configurations that were in force in the gateway of --state-dir or STATE_DIR. Throws a `Failure`. */
async function seenBefore(given: Arguments): Promise<Seen> {
  const path = settingOf(given, "stateDir");
  if (path === null) return { serial: null, time: 0 };
  refuseLacking(["stateDir"]);
  const { inState, readSeen } = await ON_DEMAND.stateDir();
  return inState(path, () => readSeen(resolve(path)));
}

function settingOf({ flags }: Arguments, name: "configPath" | "configKey" | "stateDir"): string | null {
  const issues: string[] = [];
  const { [name]: value } = readValues({ [name]: SETTINGS[name] }, flags, process.env, issues) as Readonly<
    Record<string, string | null>
  >;
  if (issues.length > 0) throw Failure.ofUsage(issues);
  return value ?? null;
}

/**
 * Reads, checks and compiles a configuration, with its plugin modules. Throws a `ConfigError`, or a `Failure` when a
 * plugin cannot be created. `seen`, `beside`: see `ConfigurationOptions`.
 */
export async function openCandidate(
  config: NamedConfig,
  seen: Kept<Seen> | null = null,
  beside: Pick<ConfigurationOptions, "https" | "acme"> = {},
): Promise<Candidate> {
  const { modules } = await readForStart(config);
  try {
    return new Candidate({ ...config, seen, modules, acme: "checked", ...beside });
  } catch (error) {
    throw error instanceof ConfigError ? error : new Failure(`${config.configFile}: ${messageOf(error)}`, 2);
  }
}

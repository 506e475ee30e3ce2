/**
 * The interface for embedding: everything that a host program may import.
 */
import { checkNames, type OptionNames } from "./base/option_names.ts";
import type { ConfigInput } from "./gateway/config_input.ts";
import { Gateway } from "./embed/gateway.ts";
import type { CompleteOptions } from "./gateway/options.ts";
import type { LoadedFeatures as PluginModules } from "./gateway/loaded_features.ts";
import { withAllFeatures } from "./features/all.ts";

export interface GatewayOptions extends Omit<
  CompleteOptions,
  | "modules"
  | "source"
  | "textSource"
  | "https"
  | "acme"
  | "state"
  | "seen"
  | "takenOut"
  | "audit"
  | "asked"
  | "areDurationsSent"
> {
  /** The result of `loadPluginModules` for the same configuration; needed where it has `global.plugin_modules`. */
  readonly modules?: PluginModules;
}

const OPTIONS: OptionNames<GatewayOptions> = {
  config: true,
  configFile: true,
  configKeyFile: true,
  kinds: true,
  plugins: true,
  modules: true,
  environment: true,
  tests: true,
  log: true,
  accessLog: true,
  tracing: true,
  adminCookie: true,
  clock: true,
  lookup: true,
  lookUpService: true,
};

/**
 * Creates a gateway from a configuration value or file. Throws a `ConfigError` that lists every issue when the
 * configuration is refused, a `TypeError` for options that are unknown or contradict each other. Nothing listens until
 * `listen` is called, or `handler` is mounted in a server of the host program.
 */
export function createGateway(options: GatewayOptions): Gateway {
  checkNames("createGateway", options, OPTIONS);
  if (options.config !== undefined && options.configFile !== undefined)
    throw new TypeError("createGateway has both config and configFile: leave one out");
  return new Gateway({ ...options, modules: withAllFeatures(options.modules) });
}

/** Returns its argument: gives an editor the configuration's types, in the snake_case of the file. */
export function defineConfig(config: ConfigInput): ConfigInput {
  return config;
}

export type { LoadedFeatures as PluginModules } from "./gateway/loaded_features.ts";
export { loadPluginModules } from "./features/plugin_modules.ts";
export type { PluginKit, PluginModuleExport } from "./plugins/kit.ts";
export type { AnyPlugin, KeptState, Plugin, Scope, Tools } from "./plugins/plugin.ts";
export * as schema from "./config/whole_schema.ts";
export type { Config } from "./config/model.ts";
export type * from "./gateway/config_input.ts";
export type { Issue as ConfigIssue } from "./config/json.ts";
export type { TracesSampler, TracingSettings } from "./config/settings_types.ts";
export type { Change } from "./gateway/config_diff.ts";
export type { ExplainedPlugin, Explanation, Question, RunningPlugin } from "./proof/explain.ts";
export type { CountersReport } from "./store/counters.ts";
export type { DryRun, MovedRequest, MovedRequests } from "./proof/dry_run.ts";
export type { GuardsLost, RoutePlace } from "./proof/guards_lost.ts";
export type { PlacedWarning } from "./proof/placed_warnings.ts";
export type { RouteDiff } from "./proof/route_diff.ts";
export type { ExplainedCandidate } from "./proof/route_reasons.ts";
export type { FailedTest } from "./proof/run_tests.ts";
export type {
  GatewayStatus,
  LastReload,
  LastTests,
  PluginFaults,
  Refusal,
  ReloadCause,
  Reloaded,
  ShownIssue,
  TestReport,
  TestResult,
} from "./gateway/status.ts";
export type { ConfigWarning, ShownCertificate, Warning, WarningCode } from "./gateway/status.ts";
export { ConfigError } from "./gateway/config_error.ts";
export type { Gateway } from "./embed/gateway.ts";
export type { GatewayHealth, ListenOptions } from "./gateway/options.ts";
export type { RequestDecision } from "./observe/decision_reader.ts";
export type {
  Figures,
  GatewayStats,
  Point,
  ServiceStats,
  StatsExtent,
  StatusCounts,
  TryFigures,
} from "./observe/stats.ts";
export type { InjectRequest, InjectResponse } from "./proof/made_request.ts";
export type { TlsFiles } from "./server/certificates.ts";
export type { ClientCertificate } from "./http/client_certificate.ts";
export { Exchange, type Call, type ExchangeParts } from "./http/exchange.ts";
export type {
  Client,
  ClientAnswer,
  ClientFailure,
  ClientRequestOptions,
  ClientTls,
  HttpClientOptions,
} from "./client/client.ts";
export type { Handler, Middleware } from "./http/handler.ts";
export { discard, problem, problemReply, type ProblemOptions, type Reply } from "./http/reply.ts";
export { readBody, readReply } from "./http/whole_body.ts";
export { headerValue, headerValues, hasHeader, withHeader, withoutHeader, type HeaderList } from "./http/headers.ts";
export { definePlugin, withAddedHeader } from "./plugins/kit.ts";
export { ERRORS, Fault, type ErrorCode } from "./base/errors.ts";
export { createLog, type Log, type LogOptions } from "./base/log.ts";
export { systemClock, type Clock, type Timer } from "./base/clock.ts";
export { manualClock, type ManualClock } from "./base/manual_clock.ts";
export {
  exercisePlugin,
  type Exercise,
  type Exercised,
  type ExerciseOptions,
  type ExerciseRequest,
  type LogLine,
} from "./embed/exercise_plugin.ts";
export { version } from "./base/version.ts";

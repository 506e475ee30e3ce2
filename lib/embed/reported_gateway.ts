/**
 * The gateway for whoever asks for reports: what it shows of itself, and tries out.
 */
import type { Readable } from "node:stream";
import { isWorker, type Threads } from "../base/threads.ts";
import type { Json } from "../config/json.ts";
import { maskedConfig } from "../config/masked.ts";
import { NOT_LOADED } from "../config/feature_fields.ts";
import type { ConfigInput } from "../gateway/config_input.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type { Following, GatewayInternals } from "../gateway/internals.ts";
import type { CompleteOptions, GatewayHealth } from "../gateway/options.ts";
import type { GatewayStatus, LastTests, Reloaded, ReloadCause, TestReport } from "../gateway/status.ts";
import type { RequestDecision } from "../observe/decision_reader.ts";
import type { GatewayStats, StatsExtent } from "../observe/stats.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { DryRun } from "../proof/dry_run.ts";
import type * as dryRunsCode from "../proof/dry_runs.ts";
import type { DryRuns } from "../proof/dry_runs.ts";
import type * as explainCode from "../proof/explain.ts";
import type { Explanation, Question, CountedPlugin } from "../proof/explain.ts";
import { Reporting } from "../report/reporting.ts";
import { statusOf } from "../report/reports.ts";
import { upstreamSetReport } from "../upstream/upstream_report.ts";

export class ReportedGateway extends GatewayCore {
  /** Null: none has been asked for. */
  #dryRuns: DryRuns | null = null;
  /** Null: nobody has asked for a report. */
  #reporting: Reporting | null = null;

  constructor(options: CompleteOptions, threads?: Threads, following?: Following | null) {
    super(options, threads, following);
    if (!isWorker(this.#internals.runtime.threads) && this.#internals.metrics !== null)
      this.#internals.onActivate = () => this.#reports.start();
  }

  /** What reports on a gateway; for interfaces of the same program. */
  static reportingOf(gateway: ReportedGateway): Reporting {
    return gateway.#reports;
  }

  get #internals(): GatewayInternals {
    return GatewayCore.internalsOf(this);
  }

  /**
   * Applies a new configuration: `config`, else the file read again, once all of its tests pass. All or nothing: on
   * failure it rejects with a `ConfigError` and keeps the old configuration. Requests in progress finish with the
   * configuration they started with. Reloads run one after another; one without `config` that waits stands for all that
   * follow it.
   * `status.lastReload` reports both outcomes, with `by` as the cause. Rejects if the gateway is closed.
   */
  async reload(config?: ConfigInput, by: ReloadCause = "api"): Promise<Reloaded> {
    const { digest, changed, changes } = await this.#internals.reloads.reload(config, { by });
    return { digest, changed, changes };
  }

  /**
   * Loads the plugin modules that the next configuration names and that are not loaded yet: `await` it before `reload`,
   * which reports unusable modules. The configuration in force does not change.
   */
  loadModules(config?: ConfigInput): Promise<void> {
    return this.#internals.configuration.reader.loadModules(config);
  }

  /**
   * Applies new content of `files` (never of plugin modules, `testFiles` and `callerFiles`), under the configuration in
   * force. Everything else stays as it was loaded, whatever the configuration file, `${file:}` secrets and other files
   * hold by now: an error there must not keep a certificate from being renewed, and a rotated secret waits for
   * `reload`. All or nothing as `reload`. False when their content is the same, and once the gateway has been closed.
   */
  rereadFiles(): boolean {
    return this.#internals.reloads.rereadFiles();
  }

  /** Those of `files` that hold callers: they are read again by `reload` only. */
  get callerFiles(): readonly string[] {
    return this.#internals.configuration.snapshot.callerFiles;
  }

  /** The configuration in force, for display: as written, with defaults filled in and references unresolved. */
  get shownConfig(): Json {
    return this.#internals.configuration.snapshot.shown;
  }

  /** The same for users who may not see secrets: each literal secret is masked. */
  get maskedConfig(): Json {
    return maskedConfig(this.#internals.configuration.snapshot);
  }

  /** All about the gateway at this moment, as the admin interface reports it. */
  get status(): GatewayStatus {
    return statusOf(this.#internals);
  }

  /** The state of every upstream and every circuit breaker. */
  get health(): GatewayHealth {
    const { configuration, runtime } = this.#internals;
    const { upstreamSets } = configuration.snapshot.inUse;
    return {
      services: runtime.upstreamSets.map((each) => upstreamSetReport(each, upstreamSets.get(each.service)?.split)),
    };
  }

  /** Requests, errors and times of the last minute for every route and upstream, and of the last 15 minutes in all. */
  get stats(): GatewayStats {
    return this.recentStats("all");
  }

  /** As `stats`, of what `extent` says. */
  recentStats(extent: StatsExtent): GatewayStats {
    return this.#reports.stats(extent);
  }

  /**
   * Which route would get a request, which plugins it would pass and which upstreams could get it, and why; nothing is
   * sent or counted.
   */
  async explain(question: Question, secrets: "shown" | "masked" = "shown"): Promise<Explanation> {
    const { explain } = await this.#explaining();
    return explain(question, secrets === "shown" ? this.shownConfig : this.maskedConfig, this.#internals);
  }

  /** The enabled plugins of a route in the order in which they run, secrets masked; null: there is no such route. */
  async routePlugins(service: string, route: string): Promise<readonly CountedPlugin[] | null> {
    const { routePlugins } = await this.#explaining();
    return routePlugins(
      { service, route },
      this.maskedConfig,
      this.#internals.configuration.snapshot.kinds,
      this.#internals.metrics?.plugins,
    );
  }

  /** The built-in kinds, those of the modules in force, and those of the host. */
  get pluginKinds(): readonly AnyPlugin[] {
    return this.#internals.configuration.snapshot.kinds;
  }

  /** All metrics at this moment in Prometheus' text format 0.0.4. With thousands of busy routes it takes a while. */
  metrics(): string {
    return this.#reports.metrics();
  }

  /** The same as a stream, which lets requests through between its slices and waits for a slow reader. */
  metricsStream(): Readable {
    return this.#reports.metricsStream();
  }

  get #reports(): Reporting {
    const { metrics } = this.#internals;
    if (metrics === null) throw new Error(`the feature "reporting" ${NOT_LOADED}`);
    const reporting = this.#reporting ?? new Reporting({ ...this.#internals, metrics });
    this.#reporting = reporting;
    this.#internals.reporting = reporting;
    return reporting;
  }

  #explaining(): Promise<typeof explainCode> {
    return this.#internals.features.onDemand.explain() as Promise<typeof explainCode>;
  }

  /**
   * Runs the tests of the configuration in force whose names contain `only`, or all. Nothing is dialled, counted or
   * stored. Never rejects: a test that hangs fails after 2 seconds, and after 10 seconds the rest fails.
   */
  async test({ only }: { readonly only?: string } = {}): Promise<TestReport> {
    const { testInForce } = await this.#internals.features.onDemand.tests();
    return testInForce(this.#internals.configuration, only);
  }

  /**
   * Tries a reload without doing it: with `text`, a whole configuration, or with the source of the one in force, read
   * again. Runs in a thread of its own, unless the gateway has `plugins` of its host. Never rejects for errors in the
   * configuration; with a `Fault` if four others wait, or if it needs more than 30 seconds or 512 MB.
   */
  async dryRun(text: Buffer | null = null): Promise<DryRun> {
    const { DryRuns } = (await this.#internals.features.onDemand.dryRuns()) as typeof dryRunsCode;
    this.#dryRuns ??= new DryRuns(this.#internals.configuration);
    return this.#dryRuns.run(text, this.#internals.recent);
  }

  /** What became of the latest request with this id, if it is one of the last `global.decisions`; null: it is not. */
  async decision(id: string): Promise<RequestDecision | null> {
    const { metrics, features } = this.#internals;
    return metrics && (await features.onDemand.decisions()).findDecision(metrics, id);
  }

  /**
   * The last complete run of tests: at the start, by `test`, or of a reload, also of one that was refused. Null before
   * the first one.
   */
  get lastTests(): LastTests | null {
    return this.#internals.configuration.lastTests;
  }
}

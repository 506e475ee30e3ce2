/**
 * Loads and compiles a configuration apart from every running gateway: nothing is dialled, written, logged or counted,
 * and nothing is kept.
 */
import { systemClock, type Clock } from "../base/clock.ts";
import { silentLog } from "../base/log.ts";
import { ClientFailure } from "../client/client.ts";
import { AccessLog } from "../observe/access_log.ts";
import type { ConfigurationOptions } from "../gateway/options.ts";
import { Configuration, readFirst } from "../gateway/configuration.ts";
import type * as explainCode from "./explain.ts";
import type { Explanation, Question } from "./explain.ts";
import type { LoadedFeatures } from "../gateway/loaded_features.ts";
import type { ValidConfig, StandIns } from "../gateway/compile_types.ts";
import { Runtime } from "../gateway/runtime.ts";
import { compile } from "../gateway/snapshot.ts";
import { maskedConfig } from "../config/masked.ts";

export class Candidate {
  readonly configuration: Configuration;
  readonly #runtime: Runtime;
  readonly #clock: Clock;

  /**
   * Throws a `ConfigError` when the configuration is refused, and the error of a plugin that cannot be created.
   */
  constructor(options: ConfigurationOptions, clock: Clock = systemClock) {
    const first = readFirst(options, clock);
    this.#clock = clock;
    this.#runtime = new Runtime(clock, silentLog, undefined, undefined, options.modules);
    const accessLog = new AccessLog({ sink: null, clock, log: silentLog, features: options.modules });
    const tools = {
      features: options.modules,
      clock,
      log: silentLog,
      metrics: null,
      runtime: this.#runtime,
      accessLog,
      audit: null,
      tracer: null,
      standIns: OFFLINE,
    };
    try {
      this.configuration = new Configuration(first, tools);
    } catch (error) {
      this.#runtime.destroy();
      throw error;
    }
  }

  /** As `Gateway.explain`, with secrets masked. */
  async explain(question: Question): Promise<Explanation> {
    const { configuration } = this;
    const { explain } = (await configuration.features.onDemand.explain()) as typeof explainCode;
    return explain(question, maskedConfig(configuration.snapshot), {
      clock: this.#clock,
      log: silentLog,
      runtime: this.#runtime,
      configuration,
    });
  }

  /** Closes what its plugins hold. */
  async close(): Promise<void> {
    this.configuration.close();
    this.#runtime.destroy();
    await this.#runtime.closePluginState();
  }
}

/** Creates everything of a configuration and closes it again: throws the error of a plugin that cannot be created. */
export async function compileApart(valid: ValidConfig, features: LoadedFeatures): Promise<void> {
  const runtime = new Runtime(systemClock, silentLog, undefined, undefined, features);
  try {
    const { inUse } = compile(valid, {
      features,
      metrics: null,
      runtime,
      log: silentLog,
      tracer: null,
      onFault() {},
      standIns: OFFLINE,
    });
    runtime.abandon(inUse);
  } finally {
    runtime.destroy();
  }
}

/** For plugins that ask a server as soon as they are created. */
const OFFLINE: StandIns = {
  client: () => ({
    ask: () => Promise.reject(new ClientFailure("unreachable", "nothing is dialled here")),
    close() {},
  }),
  observed: (_plugin, middleware) => middleware,
  verifiedClaims: null,
  isTrial: true,
};

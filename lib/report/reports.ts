/**
 * The status of a gateway at one moment.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import type { Metrics } from "../observe/metrics_plan.ts";
import type { Listener } from "../server/listener.ts";
import type { CountersReport } from "../store/redis.ts";
import type { Configuration } from "../gateway/configuration.ts";
import type { DisplayedConfig } from "../gateway/displayed_config.ts";
import type { HttpsFacts } from "./https_facts.ts";
import type { Requests } from "../gateway/serve.ts";
import type { Runtime } from "../gateway/runtime.ts";
import type { WorkerReports } from "./worker_reports.ts";
import type { GatewayStatus, State } from "../gateway/status.ts";
import { warningsOf } from "./warnings.ts";

/** The parts of a gateway that reports are read from. */
export interface StatusSource {
  readonly clock: Clock;
  readonly log: Log;
  readonly configuration: Configuration;
  readonly requests: Requests;
  readonly runtime: Runtime;
  readonly listener: Listener;
  /** What workers have reported; null: there are none. */
  readonly reports: WorkerReports | null;
  /** Of traces; null: requests are not traced. */
  readonly spans: { readonly exported: number; readonly dropped: number } | null;
  /** `clock.now()` when the gateway was made. */
  readonly startedAt: number;
}

/** The same, with what statistics and metrics are made of. */
export interface ReportSource extends StatusSource {
  readonly metrics: Metrics;
}

/** The current listeners of a gateway. */
export interface Listening {
  readonly state: State;
  readonly hasPlain: boolean;
  /** Null: there are no HTTPS listeners. */
  readonly https: HttpsFacts | null;
}

export function statusOf(source: StatusSource, { state, hasPlain, https }: Listening): GatewayStatus {
  const { clock, configuration, requests, runtime, startedAt } = source;
  const { snapshot, loadedAt, lastReload, lastChange, lastTests, pluginFaults, followers } = configuration;
  const hostCertificates = snapshot.shownCertificates.map(({ where, path, names, commonName, notAfter }) => ({ where, path, names, commonName, notAfter }));
  const status = {
    version,
    state,
    ready: state === "serving" && configuration.followers?.serving !== 0,
    uptimeMs: clock.now() - startedAt,
    inFlight: requests.inFlight,
    digest: snapshot.digest,
    loadedAt,
    counts: snapshot.counts,
    lastReload,
    lastChange,
    counters: countersOf(source),
    workers: followers === null ? null : { configured: followers.configured, serving: followers.serving, restarts: followers.restarts },
    tests: lastTests === null || lastTests.report.tests.length === 0 ? null : { passed: lastTests.report.passed, failed: lastTests.report.failed },
    pluginFaults: [...pluginFaults.values()],
    certificates: [...(https === null ? [] : [https.certificate]), ...hostCertificates],
  };
  const listeners = hasPlain ? { https: https !== null, asksForCertificates: https?.asksForCertificates === true } : null;
  const shown = snapshot.shown as unknown as DisplayedConfig;
  const { configWarnings } = configuration;
  return { ...status, warnings: warningsOf({ ...status, upstreamSets: runtime.upstreamSets.map(({ report }) => report), shown, listeners, configWarnings, wall: clock.wall() }) };
}

/** The state of the counters that gateways share; null: there are none. */
export function countersOf({ runtime, reports }: StatusSource): CountersReport | null {
  return runtime.shared === null ? null : (reports?.counters ?? runtime.shared.report);
}

/**
 * The status of a gateway at one moment.
 */
import { isProgramReplaced } from "../base/own_code.ts";
import { version } from "../base/version.ts";
import type { Metrics } from "../observe/metrics_plan.ts";
import type { CountersReport } from "../store/counters.ts";
import type { DisplayedConfig } from "../gateway/displayed_config.ts";
import type { GatewayInternals } from "../gateway/internals.ts";
import type { Snapshot } from "../gateway/snapshot.ts";
import type { Configuration } from "../gateway/configuration.ts";
import type { ConfigSourceStatus, GatewayStatus } from "../gateway/status.ts";
import type { AcmeState } from "../server/issued_certificates.ts";
import { upstreamSetReport } from "../upstream/upstream_report.ts";
import { warningsOf } from "./warnings.ts";
import { workerReportsOf } from "./worker_reports.ts";

/** What statistics and metrics are made of. */
export interface ReportSource extends GatewayInternals {
  readonly metrics: Metrics;
}

export function statusOf(source: GatewayInternals): GatewayStatus {
  const {
    clock,
    configuration,
    requests,
    runtime,
    startedAt,
    listening: { state, isListening, https },
  } = source;
  const { snapshot, loadedAt, lastReload, lastChange, lastTests, pluginFaults, followers } = configuration;
  const hostCertificates = snapshot.shownCertificates.map(({ where, path, names, commonName, notAfter }) => ({
    where,
    path,
    names,
    commonName,
    notAfter,
  }));
  const issued = snapshot.issued === null ? [] : source.features.serverTls.shownIssued(snapshot.issued);
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
    workers:
      followers === null
        ? null
        : { configured: runtime.threads.count, serving: followers.serving, restarts: followers.restarts },
    tests:
      lastTests === null || lastTests.report.tests.length === 0
        ? null
        : { passed: lastTests.report.passed, failed: lastTests.report.failed },
    pluginFaults: [...pluginFaults.values()],
    certificates: [https?.certificate ?? [], ...hostCertificates, ...issued].flat(),
    revocationLists: snapshot.revocationLists,
    acme: acmeOf(snapshot),
    source: configSourceOf(configuration),
  };
  const listeners = isListening
    ? { https: https !== null, asksForCertificates: https?.asksForCertificates === true }
    : null;
  const shown = snapshot.shown as unknown as DisplayedConfig;
  const upstreamSets = runtime.upstreamSets.map((each) => upstreamSetReport(each));
  const further = {
    areQuotasKept: runtime.state !== null || runtime.shared !== null,
    isProgramReplaced: isProgramReplaced(),
    expiresAt: configuration.validity?.endOf(snapshot.config) ?? null,
    plainSecret: configuration.reader.textSource?.state?.plainSecret ?? null,
    wall: clock.wall(),
  };
  return {
    ...status,
    warnings: warningsOf({
      ...status,
      upstreamSets,
      unresolved: runtime.unresolved,
      shown,
      callers: snapshot.callers,
      listeners,
      configWarnings: configuration.configWarnings,
      ...further,
    }),
  };
}

/** Null: the configuration does not have `global.acme`. */
export function acmeOf({ issued }: Pick<Snapshot, "issued">): AcmeState | null {
  const state = issued?.state?.() ?? null;
  if (state === null || state.nextAt === null) return state;
  // A moment that is counted from now is not quite the same each time.
  return { ...state, nextAt: Math.ceil(state.nextAt / 1000) * 1000 };
}

/** Null: the configuration is in a file, or is a value. */
export function configSourceOf({ reader }: Pick<Configuration, "reader">): ConfigSourceStatus | null {
  const { textSource } = reader;
  const state = textSource?.state ?? null;
  if (state === null) return null;
  const { isUp: up, since, revision, problem, copy } = state;
  return { name: textSource!.name, up, since, revision, problem, copy };
}

/** The state of the counters that gateways share; null: there are none. */
export function countersOf(source: GatewayInternals): CountersReport | null {
  const { shared } = source.runtime;
  return shared === null ? null : (workerReportsOf(source)?.counters ?? shared.report);
}

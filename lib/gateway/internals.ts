/**
 * The types of what a gateway consists of, and of what a worker's gateway has of the one of the main thread.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { AccessLog } from "../observe/access_log.ts";
import type { Metrics } from "../observe/metrics_plan.ts";
import type { OtlpExporter } from "../observe/otlp.ts";
import type { Listener } from "../server/listener.ts";
import type { Bundle, Watch } from "./bundle.ts";
import type { Configuration } from "./configuration.ts";
import type { AuditTrail } from "./options.ts";
import type { LoadedFeatures } from "./loaded_features.ts";
import type { RecentRequests } from "./recent_requests.ts";
import type { Runtime } from "./runtime.ts";
import type { Reloads } from "./reloads.ts";
import type { Requests } from "./serve.ts";
import type { Listening } from "./status.ts";

/** See `GatewayCore.internalsOf`. */
export interface GatewayInternals {
  readonly clock: Clock;
  readonly log: Log;
  readonly features: LoadedFeatures;
  readonly configuration: Configuration;
  readonly reloads: Reloads;
  readonly requests: Requests;
  readonly runtime: Runtime;
  readonly listener: Listener;
  readonly listening: Listening;
  readonly accessLog: AccessLog;
  /** Null: there is no audit log. */
  readonly audit: AuditTrail | null;
  /** Null: nobody can ask for them. */
  readonly metrics: Metrics | null;
  /** Null: nobody can ask for them. */
  readonly recent: RecentRequests | null;
  /** Of traces; null: requests are not traced. */
  readonly spans: OtlpExporter | null;
  /** What workers have reported, see `workerReportsOf`; null: there are none. */
  readonly reports: { close(): void } | null;
  /** See `Gateway.reportingOf`; null: nobody has asked for a report. */
  reporting: { close(): void | Promise<void> } | null;
  /** Keeps certificates of `global.acme`; null: nothing does. */
  certificates: { rollover(): Promise<void>; close(): Promise<void> } | null;
  /** `clock.now()` when the gateway was made. */
  readonly startedAt: number;
  /** Called with the first request or listener. */
  onActivate: () => void;
}

/** How the gateway of a worker follows the one of the main thread. */
export interface Following {
  /** The configuration to start with. */
  readonly bundle: Bundle;
  /** Wraps the handler of every route. */
  readonly watched: Watch;
  /** Brings the prepared configuration into force if the main thread has done so. Called when a request arrives. */
  catchUp(configuration: Configuration): void;
}

/**
 * The options of a gateway and of its listeners, the parts that it joins, and the form in which it reports the health of its upstreams.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { TracingSettings } from "../config/tracing.ts";
import type { AccessLog } from "../observe/access_log.ts";
import type { Metrics } from "../observe/metrics_plan.ts";
import type { OtlpExporter } from "../observe/otlp.ts";
import type { Listener } from "../server/listener.ts";
import type { TlsFiles } from "../server/tls.ts";
import type { UpstreamSetReport } from "../upstream/upstream_report.ts";
import type { Bundle, Watch } from "./bundle.ts";
import type { ConfigurationOptions } from "./config_reader.ts";
import type { Configuration } from "./configuration.ts";
import type { Listening, Reporting, WorkerReports } from "./parts.ts";
import type { RecentRequests } from "./recent_requests.ts";
import type { Runtime } from "./runtime.ts";
import type { Requests } from "./serve.ts";

/** Those of a program, with the parts that its configuration names. */
export interface CompleteOptions extends ConfigurationOptions {
  /** Receives logged faults and reloads. Default: no log. */
  readonly log?: Log;
  /** Gets the access log, whole lines, where `global.access_log` is enabled and names no file. Default: nowhere. */
  readonly accessLog?: (lines: string) => void;
  /** The destination and sampling of traces. Default: none; `traceparent` passes through unchanged. */
  readonly tracing?: TracingSettings;
  /** The name of a cookie: sessions of admin interfaces in it are not forwarded. Default: none. */
  readonly adminCookie?: string;
  /** Default: the system's clock. */
  readonly clock?: Clock;
  /** Returns all addresses of an upstream's host name, at least one; rejects when there is none. Default: as the system does (getaddrinfo). */
  readonly lookup?: (host: string) => Promise<readonly { readonly address: string; readonly family: number }[]>;
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

export interface ListenOptions {
  /** 0: any free port. Default 8008. */
  readonly port?: number;
  /** Default "127.0.0.1". */
  readonly host?: string;
  /** A socket that is already bound, or listens, by its file descriptor, in place of `port` and `host`. TCP only. */
  readonly fd?: number;
  /** Makes it an HTTPS listener: HTTP/2 and HTTP/1.1 by ALPN. */
  readonly tls?: TlsFiles;
}

export interface GatewayHealth {
  /** In the order of the configuration. */
  readonly services: readonly UpstreamSetReport[];
}

/** See `GatewayCore.partsOf`. */
export interface GatewayParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly configuration: Configuration;
  readonly requests: Requests;
  readonly runtime: Runtime;
  readonly listener: Listener;
  readonly listening: Listening;
  readonly accessLog: AccessLog;
  /** Null: nobody can ask for them. */
  readonly metrics: Metrics | null;
  /** Null: nobody can ask for them. */
  readonly recent: RecentRequests | null;
  /** Of traces; null: requests are not traced. */
  readonly spans: OtlpExporter | null;
  /** What workers have reported; null: there are none. */
  readonly reports: WorkerReports | null;
  /** Null: nobody has asked for a report. */
  reporting: Reporting | null;
  /** `clock.now()` when the gateway was made. */
  readonly startedAt: number;
  /** Called with the first request or listener. */
  onActivate: () => void;
}

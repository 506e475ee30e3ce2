/**
 * The runtime settings of a gateway once they have been read.
 */
import type { LogFormat, LogLevel } from "../base/log.ts";
import type { SourceUrl } from "./source_url.ts";

export interface Settings {
  /** Of a file; where there is a `source`, its name, without secrets. */
  readonly configPath: string;
  /** Null: the configuration is in a file. */
  readonly source: SourceSettings | null;
  /** Null: the configuration needs no signature. */
  readonly configKeyPath: string | null;
  readonly tests: "run" | "skip";
  readonly listenHosts: readonly string[];
  /** Null: there is no plain listener. 0 means any free port, for the ports of other listeners too. */
  readonly httpPort: number | null;
  readonly httpsPort: number;
  readonly serverCertPath: string | null;
  readonly serverKeyPath: string | null;
  readonly caCertPath: string | null;
  /** Whether HTTPS clients are asked for a certificate, and whether a client without one is refused. */
  readonly clientAuth: "none" | "request" | "require";
  /** Whether there are settings that make sense only where HTTPS is served: a file of TLS, or `HTTP_PORT=off`. */
  readonly needHttps: boolean;
  readonly shutdownGraceS: number;
  readonly preStopDelayS: number;
  readonly logLevel: LogLevel;
  readonly logFormat: LogFormat;
  readonly persistence: "dbless";
  readonly workers: number | "auto";
  readonly stateDir: string | null;
  /** 32 bytes. Null: certificates of `global.acme` are not shared. */
  readonly acmeFleetKey: Buffer | null;
  readonly seal: boolean;
  /** Null: there is no audit log. */
  readonly audit: { readonly logPath: string; readonly refusals: boolean; readonly fail: "open" | "closed" } | null;
  /** Null when the admin interface is off. */
  readonly admin: AdminSettings | null;
  /**
   * Null when there is no listener for probes. `hosts`: names, besides localhost, by which its /metrics may be asked
   * without a token.
   */
  readonly probe: { readonly host: string; readonly port: number; readonly hosts: readonly string[] } | null;
  /** Null: metrics have no token of their own. */
  readonly metricsToken: string | null;
  /** Null when the management UI is off. */
  readonly manager: ManagerSettings | null;
  /** Null: requests are not traced. */
  readonly tracing: TracingSettings | null;
  /** Null: metrics are not sent. */
  readonly metricsExport: MetricsExport | null;
  /** Null: lines of the logs are not sent. */
  readonly logsExport: ExportSettings | null;
}

/** Where and how a configuration is asked for that is not in a file of this machine. */
export interface SourceSettings {
  readonly url: SourceUrl;
  /** From an answer to the next question, in milliseconds, ± 20 %. */
  readonly pollMs: number;
  /** File with a bearer token for HTTP; null: none is sent. It is read at each request. */
  readonly tokenPath: string | null;
  /** CA certificates (PEM); null: Node's own list. */
  readonly caPath: string | null;
  /** Client certificate and its key (PEM), both or neither. */
  readonly certPath: string | null;
  readonly keyPath: string | null;
  /** Of etcd. Null: it asks for none. */
  readonly user: { readonly name: string; readonly passwordPath: string } | null;
  /** Whether the text has to be signed (CONFIG_PUBLIC_KEY). */
  readonly isSigned: boolean;
  /** Whether nothing is written to etcd. */
  readonly isReadOnly: boolean;
}

export interface AdminSettings {
  /** The administrator of the settings; null: all users are in a file. */
  readonly user: string | null;
  /** Plain, or a hash made by `edge-gateway hash-password`; null where `user` is. */
  readonly password: string | null;
  /** Reads, with secrets masked. Null: there is no such user. */
  readonly viewer: { readonly user: string; readonly password: string } | null;
  /** File with further users and their roles. Null: there is none. */
  readonly usersPath: string | null;
  /** Whether administrators may change the configuration file, and operators drain upstreams. */
  readonly write: boolean;
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  /** Null: a random key for this process. */
  readonly jwtSecret: string | null;
  readonly sessionTtlS: number;
  readonly cookie: string;
  readonly redactSecrets: boolean;
  readonly corsOrigins: readonly string[];
  /** Host names, besides localhost, that are accepted over plain HTTP. */
  readonly hosts: readonly string[];
}

export interface ManagerSettings {
  readonly port: number;
  readonly host: string;
  readonly tls: boolean;
  /** Address of the admin interface, perhaps with a path, without a final slash. Null: the one of this process. */
  readonly backendUrl: string | null;
  /** Null: Node's own list of authorities. */
  readonly backendCaPath: string | null;
  /** Path of the start page: "/", or "/edge/" behind a proxy. Begins and ends with a slash. */
  readonly basePath: string;
  /** Has "{trace_id}". Null: trace ids are no links. */
  readonly traceUrl: string | null;
  /** Host names, besides localhost, that are accepted over plain HTTP. */
  readonly hosts: readonly string[];
}

/** Where a signal of OpenTelemetry is sent. */
export interface ExportSettings {
  /** URL that it is sent to, http or https, path included: "http://collector:4318/v1/traces". */
  readonly url: string;
  /** Additional request headers, such as credentials for the collector. Default: none. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Time limit for the answer to a batch, in milliseconds, 1–600000. Default 10000. */
  readonly timeoutMs?: number;
  /** CA certificates (PEM) that verify an https:// collector. Default: the CA certificates of the system. */
  readonly ca?: Buffer;
  /** Whether batches are compressed (RFC 9110 §8.4.1.3). Default "none". */
  readonly compression?: "none" | "gzip";
  /** Attributes of the gateway besides `service.name`, such as `deployment.environment.name`. Default: none. */
  readonly resource?: Readonly<Record<string, string>>;
  /** Default "edge-gateway". */
  readonly serviceName?: string;
}

/** Where metrics are sent. */
export interface MetricsExport extends ExportSettings {
  readonly intervalMs: number;
  /** Whether counts are those since the start, or since the last export that was accepted. */
  readonly temporality: "cumulative" | "delta";
}

/** The destination of traces, and which requests are traced. */
export interface TracingSettings extends ExportSettings {
  /** Default "parentbased_always_on": follow the decision in the request, and record all traces that start here. */
  readonly sampler?: TracesSampler;
  /** Share that the samplers with a ratio record, 0–1. Default 1. */
  readonly ratio?: number;
}

export type TracesSampler = RootSampler | `parentbased_${RootSampler}`;
type RootSampler = "always_on" | "always_off" | "traceidratio";

/** The settings, or all errors, one sentence each. */
export type SettingsRead<T> =
  { readonly ok: true; readonly settings: T } | { readonly ok: false; readonly issues: readonly string[] };

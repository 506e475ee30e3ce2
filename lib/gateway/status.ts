/**
 * Types of the reports of a gateway: its state, reloads, certificates, plugin faults and warnings.
 */
import type { CertificateFacts } from "../base/pem.ts";
import type { CountersReport } from "../store/redis.ts";
import type { Change } from "./config_diff.ts";

export interface Reloaded {
  readonly digest: string;
  /** False when the new configuration is the same as the old one. */
  readonly changed: boolean;
  /** The parts that were added, removed and altered; empty when nothing changed. */
  readonly changes: readonly Change[];
}

/** The cause of a reload: the watched file, a signal, the admin interface, or the program that embeds the gateway. */
export type ReloadCause = "file" | "signal" | "admin" | "api";

export type LastReload = {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly by: ReloadCause;
  /** Of the configuration in force after the reload: the old one when it was refused. */
  readonly digest: string;
} & ({ readonly outcome: "taken"; readonly changes: readonly Change[] } | { readonly outcome: "refused"; readonly issues: readonly string[] });

export interface GatewayStatus {
  readonly version: string;
  readonly state: State;
  readonly ready: boolean;
  /** Milliseconds since the gateway was made. */
  readonly uptimeMs: number;
  readonly inFlight: number;
  readonly digest: string;
  /** When the configuration in force was loaded, in milliseconds since 1970. */
  readonly loadedAt: number;
  readonly counts: { readonly services: number; readonly routes: number; readonly upstreams: number };
  /** Null before the first reload. */
  readonly lastReload: LastReload | null;
  /** The last reload that changed anything; null before the first one. */
  readonly lastChange: Extract<LastReload, { readonly outcome: "taken" }> | null;
  /** Of the counters that gateways share; null: rate limits count in this process. */
  readonly counters: CountersReport | null;
  /** Plugin instances of the configuration in force that were at fault for requests, which got a 500. */
  readonly pluginFaults: readonly PluginFaults[];
  /** The gateway's own: first the listeners', then `global.certificates`. */
  readonly certificates: readonly ShownCertificate[];
  readonly warnings: readonly Warning[];
}

export interface PluginFaults {
  /** The kind. */
  readonly plugin: string;
  readonly id: string | null;
  readonly level: "global" | "service" | "route";
  readonly service: string | null;
  readonly route: string | null;
  /** Since the gateway was made. */
  readonly count: number;
}

/** Facts about a certificate; never its content or its key. */
export interface ShownCertificate extends CertificateFacts {
  /** The setting that configures it: "SERVER_CERT_PATH", "listen" where a host gave it, "global.certificates[0]". */
  readonly where: string;
  /** Null where a host gave it. */
  readonly path: string | null;
}

/** Something an operator should know at this moment. */
export interface Warning {
  readonly code: WarningCode;
  /** The problem and the remedy, in one or two sentences. */
  readonly message: string;
  readonly service: string | null;
  readonly route: string | null;
}

export type WarningCode =
  | "reload_refused"
  | "certificate_expired"
  | "certificate_expires"
  | "certificates_unused"
  | "mtls_idle"
  | "limit_by_any_header"
  | "no_upstream"
  | "upstream_down"
  | "upstream_ejected"
  | "circuit_open"
  | "plugin_faults"
  | "more";

/** "stopping": no longer ready, but requests are still accepted. */
export type State = "serving" | "stopping" | "draining" | "closed";

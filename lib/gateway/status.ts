/**
 * Types of the reports of a gateway: its state, reloads, certificates, plugin faults and warnings.
 */
import type { CertificateFacts } from "../base/pem.ts";
import type { AcceptableWarning } from "../config/accepted_warnings.ts";
import type { Json, Path } from "../config/json.ts";
import type { CountersReport } from "../store/counters.ts";
import type { DefaultCertificate } from "../server/certificates.ts";
import type { AcmeState } from "../server/issued_certificates.ts";
import type { Change } from "./config_diff.ts";

export interface Reloaded {
  readonly digest: string;
  /** False when the new configuration is the same as the old one. */
  readonly changed: boolean;
  /** The resources that were added, removed and altered; empty when nothing changed. */
  readonly changes: readonly Change[];
}

/**
 * The cause of a reload: the watched file, the source of a configuration from a URL, a signal, the admin interface, or
 * the program that embeds the gateway.
 */
export type ReloadCause = "file" | "source" | "signal" | "admin" | "api";

/** Who asked for a configuration. The others than `by`: of an administrator. */
export interface AskedBy {
  readonly by: ReloadCause;
  readonly user?: string;
  readonly address?: string;
  readonly request_id?: string;
}

export type LastReload = {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly by: ReloadCause;
  /** Of the configuration in force after the reload: the old one when it was refused. */
  readonly digest: string;
} & ({ readonly outcome: "taken"; readonly changes: readonly Change[] } | ({ readonly outcome: "refused" } & Refusal));

/** What has become of one reload, whatever has followed it. */
export type ReloadOutcome =
  (Reloaded & { readonly outcome: "taken" }) | (Refusal & { readonly outcome: "refused"; readonly digest: string });

/** An error of a configuration. */
export interface ShownIssue {
  /** "services[0].routes[1].path"; "": the whole text. */
  readonly path: string;
  /** Null: there is no text, or no place in it. */
  readonly line: number | null;
  readonly column: number | null;
  readonly message: string;
  /** The path of another file that it is in, one of `test_files` or `caller_files`. */
  readonly file?: string;
  /**
   * Of a posted text, in which it is no error. "unsigned": this gateway takes signed configurations only. "unchecked":
   * only a reload, which reads the references, can tell.
   */
  readonly code?: "unsigned" | "unchecked";
  /** It stands for so many further ones. */
  readonly more?: number;
}

/** Why a configuration was refused. */
export interface Refusal {
  /** The file that `issues` without a file are of; null: there is none, or they are about something else. */
  readonly file: string | null;
  readonly issues: readonly ShownIssue[];
}

export interface TestResult {
  readonly name: string;
  readonly passed: boolean;
  /** `expect` as written. */
  readonly expected: Json;
  /** The same members with what was found; empty when there was no reply. */
  readonly found: Json;
  /** "status: expected 401, found 200", …; empty when it has passed. */
  readonly differences: readonly string[];
  /**
   * The members of `expected` that differ, in the order of their sentences, which are the first `differences`:
   * "status", "headers.Via".
   */
  readonly differing: readonly string[];
  /** It ran out of time, which says nothing about the configuration. */
  readonly late?: true;
}

export interface TestReport {
  readonly passed: number;
  readonly failed: number;
  /** Of a configuration that is only tried: tests whose results do not count; they are not in `tests`. */
  readonly notRun?: number;
  /** In the order of the configuration. */
  readonly tests: readonly TestResult[];
}

/** The last run of a configuration's tests. */
export interface LastTests {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Of the configuration that was tested: that of a refused one is not in force. */
  readonly digest: string;
  readonly report: TestReport;
}

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
  /** Threads that serve requests; null: there is one, and no other thread replaces it. */
  readonly workers: WorkersStatus | null;
  /** Of the last run of tests, also of a configuration that was refused; null where none has run. */
  readonly tests: { readonly passed: number; readonly failed: number } | null;
  /** Plugin instances of the configuration in force that were at fault for requests, which got a 500. */
  readonly pluginFaults: readonly PluginFaults[];
  /** The gateway's own: first the listeners', then `global.certificates`, then those of `global.acme`. */
  readonly certificates: readonly ShownCertificate[];
  /** Of `global.tls.client_crl`, then of services. */
  readonly revocationLists: readonly ShownRevocationList[];
  /** Of what keeps certificates of `global.acme`; null: the configuration does not have it. */
  readonly acme: AcmeState | null;
  /** Of a configuration from a URL; null: it is a file or a value. */
  readonly source: ConfigSourceStatus | null;
  readonly warnings: readonly Warning[];
}

/** What is known of the server that has the configuration; see `SourceState`. */
export interface ConfigSourceStatus {
  /** "https://config.example.com/gw.json" */
  readonly name: string;
  readonly up: boolean;
  /** When that began, in milliseconds since 1970. */
  readonly since: number;
  readonly revision: string | null;
  readonly problem: string | null;
  readonly copy: { readonly keptAt: number } | null;
}

export interface WorkersStatus {
  readonly configured: number;
  /** Fewer for a moment after one has ended, and for up to 30 seconds where they end again and again. */
  readonly serving: number;
  /** How many were replaced since the start. */
  readonly restarts: number;
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

/** The state of a gateway, and its current listeners. */
export interface Listening {
  state: State;
  isListening: boolean;
  /** Null: there are no HTTPS listeners. */
  https: HttpsFacts | null;
}

export interface HttpsFacts extends DefaultCertificate {
  /** Null: hosts of `global.certificates` alone are served. */
  readonly certificate: ShownCertificate | null;
  readonly asksForCertificates: boolean;
}

/** Facts about a certificate; never its content or its key. */
export interface ShownCertificate extends CertificateFacts {
  /**
   * The setting that configures it: "SERVER_CERT_PATH", "listen" where a host gave it, "global.certificates[0]",
   * "global.acme".
   */
  readonly where: string;
  /** Null where a host gave it, or it is ordered. */
  readonly path: string | null;
}

/** Facts about a list of revoked certificates. */
export interface ShownRevocationList {
  /** "global.tls.client_crl", "services.orders.tls.crl" */
  readonly where: string;
  readonly path: string;
  /** The common name of its issuer; null: it has none. */
  readonly issuer: string | null;
  /** When it ends, in milliseconds since 1970. */
  readonly notAfter: number;
}

/** Something an operator should know: about the configuration, or about the gateway at this moment. */
export interface Warning {
  readonly code: WarningCode;
  /**
   * By names: "services.shop.routes.items", "services.shop.plugins.jwt", where a plugin without an id has its kind;
   * null: about the gateway.
   */
  readonly path: string | null;
  /** The problem, one sentence. */
  readonly message: string;
  /** A request: "GET http://shop.example.com/items/x"; null where none applies. */
  readonly example: string | null;
  /** What to do, one sentence. */
  readonly remedy: string;
  readonly service: string | null;
  readonly route: string | null;
}

/** A warning about the configuration, computed from it alone. */
export interface ConfigWarning extends Warning {
  readonly code: "faults_injected" | AcceptableWarning | "stale_acceptance";
  readonly path: string;
  /** The same place by indexes, for its line and column in the file. */
  readonly at: Path;
}

export type WarningCode =
  | "reload_refused"
  | "source_unreachable"
  | "program_replaced"
  | "certificate_expired"
  | "certificate_expires"
  | "acme_not_shared"
  | "acme_unusable"
  | "crl_expired"
  | "crl_expires"
  | "crl_unused"
  | "key_expires"
  | "configuration_expired"
  | "configuration_expires"
  | "certificates_unused"
  | "mtls_idle"
  | "quota_not_durable"
  | "counters_down"
  | "workers_missing"
  | "no_upstream"
  | "srv_unresolved"
  | "backups_serve"
  | "upstream_down"
  | "upstream_ejected"
  | "upstream_taken_out"
  | "circuit_open"
  | "plugin_faults"
  | "faults_injected"
  | AcceptableWarning
  | "stale_acceptance"
  | "more";

/** "stopping": no longer ready, but requests are still accepted. */
export type State = "serving" | "stopping" | "draining" | "closed";

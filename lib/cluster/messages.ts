/**
 * The messages between the main thread and its workers, and what a worker is started with.
 */
import type { Right } from "../base/rights.ts";
import type { LogFormat, LogLevel } from "../base/log.ts";
import type { TracingSettings } from "../config/settings_types.ts";
import type { Bundle, ReportExtent } from "../gateway/bundle.ts";
import { ConfigError } from "../gateway/config_error.ts";
import type { FeatureName } from "../gateway/loaded_features.ts";
import type { AuditSettings, BoundAddress, CompleteOptions } from "../gateway/options.ts";
import type { AuditEvent } from "../observe/audit_log.ts";
import type { TailBatch, TailReader } from "../observe/tail.ts";
import type { WorkerReport } from "../report/worker_reports.ts";
import type { TlsFiles } from "../server/certificates.ts";
import type { Challenge, Issued, IssuedCertificate } from "../server/issued_certificates.ts";
import type { Purge } from "../plugins/cache/purge.ts";
import type { UpstreamFailures } from "../upstream/contracts.ts";
import type { UpstreamState } from "../upstream/taken_out.ts";

/** To a worker. It deals with one after the other. */
export type ToWorker =
  /** The worker listens from now on. */
  | { readonly type: "listen" }
  | (NumberedTask & WorkerTask)
  | { readonly type: "commit" }
  | { readonly type: "abandon" }
  /** Both steps at once: a reload was committed while this worker started. */
  | { readonly type: "replace"; readonly bundle: Bundle }
  | { readonly type: "tls"; readonly files: TlsFiles }
  /** See `Followers.useCertificates`. */
  | { readonly type: "certificates"; readonly certificates: readonly IssuedCertificate[] }
  | { readonly type: "ticketKey"; readonly key: Uint8Array }
  | { readonly type: "announceStop" }
  /** Answers "audit". */
  | { readonly type: "audited"; readonly isWritten: boolean }
  /** See `WorkerReports.tail`. */
  | { readonly type: "tail"; readonly readers: readonly TailReader[] }
  /** See `Gateway.close`; answered with "closed". */
  | { readonly type: "close"; readonly graceMs: number };

/** The number of a task, which its answer has. */
export interface NumberedTask {
  readonly ask: number;
}

/** What the main thread has a worker do; each is answered. */
export type WorkerTask =
  /** The first step of a reload. The answer says why the worker refuses the configuration. */
  | { readonly type: "prepare"; readonly bundle: Bundle }
  /** See `Followers.setUpstream`. */
  | ({ readonly type: "setUpstream" } & UpstreamState)
  /** See `Followers.purge`; the answer has the number. */
  | { readonly type: "purge"; readonly purge: Purge }
  /** See `Followers.setChallenge`. */
  | { readonly type: "challenge"; readonly challenge: Challenge; readonly is: "open" | "over" }
  /** A "report" comes before the answer. */
  | { readonly type: "report"; readonly extent: ReportExtent }
  /** See `Listener.stopAccepting`. */
  | { readonly type: "stopAccepting"; readonly lingerMs: number };

/** To the main thread. */
export type ToMain =
  /** The configuration is compiled: the worker waits for "listen". */
  | { readonly type: "compiled" }
  /** The worker serves. */
  | { readonly type: "listening" }
  /** The worker cannot serve, and ends. */
  | { readonly type: "failed"; readonly reason: string }
  /** A task is done; or, of "prepare", why it is refused. */
  | ({ readonly type: "answer"; readonly refusal: string | null; readonly count?: number } & NumberedTask)
  /** One line of the program's log. */
  | { readonly type: "log"; readonly line: string }
  /** Whole lines of the access log. */
  | { readonly type: "access"; readonly lines: string }
  /** See `AuditLog.addEvents`; answered with "audited". */
  | { readonly type: "audit"; readonly events: readonly AuditEvent[]; readonly lost: number }
  /** Also when the worker ends. */
  | { readonly type: "report"; readonly report: WorkerReport }
  | { readonly type: "tail"; readonly batches: readonly TailBatch[] }
  /** Requests that upstreams failed. */
  | { readonly type: "failures"; readonly failures: readonly UpstreamFailures[] }
  | { readonly type: "closed"; readonly outcome: "drained" | "cut" };

/**
 * What a worker posts. Plugins may post to `parentPort`, too: a message of theirs is not under this name, whatever its
 * members are.
 */
export interface Posted {
  readonly edgeGateway: ToMain;
}

/** `workerData` of a worker; the first four are the same for all. */
export interface WorkerStart {
  readonly log: { readonly level: LogLevel; readonly format: LogFormat };
  readonly tracing: TracingSettings | null;
  /** Those that settings name. */
  readonly features: readonly FeatureName[];
  /** See `CompleteOptions`. */
  readonly asked: NonNullable<CompleteOptions["asked"]>;
  /** See `CompleteOptions`. */
  readonly areDurationsSent: boolean;
  /** Null: there is no audit log. */
  readonly audit: AuditSettings | null;
  /** To give up before anything else; none without SEAL. */
  readonly rights: readonly Right[];
  /** See `CompleteOptions`; null without an admin interface. */
  readonly adminCookie: string | null;
  readonly id: number;
  readonly worker: number;
  readonly count: number;
  readonly bundle: Bundle;
  readonly addresses: readonly BoundAddress[];
  readonly tls: TlsFiles | null;
  /** Of `global.acme`; null: there is none. */
  readonly issued: Issued | null;
  readonly ticketKey: Uint8Array;
  /**
   * The word `VERSION`, then for each worker one word with its beats, then one with the lines of its log
   * that wait.
   */
  readonly words: Int32Array;
  /** See `InFlight`. */
  readonly inFlight: SharedArrayBuffer;
}

/** Index of the version of the configuration that is in force. */
export const VERSION = 0;
/** Index of the beats of a worker, by its number. */
export const beatsOf = (worker: number) => 1 + worker;
/** Index of the number of lines of the log that a worker has sent and the main thread has not written. */
export const waitingLinesOf = (worker: number, count: number) => 1 + count + worker;
/** How often a worker counts a beat, and how often the main thread looks. In milliseconds. */
export const BEAT_MS = 1_000;

/** The error of a worker that cannot use a configuration. */
export function refusal(worker: number, reason: string): ConfigError {
  const issues = reason
    .trimEnd()
    .split("\n")
    .map((line) => ({ at: [], message: `worker ${worker}: ${line}`, position: null }));
  return new ConfigError(issues, undefined);
}

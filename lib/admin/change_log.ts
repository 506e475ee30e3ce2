/**
 * Reports changes by the administrator: each is a line of the program's log, and of the audit log where there is one.
 */
import type { Log } from "../base/log.ts";
import type { AuditSink } from "../observe/audit_log.ts";
import type { Purge } from "../plugins/cache/purge.ts";

export type AdminChange = {
  readonly user: string;
  readonly address: string;
  readonly request_id: string;
} & (
  | (BeforeAndAfter & { readonly action: "source" | "rollback" })
  | (BeforeAndAfter & { readonly action: "upstream"; readonly service: string; readonly upstream: string })
  /** Of the key of the account at this directory. */
  | { readonly action: "rollover"; readonly directory: string }
  | (Purge & { readonly action: "purge"; readonly purged: number })
);

/** Digests, or states of the upstream. */
interface BeforeAndAfter {
  readonly before: string;
  readonly after: string;
}

/** Resolves when the audit log has it, see `AuditLog.written`. */
export async function logChange(
  { log, audit }: { readonly log: Log; readonly audit?: AuditSink | null },
  change: AdminChange,
): Promise<void> {
  log.info("admin change", { ...change });
  audit?.add("admin_change", { by: "admin", ...change });
  await audit?.written();
}

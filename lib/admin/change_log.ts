/**
 * Reports changes by the administrator: each is a line of the program's log, of the audit log and of a file of its own,
 * where they are set.
 */
import { appendFile } from "node:fs/promises";
import { closeSync, openSync } from "node:fs";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { AuditSink } from "../observe/audit_log.ts";
import { whyUnwritable } from "../observe/log_file.ts";

export type AdminChange = {
  readonly user: string;
  readonly address: string;
  /** Digests, or states of the upstream. */
  readonly before: string;
  readonly after: string;
  readonly request_id: string;
} & (
  | { readonly action: "source" | "rollback" }
  | { readonly action: "upstream"; readonly service: string; readonly upstream: string }
);

export class ChangeLog {
  readonly #path: string | null;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #audit: AuditSink | null;
  #last: Promise<void> = Promise.resolve();
  /** Lines that could not be written; the next line says how many. */
  #lost = 0;

  /**
   * Throws where lines could not be written. The file is opened for each line, so that it may be renamed at any time.
   */
  constructor(path: string | null, clock: Clock, log: Log, audit: AuditSink | null = null) {
    this.#path = path;
    this.#clock = clock;
    this.#log = log;
    this.#audit = audit;
    if (path === null) return;
    try {
      closeSync(openSync(path, "a", 0o600));
    } catch (error) {
      throw new Error(`ADMIN_AUDIT_LOG: cannot write to ${path}: ${whyUnwritable(error)}`);
    }
  }

  /** Resolves when the audit log has it, see `AuditLog.written`. */
  async add(change: AdminChange): Promise<void> {
    this.#log.info("admin change", { ...change });
    this.#audit?.add("admin_change", { by: "admin", ...change });
    const time = new Date(this.#clock.wall()).toISOString();
    this.#last = this.#last.then(() => this.#write({ time, message: "admin change", ...change }));
    await this.#audit?.written();
  }

  async #write(line: object): Promise<void> {
    if (this.#path === null) return;
    try {
      await appendFile(this.#path, `${JSON.stringify(this.#lost === 0 ? line : { ...line, lost: this.#lost })}\n`, {
        mode: 0o600,
      });
      this.#lost = 0;
    } catch (error) {
      this.#lost++;
      this.#log.error("a line of the file of changes is lost", {
        file: this.#path,
        lost: this.#lost,
        error: messageOf(error),
      });
    }
  }
}

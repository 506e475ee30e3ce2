/**
 * The audit log of a program: from before its start to its end.
 */
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import type { Settings } from "../config/settings_types.ts";
import { GatewayAudit } from "../gateway/gateway_audit.ts";
import type { AuditTrail } from "../gateway/options.ts";
import { ConfigError } from "../gateway/gateway.ts";
import { AuditLog } from "../observe/audit_log.ts";
import { Failure, type ExitCode } from "./failure.ts";

/**
 * Runs `serve` with the log of the settings. Throws what it throws, and a `Failure` where AUDIT_FAIL=closed and there
 * is no log.
 */
export async function audited(
  settings: Settings,
  logger: Log,
  serve: (settings: Settings, log: Log, audit: AuditTrail) => Promise<ExitCode>,
): Promise<ExitCode> {
  const { logPath: path, refusals, fail } = settings.audit!;
  const log = new AuditLog({ path, fail, clock: systemClock, log: logger });
  const failing = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  log.onChange = () => Atomics.store(failing, 0, log.isFailing ? 1 : 0);
  try {
    await log.start();
    log.add("start", { by: "start", version, pid: process.pid });
    if (!(await log.written())) throw new Error("its first line could not be written");
  } catch (error) {
    await log.close();
    throw new Failure(`AUDIT_LOG (--audit-log): cannot write to ${path}: ${messageOf(error)}`, 2);
  }
  const onExit = (code: number) => log.endAtOnce("stop", { by: "signal", code });
  process.on("exit", onExit);
  const audit = new GatewayAudit({ fail, refusals, failing }, log);
  let by = "error";
  try {
    const code = await serve(settings, logger, audit);
    by = "signal";
    return code;
  } catch (error) {
    if (error instanceof ConfigError) audit.refused({ by: "start" }, error, null);
    throw error;
  } finally {
    process.off("exit", onExit);
    log.add("stop", { by });
    await log.close();
  }
}

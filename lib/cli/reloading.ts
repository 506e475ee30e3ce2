/**
 * Reloads the configuration, or the files that it names, and logs the outcome.
 */
import type { Log } from "../base/log.ts";
import type { Settings } from "../config/settings_types.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { linesOf, whyRefused } from "../gateway/refusal.ts";
import type { Replacement } from "../gateway/reloads.ts";
import type { AskedBy, ReloadOutcome } from "../gateway/status.ts";
import { changeLine, type Change } from "../gateway/config_diff.ts";
import { logWarnings } from "./counted.ts";

/** Per reload; `edge-gateway reload` and GET /gateway/status list all changes. */
const MAX_LOGGED_CHANGES = 20;

/**
 * Reloads the configuration; if it is refused, the old one stays in force and the reason is logged. `onEnd` is called
 * before the log: a reader of the log may change files at once. With a `replacement` of the file it rejects instead.
 */
export async function reloadFrom(
  gateway: GatewayCore,
  asked: AskedBy,
  settings: Settings,
  log: Log,
  onEnd: () => void = () => {},
  replacement?: Replacement,
): Promise<ReloadOutcome> {
  const isJson = settings.logFormat === "json";
  const { reloads } = GatewayCore.internalsOf(gateway);
  const { by } = asked;
  try {
    const { digest, changed, changes, inForce, signer } = await (
      replacement === undefined ? reloads.reload(undefined, asked, "to load") : reloads.replaceFile(replacement, asked)
    ).finally(onEnd);
    const count = (which: Change["change"]) => changes.filter(({ change }) => change === which).length;
    const counts = changed ? { added: count("added"), altered: count("altered"), removed: count("removed") } : {};
    const lines = changes.slice(0, MAX_LOGGED_CHANGES).map(changeLine);
    const message = changed
      ? "configuration reloaded"
      : "configuration read again: its text is the same, its secrets were resolved again";
    log.info(message, {
      digest,
      by,
      ...counts,
      ...inForce.snapshot.counts,
      ...(signer !== undefined && { signed_by: signer }),
      ...(changed && isJson && { changes: lines }),
    });
    if (!isJson) for (const line of lines) log.info(`  ${line}`);
    logWarnings(log, gateway.configWarnings);
    return { outcome: "taken", digest, changed, changes };
  } catch (error) {
    if (replacement !== undefined) throw error;
    const refusal = whyRefused(error);
    const issues = linesOf(refusal);
    const { digest } = gateway;
    log.error(`reload refused, configuration ${digest} stays in force`, {
      file: settings.configPath,
      by,
      ...(isJson && { issues }),
    });
    if (!isJson) for (const issue of issues) log.error(`  ${issue}`);
    return { outcome: "refused", digest, ...refusal };
  }
}

/** Reloads the files that the configuration in force names, if their content has changed. */
export async function reloadNamedFiles(gateway: GatewayCore, log: Log): Promise<void> {
  const { reloads } = GatewayCore.internalsOf(gateway);
  try {
    if (!(await reloads.rereadFilesInAll())) return;
    log.info("files that the configuration names reloaded", { digest: gateway.digest });
  } catch (error) {
    log.error("new files that the configuration names refused, the old files stay in use", {
      reason: (error as Error).message,
    });
  }
}

/**
 * Reloads the configuration, or the files that it names, and logs the outcome.
 */
import type { Log } from "../base/log.ts";
import type { Settings } from "../config/settings.ts";
import type { Replacement } from "../gateway/reloads.ts";
import { GatewayCore, type LastReload, type ReloadCause } from "../gateway/gateway.ts";
import { linesOf } from "../gateway/refusal.ts";
import type { Change } from "../proof/config_diff.ts";
import { logWarnings } from "./counted.ts";

/** Per reload; `edge-gateway reload` and GET /gateway/status list all changes. */
const MAX_LOGGED_CHANGES = 20;

/**
 * Reloads the configuration; if it is refused, the old one stays in force and the reason is logged. `onEnd` is called
 * before the log: a reader of the log may change files at once. With a `replacement` of the file it rejects instead.
 * `who`: see `AskedBy`.
 */
export async function reloadFrom(
  gateway: GatewayCore,
  by: ReloadCause,
  settings: Settings,
  log: Log,
  onEnd: () => void = () => {},
  replacement?: Replacement,
  who: object = {},
): Promise<LastReload> {
  const isJson = settings.logFormat === "json";
  const {
    audit,
    configuration,
    runtime: { parts },
  } = GatewayCore.partsOf(gateway);
  const before = gateway.digest;
  await parts.loadPart("reloads");
  // The reload fails for the same reason, and reports it.
  if (replacement === undefined) await configuration.reader.loadModules().catch(() => {});
  let taken: LastReload | null = null;
  try {
    const { reloads } = configuration;
    const { digest, changed, changes } = await (
      replacement === undefined ? reloads.reload(undefined, by) : reloads.replaceFile(replacement, by)
    ).finally(onEnd);
    const { loadedAt: at, lastReload, signer } = configuration;
    // The next reload in the queue may have failed by now.
    taken = lastReload?.outcome === "taken" ? lastReload : { at, by, digest, outcome: "taken", changes };
    audit?.applied({ by, ...who }, before, { snapshot: { digest }, signer });
    const count = (which: Change["change"]) => changes.filter(({ change }) => change === which).length;
    const counts = changed ? { added: count("added"), altered: count("altered"), removed: count("removed") } : {};
    const lines = changes.slice(0, MAX_LOGGED_CHANGES).map(parts.part("changes").changeLine);
    const message = changed
      ? "configuration reloaded"
      : "configuration read again: its text is the same, its secrets were resolved again";
    log.info(message, {
      digest,
      by,
      ...counts,
      ...gateway.counts,
      ...(signer !== undefined && { signed_by: signer }),
      ...(changed && isJson && { changes: lines }),
    });
    if (!isJson) for (const line of lines) log.info(`  ${line}`);
    logWarnings(log, gateway.configWarnings);
  } catch (error) {
    const { lastReload } = configuration;
    audit?.refused({ by, ...who }, error, gateway.digest);
    if (replacement !== undefined || lastReload?.outcome !== "refused") throw error;
    const issues = linesOf(lastReload);
    log.error(`reload refused, configuration ${gateway.digest} stays in force`, {
      file: settings.configPath,
      by,
      ...(isJson && { issues }),
    });
    if (!isJson) for (const issue of issues) log.error(`  ${issue}`);
  }
  return taken ?? configuration.lastReload!;
}

/** Reloads the files that the configuration in force names, if their content has changed. */
export async function reloadNamedFiles(gateway: GatewayCore, log: Log): Promise<void> {
  const { audit, configuration } = GatewayCore.partsOf(gateway);
  try {
    if (!(await configuration.rereadFilesInAll())) return;
    audit?.applied({ by: "file" }, gateway.digest, configuration);
    log.info("files that the configuration names reloaded", { digest: gateway.digest });
  } catch (error) {
    audit?.refused({ by: "file" }, error, gateway.digest);
    log.error("new files that the configuration names refused, the old files stay in use", {
      reason: (error as Error).message,
    });
  }
}

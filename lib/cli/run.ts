/**
 * `edge-gateway run`: starts what the settings ask for, says what listens where, reloads on change, and ends on a signal.
 */
import { resolve } from "node:path";
import { createLog, type Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import { readSettings, type Settings } from "../config/settings.ts";
import { watchFile } from "../config/watch.ts";
import { ConfigError, type Gateway } from "../gateway/gateway.ts";
import { UsageError, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";
import { start, type Started } from "./start.ts";
import { describeCounts } from "./validate.ts";

/** Resolves at shutdown. Throws what `main` reports. */
export async function run(given: Arguments): Promise<ExitCode> {
  if (given.operands.length > 0) throw new UsageError(`"${given.operands[0]}" is one word too many; the configuration is named by --config FILE`);
  const settings = settingsFrom(given);
  const log = logFor(settings);
  // Watched before it is read: a change that falls into the start is a change, too.
  const watcher = watchFile(resolve(settings.configPath), { onChange: () => reload() });
  const starting = start(settings, { configFile: settings.configPath, accessLog: toStandardOutput }, log);
  const reload = () => void starting.then(({ gateway }) => reloadFrom(gateway, settings, log)).catch(() => {});
  process.on("SIGHUP", reload);
  try {
    const started = await starting;
    const stopped = untilStopped(started, settings, log); // before anybody is told that it runs, and may signal it
    announce(started, settings, log);
    return await stopped;
  } finally {
    watcher.close();
    process.off("SIGHUP", reload);
  }
}

export function settingsFrom(given: Arguments, environment: NodeJS.ProcessEnv = process.env): Settings {
  const read = readSettings(given.flags, environment, { terminal: process.stderr.isTTY === true });
  if (!read.ok) throw new UsageError(read.issues.join("\nedge-gateway: "));
  return read.settings;
}

export function logFor(settings: Settings): Log {
  return createLog({ level: settings.logLevel, format: settings.logFormat });
}

function toStandardOutput(lines: string): void {
  process.stdout.write(lines);
}

/** Takes the file's new content, or says why not and stays with the old. */
function reloadFrom(gateway: Gateway, settings: Settings, log: Log): void {
  try {
    const { digest, changed } = gateway.reload();
    log.info(changed ? "configuration reloaded" : "configuration read again: its text is the same, its secrets were resolved anew", { digest, ...gateway.counts });
  } catch (error) {
    const issues = error instanceof ConfigError ? error.message.trimEnd().split("\n") : [(error as Error).message];
    const inLine = settings.logFormat === "json" ? { issues } : {};
    log.error(`reload refused, configuration ${gateway.digest} stays in force`, { file: settings.configPath, ...inLine });
    if (settings.logFormat === "text") for (const issue of issues) log.error(`  ${issue}`);
  }
}

function announce({ gateway, http, https, adminUrl }: Started, settings: Settings, log: Log): void {
  const off = {
    https: "off: SERVER_CERT_PATH and SERVER_KEY_PATH are not set",
    admin: "off: ADMIN_USER and ADMIN_PASSWORD are not set",
  };
  const clients = { none: "", request: ", clients are asked for a certificate", require: ", clients need a certificate" }[settings.clientAuth];
  const rows: [string, string][] = [
    ["config", `${settings.configPath} (${describeCounts(gateway.counts)}), digest ${gateway.digest}`],
    ["http", http.join("  ")],
    ["https", https.length === 0 ? off.https : `${https.join("  ")} (HTTP/2 and HTTP/1.1${clients})`],
    ["admin", adminUrl ?? off.admin],
    ["reload", "when the file changes, and on SIGHUP"],
  ];
  if (settings.logFormat === "json") {
    const listeners = { http, https: https.length === 0 ? off.https : https, admin: adminUrl ?? off.admin };
    log.info(`edge-gateway ${version} started`, { config: settings.configPath, digest: gateway.digest, ...gateway.counts, ...listeners });
  } else if (settings.logLevel === "debug" || settings.logLevel === "info") {
    const lines = rows.map(([name, text]) => `  ${name.padEnd(7)}${text}\n`);
    process.stderr.write(`edge-gateway ${version} started\n${lines.join("")}`);
  }
}

const LINGER_MS = 500;

/** SIGTERM and SIGINT: not ready, stop accepting, finish what is in flight within the grace, exit 0. A second one ends at once. */
export function untilStopped({ gateway, admin }: Started, settings: Settings, log: Log): Promise<ExitCode> {
  return new Promise((resolveWith) => {
    let stopping = false;
    const stop = async (signal: NodeJS.Signals) => {
      if (stopping) {
        log.warn(`${signal} again: ending at once`);
        process.exit(1);
      }
      stopping = true;
      log.info(`${signal}: draining`, { in_flight: gateway.inFlight, grace_s: settings.shutdownGraceS });
      const outcome = await gateway.close(settings.shutdownGraceS * 1000);
      await admin?.close();
      if (outcome === "cut") log.warn("the grace ran out: what was still in flight has been cut off");
      log.info("stopped");
      // What may be left (a name lookup that hangs) has nothing more to say, and must not hold the end up.
      setTimeout(() => process.exit(0), LINGER_MS).unref();
      process.off("SIGTERM", stop).off("SIGINT", stop);
      resolveWith(0);
    };
    process.on("SIGTERM", stop).on("SIGINT", stop);
  });
}

/**
 * `edge-gateway run`: starts what the settings ask for, says what listens where, reloads on change, and ends on a signal.
 */
import { resolve } from "node:path";
import { systemClock } from "../base/clock.ts";
import { createLog, type Log } from "../base/log.ts";
import { waitAtMost } from "../base/wait_at_most.ts";
import { version } from "../base/version.ts";
import { readSettings, type Settings } from "../config/settings.ts";
import { watchFile } from "../config/watch.ts";
import type { Change } from "../gateway/config_diff.ts";
import type { Gateway, LastReload, ReloadCause } from "../gateway/gateway.ts";
import { LineWriter } from "../observe/line_writer.ts";
import { UsageError, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";
import { createTlsRenewal, rereadFrom, watchFiles } from "./renewal.ts";
import { start, type Started } from "./start.ts";
import { untilStopped } from "./stop.ts";
import { tlsPaths } from "./tls_files.ts";
import { describeCounts } from "./validate.ts";

/** Resolves at shutdown. Throws what `main` reports. */
export async function run(given: Arguments): Promise<ExitCode> {
  if (given.operands.length > 0) throw new UsageError(`"${given.operands[0]}" is one word too many; the configuration is named by --config FILE`);
  const settings = settingsFrom(given);
  const log = logFor(settings);
  // HasDeadline before they are read: a change that falls into the start is a change, too.
  const watcher = watchFile(resolve(settings.configPath), { onChange: whenStarted((started) => reload(started, "file")) });
  const renew = createTlsRenewal(settings, log);
  const tlsFiles = watchFiles(whenStarted(renew));
  tlsFiles.follow(tlsPaths(settings));
  const namedFiles = watchFiles(whenStarted(async (started) => {
    // A configuration that was refused may have been so for these files. Whatever else is wrong with it, they are renewed.
    if (started.gateway.status.lastReload?.outcome === "refused") await reload(started, "file");
    else followFiles(started);
  }));
  const onHangup = whenStarted((started) => reloadAll(started, "signal"));
  process.on("SIGHUP", onHangup);
  // Without it the signal would make node open a port for debuggers.
  const onUser1 = whenStarted(({ gateway }) => gateway.reopenAccessLog());
  process.on("SIGUSR1", onUser1);
  const output = new LineWriter({ fd: process.stdout.fd }, { log, clock: systemClock });
  const options = { configFile: settings.configPath, accessLog: (lines: string) => output.write(lines) };
  const starting = start(settings, { ...options, reload: async (started) => reloadAll(await started, "admin") }, log);
  try {
    const started = await starting;
    followFiles(started);
    const stopped = untilStopped(endBySignal(started, settings, log), log); // before anybody is told that it runs, and may signal it
    announce(started, settings, log);
    warnOfIdle(started, log);
    warnOfNode(started, log);
    const code = await stopped;
    // A reader that reads no more must not hold the end up.
    await waitAtMost(output.close(), LINGER_MS);
    return code;
  } finally {
    for (const each of [watcher, tlsFiles, namedFiles]) each.close();
    process.off("SIGHUP", onHangup).off("SIGUSR1", onUser1);
  }

  function whenStarted(act: (started: Started) => unknown): () => void {
    return () => void starting.then(act).catch(() => {});
  }

  /** The configuration, and every file that it or the settings name. */
  function reloadAll(started: Started, by: ReloadCause): Promise<LastReload> {
    renew(started);
    return reload(started, by);
  }

  async function reload(started: Started, by: ReloadCause): Promise<LastReload> {
    const reloaded = await reloadFrom(started.gateway, by, settings, log);
    followFiles(started);
    return reloaded;
  }

  function followFiles({ gateway }: Started): void {
    namedFiles.follow(gateway.files);
    rereadFrom(gateway, log); // what has changed before they were watched, too
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

/** More are counted in the log; `edge-gateway reload` and GET /gateway/status tell all of them. */
const MOST_CHANGES_TOLD = 20;

/** Takes the configuration's new content, or says why not and stays with the old. */
export async function reloadFrom(gateway: Gateway, by: ReloadCause, settings: Settings, log: Log): Promise<LastReload> {
  await gateway.loadModules();
  try {
    const { digest, changed, changes } = gateway.reload(undefined, by);
    const count = (which: Change["change"]) => changes.filter(({ change }) => change === which).length;
    const message = changed ? "configuration reloaded" : "configuration read again: its text is the same, its secrets were resolved anew";
    const counts = changed ? { added: count("added"), altered: count("altered"), removed: count("removed") } : {};
    const told = changes.slice(0, MOST_CHANGES_TOLD).map(({ change, name }) => `${change.padEnd(8)} ${name}`);
    const inLine = changed && settings.logFormat === "json" ? { changes: told } : {};
    log.info(message, { digest, by, ...counts, ...gateway.counts, ...inLine });
    if (settings.logFormat === "text") for (const line of told) log.info(`  ${line}`);
  } catch (error) {
    const { lastReload } = gateway.status;
    if (lastReload?.outcome !== "refused") throw error;
    const { issues } = lastReload;
    const inLine = settings.logFormat === "json" ? { issues } : {};
    log.error(`reload refused, configuration ${gateway.digest} stays in force`, { file: settings.configPath, by, ...inLine });
    if (settings.logFormat === "text") for (const issue of issues) log.error(`  ${issue}`);
  }
  return gateway.status.lastReload!;
}

function announce({ gateway, http, https, adminUrl, managerUrl }: Started, settings: Settings, log: Log): void {
  const off = {
    https: "off: SERVER_CERT_PATH and SERVER_KEY_PATH are not set",
    admin: "off: ADMIN_USER and ADMIN_PASSWORD are not set",
    manager: "off: --manager (MANAGER=true) starts the management UI",
  };
  const clients = { none: "", request: ", clients are asked for a certificate", require: ", clients need a certificate" }[settings.clientAuth];
  const rows: [string, string][] = [
    ["config", `${settings.configPath} (${describeCounts(gateway.counts)}), digest ${gateway.digest}`],
    ["http", http.join("  ")],
    ["https", https.length === 0 ? off.https : `${https.join("  ")} (HTTP/2 and HTTP/1.1${clients})`],
    ["admin", adminUrl ?? off.admin],
    ["manager", managerUrl ?? off.manager],
    ["reload", `when the file changes, and on SIGHUP${adminUrl === null ? "" : ", and by edge-gateway reload"}`],
  ];
  // Of the URL no more: keys for a collector may stand in its path.
  const traces = settings.tracing === null ? null : new URL(settings.tracing.url).origin;
  if (traces !== null) rows.push(["traces", `to ${traces}, ${settings.tracing!.sampler}`]);
  if (settings.logFormat === "json") {
    const listeners = { http, https: https.length === 0 ? off.https : https, admin: adminUrl ?? off.admin, manager: managerUrl ?? off.manager };
    const told = { ...gateway.counts, ...listeners, ...(traces === null ? {} : { traces }) };
    log.info(`edge-gateway ${version} started`, { config: settings.configPath, digest: gateway.digest, ...told });
  } else if (settings.logLevel === "debug" || settings.logLevel === "info") {
    const lines = rows.map(([name, text]) => `  ${name.padEnd(9)}${text}\n`);
    process.stderr.write(`edge-gateway ${version} started\n${lines.join("")}`);
  }
}

/** What is weak in the configuration, or not made possible by the settings, is said once; GET /gateway/status says it as long as it is so. */
function warnOfIdle({ gateway }: Started, log: Log): void {
  for (const { code, message } of gateway.status.warnings) if (SAID_AT_START.has(code)) log.warn(message);
}

const SAID_AT_START: ReadonlySet<string> = new Set(["certificates_unused", "mtls_idle", "limit_by_any_header"]);
/** The first nghttp2 that HTTP/2 clients cannot abort the process with (CVE-2026-27135). */
const FIXED_NGHTTP2 = [1, 68, 1];

/** Logs a warning if clients may speak HTTP/2 and the `nghttp2` of this Node ("1.61.0") is older than the fixed one. */
export function warnOfNode({ gateway, https }: Pick<Started, "gateway" | "https">, log: Log, nghttp2 = process.versions.nghttp2): void {
  const { h2c } = (gateway.shownConfig as { readonly global: { readonly h2c: boolean } }).global;
  if (nghttp2 === undefined || (https.length === 0 && !h2c)) return;
  const parts = nghttp2.split(".").map(Number);
  const at = FIXED_NGHTTP2.findIndex((part, i) => part !== parts[i]);
  if (at < 0 || (parts[at] ?? 0) > FIXED_NGHTTP2[at]!) return;
  const fixed = FIXED_NGHTTP2.join(".");
  const remedy = "run the gateway with Node 24 or the newest Node 22";
  const message = `HTTP/2 clients can abort this process: the nghttp2 of this Node is older than ${fixed} (CVE-2026-27135); ${remedy}`;
  log.warn(message, { node: process.version, nghttp2 });
}

const LINGER_MS = 500;

/**
 * The end of a gateway: not ready, serve on for as long as load balancers need to learn of it, stop accepting, finish what is in flight
 * within the grace.
 */
export function endBySignal({ gateway, admin, manager }: Started, settings: Settings, log: Log): (signal: NodeJS.Signals) => Promise<void> {
  return async (signal) => {
    if (settings.preStopDelayS > 0) {
      gateway.announceStop();
      log.info(`${signal}: not ready any more, still serving`, { in_flight: gateway.inFlight, delay_s: settings.preStopDelayS });
      await new Promise((resolve) => setTimeout(resolve, settings.preStopDelayS * 1000));
    }
    log.info(`${signal}: draining`, { in_flight: gateway.inFlight, grace_s: settings.shutdownGraceS });
    const outcome = await gateway.close(settings.shutdownGraceS * 1000);
    await admin?.close();
    await manager?.close(); // last, so that one can watch the others end
    if (outcome === "cut") log.warn("the grace ran out: what was still in flight has been cut off");
    // What may be left (a name lookup that hangs) has nothing more to say, and must not hold the end up.
    setTimeout(() => process.exit(0), LINGER_MS).unref();
  };
}

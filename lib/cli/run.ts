/**
 * `edge-gateway run`: starts the gateway and the interfaces of the settings, reloads when files change or on a signal,
 * and ends on a signal.
 */
import { systemClock, waitAtMost } from "../base/clock.ts";
import { Fault, ignore, messageOf } from "../base/errors.ts";
import { withoutGrowth, withoutOptimizing } from "../base/heap_growth.ts";
import type { Log } from "../base/log.ts";
import { holdToStart, manifestProblem } from "../base/own_code.ts";
import type { Settings } from "../config/settings_types.ts";
import { FileTextSource } from "../config/file_source.ts";
import type { Flags } from "../config/start_settings.ts";
import type { TextSource } from "../config/text_source.ts";
import { watchFiles } from "../config/watch.ts";
import { answerForThread } from "../gateway/faults.ts";
import { ConfigError, GatewayCore } from "../gateway/gateway.ts";
import type { AuditTrail } from "../gateway/options.ts";
import type { Replacement } from "../gateway/reloads.ts";
import type { AskedBy } from "../gateway/status.ts";
import { LineWriter } from "../observe/line_writer.ts";
import { announce } from "./announce.ts";
import { Failure, reportErrors, type ExitCode } from "./failure.ts";
import { ON_DEMAND, openLog, settingsOf } from "./on_demand.ts";
import { reloadFrom, reloadNamedFiles } from "./reloading.ts";
import { drain, endAtOnce, LINGER_MS, untilStopped } from "./shutdown.ts";
import { start, type Started } from "./start.ts";

/** Throws a `Failure`. */
export async function run({
  flags,
  unknown = [],
}: {
  readonly flags: Flags;
  readonly unknown?: readonly string[];
}): Promise<ExitCode> {
  const problem = manifestProblem();
  if (problem !== null) throw new Failure(problem, 1);
  const settings = await settingsOf(flags, process.env, { terminal: process.stderr.isTTY === true, issues: unknown });
  try {
    const hasThreads = settings.workers !== 1 || settings.admin !== null;
    const own = hasThreads ? (await ON_DEMAND.settings()).inOwnFolder(settings) : settings;
    const log = await openLog(own);
    return await (own.audit === null ? serve(own, log) : (await ON_DEMAND.auditLog()).audited(own, log, serve));
  } catch (error) {
    if (error instanceof ConfigError) return reportErrors(error);
    throw error;
  }
}

async function serve(settings: Settings, log: Log, audit: AuditTrail | null = null): Promise<ExitCode> {
  const tls = settings.needHttps ? await ON_DEMAND.serverTls() : null;
  const sockets = process.env.LISTEN_FDS
    ? (await ON_DEMAND.sockets()).passedSockets(process.env, process.pid, settings, log)
    : undefined;
  const count = (module: string) =>
    whenStarted(({ gateway }) => GatewayCore.internalsOf(gateway).metrics?.pluginFailed(module))();
  const stopAnswering = answerForThread(log, count, (error) => {
    log.error("an uncaught error ends the program", { error: messageOf(error, "stack") });
    process.exit(1);
  });
  // The start reports its own failure.
  const whenStarted: WhenStarted = (act) => () =>
    void starting
      .then(act, ignore)
      .catch((error: unknown) =>
        log.error("a signal, or a change of a file, has led to an error", { error: messageOf(error, "stack") }),
      );
  const startedAt = Date.now();
  const remote =
    settings.source === null
      ? null
      : await (await ON_DEMAND.remoteConfig()).RemoteConfig.open(settings, settings.source, log, ON_DEMAND);
  const { configPath: configFile, configKeyPath } = settings;
  const textSource = remote?.source ?? new FileTextSource(configFile, configKeyPath);
  const { followFiles, reloadAll, followSource, close } = reloadOnChange(
    { settings, tls, textSource },
    whenStarted,
    log,
  );
  const onHangup = whenStarted((started) => {
    // Under Node's permission model SIGUSR1 does not arrive.
    started.gateway.reopenAccessLog();
    return reloadAll(started, { by: "signal" }).catch((error: unknown) => {
      if (!(error instanceof Fault)) throw error;
      log.error(`no reload, configuration ${started.gateway.digest} stays in force`, { error: error.message });
    });
  });
  const onUser1 = whenStarted(({ gateway }) => gateway.reopenAccessLog()); // by default Node would open a debugger port
  process.on("SIGHUP", onHangup).on("SIGUSR1", onUser1);
  const output = new LineWriter(process.stdout.fd, { log, clock: systemClock });
  const options = {
    audit,
    configFile,
    textSource,
    tests: settings.tests,
    ...(configKeyPath !== null && { configKeyFile: configKeyPath }),
    ...(remote && { probes: remote.probes }),
    ...(sockets && { sockets }),
    accessLog: (lines: string) => output.write(lines),
  };
  let started: Started | null = null;
  let stopped: Promise<ExitCode> | null = null;
  // From the first open port on a request may be in flight, and the start goes on: what it opens is drained when it is
  // there.
  const onListen = () => {
    const cut = async () => {
      if (started !== null) await endAtOnce(started, log);
      await waitAtMost(output.close(), LINGER_MS);
    };
    stopped = untilStopped(async (signal) => drain(signal, await starting, settings, log), log, cut);
    stopped.catch(ignore);
  };
  const begin = () => {
    followSource();
    return withoutGrowth(() =>
      withoutOptimizing(() =>
        start(
          settings,
          {
            ...options,
            reload: async (replacement, who) => reloadAll(await starting, { by: "admin", ...who }, replacement),
            onListen,
          },
          log,
        ),
      ),
    );
  };
  const starting: Promise<Started> = remote === null ? begin() : remote.arrive().then(begin);
  try {
    started = await starting;
    remote?.follow(started);
    holdToStart();
    followFiles(started, startedAt);
    audit?.applied({ by: "start" }, null, inForce(started));
    announce(started, settings, log);
    await started.fleet?.join(started, textSource);
    const code = await stopped!;
    if (settings.logsExport !== null) await (await ON_DEMAND.logsExport()).endLogs(log);
    await waitAtMost(output.close(), LINGER_MS);
    return code;
  } finally {
    close();
    if (started === null) await remote?.probes?.server.close();
    process.off("SIGHUP", onHangup).off("SIGUSR1", onUser1);
    stopAnswering();
  }
}

/** Apart from `serve`, which waits for the end, and would hold the first configuration in memory until then. */
function inForce({ gateway }: Started) {
  const { snapshot, signer } = GatewayCore.internalsOf(gateway).configuration;
  return { digest: snapshot.digest, signer };
}

type WhenStarted = (act: (started: Started) => unknown) => () => void;

/**
 * Watches the configuration and all files that it and the settings name, from before they are read: no change during
 * the start is missed.
 */
function reloadOnChange({ settings, tls, textSource }: Watched, whenStarted: WhenStarted, log: Log) {
  const { configKeyPath } = settings;
  const reloadingFiles = (documents: readonly string[]) => [configKeyPath ?? [], documents].flat();
  const renewTls = tls?.createTlsRenewal(settings, log);
  const renew = (started: Started) => {
    renewTls?.(started);
    started.users?.reread();
  };
  /** A file that has changed since the configuration which names it was read, from `since` on, is read again. */
  const followFiles = ({ gateway }: Started, since: number) => {
    const {
      refusedFiles,
      snapshot: { testFiles, callerFiles },
    } = GatewayCore.internalsOf(gateway).configuration;
    const documents = [...testFiles, ...callerFiles];
    // Without files that `namedFiles` follows, whose change would else be two reloads.
    reloading.follow(
      reloadingFiles([...documents, ...refusedFiles.filter((path) => !gateway.files.includes(path))]),
      since,
    );
    const named = gateway.files.filter((path) => !documents.includes(path));
    namedFiles.follow(named);
    // Includes changes before the files were watched.
    if (named.length > 0) reloadNamedFiles(gateway, log).catch(({ message }: Error) => log.error(message));
  };
  const reload = async (started: Started, asked: AskedBy, replacement?: Replacement) => {
    const since = Date.now();
    const written = replacement && { ...replacement, write: () => replacement.write(textSource.expect) };
    const onEnd = () => followFiles(started, since);
    return withoutGrowth(() => reloadFrom(started.gateway, asked, settings, log, onEnd, written));
  };
  /** The configuration, and every file that it or the settings name. */
  const reloadAll = async (started: Started, asked: AskedBy, replacement?: Replacement) => {
    renew(started);
    await textSource.refresh().catch((error: unknown) => {
      throw new Fault("source_unreachable", messageOf(error));
    });
    return reload(started, asked, replacement);
  };
  const ofSettings = watchFiles(whenStarted(renew));
  ofSettings.follow([
    ...(tls?.tlsPaths(settings) ?? []),
    ...(settings.admin?.usersPath ? [settings.admin.usersPath] : []),
  ]);
  const namedFiles = watchFiles(
    whenStarted((started) => {
      // The named files may be the reason why a configuration was refused.
      if (GatewayCore.internalsOf(started.gateway).configuration.lastReload?.outcome === "refused")
        return reload(started, { by: "file" });
      return followFiles(started, Date.now());
    }),
  );
  const reloading = watchFiles(whenStarted((started) => reload(started, { by: "file" })));
  reloading.follow(reloadingFiles([]));
  const close = () => [reloading, ofSettings, namedFiles, textSource].forEach((watched) => watched.close());
  const onSource = whenStarted((started) => reload(started, { by: textSource.cause }));
  const followSource = () => textSource.onChange(onSource);
  return { followFiles, reloadAll, followSource, close };
}

interface Watched {
  readonly settings: Settings;
  /** Null: nothing of the settings needs HTTPS. */
  readonly tls: Awaited<ReturnType<typeof ON_DEMAND.serverTls>> | null;
  readonly textSource: TextSource;
}

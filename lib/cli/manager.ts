/**
 * The management UI: `edge-gateway manager` runs it alone for the admin interface of another process; `start.ts` opens it next to
 * a gateway.
 */
import type { Admin } from "../admin/server.ts";
import { systemClock } from "../base/clock.ts";
import { createLog, type Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import { readManagerSettings, type LoneManagerSettings } from "../config/command_settings.ts";
import type { ManagerSettings } from "../config/settings.ts";
import { watchFiles } from "../config/watch.ts";
import { Parts } from "../gateway/parts.ts";
import { TABLE } from "../parts/table.ts";
import { createManager, ofThisProcess, type Manager } from "../manager/server.ts";
import type { OperatorTls } from "../operator/operator_server.ts";
import { isLoopback, reachable, urlOf, where } from "./addresses.ts";
import type { RunCommand } from "./arguments.ts";
import { ON_DEMAND } from "./commands.ts";
import { accepted, Failure, listenFailure } from "./failure.ts";
import { untilStopped } from "./shutdown.ts";
import { refuseLacking, TLS_PARTS } from "./named_parts.ts";
import { createTlsRenewal, readAuthorities, readTlsFiles, tlsPaths } from "./tls_files.ts";

export const manager: RunCommand = async (given) => {
  const settings = accepted(readManagerSettings(given.flags, process.env, { terminal: process.stderr.isTTY === true }));
  const log = createLog({ level: settings.logLevel, format: settings.logFormat });
  const tlsSettings = { ...settings, caCertPath: null, clientAuth: "none" } as const;
  const tls = settings.manager.tls ? readTlsFiles(tlsSettings, log) : null;
  if (tls !== null) refuseLacking(TLS_PARTS);
  const parts = new Parts(TABLE);
  if (tls !== null) for (const name of TLS_PARTS) await parts.loadPart(name);
  const opened = await openManager(settings.manager, null, tls && { ...tls, part: (name) => parts.part(name) }, log);
  const url = await listenManager(opened, settings.manager, log);
  const renew = createTlsRenewal(tlsSettings, log);
  const renewNow = () => {
    if (tls !== null) renew({ manager: opened, tls });
  };
  const tlsFiles = watchFiles(renewNow);
  if (tls !== null) tlsFiles.follow(tlsPaths(tlsSettings));
  process.on("SIGHUP", renewNow); // without TLS too: SIGHUP must not end the process
  const stopped = untilStopped(() => opened.close(), log); // finishes the requests in flight
  announce(url, settings, log);
  try {
    return await stopped;
  } finally {
    tlsFiles.close();
    process.off("SIGHUP", renewNow);
  }
};

function announce(url: string, { manager: { backendUrl }, logFormat, logLevel }: LoneManagerSettings, log: Log): void {
  if (logFormat === "json") log.info(`edge-gateway ${version} manager started`, { manager: url, backend: backendUrl });
  else if (logLevel === "debug" || logLevel === "info") {
    process.stderr.write(`edge-gateway ${version} manager started\n  manager  ${url}\n  backend  ${backendUrl}\n`);
  }
}

/** `admin` is the admin interface of this process, which is used unless the settings name another. */
export async function openManager(settings: ManagerSettings, admin: Admin | null, tls: OperatorTls | null, log: Log): Promise<Manager> {
  const { backendUrl, backendCaPath, hosts } = settings;
  const ca = backendCaPath === null ? null : readAuthorities(backendCaPath, "MANAGER_BACKEND_CA_PATH");
  const another = backendUrl === null ? null : await ON_DEMAND.managerProxy();
  try {
    const backend = another === null ? ofThisProcess(admin!.answer) : new another.AdminProxy({ url: new URL(backendUrl!), ca }, systemClock, log);
    return createManager({ backend, tls: settings.tls ? tls : null, hosts, clock: systemClock, log });
  } catch (error) {
    throw new Failure((error as Error).message, 1);
  }
}

/** Resolves with the URL for a browser on this machine, which stores the session cookie for https and localhost only. */
export async function listenManager(opened: Manager, { host, port, tls }: ManagerSettings, log: Log): Promise<string> {
  try {
    const url = reachable(urlOf(tls ? "https" : "http", await opened.listen({ host, port })));
    if (!tls && !isLoopback(host)) {
      const remedy = "to log in from other machines, set MANAGER_TLS=true or put an HTTPS proxy in front of it";
      log.warn(`the management UI listens on plain HTTP beyond this machine: browsers store its cookie on http://localhost only; ${remedy}`);
    }
    return url;
  } catch (error) {
    throw listenFailure(error as NodeJS.ErrnoException, where(host, port), "MANAGER_PORT", "MANAGER_HOST");
  }
}

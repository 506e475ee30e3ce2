/**
 * The management UI: `edge-gateway manager` runs it alone for the admin interface of another process; `start.ts` opens it next to
 * a gateway.
 */
import type { Admin } from "../admin/server.ts";
import { systemClock } from "../base/clock.ts";
import { createLog, type Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import { readManagerSettings, type LoneManagerSettings, type ManagerSettings } from "../config/settings.ts";
import { watchFiles } from "../config/watch.ts";
import { Parts } from "../gateway/parts.ts";
import { TABLE } from "../parts/table.ts";
import { createManager, type Manager } from "../manager/server.ts";
import type { OperatorTls } from "../server/operator_server.ts";
import { isLoopback, reachable } from "./addresses.ts";
import type { RunCommand } from "./arguments.ts";
import { accepted, Failure } from "./failure.ts";
import { refuseLacking, TLS_PARTS } from "./on_demand.ts";
import { opened, type Opened } from "./operators.ts";
import { untilStopped } from "./shutdown.ts";
import { createTlsRenewal, readAuthorities, readTlsFiles, tlsPaths } from "./tls_files.ts";

export const manager: RunCommand = async (given) => {
  const settings = accepted(readManagerSettings(given.flags, process.env, { terminal: process.stderr.isTTY === true }));
  const log = createLog({ level: settings.logLevel, format: settings.logFormat });
  const tlsSettings = { ...settings, caCertPath: null, clientAuth: "none" } as const;
  const tls = settings.manager.tls ? readTlsFiles(tlsSettings, log) : null;
  if (tls !== null) refuseLacking(TLS_PARTS);
  const parts = new Parts(TABLE);
  if (tls !== null) for (const name of TLS_PARTS) await parts.loadPart(name);
  const { server, listen } = openManager(settings.manager, null, tls && { ...tls, part: (name) => parts.part(name) }, log);
  const url = await listen();
  const renew = createTlsRenewal(tlsSettings, log);
  const renewNow = () => {
    if (tls !== null) renew({ manager: server, tls });
  };
  const tlsFiles = watchFiles(renewNow);
  if (tls !== null) tlsFiles.follow(tlsPaths(tlsSettings));
  process.on("SIGHUP", renewNow); // without TLS too: SIGHUP must not end the process
  const stopped = untilStopped(() => server.close(), log); // finishes the requests in flight
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

/**
 * `admin` is the admin interface of this process, which is used unless the settings name another. The URL is for a browser on this machine, which
 * stores the session cookie for https and localhost only.
 */
export function openManager(settings: ManagerSettings, admin: Admin | null, tls: OperatorTls | null, log: Log): Opened<Manager> {
  const { backendUrl, backendCaPath, hosts, host } = settings;
  const ca = backendCaPath === null ? null : readAuthorities(backendCaPath, "MANAGER_BACKEND_CA_PATH");
  const backend = backendUrl === null ? admin!.answer : { url: new URL(backendUrl), ca };
  try {
    const { server, listen } = opened(createManager({ backend, tls: settings.tls ? tls : null, hosts, clock: systemClock, log }), settings, "MANAGER");
    const listenReachably = async () => {
      const url = reachable(await listen());
      if (!settings.tls && !isLoopback(host)) log.warn(BEYOND_THIS_MACHINE);
      return url;
    };
    return { server, listen: listenReachably };
  } catch (error) {
    throw new Failure((error as Error).message, 1);
  }
}

const BEYOND_THIS_MACHINE =
  "the management UI listens on plain HTTP beyond this machine: browsers store its cookie on http://localhost only; to log in from other machines, set MANAGER_TLS=true or put an HTTPS proxy in front of it";

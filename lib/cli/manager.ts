/**
 * `edge-gateway manager`: the management UI by itself, before the admin interface of a gateway that runs elsewhere.
 * Beside a gateway, in its process, it is started by `start.ts`.
 */
import { createLog, type Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import { readManagerSettings, type LoneManagerSettings } from "../config/settings.ts";
import { UsageError, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";
import { listenManager, openManager } from "./open_manager.ts";
import { createTlsRenewal, watchFiles } from "./renewal.ts";
import { untilStopped } from "./stop.ts";
import { readTlsFiles, tlsPaths } from "./tls_files.ts";

/** Resolves at shutdown. Throws what `main` reports. */
export async function managerCommand(given: Arguments): Promise<ExitCode> {
  if (given.operands.length > 0) throw new UsageError(`"${given.operands[0]}" is one word too many; the admin interface is named by --manager-backend-api-url URL`);
  const read = readManagerSettings(given.flags, process.env, { terminal: process.stderr.isTTY === true });
  if (!read.ok) throw new UsageError(read.issues.join("\nedge-gateway: "));
  const { settings } = read;
  const { manager: own } = settings;
  const log = createLog({ level: settings.logLevel, format: settings.logFormat });
  const tlsSettings = { ...settings, caCertPath: null, clientAuth: "none" } as const;
  const tls = own.tls ? readTlsFiles(tlsSettings, log) : null;
  const manager = openManager(own, null, tls, log);
  const url = await listenManager(manager, own, log);
  const renew = createTlsRenewal(tlsSettings, log);
  const renewNow = () => {
    if (tls !== null) renew({ manager, tls });
  };
  const tlsFiles = watchFiles(renewNow);
  if (tls !== null) tlsFiles.follow(tlsPaths(tlsSettings));
  process.on("SIGHUP", renewNow); // on plain HTTP, too, where there is nothing to renew: it is no end
  const stopped = untilStopped(() => manager.close(), log); // answers what is under way
  announce(url, settings, log);
  try {
    return await stopped;
  } finally {
    tlsFiles.close();
    process.off("SIGHUP", renewNow);
  }
}

function announce(url: string, { manager, logFormat, logLevel }: LoneManagerSettings, log: Log): void {
  if (logFormat === "json") log.info(`edge-gateway ${version} manager started`, { manager: url, backend: manager.backendUrl });
  else if (logLevel === "debug" || logLevel === "info") {
    process.stderr.write(`edge-gateway ${version} manager started\n  manager  ${url}\n  backend  ${manager.backendUrl}\n`);
  }
}

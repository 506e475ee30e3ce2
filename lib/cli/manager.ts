/**
 * `edge-gateway manager`: runs the management UI alone, for the admin interface of another process.
 */
import { createLog, type Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import { readManagerSettings, type LoneManagerSettings } from "../config/command_settings.ts";
import { watchFiles } from "../config/watch.ts";
import { LoadedFeatures } from "../gateway/loaded_features.ts";
import { TABLE } from "../features/table.ts";
import type { RunCommand } from "./arguments.ts";
import { accepted, refuseLacking } from "./failure.ts";
import { openManager } from "./management_ui.ts";
import { ON_DEMAND } from "./on_demand.ts";
import { untilStopped } from "./shutdown.ts";
import { createTlsRenewal, readTlsFiles, tlsPaths } from "./tls_files.ts";

export const manager: RunCommand = async (given) => {
  const settings = accepted(
    readManagerSettings(given.flags, process.env, {
      terminal: process.stderr.isTTY === true,
      issues: given.unknown ?? [],
    }),
  );
  const log = createLog({ level: settings.logLevel, format: settings.logFormat });
  const tlsSettings = { ...settings, caCertPath: null, clientAuth: "none" } as const;
  const files = settings.manager.tls ? readTlsFiles(tlsSettings, log) : null;
  const tls = files?.cert ? files : null;
  const named = tls === null ? [] : (["serverTls", "http2"] as const);
  refuseLacking(named);
  const features = new LoadedFeatures(TABLE);
  for (const name of named) await features.loadFeature(name);
  const { server, listen } = openManager(settings.manager, {
    admin: null,
    proxy: await ON_DEMAND.managerProxy(),
    tls: tls && { ...tls, features },
    log,
  });
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

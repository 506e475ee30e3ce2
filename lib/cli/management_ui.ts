/**
 * Opens the management UI.
 */
import type { Admin } from "../admin/server.ts";
import { systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { isLoopback } from "../base/url_destination.ts";
import type { ManagerSettings } from "../config/settings_types.ts";
import type * as ManagerProxy from "../manager/proxy.ts";
import { createManager, ofThisProcess, type Manager } from "../manager/server.ts";
import type { OperatorTls } from "../operator/operator_server.ts";
import { Failure } from "./failure.ts";
import { opened, reachableUrl, type Opened } from "./operators.ts";
import { readAuthorities } from "./named_files.ts";

interface ManagerParts {
  /** The admin interface of this process, which is used unless the settings name another. */
  readonly admin: Admin | null;
  /** Null: the settings name no other. */
  readonly proxy: typeof ManagerProxy | null;
  readonly tls: OperatorTls | null;
  readonly log: Log;
}

/**
 * The URL is for a browser on this machine, which stores the session cookie for https and localhost only. Throws a
 * `Failure`.
 */
export function openManager(settings: ManagerSettings, { admin, proxy, tls, log }: ManagerParts): Opened<Manager> {
  const { backendUrl, backendCaPath, basePath, traceUrl, hosts, host } = settings;
  const ca = backendCaPath === null ? null : readAuthorities(backendCaPath, "MANAGER_BACKEND_CA_PATH");
  try {
    const backend =
      proxy === null
        ? ofThisProcess(admin!.answer)
        : new proxy.AdminProxy({ url: new URL(backendUrl!), ca }, systemClock, log);
    const { server, listen } = opened(
      createManager({
        backend,
        tls: settings.tls ? tls : null,
        hosts,
        basePath,
        traceUrl,
        clock: systemClock,
        log,
      }),
      settings,
      "MANAGER",
    );
    const listenReachably = async () => {
      const origin = reachableUrl(await listen());
      const url = basePath === "/" ? origin : origin + basePath;
      if (!settings.tls && !isLoopback(host)) {
        const remedy = "to log in from other machines, set MANAGER_TLS=true or put an HTTPS proxy in front of it";
        log.warn(
          `the management UI listens on plain HTTP beyond this machine: ` +
            `browsers store its cookie on http://localhost only; ${remedy}`,
        );
      }
      return url;
    };
    return { server, listen: listenReachably };
  } catch (error) {
    throw new Failure((error as Error).message, 1);
  }
}

/**
 * Opens the management UI as the settings ask for it, and has it listen; what is wrong becomes a sentence that names the setting.
 * The command that starts it alone is `manager.ts`.
 */
import type { Admin } from "../admin/server.ts";
import { systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { ManagerSettings } from "../config/settings.ts";
import { createManager, type Manager } from "../manager/server.ts";
import type { Pair } from "../server/certificates.ts";
import { isLoopback, reachable, urlOf, where } from "./addresses.ts";
import { listenFailure, StartError } from "./failure.ts";
import { readAuthorities } from "./tls_files.ts";

/** `admin` is the admin interface of this process, which is asked unless the settings name another. */
export function openManager(settings: ManagerSettings, admin: Admin | null, tls: Pair | null, log: Log): Manager {
  const { backendUrl, hosts } = settings;
  const backend = backendUrl === null ? admin!.answer : { url: new URL(backendUrl), ca: authorities(settings) };
  try {
    return createManager({ backend, tls: settings.tls ? tls : null, hosts, clock: systemClock, log });
  } catch (error) {
    throw new StartError((error as Error).message, 1);
  }
}

function authorities({ backendCaPath }: ManagerSettings): Buffer | null {
  return backendCaPath === null ? null : readAuthorities(backendCaPath, "MANAGER_BACKEND_CA_PATH", "CA certificate of the admin interface");
}

/** Gives the address as a browser on this machine finds it: it keeps the session's cookie for https and for localhost. */
export async function listenManager(manager: Manager, { host, port, tls }: ManagerSettings, log: Log): Promise<string> {
  try {
    const url = reachable(urlOf(tls ? "https" : "http", await manager.listen({ host, port })));
    if (!tls && !isLoopback(host)) {
      const remedy = "anywhere else logging in needs MANAGER_TLS=true, or a proxy before it that speaks HTTPS";
      log.warn(`the management UI listens on plain HTTP beyond this machine: browsers keep its cookie on http://localhost only; ${remedy}`);
    }
    return url;
  } catch (error) {
    throw listenFailure(error as NodeJS.ErrnoException, where(host, port), "MANAGER_PORT", "MANAGER_HOST");
  }
}

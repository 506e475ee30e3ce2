/**
 * Opens the management UI as the settings ask for it, and has it listen; what is wrong becomes a sentence that names the setting.
 * The command that starts it alone is `manager.ts`.
 */
import { systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { ManagerSettings } from "../config/settings.ts";
import type { Trust } from "../manager/backend.ts";
import type { OriginalClients } from "../http/original_clients.ts";
import { createManager, type Manager } from "../manager/server.ts";
import type { Pair } from "../server/certificates.ts";
import { isLoopback, near, reachable, urlOf, where } from "./addresses.ts";
import { listenFailure, StartError } from "./failure.ts";
import { readAuthorities } from "./tls_files.ts";

/** `adminUrl` is that of the admin interface of this process, which is asked unless the settings name another; `tls` shows its certificate. */
export function openManager(settings: ManagerSettings, adminUrl: string | null, tls: Pair | null, log: Log, clients?: OriginalClients): Manager {
  let own = tls;
  const url = new URL(settings.backendUrl ?? near(adminUrl!));
  const trust: Trust = settings.backendUrl === null ? { kind: "pinned", certificate: () => own!.cert } : { kind: "authorities", ca: authorities(settings) };
  try {
    const manager = createManager({ backend: { url, trust }, tls: settings.tls ? tls : null, hosts: settings.hosts, clock: systemClock, log, ...(clients && { clients }) });
    return {
      ...manager,
      renewTls(files) {
        manager.renewTls(files);
        own = files;
      },
    };
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

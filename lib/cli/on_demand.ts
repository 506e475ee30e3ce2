/**
 * What only some settings need of the program around a gateway: how each is loaded, and what names it.
 */
import type { Settings } from "../config/settings_types.ts";
import { readStartSettings, type Environment, type Flags, type Host } from "../config/start_settings.ts";
import type { PartName } from "../gateway/parts.ts";
import { accepted, refuseLacking } from "./failure.ts";

export const ON_DEMAND = {
  /** The settings that not every start has. */
  settings: () => import("./all_settings.ts"),
  reloading: () => import("./reloading.ts"),
  /** Sockets that a service manager passes. */
  sockets: () => import("./socket_activation.ts"),
  /** The server's certificate; the part of this name belongs to it. */
  tlsServer: () => import("./tls_files.ts"),
  workers: () => import("./workers.ts"),
  stateDir: () => import("./state_dir.ts"),
  auditLog: () => import("./audit_log.ts"),
  ownFolder: () => import("./own_folder.ts"),
  seal: () => import("./seal.ts"),
  admin: () => import("./admin_interface.ts"),
  adminWrite: () => import("../admin/writing.ts"),
  probes: () => import("./probes.ts"),
  manager: () => import("./management_ui.ts"),
  managerProxy: () => import("../manager/proxy.ts"),
};

/** Throws a `Failure` for settings with errors, and for those that name what this build does not have. */
export async function settingsOf(flags: Flags, environment: Environment, host: Host): Promise<Settings> {
  const settings: Settings =
    readStartSettings(flags, environment, host) ??
    accepted(await (await ON_DEMAND.settings()).readAll(flags, environment, host));
  refuseLacking([...onDemandOf(settings), ...partsNamedBy(settings)]);
  return settings;
}

export type Named = readonly (keyof typeof ON_DEMAND)[];

/** What of `ON_DEMAND` settings name. */
export function onDemandOf({ admin, probe, manager, workers, serverCertPath, stateDir, audit, seal }: Settings): Named {
  return [
    ...(serverCertPath === null ? [] : (["tlsServer"] as const)),
    ...(admin === null ? [] : (["admin"] as const)),
    ...(admin?.write ? (["adminWrite"] as const) : []),
    ...(probe === null ? [] : (["probes"] as const)),
    ...(manager === null ? [] : (["manager"] as const)),
    ...(manager === null || manager.backendUrl === null ? [] : (["managerProxy"] as const)),
    ...(workers === 1 ? [] : (["workers"] as const)),
    ...(stateDir === null ? [] : (["stateDir"] as const)),
    ...(audit === null ? [] : (["auditLog"] as const)),
    ...(workers === 1 && admin === null ? [] : (["ownFolder"] as const)),
    ...(seal ? (["seal"] as const) : []),
  ];
}

export const TLS_PARTS = ["tlsServer", "http2Server"] as const;

/** The parts of a gateway that settings name. */
export function partsNamedBy({
  configKeyPath,
  tracing,
  admin,
  probe,
  workers,
  serverCertPath,
  audit,
  seal,
}: Settings): readonly PartName[] {
  const isAsked = admin !== null || probe !== null;
  return [
    ...(configKeyPath === null ? [] : (["signatures"] as const)),
    ...(seal ? (["rights"] as const) : []),
    ...(tracing === null ? [] : (["tracing"] as const)),
    ...(admin === null ? [] : (["adminCookie", "recentRequests"] as const)),
    ...(isAsked ? (["reporting", "metrics"] as const) : []),
    ...(workers === 1 ? [] : (["sharedHealth", "sharedCallers", "shared"] as const)),
    ...(workers === 1 || !isAsked ? [] : (["workerReports"] as const)),
    ...(serverCertPath === null ? [] : TLS_PARTS),
    ...(audit === null ? [] : (["gatewayAudit"] as const)),
  ];
}

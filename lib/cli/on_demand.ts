/**
 * What only some settings need of the program around a gateway: how each is loaded, and what names it.
 */
import type { Settings } from "../config/settings_types.ts";
import { readStartSettings, type Environment, type Flags, type Host } from "../config/start_settings.ts";
import type { CompleteOptions } from "../gateway/options.ts";
import type { FeatureName } from "../gateway/loaded_features.ts";
import { accepted, refuseLacking } from "./failure.ts";

export const ON_DEMAND = {
  /** The settings that not every start has. */
  settings: () => import("./all_settings.ts"),
  reloading: () => import("./reloading.ts"),
  /** Sockets that a service manager passes. */
  sockets: () => import("./socket_activation.ts"),
  /** The server's certificate; the feature of this name belongs to it. */
  serverTls: () => import("./tls_files.ts"),
  /** The gateway for whoever asks for reports; the feature of this name belongs to it. */
  reporting: () => import("../embed/reported_gateway.ts"),
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
  refuseLacking([...onDemandOf(settings), ...featuresNamedBy(settings)]);
  return settings;
}

export type Named = readonly (keyof typeof ON_DEMAND)[];

/** What of `ON_DEMAND` settings name. */
export function onDemandOf({ admin, probe, manager, workers, serverCertPath, stateDir, audit, seal }: Settings): Named {
  return [
    ...(serverCertPath === null ? [] : (["serverTls"] as const)),
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

export const TLS_FEATURES = ["serverTls", "http2"] as const;

/** Who can ask for figures and for what became of requests. */
export function askedBy({ admin, probe }: Settings): NonNullable<CompleteOptions["asked"]> {
  if (admin !== null) return "administrators";
  return probe === null ? "nobody" : "scrapers";
}

/** The features that settings name. */
export function featuresNamedBy(settings: Settings): readonly FeatureName[] {
  const { configKeyPath, tracing, workers, serverCertPath } = settings;
  return [
    ...(configKeyPath === null ? [] : (["sources"] as const)),
    ...(tracing === null ? [] : (["tracing"] as const)),
    ...(askedBy(settings) === "nobody" ? [] : (["reporting"] as const)),
    ...(workers === 1 ? [] : (["workers"] as const)),
    ...(serverCertPath === null ? [] : TLS_FEATURES),
  ];
}

/**
 * What only some settings need of the program around a gateway: how each is loaded, and what names it.
 */
import { createLog, type Log } from "../base/log.ts";
import type { Settings, SourceSettings } from "../config/settings_types.ts";
import { areOfStart, readPlainSettings, type Environment, type Flags, type Host } from "../config/start_settings.ts";
import type { CompleteOptions } from "../gateway/options.ts";
import type { FeatureName } from "../gateway/loaded_features.ts";
import { accepted, refuseLacking } from "./failure.ts";

export const ON_DEMAND = {
  /** The settings that not every start has. */
  settings: () => import("./all_settings.ts"),
  /** Sockets that a service manager passes. */
  sockets: () => import("./socket_activation.ts"),
  /** The certificates of settings; the feature of this name belongs to it. */
  serverTls: () => import("./tls_files.ts"),
  /** The gateway for whoever asks for reports; the feature of this name belongs to it. */
  reporting: () => import("../embed/reported_gateway.ts"),
  workers: () => import("./workers.ts"),
  stateDir: () => import("./state_dir.ts"),
  /** What keeps certificates of `global.acme`. */
  acme: () => import("./kept_certificates.ts"),
  /** What shares them with the other gateways of a fleet. */
  sharedAcme: () => import("./shared_certificates.ts"),
  /** A configuration from a URL, and who is asked for it. */
  remoteConfig: () => import("./remote_config.ts"),
  httpSource: () => import("../source/http_text_server.ts"),
  etcdSource: () => import("../source/etcd_server.ts"),
  /** What a gateway is in a fleet, whose configuration is in etcd. */
  fleet: () => import("./fleet_member.ts"),
  decisionFile: () => import("../observe/decision_file.ts"),
  auditLog: () => import("./audit_log.ts"),
  seal: () => import("./seal.ts"),
  admin: () => import("./admin_interface.ts"),
  adminWrite: () => import("../admin/writing.ts"),
  adminUsers: () => import("./users_file.ts"),
  probes: () => import("./probes.ts"),
  manager: () => import("./management_ui.ts"),
  managerProxy: () => import("../manager/proxy.ts"),
  metricsExport: () => import("./metrics_export.ts"),
  logsExport: () => import("./logs_export.ts"),
};

/** Throws a `Failure` for settings with errors, and for those that name what this build does not have. */
export async function settingsOf(flags: Flags, environment: Environment, host: Host): Promise<Settings> {
  const settings = accepted<Settings>(
    areOfStart(flags, environment)
      ? readPlainSettings(flags, environment, host)
      : await (await ON_DEMAND.settings()).readAll(flags, environment, host),
  );
  refuseLacking([...onDemandOf(settings), ...featuresNamedBy(settings)]);
  return settings;
}

/** The program's log, whose lines go to a collector, too, where a setting says so. */
export async function openLog(settings: Settings): Promise<Log> {
  const { logLevel: level, logFormat: format, logsExport } = settings;
  return logsExport === null ? createLog({ level, format }) : (await ON_DEMAND.logsExport()).sentLog(settings);
}

export type Named = readonly (keyof typeof ON_DEMAND)[];

/** What of `ON_DEMAND` settings name. */
export function onDemandOf(settings: Settings): Named {
  const { admin, probe, manager, metricsExport, logsExport, workers, needHttps, stateDir, audit, seal } = settings;
  const ofSource = settings.source === null ? [] : sourceParts(settings.source);
  const others = namesOf({
    serverTls: needHttps,
    admin: admin !== null,
    adminWrite: admin?.write === true,
    adminUsers: admin !== null && admin.usersPath !== null,
    probes: probe !== null,
    manager: manager !== null,
    managerProxy: manager !== null && manager.backendUrl !== null,
    metricsExport: metricsExport !== null,
    logsExport: logsExport !== null,
    workers: workers !== 1,
    stateDir: stateDir !== null,
    decisionFile: stateDir !== null && admin !== null,
    auditLog: audit !== null,
    seal,
    sharedAcme: settings.acmeFleetKey !== null,
    fleet: settings.source?.url.scheme.startsWith("etcd") === true,
  });
  return [...others, ...ofSource];
}

/** What a configuration from a URL needs. */
export function sourceParts({ url }: SourceSettings): Named {
  return ["remoteConfig", url.scheme.startsWith("etcd") ? "etcdSource" : "httpSource"];
}

/** The names of what is true. */
function namesOf<Name extends string>(all: Readonly<Record<Name, boolean>>): readonly Name[] {
  return (Object.keys(all) as Name[]).filter((name) => all[name]);
}

/** Who can ask for figures and for what became of requests. */
export function askedBy({ admin, probe, metricsExport }: Settings): NonNullable<CompleteOptions["asked"]> {
  if (admin !== null) return "administrators";
  return probe === null && metricsExport === null ? "nobody" : "scrapers";
}

/** The features that settings name. */
export function featuresNamedBy(settings: Settings): readonly FeatureName[] {
  const { configKeyPath, tracing, metricsExport, workers, serverCertPath } = settings;
  return namesOf({
    sources: configKeyPath !== null,
    tracing: tracing !== null || metricsExport !== null,
    reporting: askedBy(settings) !== "nobody",
    workers: workers !== 1,
    serverTls: serverCertPath !== null,
    http2: serverCertPath !== null,
  });
}

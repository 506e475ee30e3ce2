/**
 * The settings of a gateway, and the parts that they name.
 */
import { isInBuild } from "../base/version.ts";
import { signatureFile } from "../config/source.ts";
import { readSettings, type Host, type Settings } from "../config/settings.ts";
import { asksForTraces, type Environment, type Flags } from "../config/settings_table.ts";
import type { PartName } from "../gateway/parts.ts";
import { PARTS } from "../parts/table.ts";
import type { ON_DEMAND } from "./commands.ts";
import { accepted, Failure } from "./failure.ts";

/** Throws a `Failure` for settings with errors, or if this build lacks what reads them. */
export async function settingsOf(flags: Flags, environment: Environment, host: Host): Promise<Settings> {
  if (!asksForTraces(environment)) return accepted(readSettings(flags, environment, host));
  refuseLacking(["tracing"]);
  const { readTracing } = await PARTS.tracing.load();
  return accepted(readSettings(flags, environment, { ...host, readTracing }));
}

export const TLS_PARTS = ["tlsServer", "http2Server"] as const;

export function partsNamedBy({ configKeyPath, tracing, admin, probe, workers, serverCertPath, serverKeyPath }: Settings): readonly PartName[] {
  const isAsked = admin !== null || probe !== null;
  return [
    ...(configKeyPath === null ? [] : (["signatures"] as const)),
    ...(tracing === null ? [] : (["tracing"] as const)),
    ...(admin === null ? [] : (["adminCookie", "recentRequests"] as const)),
    ...(isAsked ? (["reporting", "metrics"] as const) : []),
    ...(workers === 1 ? [] : (["sharedHealth", "sharedCallers", "shared"] as const)),
    ...(workers === 1 || !isAsked ? [] : (["workerReports"] as const)),
    ...(serverCertPath === null || serverKeyPath === null ? [] : TLS_PARTS),
  ];
}

/** What of `ON_DEMAND` a start calls. */
export function onDemandOf({ admin, probe, manager, workers }: Settings): readonly (keyof typeof ON_DEMAND)[] {
  return [
    ...(admin === null ? [] : (["admin"] as const)),
    ...(probe === null ? [] : (["probes"] as const)),
    ...(manager === null ? [] : (["manager"] as const)),
    ...(manager === null || manager.backendUrl === null ? [] : (["managerProxy"] as const)),
    ...(workers === 1 ? [] : (["workers"] as const)),
  ];
}

/** All that settings name. */
export function allNamedBy(settings: Settings): readonly string[] {
  return [...onDemandOf(settings), ...partsNamedBy(settings)];
}

/** Throws a `Failure` where settings name what this build does not have. */
export function refuseLacking(names: readonly string[]): void {
  const [lacking] = names.filter((name) => !isInBuild(name));
  if (lacking === undefined) return;
  throw new Failure(`the settings name "${lacking}", which is not in this build: build again with these settings, or with --with ${lacking}`, 2);
}

/** These files and, where they must be signed, their signatures and the public keys. `keyFile`: null where they need no signature. */
export function withSignatures(paths: readonly string[], keyFile: string | null): readonly string[] {
  return keyFile === null ? paths : [...paths, ...paths.map(signatureFile), keyFile];
}

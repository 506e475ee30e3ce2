/**
 * The parts that settings name.
 */
import { isInBuild } from "../base/version.ts";
import type { Settings } from "../config/settings.ts";
import type { PartName } from "../gateway/parts.ts";
import type { ON_DEMAND } from "./commands.ts";
import { Failure } from "./failure.ts";

export const TLS_PARTS = ["tlsServer", "http2Server"] as const;

export function partsNamedBy({ tracing, admin, probe, workers, serverCertPath, serverKeyPath }: Settings): readonly PartName[] {
  const isAsked = admin !== null || probe !== null;
  return [
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

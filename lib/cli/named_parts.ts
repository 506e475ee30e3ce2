/**
 * The parts of a gateway that settings name.
 */
import type { Settings } from "../config/settings.ts";
import type { PartName } from "../gateway/parts.ts";

export const TLS_PARTS = ["tlsServer", "http2Server"] as const;

export function partsNamedBy({ tracing, admin, probe, workers, serverCertPath, serverKeyPath }: Settings): readonly PartName[] {
  return [
    ...(tracing === null ? [] : (["tracing"] as const)),
    ...(admin === null ? [] : (["adminCookie"] as const)),
    ...(admin === null && probe === null ? [] : (["reporting"] as const)),
    ...(workers === 1 ? [] : (["workerReports", "shared"] as const)),
    ...(serverCertPath === null || serverKeyPath === null ? [] : TLS_PARTS),
  ];
}

/**
 * Opens the listener for probes and scrapers of a gateway.
 */
import { createProbes } from "../admin/probes.ts";
import { systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Settings } from "../config/settings_types.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type { OperatorServer } from "../operator/operator_server.ts";
import type { PublishedKeys } from "../plugins/identity_token.ts";
import { metricsOf, opened, refresh, type Opened } from "./operators.ts";

export function openProbes(
  { host, port, hosts }: NonNullable<Settings["probe"]>,
  metricsToken: string | null,
  gateway: ReportedGateway,
  log: Log,
): Opened<OperatorServer> {
  const metrics = async () => {
    await refresh(gateway, "all");
    return metricsOf(gateway);
  };
  const { runtime } = GatewayCore.internalsOf(gateway);
  // Of the instances of the plugin kind `identity_token` that are in force.
  const jwks = () =>
    [...runtime.common<PublishedKeys>("identity_token: keys", () => new Map()).values()].map(({ jwk }) => jwk);
  const server = createProbes({
    ready: () => gateway.ready,
    metrics,
    jwks,
    metricsToken,
    hosts,
    clock: systemClock,
    log,
  });
  return opened(server, { host, port, tls: false }, "PROBE");
}

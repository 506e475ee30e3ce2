/**
 * Opens the listener for probes and scrapers of a gateway.
 */
import { Readable } from "node:stream";
import { createProbes } from "../admin/probes.ts";
import { systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Settings } from "../config/settings_types.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type { OperatorServer } from "../operator/operator_server.ts";
import type { PublishedKeys } from "../plugins/identity_token.ts";
import { metricsOf, opened, refresh, type Opened } from "./operators.ts";

/** Probes that are answered from before there is a gateway. */
export interface EarlyProbes extends Opened<OperatorServer> {
  /** The gateway serves from now on. Until then it is not ready. */
  follow(gateway: ReportedGateway): void;
}

export function openProbes(
  { host, port, hosts }: NonNullable<Settings["probe"]>,
  metricsToken: string | null,
  log: Log,
): EarlyProbes {
  let gateway: ReportedGateway | null = null;
  const metrics = async () => {
    if (gateway === null) return Readable.from([WAITING]);
    await refresh(gateway, "all");
    return metricsOf(gateway);
  };
  // Of the instances of the plugin kind `identity_token` that are in force.
  const jwks = () => {
    if (gateway === null) return [];
    const { runtime } = GatewayCore.internalsOf(gateway);
    const keys = runtime.common<PublishedKeys>("identity_token: keys", () => new Map());
    return [...keys.values()].map(({ jwk }) => jwk);
  };
  const server = createProbes({
    ready: () => gateway?.ready ?? false,
    metrics,
    jwks,
    metricsToken,
    hosts,
    clock: systemClock,
    log,
  });
  const { listen } = opened(server, { host, port, tls: false }, "PROBE");
  let url: Promise<string> | null = null;
  return { server, listen: () => (url ??= listen()), follow: (next) => void (gateway = next) };
}

/** While the gateway waits for its configuration. */
const WAITING =
  "# HELP edge_gateway_config_source_up Whether the source of the configuration has answered the last question.\n" +
  "# TYPE edge_gateway_config_source_up gauge\n" +
  "edge_gateway_config_source_up 0\n";

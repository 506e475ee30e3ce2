/**
 * What the servers for operators, beside a gateway, have in common: admin interface, probes and management UI.
 */
import type { AddressInfo } from "node:net";
import type { Readable } from "node:stream";
import { addressOf } from "../base/ip_address.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { listenFailure } from "./failure.ts";

/** A server that does not listen yet. */
export interface Opened<T> {
  readonly server: T;
  /** Resolves with its URL. Rejects with a `Failure`. */
  listen(): Promise<string>;
}

interface ListenAddress {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
}

/** `name` begins the names of its settings. */
export function opened<T extends { listen(at: { host: string; port: number }): Promise<AddressInfo> }>(
  server: T,
  { host, port, tls }: ListenAddress,
  name: "ADMIN" | "PROBE" | "MANAGER",
): Opened<T> {
  const listen = async () => {
    try {
      const { address, port: bound } = await server.listen({ host, port });
      return `${tls ? "https" : "http"}://${addressOf({ host: address, port: bound })}`;
    } catch (error) {
      throw listenFailure(error as NodeJS.ErrnoException, addressOf({ host, port }), `${name}_PORT`, `${name}_HOST`);
    }
  };
  return { server, listen };
}

/** In Prometheus' text format. */
export async function metricsOf(gateway: ReportedGateway): Promise<Readable> {
  return gateway.metricsStream();
}

/** Asks the workers, if there are any, for their figures. */
export function refresh(gateway: GatewayCore, extent: "counts" | "all"): Promise<void> | null {
  return GatewayCore.internalsOf(gateway).configuration.followers?.collect(extent) ?? null;
}

/** The listener's URL for a client on this machine: "http://0.0.0.0:8008" -> "http://localhost:8008". */
export function reachableUrl(listener: string): string {
  const url = new URL(listener);
  if (["0.0.0.0", "[::]", "127.0.0.1", "[::1]"].includes(url.hostname)) url.hostname = "localhost";
  return url.origin;
}

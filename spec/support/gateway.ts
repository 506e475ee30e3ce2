/** A gateway on a free port in front of given backends, closed with everything it holds when the test ends. */
import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import type { CompleteOptions } from "../../lib/gateway/options.ts";
import { createGateway, type GatewayOptions } from "../../lib/index.ts";
import { origin, type Origin } from "./origin.ts";

export interface Running {
  readonly gateway: Gateway;
  readonly port: number;
  readonly url: string;
}

type ServiceInput = AnyConfigInput["services"][number];

/** One service under base_path "/a" with a catch-all route, unless the parts say otherwise. */
export function oneService(
  port: number | readonly number[],
  parts: Partial<ServiceInput> = {},
  global: AnyConfigInput["global"] = {},
): AnyConfigInput {
  const ports = typeof port === "number" ? [port] : port;
  return {
    global,
    services: [
      {
        name: "s",
        base_path: "/a",
        upstreams: ports.map((each) => ({ host: "127.0.0.1", port: each })),
        routes: [{ path: "/{rest*}" }, { path: "/", name: "root" }],
        ...parts,
      },
    ],
  };
}

/** `acme`: as for the gateway of a program. */
export async function running(
  config: AnyConfigInput,
  { acme, ...options }: Partial<GatewayOptions> & Pick<CompleteOptions, "acme"> = {},
): Promise<Running> {
  const gateway =
    acme === undefined
      ? createGateway({ config, ...options })
      : new Gateway({ config, ...options, acme, modules: withAllFeatures(options.modules) });
  onTestFinished(async () => void (await gateway.close(0)));
  const { port } = await gateway.listen({ port: 0 });
  return { gateway, port, url: `http://127.0.0.1:${port}` };
}

/** Starts a host's own server that contains a gateway; resolves with its port. Both are closed when the test ends. */
export async function hosted(gateway: Pick<Gateway, "close">, server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(async () => {
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await gateway.close(0);
    await closed;
  });
  return (server.address() as AddressInfo).port;
}

/** An origin (200 "ok" by default) that is closed when the test ends. */
export async function backend(answer?: Parameters<typeof origin>[0]): Promise<Origin> {
  const started = await origin(answer);
  onTestFinished(() => started.close());
  return started;
}

/** The program with a configuration from a server of the spec. */
import { request } from "node:http";
import { configServer, type ConfigServer } from "./config_server.ts";
import { freePort } from "./origin.ts";
import { program, textOf, type Program } from "./process.ts";

export interface RemoteProgram extends Program {
  readonly port: number;
  readonly probePort: number;
  /** The status of a path on the port for probes; null: nothing listens. */
  probe(path: string): Promise<number | null>;
  /** The status of a path on the port for traffic; null: nothing listens. */
  traffic(path: string): Promise<number | null>;
}

/** Answers GET / PATH with 200 by itself: "termination" in front of an upstream that is not there. */
export function configWith(path: string, more: object = {}): string {
  const plugins = [{ name: "request_termination", config: { status: 200 } }];
  return textOf({
    services: [
      {
        name: "s",
        base_path: "/",
        upstreams: [{ host: "127.0.0.1", port: 9 }],
        plugins,
        routes: [{ path, name: "r" }],
      },
    ],
    ...more,
  });
}

/** `served`: default: a server that has nothing. `node`: see `ProgramOptions`. */
export async function remoteProgram(
  environment: Record<string, string> = {},
  served?: Pick<ConfigServer, "url">,
  node?: string,
): Promise<RemoteProgram> {
  const { url } = served ?? (await configServer());
  const [port, probePort] = [await freePort(), await freePort()];
  const running = program(["--config", url], {
    ...(node !== undefined && { node }),
    environment: {
      CONFIG_POLL_S: "1",
      HTTP_PORT: String(port),
      HTTPS_PORT: "0",
      LISTEN_HOST: "127.0.0.1",
      PROBE_PORT: String(probePort),
      ...environment,
    },
  });
  return {
    ...running,
    port,
    probePort,
    probe: (path) => statusOf(probePort, path),
    traffic: (path) => statusOf(port, path),
  };
}

export function statusOf(port: number, path: string): Promise<number | null> {
  return new Promise((resolve, reject) => {
    request({ host: "127.0.0.1", port, path, agent: false }, (reply) => {
      reply.resume().on("end", () => resolve(reply.statusCode!));
    })
      .on("error", (error: NodeJS.ErrnoException) => (error.code === "ECONNREFUSED" ? resolve(null) : reject(error)))
      .end();
  });
}

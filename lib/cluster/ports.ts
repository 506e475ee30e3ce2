/**
 * Makes sure that the workers of one program alone share a port.
 */
import { once } from "node:events";
import { createServer, type ListenOptions, type Server } from "node:net";
import type { BoundAddress } from "../gateway/options.ts";

/**
 * Takes a port and gives it back; rejects if another program listens there, even if it would share the port. Two
 * programs could do so at one moment: on Linux the result, to be closed with the ports, keeps a name of the network
 * that only one of them gets.
 */
export async function takePort({ host, port }: BoundAddress): Promise<Server | null> {
  const name =
    process.platform === "linux"
      ? await listening({ path: `\0edge-gateway ${host} ${port}` }).catch((error) =>
          Promise.reject(Object.assign(error, { address: host, port })),
        )
      : null;
  try {
    (await listening({ host, port, ipv6Only: host.includes(":") })).close();
  } catch (error) {
    name?.close();
    throw error;
  }
  return name?.unref() ?? null;
}

async function listening(options: ListenOptions): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  server.listen(options);
  await once(server, "listening");
  return server;
}

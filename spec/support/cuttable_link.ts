/** A way to a TCP server of this machine that a spec can cut as a network does: nothing arrives, nobody is told. */
import { once } from "node:events";
import net, { type AddressInfo, type Socket } from "node:net";
import { onTestFinished } from "vitest";

export interface CuttableLink {
  /** Of 127.0.0.1; it leads to the server. */
  readonly port: number;
  /** From now on bytes of both sides stay where they are, and so do those of new connections. */
  cut(): void;
  heal(): void;
}

/** It ends with the test. */
export async function cuttableLink(to: number): Promise<CuttableLink> {
  const sockets = new Set<Socket>();
  let isCut = false;
  const join = (from: Socket, other: Socket) => {
    sockets.add(from);
    if (isCut) from.pause();
    from.on("data", (bytes) => other.write(bytes));
    from.on("error", () => {});
    from.on("close", () => {
      sockets.delete(from);
      other.destroy();
    });
    from.on("end", () => other.end());
  };
  const server = net.createServer({ allowHalfOpen: true }, (client) => {
    const upstream = net.connect({ port: to, host: "127.0.0.1", allowHalfOpen: true });
    join(client, upstream);
    join(upstream, client);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return {
    port: (server.address() as AddressInfo).port,
    cut() {
      isCut = true;
      for (const socket of sockets) socket.pause();
    },
    heal() {
      isCut = false;
      for (const socket of sockets) socket.resume();
    },
  };
}

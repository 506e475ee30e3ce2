/** Headers of the PROXY protocol, as a proxy sends them, and a server behind them. */
import { once } from "node:events";
import type { Server } from "node:http";
import net, { type AddressInfo, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import { parseProxyHeader } from "../../lib/base/proxy_protocol.ts";

/** Of version 2: the byte of version and command, that of the family, and what follows. */
export function v2(command: number, family: number, ...parts: readonly Buffer[]): Buffer {
  const rest = Buffer.concat(parts);
  const fixed = Buffer.from([
    ...Buffer.from("\r\n\r\n\0\r\nQUIT\n"),
    command,
    family,
    rest.length >> 8,
    rest.length & 255,
  ]);
  return Buffer.concat([fixed, rest]);
}

export interface Headed {
  readonly header: string;
  readonly address: string | null;
  readonly socket: Socket;
}

/** Reads a header from each connection, and has `server` serve what is behind it. Closed when the test ends. */
export async function behindHeaders(server: Pick<Server, "emit">) {
  const connections: Headed[] = [];
  const front = net.createServer((socket) => {
    socket.on("error", () => {});
    socket.once("readable", () => {
      const bytes = socket.read() as Buffer;
      const header = parseProxyHeader(bytes);
      if (typeof header === "string") throw new Error(`${header}: ${bytes.toString("latin1")}`);
      connections.push({ header: bytes.toString("latin1", 0, header.length), address: header.address, socket });
      if (bytes.length > header.length) socket.unshift(bytes.subarray(header.length));
      server.emit("connection", socket);
    });
  });
  front.listen(0, "127.0.0.1");
  await once(front, "listening");
  onTestFinished(() => {
    front.close();
    for (const { socket } of connections) socket.destroy();
  });
  return { port: (front.address() as AddressInfo).port, connections };
}

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { createOriginalClients } from "../../lib/http/original_clients.ts";

/** Both ends of a connection to a listener on `host`, from 127.0.0.1. */
async function pair(host: string, note?: (socket: Socket) => void): Promise<readonly [client: Socket, server: Socket]> {
  const server = createServer();
  server.listen(0, host);
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  note?.(client);
  const [[accepted]] = (await Promise.all([once(server, "connection"), once(client, "connect")])) as [[Socket], unknown];
  onTestFinished(() => {
    client.destroy();
    accepted.destroy();
    server.close();
  });
  return [client, accepted];
}

describe("the client for whom a connection inside the process is made", () => {
  it("is the address noted before or after the connection is established", async () => {
    const clients = createOriginalClients();
    const [, early] = await pair("127.0.0.1", (socket) => clients.note(socket, "192.0.2.1"));
    const [made, late] = await pair("127.0.0.1");
    clients.note(made, "192.0.2.2");
    expect([early, late].map((socket) => clients.addressOf(socket))).toEqual(["192.0.2.1", "192.0.2.2"]);
  });

  it("is found on a listener for IPv4 and IPv6 together", async ({ skip }) => {
    const clients = createOriginalClients();
    const [, accepted] = await pair("::", (socket) => clients.note(socket, "192.0.2.1")).catch(() => skip("this machine has no IPv6"));
    expect(clients.addressOf(accepted)).toBe("192.0.2.1");
  });

  it("is the other end's address where none was noted", async () => {
    const clients = createOriginalClients();
    await pair("127.0.0.1", (socket) => clients.note(socket, "192.0.2.1"));
    const [, accepted] = await pair("127.0.0.1");
    expect(clients.addressOf(accepted)).toBe("127.0.0.1");
  });

  it("is forgotten when the connection closes, as its port may be used again", async () => {
    const clients = createOriginalClients();
    const [client, accepted] = await pair("127.0.0.1", (socket) => clients.note(socket, "192.0.2.1"));
    const { remoteAddress, remotePort, localAddress, localPort } = accepted;
    client.destroy();
    await once(client, "close");
    expect(clients.addressOf({ remoteAddress, remotePort, localAddress, localPort } as Socket)).toBe("127.0.0.1");
  });
});

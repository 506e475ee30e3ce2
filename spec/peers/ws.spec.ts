import { once } from "node:events";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { oneService } from "../support/gateway.ts";
import { startBuilt } from "./built.ts";

/** The parts of `ws` that are used here; the package brings no types of its own. */
interface Client extends NodeJS.EventEmitter {
  send(data: string | Buffer): void;
  close(code?: number, reason?: string): void;
  terminate(): void;
  readonly protocol: string;
}
const { WebSocket, WebSocketServer } = createRequire(import.meta.url)("ws") as {
  WebSocket: new (url: string, protocols?: string[], options?: { headers?: Record<string, string> }) => Client;
  WebSocketServer: new (options: { port: number; host: string; handleProtocols?: () => string }) => NodeJS.EventEmitter & {
    address(): AddressInfo;
    close(): void;
    readonly clients: Set<Client>;
  };
};

/** Sends back every message, as text or as bytes. */
async function echoServer(): Promise<number> {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", handleProtocols: () => "chat" });
  onTestFinished(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  server.on("connection", (client: Client) => {
    client.on("error", () => {});
    client.on("message", (data: Buffer, binary: boolean) => client.send(binary ? data : data.toString()));
    client.on("close", () => {});
  });
  await once(server, "listening");
  return server.address().port;
}

const guarded = [{ name: "key_auth", config: { key: "k" } }];

describe("the ws client through the built gateway to a ws server", () => {
  it("exchanges text and a megabyte of bytes, and closes with the peer's code", async () => {
    const { port } = await startBuilt(oneService(await echoServer(), { plugins: guarded }));
    const client = new WebSocket(`ws://127.0.0.1:${port}/a/socket?apiKey=k`, ["chat"]);
    onTestFinished(() => client.terminate());
    await once(client, "open");
    expect(client.protocol).toBe("chat");
    client.send("hello");
    expect(String((await once(client, "message"))[0])).toBe("hello");
    const megabyte = Buffer.alloc(1024 * 1024, 7);
    client.send(megabyte);
    expect(megabyte.equals((await once(client, "message"))[0] as Buffer)).toBe(true);
    client.close(4000, "done");
    expect((await once(client, "close"))[0]).toBe(4000);
  });

  it("is refused with 401 where key_auth guards the route", async () => {
    const { port } = await startBuilt(oneService(await echoServer(), { plugins: guarded }));
    const client = new WebSocket(`ws://127.0.0.1:${port}/a/socket`);
    const [error] = (await once(client, "error")) as [Error];
    expect(error.message).toContain("401");
  });
});

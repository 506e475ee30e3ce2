import { once } from "node:events";
import { createRequire } from "node:module";
import http2, { type IncomingHttpHeaders } from "node:http2";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { oneService } from "../support/gateway.ts";
import { eventually } from "../support/raw_client.ts";
import { startBuilt } from "./built.ts";

/** The parts of `ws` that are used here; the package brings no types of its own. */
interface Client extends NodeJS.EventEmitter {
  send(data: string | Buffer, options?: { fin?: boolean; binary?: boolean }): void;
  ping(data?: string): void;
  pause(): void;
  resume(): void;
  readonly bufferedAmount: number;
  close(code?: number, reason?: string): void;
  terminate(): void;
  readonly protocol: string;
}
const { WebSocket, WebSocketServer } = createRequire(import.meta.url)("ws") as {
  WebSocket: new (url: string, protocols?: string[], options?: { headers?: Record<string, string> }) => Client;
  WebSocketServer: new (options: {
    port: number;
    host: string;
    handleProtocols?: () => string;
  }) => NodeJS.EventEmitter & {
    address(): AddressInfo;
    close(): void;
    readonly clients: Set<Client>;
  };
};

/** Sends back every message, as text or as bytes. */
async function echoServer(look: (client: Client) => void = () => {}): Promise<number> {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", handleProtocols: () => "chat" });
  onTestFinished(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  server.on("connection", (client: Client) => {
    client.on("error", () => {});
    client.on("message", (data: Buffer, binary: boolean) => client.send(binary ? data : data.toString()));
    client.on("close", () => {});
    look(client);
  });
  await once(server, "listening");
  return server.address().port;
}

async function opened(port: number): Promise<Client> {
  const client = new WebSocket(`ws://127.0.0.1:${port}/a/socket`);
  onTestFinished(() => client.terminate());
  client.on("error", () => {});
  await once(client, "open");
  return client;
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

  it("sends and receives pings with their data", async () => {
    const pongs: string[] = [];
    const echo = await echoServer((far) => {
      far.on("pong", (data: Buffer) => pongs.push(String(data)));
      far.ping("from the server");
    });
    const { port } = await startBuilt(oneService(echo));
    const client = await opened(port);
    client.ping("from the client");
    expect(String((await once(client, "pong"))[0])).toBe("from the client");
    await eventually(() => pongs.length === 1);
    expect(pongs).toEqual(["from the server"]);
  });

  it("receives back a message of 16 MiB sent in 256 fragments", async () => {
    const { port } = await startBuilt(oneService(await echoServer()));
    const client = await opened(port);
    const piece = Buffer.alloc(64 * 1024);
    for (let i = 0; i < 256; i++) client.send(piece.fill(i), { fin: i === 255, binary: true });
    const [back] = (await once(client, "message")) as [Buffer];
    expect(back).toHaveLength(16 * 1024 * 1024);
    expect([back[0], back[100 * 64 * 1024], back.at(-1)]).toEqual([0, 100, 255]);
  });

  it("slows down for a server that does not read, and loses no data", async () => {
    let far: Client | null = null;
    let received = 0;
    const echo = await echoServer((client) => {
      far = client;
      client.pause();
      client.on("message", (data: Buffer) => (received += data.length));
    });
    const { port } = await startBuilt(oneService(echo));
    const client = await opened(port);
    const piece = Buffer.alloc(1024 * 1024);
    for (let i = 0; i < 64; i++) client.send(piece);
    let before = -1;
    await eventually(() => {
      const still = client.bufferedAmount === before;
      before = client.bufferedAmount;
      return still;
    });
    expect(client.bufferedAmount).toBeGreaterThan(16 * 1024 * 1024);
    client.on("message", () => {});
    far!.resume();
    for (const deadline = performance.now() + 10_000; received < 64 * piece.length && performance.now() < deadline;)
      await new Promise(setImmediate);
    expect(received).toBe(64 * piece.length);
  });

  it("continues during a drain until the grace period ends, and is closed then; the gateway exits 0", async () => {
    const { port, process: gateway } = await startBuilt(oneService(await echoServer()), { SHUTDOWN_GRACE_S: "1" });
    const client = await opened(port);
    const over = once(client, "close");
    const ended = once(gateway, "exit");
    gateway.kill("SIGTERM");
    client.send("meanwhile");
    expect(String((await once(client, "message"))[0])).toBe("meanwhile");
    // No close frame of ours: 1006 says that the connection ended without one.
    expect((await over)[0]).toBe(1006);
    expect((await ended)[0]).toBe(0);
  });

  it("gets 401 when key_auth guards the route", async () => {
    const { port } = await startBuilt(oneService(await echoServer(), { plugins: guarded }));
    const client = new WebSocket(`ws://127.0.0.1:${port}/a/socket`);
    const [error] = (await once(client, "error")) as [Error];
    expect(error.message).toContain("401");
  });
});

describe("a client over HTTP/2 through the built gateway to a ws server", () => {
  it("exchanges a message, and gets the server's close frame before the end of the stream", async () => {
    const { port } = await startBuilt(oneService(await echoServer(), {}, { h2c: true }));
    const session = http2.connect(`http://127.0.0.1:${port}`);
    onTestFinished(() => session.destroy());
    await once(session, "remoteSettings");
    const asks = {
      ":method": "CONNECT",
      ":protocol": "websocket",
      ":path": "/a/socket",
      "sec-websocket-version": "13",
      "sec-websocket-protocol": "chat",
    };
    const stream = session.request(asks, { endStream: false });
    const [headers] = (await once(stream, "response")) as [IncomingHttpHeaders];
    expect(headers).toMatchObject({ ":status": 200, "sec-websocket-protocol": "chat" });
    let received = Buffer.alloc(0);
    stream.on("data", (chunk: Buffer) => (received = Buffer.concat([received, chunk])));
    stream.write(masked(0x81, Buffer.from("hello")));
    await eventually(() => received.length === 7);
    expect(received.toString("latin1")).toBe("\x81\x05hello");
    const ended = once(stream, "end");
    stream.write(masked(0x88, Buffer.from([0x0f, 0xa0])));
    await ended;
    expect(received.subarray(7).toString("hex")).toBe("88020fa0");
  });
});

/** A short frame as clients send them (RFC 6455 §5.2): masked. */
function masked(first: number, payload: Buffer): Buffer {
  const mask = Buffer.from([1, 2, 3, 4]);
  return Buffer.concat([
    Buffer.from([first, 0x80 | payload.length]),
    mask,
    payload.map((byte, i) => byte ^ mask[i % 4]!),
  ]);
}

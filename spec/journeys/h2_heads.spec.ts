import http2, { type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { backend, byteBackend, client, get, statusesIn } from "./harness.ts";

describe("replies over HTTP/2", () => {
  it("replies over HTTP/2 send trailers after an empty body, even with Content-Length: 0", async () => {
    const server = http2.createServer();
    server.on("stream", (stream: ServerHttp2Stream) => {
      stream.respond(
        { ":status": 200, "content-type": "application/grpc", "content-length": "0" },
        { waitForTrailers: true },
      );
      stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "5" }));
      stream.end();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const upstream = (server.address() as AddressInfo).port;
    const { port } = await running(oneService(upstream, { protocol: "h2c" }, { h2c: true }));
    expect((await h2Ask(h2Session(port))).trailers).toMatchObject({ "grpc-status": "5" });
  });

  it(
    "replies over HTTP/2 join several Content-Encoding and Content-Language lines " + "into one list, and lose none",
    async () => {
      const { port: upstream } = await backend((_request, response) => {
        response.writeHead(200, [
          "Content-Encoding",
          "deflate",
          "Content-Encoding",
          "gzip",
          "Content-Language",
          "de",
          "Content-Language",
          "en",
        ]);
        response.end("ok");
      });
      const { port } = await running(oneService(upstream, {}, { h2c: true }));
      expect((await h2Ask(h2Session(port))).headers).toMatchObject({
        "content-encoding": "deflate, gzip",
        "content-language": "de, en",
      });
    },
  );

  it("replies over HTTP/2 are a 502 when the upstream's status cannot be sent over HTTP/2", async () => {
    const { port: upstream } = await backend((_request, response) => {
      response.writeHead(799, "Own Idea");
      response.end("ok");
    });
    const { port } = await running(oneService(upstream, {}, { h2c: true }));
    const { headers: fields, body } = await h2Ask(h2Session(port));
    expect([fields[":status"], (JSON.parse(body) as { code: string }).code]).toEqual([502, "upstream_invalid"]);
  });
});

it("does not reuse the upstream connection of a refused WebSocket upgrade", async () => {
  let connections = 0;
  const upstream = await byteBackend((socket) => {
    connections++;
    socket.once("data", () => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
  });
  const { port } = await running(oneService(upstream.port));
  for (let i = 1; i <= 2; i++) {
    const connection = await client(port);
    connection.send(get("/a/x", "Connection: Upgrade", "Upgrade: websocket"));
    expect(statusesIn(await connection.closed())).toEqual([200]);
    expect(connections).toBe(i);
  }
});

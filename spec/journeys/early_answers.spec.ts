/**
 * Upstreams that answer an upload before they have read it, and close: the client gets that answer, and the upstream
 * stays healthy.
 */
import type { AddressInfo, Socket } from "node:net";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { CA, SERVER } from "../support/certs.ts";
import { strangeProxy } from "../support/connect_proxy.ts";
import { oneService, running } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";

import { ask } from "../support/raw_client.ts";
import { byteBackend, client, statusesIn } from "./harness.ts";

const ANSWER = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnope";
const CLIENTS = 20;
/** Per client: below what a listener reads of a body that nobody wants. */
const BODY_BYTES = 800 * 1024;
const PIECE = Buffer.alloc(16 * 1024, "x");

/** Answers at the first byte of a request, reads nothing more, and closes: the system resets the connection then. */
function refuse(socket: Socket): void {
  socket.on("error", () => {});
  socket.once("data", () => {
    socket.pause();
    socket.end(ANSWER, () => setImmediate(() => socket.destroy()));
  });
}

/** Uploads piece by piece until the answer is there; resolves with all that was received. */
async function upload(port: number): Promise<string> {
  const connection = await client(port);
  connection.socket.on("error", () => {});
  connection.send(`POST /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: ${BODY_BYTES}\r\n\r\n`);
  for (let sent = 0; sent < BODY_BYTES && !connection.text().includes("\r\n\r\n"); sent += PIECE.length) {
    connection.socket.write(PIECE);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return connection.closed();
}

describe("an upstream that answers an upload early and closes", () => {
  it("has its answer reach every client behind an egress proxy, too", async () => {
    const proxy = await strangeProxy((socket) => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      refuse(socket);
    });
    const config = oneService([1, 2], {}, { egress_proxy: { url: `http://127.0.0.1:${proxy}` } });
    const { port } = await running(config);
    const received = await Promise.all(Array.from({ length: CLIENTS }, () => upload(port)));
    expect(received.map((text) => statusesIn(text).join())).toEqual(Array.from({ length: CLIENTS }, () => "401"));
  });

  it.each(["http", "https"] as const)(
    "an upstream over %s that answers an upload early and closes has its answer reach every client, " +
      "and is never ejected for it",
    async (protocol) => {
      const ports: number[] = [];
      for (let i = 0; i < 2; i++) {
        if (protocol === "http") ports.push((await byteBackend(refuse)).port);
        else {
          const server = tls.createServer({ cert: SERVER.cert, key: SERVER.key }, refuse);
          server.on("tlsClientError", () => {});
          await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
          onTestFinished(() => void server.close());
          ports.push((server.address() as AddressInfo).port);
        }
      }
      const tlsPart = protocol === "https" ? { tls: { ca: fileWith(CA.cert, "ca.pem") } } : {};
      const { gateway, port } = await running(
        oneService(ports, { protocol, ...tlsPart, health: { passive: { max_failures: 1 } } }),
      );
      const received = await Promise.all(Array.from({ length: CLIENTS }, () => upload(port)));
      expect(received.map((text) => statusesIn(text).join())).toEqual(Array.from({ length: CLIENTS }, () => "401"));
      expect(gateway.health.services[0]!.upstreams.map(({ usable }) => usable)).toEqual([true, true]);
    },
  );

  it(
    "an upstream that resets uploads without an answer gives the clients a 502, " +
      "and is neither ejected for it nor does it open the circuit breaker",
    async () => {
      const reset = async () =>
        (
          await byteBackend(
            (socket) => void socket.once("data", () => socket.pause() && setImmediate(() => socket.resetAndDestroy())),
          )
        ).port;
      const parts = {
        health: { passive: { max_failures: 1 } },
        circuit_breaker: { min_requests: 1, error_ratio: 0.1 },
      };
      const { gateway, port } = await running(oneService([await reset(), await reset()], parts));
      for (let i = 0; i < 4; i++) expect(statusesIn(await upload(port))).toEqual([502]);
      const { upstreams, circuitBreaker } = gateway.health.services[0]!;
      expect([...upstreams.map(({ usable }) => usable), circuitBreaker!.state]).toEqual([true, true, "closed"]);
      // A request without a body that meets the same counts.
      await ask(port, { path: "/a/x" });
      expect(gateway.health.services[0]!.circuitBreaker!.state).toBe("open");
    },
  );
});

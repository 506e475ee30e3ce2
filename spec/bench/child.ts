/**
 * Runs an upstream or the gateway's program in its own process for a benchmark, and answers questions about its costs.
 */
import http from "node:http";
import type { AddressInfo } from "node:net";
import { main } from "../../lib/cli/main.ts";

export interface Figures {
  /** Processor time so far, user and system, in microseconds. */
  readonly cpuMicros: number;
  /** Memory in use after a garbage collection. */
  readonly heapBytes: number;
  /** For an upstream: connections accepted so far, and open now. */
  readonly connections: { readonly total: number; readonly open: number };
  readonly requests: number;
}

const counted = { requests: 0, connections: { total: 0, open: 0 } };

process.on("message", () => {
  (globalThis as { gc?: () => void }).gc?.();
  const { user, system } = process.cpuUsage();
  const { heapUsed, external } = process.memoryUsage();
  process.send!({ cpuMicros: user + system, heapBytes: heapUsed + external, ...counted } satisfies Figures);
});
process.on("disconnect", () => process.exit());

const [role, ...words] = process.argv.slice(2);
if (role === "gateway") process.exitCode = await main(words);
else upstream();

/** "ok" at once, /slow after 20 ms, /hang never; upgrades are echoed. Prints its port on standard error. */
function upstream(): void {
  const server = http.createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    counted.requests++;
    request.resume();
    if (request.url === "/hang") return;
    if (request.url === "/slow") setTimeout(() => response.end("ok"), 20);
    else response.end("ok");
  });
  server.on("connection", (socket) => {
    counted.connections.total++;
    counted.connections.open++;
    socket.on("close", () => counted.connections.open--);
  });
  server.on("upgrade", (_request, socket) => {
    socket.on("error", () => {});
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    );
    socket.pipe(socket);
  });
  server.listen(0, "127.0.0.1", () => {
    const { port } = server.address() as AddressInfo;
    process.stderr.write(`${JSON.stringify({ message: "upstream started", http: [`http://127.0.0.1:${port}`] })}\n`);
  });
}

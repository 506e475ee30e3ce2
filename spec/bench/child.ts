/**
 * What benchmarks run in a process of its own: an upstream, or the gateway's program as it is. Either answers questions about itself
 * over the channel it was started with. Who starts them and asks is `processes.ts`.
 */
import http from "node:http";
import type { AddressInfo } from "node:net";
import { main } from "../../lib/cli/main.ts";

export interface Figures {
  /** Time on a processor so far, in microseconds, the system's for it included. */
  readonly cpuMicros: number;
  /** Memory that is in use, garbage collected. */
  readonly heapBytes: number;
  /** Of an upstream: connections made to it so far, and those open. */
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

/** "ok" at once, /slow after 20 ms, /hang never; upgrades are echoed. Says its port on standard error. */
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
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
    socket.pipe(socket);
  });
  server.listen(0, "127.0.0.1", () => {
    const { port } = server.address() as AddressInfo;
    process.stderr.write(`${JSON.stringify({ message: "upstream started", http: [`http://127.0.0.1:${port}`] })}\n`);
  });
}

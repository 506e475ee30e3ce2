/** An HTTP server that has configurations and their signatures, as a spec tells it. */
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import https, { type ServerOptions } from "node:https";
import { createHash } from "node:crypto";
import type { AddressInfo } from "node:net";
import { once } from "node:events";
import { onTestFinished } from "vitest";

export interface ConfigServer {
  readonly port: number;
  /** Of "/gw.json". */
  readonly url: string;
  /** By path. */
  readonly files: Map<string, string | Buffer>;
  readonly requests: { readonly url: string; readonly headers: IncomingMessage["headers"]; readonly status: number }[];
  /** In place of files; null: they are served. */
  answer: ((request: IncomingMessage, reply: ServerResponse) => void) | null;
  /** Resolves when it has been asked for `path` this often. */
  asked(path: string, times: number): Promise<void>;
  close(): Promise<void>;
  /** On the same port as before. */
  open(): Promise<void>;
}

export async function configServer(tls: ServerOptions | null = null): Promise<ConfigServer> {
  const looks = new Set<() => void>();
  const listener = (request: IncomingMessage, reply: ServerResponse) => {
    const path = request.url!.split("?")[0]!;
    reply.on("close", () => {
      requests.push({ url: request.url!, headers: request.headers, status: reply.statusCode });
      for (const look of looks) look();
    });
    if (server.answer !== null) return server.answer(request, reply);
    const content = server.files.get(path);
    if (content === undefined) return void reply.writeHead(404).end("no such file");
    const etag = `"${createHash("sha256").update(content).digest("hex").slice(0, 12)}"`;
    if (request.headers["if-none-match"] === etag) return void reply.writeHead(304, { ETag: etag }).end();
    reply.writeHead(200, { ETag: etag }).end(content);
  };
  const requests: { url: string; headers: IncomingMessage["headers"]; status: number }[] = [];
  let running: http.Server | https.Server;
  let port = 0;
  const server = {
    port,
    url: "",
    files: new Map<string, string | Buffer>(),
    requests,
    answer: null as ConfigServer["answer"],
    asked: (path: string, times: number) =>
      new Promise<void>((done) => {
        const look = () => {
          if (requests.filter(({ url }) => url === path).length < times) return;
          looks.delete(look);
          done();
        };
        looks.add(look);
        look();
      }),
    async open() {
      running = tls === null ? http.createServer(listener) : https.createServer(tls, listener);
      running.listen(port, "127.0.0.1");
      await once(running, "listening");
      port = (running.address() as AddressInfo).port;
    },
    async close() {
      if (!running.listening) return;
      const closed = once(running, "close");
      running.close();
      running.closeAllConnections();
      await closed;
    },
  };
  await server.open();
  onTestFinished(() => server.close());
  return Object.assign(server, { port, url: `http${tls === null ? "" : "s"}://127.0.0.1:${port}/gw.json` });
}

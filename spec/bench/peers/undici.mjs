/**
 * The smallest proxy in Node with undici: `node:http` in front of an `undici.Pool`, raw headers, no checks; a baseline,
 * not an example.
 * Arguments: PORT BACKEND_PORT [CERT KEY].
 */
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { Pool } from "undici";

const [port, backendPort, cert, key] = process.argv.slice(2);
const pool = new Pool(`http://127.0.0.1:${backendPort}`, { connections: 256, pipelining: 1 });

const handler = (request, response) => {
  const headers = [];
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    const name = request.rawHeaders[i].toLowerCase();
    if (name !== "connection" && name !== "host") headers.push(request.rawHeaders[i], request.rawHeaders[i + 1]);
  }
  headers.push("X-Forwarded-For", request.socket.remoteAddress);
  const hasBody = request.method !== "GET" && request.method !== "HEAD";
  pool.dispatch(
    { method: request.method, path: request.url, headers, body: hasBody ? request : null },
    {
      onConnect(abort) {
        response.on("close", () => response.writableFinished || abort());
      },
      onHeaders(status, rawHeaders, resume) {
        const fields = [];
        for (let i = 0; i < rawHeaders.length; i += 2) {
          const name = rawHeaders[i].toString("latin1");
          const lower = name.toLowerCase();
          if (lower !== "connection" && lower !== "keep-alive" && lower !== "transfer-encoding")
            fields.push(name, rawHeaders[i + 1].toString("latin1"));
        }
        response.writeHead(status, fields);
        response.on("drain", resume);
        return true;
      },
      onData: (chunk) => response.write(chunk),
      onComplete: () => response.end(),
      onError: () => response.destroy(),
    },
  );
};

const server =
  cert === undefined
    ? http.createServer(handler)
    : https.createServer({ cert: readFileSync(cert), key: readFileSync(key) }, handler);
server.keepAliveTimeout = 600_000;
server.listen(Number(port), "127.0.0.1", 4096);

/**
 * The smallest proxy in Node: `node:http` in front of `http.request` with a keep-alive agent, without any checks; a
 * baseline, not an example. Arguments: PORT BACKEND_PORT [CERT KEY].
 */
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

const [port, backendPort, cert, key] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: 256, maxFreeSockets: 256 });

const handler = (request, response) => {
  const headers = [];
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    if (request.rawHeaders[i].toLowerCase() !== "connection")
      headers.push(request.rawHeaders[i], request.rawHeaders[i + 1]);
  }
  headers.push("X-Forwarded-For", request.socket.remoteAddress);
  const asked = http.request({
    host: "127.0.0.1",
    port: Number(backendPort),
    agent,
    method: request.method,
    path: request.url,
    headers,
  });
  asked.on("response", (answer) => {
    const fields = [];
    for (let i = 0; i < answer.rawHeaders.length; i += 2) {
      const name = answer.rawHeaders[i].toLowerCase();
      if (name !== "connection" && name !== "keep-alive") fields.push(answer.rawHeaders[i], answer.rawHeaders[i + 1]);
    }
    response.writeHead(answer.statusCode, fields);
    answer.pipe(response);
  });
  asked.on("error", () => response.destroy());
  response.on("close", () => response.writableFinished || asked.destroy());
  if (request.method === "GET" || request.method === "HEAD") asked.end();
  else request.pipe(asked);
};

const server =
  cert === undefined
    ? http.createServer(handler)
    : https.createServer({ cert: readFileSync(cert), key: readFileSync(key) }, handler);
server.keepAliveTimeout = 600_000;
server.listen(Number(port), "127.0.0.1", 4096);

/**
 * The backend behind every proxy where nginx is not installed: answers 200 with the body of the path, and reads request
 * bodies. /never is not answered. Arguments: PORT SMALL_BYTES LARGE_BYTES.
 */
import http from "node:http";

const [port, small, large] = process.argv.slice(2).map(Number);
const bodies = new Map([["/large", Buffer.alloc(large, "x")]]);
const other = Buffer.alloc(small, "x");

const server = http.createServer({ keepAliveTimeout: 600_000 }, (request, response) => {
  if (request.url === "/never") return;
  const body = bodies.get(request.url) ?? other;
  const answer = () => {
    response.writeHead(200, { "Content-Type": "text/plain", "Content-Length": body.length });
    response.end(body);
  };
  if (request.method === "GET") answer();
  else request.resume().on("end", answer);
});
server.listen(port, "127.0.0.1", 4096);

/**
 * An upstream to try the examples with: it answers each request with the request line, the headers and the body that reached it.
 * `node examples/echo.mjs 3000 3001` listens on both ports of 127.0.0.1; the variable ECHO_HOST names another address.
 */
import http from "node:http";

/** Handles requests as the upstream of this name. */
export function echo(name) {
  return (request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      const lines = [`upstream ${name} got ${request.method} ${request.url}`];
      for (let i = 0; i < request.rawHeaders.length; i += 2) lines.push(`${request.rawHeaders[i]}: ${request.rawHeaders[i + 1]}`);
      const body = Buffer.concat(chunks).toString();
      if (body !== "") lines.push("", body);
      response.writeHead(200, { "Content-Type": "text/plain; charset=utf-8" });
      response.end(`${lines.join("\n")}\n`);
    });
  };
}

if (process.argv[1] === import.meta.filename) {
  const { ECHO_HOST: host = "127.0.0.1" } = process.env;
  for (const port of process.argv.slice(2)) {
    http.createServer(echo(port)).listen(Number(port), host, () => console.log(`upstream ${port} listens on ${host}:${port}`));
  }
}

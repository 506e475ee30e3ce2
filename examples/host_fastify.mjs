/** A gateway in front of a Fastify application (`npm install fastify`). The configuration is gw.json. */
import http from "node:http";
import { createGateway } from "edge-gateway";
import fastify from "fastify";

const gateway = createGateway({ configFile: "gw.json" });
const app = fastify({
  serverFactory: (own) => http.createServer((request, response) => gateway.handler(request, response, () => own(request, response))),
});
app.server.on("upgrade", gateway.upgrade);
app.get("/own", async () => "own /own");
app.post("/own", async (request) => request.body);
await app.listen({ port: 8008 });

/** A gateway in front of a Koa application (`npm install koa`). The configuration is gw.json. */
import http from "node:http";
import { createGateway } from "edge-gateway";
import Koa from "koa";

const gateway = createGateway({ configFile: "gw.json" });
const app = new Koa();
app.use((context) => {
  context.body = context.method === "POST" ? context.req : `own ${context.url}`;
});

const own = app.callback();
const host = http.createServer((request, response) => gateway.handler(request, response, () => own(request, response)));
host.on("upgrade", gateway.upgrade);
host.listen(8008);

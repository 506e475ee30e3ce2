/** A gateway in front of a Next.js application, in its custom server (`node host_next.mjs` in place of `next start`). The configuration is gw.json. */
import http from "node:http";
import { createGateway } from "edge-gateway";
import next from "next";

const gateway = createGateway({ configFile: "gw.json" });
const app = next({ dev: process.env.NODE_ENV !== "production" });
await app.prepare();

const own = app.getRequestHandler();
const host = http.createServer((request, response) => gateway.handler(request, response, () => own(request, response)));
// Next listens for upgrades of its own by itself.
host.on("upgrade", gateway.upgrade);
host.listen(8008);

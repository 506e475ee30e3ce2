/** A gateway in an Express application (`npm install express`), under a prefix. The configuration is gw.json. */
import http from "node:http";
import { createGateway } from "edge-gateway";
import express from "express";

const gateway = createGateway({ configFile: "gw.json" });
const app = express();
// Before all body parsers. Under "/gw" the `base_path` of each service begins with "/gw"; app.use(gateway.handler) serves all paths.
app.use("/gw", gateway.handler);
app.use(express.json());
app.get("/own", (request, response) => response.send("own /own"));
app.post("/own", (request, response) => response.json(request.body));

const host = http.createServer(app);
host.on("upgrade", gateway.upgrade);
host.listen(8008);

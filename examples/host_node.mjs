/** A gateway in a server of node:http that has pages and WebSockets (`npm install ws`) of its own. The configuration is gw.json. */
import http from "node:http";
import { createGateway } from "edge-gateway";
import { WebSocketServer } from "ws";

const gateway = createGateway({ configFile: "gw.json" });
const sockets = new WebSocketServer({ noServer: true });
sockets.on("connection", (socket) => socket.on("message", (data) => socket.send(`own ${data}`)));

const own = (request, response) => response.end(`own ${request.url}`);
const host = http.createServer((request, response) => gateway.handler(request, response, () => own(request, response)));
host.on("upgrade", (request, socket, head) => {
  const ownUpgrade = () => sockets.handleUpgrade(request, socket, head, (opened) => sockets.emit("connection", opened, request));
  gateway.upgrade(request, socket, head, ownUpgrade);
});
host.listen(8008);

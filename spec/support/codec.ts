/** The HTTP/1 codec of this run: Node's in the project "http1: node" of `vitest.config.ts`, otherwise our own. */
import { ClientConnection } from "../../lib/server/client_connection.ts";

export const codec: "wire" | "node" = ClientConnection.name === "ClientConnection" ? "wire" : "node";

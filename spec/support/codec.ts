/** The HTTP/1 codec of this run: Node's in the project "http1: node" of `vitest.config.ts`, otherwise our own. */
import { createWireHttp1 } from "../../lib/server/http1_wire.ts";

export const codec: "wire" | "node" = createWireHttp1.name === "createWireHttp1" ? "wire" : "node";

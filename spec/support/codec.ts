/** Which codec serves HTTP/1 clients in this run: the project "http1: node" of `vitest.config.ts` has node's in the place of our own. */
import { createWireHttp1 } from "../../lib/server/http1_wire.ts";

export const codec: "wire" | "node" = createWireHttp1.name === "createWireHttp1" ? "wire" : "node";

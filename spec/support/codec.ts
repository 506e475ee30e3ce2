/** Which codec serves HTTP/1 clients in this run: the specs of `vitest.node.config.ts` meet node's in the place of our own. */
import { createWireHttp1 } from "../../lib/server/http1_wire.ts";

export const codec: "wire" | "node" = createWireHttp1.name === "createWireHttp1" ? "wire" : "node";

/** Stands in for `lib/server/http1_wire.ts` where specs run with node's server for HTTP/1 clients. */
export { createNodeHttp1 as createWireHttp1 } from "../../lib/server/http1_node.ts";

/** Stands in for `lib/server/http1_wire.ts` where specs run with node's server for HTTP/1 clients. */
import type { Http1Options } from "../../lib/server/http1.ts";
import { NodeHttp1 } from "../../lib/server/http1_node.ts";
// The real module: the alias of `vitest.config.ts` ends in ".ts".
import { createWireHttp1 as createOwnHttp1 } from "../../lib/server/http1_wire.js";

function createNodeForWire(options: Http1Options) {
  return new NodeHttp1(options, createOwnHttp1(options));
}

export { createNodeForWire as createWireHttp1 };

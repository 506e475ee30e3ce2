/** Stands in for `lib/server/client_connection.ts` where specs run with node's server for HTTP/1 clients. */
import type { Socket } from "node:net";
import type { Http1Options } from "../../lib/server/http1.ts";
import { NodeHttp1 } from "../../lib/server/http1_node.ts";
// The real module: the alias of `vitest.config.ts` ends in ".ts".
import { ClientConnection } from "../../lib/server/client_connection.js";

const servers = new WeakMap<Http1Options, NodeHttp1>();

class NodeConnection {
  constructor(socket: Socket, options: Http1Options) {
    if (!servers.has(options))
      servers.set(options, new NodeHttp1(options, (upgraded) => void new ClientConnection(upgraded, options)));
    servers.get(options)!.serve(socket);
  }
}

/** Node's server reads by streams. */
const toSharedReads = (socket: Socket) => socket;

export { NodeConnection as ClientConnection, toSharedReads };

/** All parts of a listener, as the program loads them. */
import * as http2Server from "../../lib/server/http2.ts";
import * as nodeHttp1 from "../../lib/server/http1_node.ts";
import type { ListenerOptions, ListenerParts } from "../../lib/server/listener.ts";
import * as tlsServer from "../../lib/server/tls.ts";

const PARTS: ListenerParts = { http2Server, nodeHttp1, tlsServer };

export const part: ListenerOptions["part"] = (name) => PARTS[name];

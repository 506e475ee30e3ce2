/** All features of a listener, as the program loads them. */
import * as http2 from "../../lib/server/http2.ts";
import * as nodeHttp1 from "../../lib/server/http1_node.ts";
import type { ListenerFeatures } from "../../lib/server/listener.ts";
import * as routing from "../../lib/server/proxy_header.ts";
import * as serverTls from "../../lib/server/tls.ts";

export const features: ListenerFeatures = { http2, nodeHttp1, routing, serverTls };

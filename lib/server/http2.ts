/**
 * HTTP/2 for the clients of a listener: a part that TLS and `global.h2c` name.
 */
import type { Http1Options } from "./http1.ts";
import { KEEP_ALIVE_MS } from "./http1.ts";
import { H2Request } from "./h2_request.ts";
import { H2Sessions } from "./h2_sessions.ts";

export { warnOfNode } from "../base/nghttp2.ts";
export { detectProtocol } from "./h2c.ts";

export function createHttp2(shared: Http1Options): H2Sessions {
  const { clock, log, deadlines, receiving } = shared;
  return new H2Sessions({
    clock,
    log,
    deadlines,
    limits: () => receiving().limits,
    keepAliveMs: KEEP_ALIVE_MS,
    onStream: (stream, block, endOfStream, onReset) => void new H2Request(stream, block, endOfStream, onReset, shared),
  });
}

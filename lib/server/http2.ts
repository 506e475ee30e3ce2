/**
 * HTTP/2 for the clients of a listener, by TLS or by `global.h2c`.
 */
import { KEEP_ALIVE_MS, type Http1Options } from "./http1.ts";
import { H2Request, NewReplies } from "./h2_request.ts";
import { H2Sessions } from "./h2_sessions.ts";

export { warnOfNode } from "../base/nghttp2.ts";
export { detectProtocol } from "./h2c.ts";

export function createHttp2(server: Http1Options): H2Sessions {
  const options = { ...server, newReplies: new NewReplies() };
  return new H2Sessions({
    ...server,
    keepAliveMs: KEEP_ALIVE_MS,
    onStream: (...request) => new H2Request(options, ...request),
  });
}

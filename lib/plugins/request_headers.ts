/**
 * The plugin kind `request_headers`: changes the headers of what is forwarded, and of what plugins within see. It refuses nothing.
 * Replies are `response_headers`'s; what the gateway itself tells upstreams is `upstream/request_head.ts`.
 *
 * Reads what its values name: parameters of the path, the request, the caller, and the claims of a token that an auth plugin before it has
 * believed. Out of bounds are headers of a single connection (RFC 9110 §7.6.1), those that frame a message, and those that the gateway says.
 */
import { headerChanges, headerEditor, type Refuse } from "./header_edits.ts";
import { definePlugin } from "./plugin.ts";

const refuse: Refuse = (lower, change) => {
  if (lower === "host") return 'is the upstream\'s own, or the client\'s with "preserve_host" of the service';
  if (lower === "expect" || lower === "sec-websocket-key") return "belongs to how the request is sent: the gateway sees to it";
  if (SAID_BY_GATEWAY.has(lower)) return "is what the gateway itself says to upstreams";
  if (change === "here" && CERTIFICATE.test(lower)) return 'is how the plugin "mtls" tells of certificates: nobody else may';
  return undefined;
};

const SAID_BY_GATEWAY = new Set([
  "forwarded",
  "via",
  "x-request-id",
  ...["for", "host", "port", "prefix", "proto", "scheme", "server", "ssl"].map((each) => `x-forwarded-${each}`),
]);

/** Many upstreams read `_` as `-`. */
const CERTIFICATE = /^x[-_]client[-_]cert[-_]/;

export const requestHeaders = definePlugin({
  name: "request_headers",
  schema: headerChanges("Changes headers of the request.", "secret", refuse),
  create(config) {
    const edit = headerEditor(config);
    return (next) => (exchange) => next(exchange.with({ headers: edit(exchange.headers, exchange) }));
  },
});

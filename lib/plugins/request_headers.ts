/**
 * The plugin kind `request_headers`: changes the headers of the request for later plugins and the upstream.
 *
 * Values may refer to parameters of the path, the request, the caller, and the claims of a token that an auth plugin
 * before it has verified.
 */
import { FORWARDING } from "../base/http_grammar.ts";
import { changedNames, headerChanges, headerEditor, type Refuse } from "./header_edits.ts";
import type { Plugin } from "./plugin.ts";

const refuse: Refuse = (lower, change) => {
  if (lower === "host") return "is the upstream's own, or the client's with \"preserve_host\" of the service";
  if (lower === "expect" || lower === "sec-websocket-key")
    return "is part of how the request is sent: the gateway itself sets it";
  if (lower === "x-real-ip")
    return "passes from trusted proxies only: upstreams find the client's address in X-Forwarded-For";
  if (SET_BY_GATEWAY.has(lower)) return "is set by the gateway itself";
  if (change === "here" && CERTIFICATE.test(lower)) return 'is set by the plugin "mtls" only';
  return undefined;
};

const SET_BY_GATEWAY = new Set(["via", "x-request-id", ...FORWARDING]);

/** Many upstreams read `_` as `-`. */
const CERTIFICATE = /^x[-_]client[-_]cert[-_]/;

const schema = headerChanges("Changes headers of the request.", "secret", refuse);

export const requestHeaders: Plugin<typeof schema> = {
  name: "request_headers",
  schema,
  ownHeaders: changedNames,
  create(config) {
    const edit = headerEditor(config);
    return (next) => (exchange) => next(exchange.with({ headers: edit(exchange.headers, exchange) }));
  },
};

/**
 * The plugin kind `response_headers`: changes the headers of every reply that passes it, the upstream's and the gateway's own alike.
 * It refuses nothing and leaves bodies alone. Requests are `request_headers`'s.
 *
 * Reads what its values name, as they were when the request came by: claims and the caller are those of auth plugins before it. Out of
 * bounds are headers of a single connection (RFC 9110 §7.6.1) and those that frame a message.
 */
import type { Exchange } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
import { headerChanges, headerEditor, type Refuse } from "./header_edits.ts";
import { definePlugin } from "./plugin.ts";

const refuse: Refuse = (lower) => {
  if (lower === "x-request-id") return "is what the gateway itself says to clients";
  return lower === "sec-websocket-accept" ? "belongs to how a WebSocket is opened: the gateway sees to it" : undefined;
};

export const responseHeaders = definePlugin({
  name: "response_headers",
  schema: headerChanges("Changes headers of the reply.", "open", refuse),
  create(config) {
    const edit = headerEditor(config);
    const changed = (reply: Reply, exchange: Exchange): Reply => ({ ...reply, headers: edit(reply.headers, exchange) });
    return (next) => (exchange) => {
      const reply = next(exchange);
      return reply instanceof Promise ? reply.then((later) => changed(later, exchange)) : changed(reply, exchange);
    };
  },
});

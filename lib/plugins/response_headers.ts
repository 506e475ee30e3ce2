/**
 * The plugin kind `response_headers`: changes the headers of replies, from the upstream or from the gateway.
 *
 * Values may refer to the request, and the caller and claims that auth plugins before it have verified.
 */
import type { Exchange } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
import { headerChanges, headerEditor, type Refuse } from "./header_edits.ts";
import type { Plugin } from "./plugin.ts";

const refuse: Refuse = (lower) => {
  if (lower === "x-request-id") return "is set by the gateway itself";
  return lower === "sec-websocket-accept"
    ? "is part of how a WebSocket is opened: the gateway itself sets it"
    : undefined;
};

const schema = headerChanges("Changes headers of the reply.", "open", refuse);

export const responseHeaders: Plugin<typeof schema> = {
  name: "response_headers",
  schema,
  create(config) {
    const edit = headerEditor(config);
    const changed = (reply: Reply, exchange: Exchange): Reply => ({ ...reply, headers: edit(reply.headers, exchange) });
    return (next) => (exchange) => {
      const reply = next(exchange);
      return reply instanceof Promise ? reply.then((later) => changed(later, exchange)) : changed(reply, exchange);
    };
  },
};

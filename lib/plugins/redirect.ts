/**
 * The plugin kind `redirect`: answers with another location (RFC 9110 §15.4), without an upstream.
 */
import { boolean, object, oneOf, withDefault } from "../config/schema.ts";
import { problem } from "../http/reply.ts";
import { definePlugin } from "./plugin.ts";
import { escapedUri, locationTemplate } from "./template.ts";

const schema = object(
  {
    status: withDefault(oneOf([301, 302, 303, 307, 308], { describe: "Status; with 307 and 308 clients keep method and body." }), 308),
    location: locationTemplate('Where to: a path from "/" on, or an http(s) URL. {param} stands for a placeholder of the route.'),
    keep_query: withDefault(boolean({ describe: "Whether the query goes along." }), true),
  },
  { describe: "Redirects every request." },
);

export const redirect = definePlugin({
  name: "redirect",
  schema,
  create({ status, location, keepQuery }) {
    const noHost = { detail: "Send a Host header: the redirect leads to the same host." };
    return () => (exchange) => {
      const target = location(exchange);
      if (HOSTLESS.test(target)) return problem(exchange.call, "bad_request", noHost);
      const headers = ["Location", keepQuery ? withQuery(target, exchange.query) : target, "Content-Length", "0"];
      return { status, headers, body: null };
    };
  },
});

/** The request named no host (HTTP/1.0). Browsers would take the path for the host, and anybody can write a path into a link. */
const HOSTLESS = /^(?:https?:)?\/\/(?:[/?#:]|$)/i;

/** `query` with its "?", or "". It stands before a fragment, and behind a query of the location's own. */
function withQuery(target: string, query: string): string {
  if (query.length < 2) return target;
  const hash = target.indexOf("#");
  const end = hash < 0 ? target.length : hash;
  const whole = target.slice(0, end);
  return whole + escapedUri(whole.includes("?") ? `&${query.slice(1)}` : query) + target.slice(end);
}

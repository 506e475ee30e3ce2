/**
 * The plugin kind `redirect`: answers with where to go instead (RFC 9110 §15.4), and asks no upstream.
 * What may stand in a location, and how it is made safe, is `template.ts`.
 *
 * Reads what its location names. The query of the request goes along, behind one of the location's own, unless `keep_query` is false. Where
 * the location is to have the host that was asked for, a request that names none (HTTP/1.0) gets 400 `bad_request`.
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
    return () => (exchange) => {
      const target = location(exchange);
      if (HOSTLESS.test(target)) return problem(exchange.call, "bad_request", NO_HOST);
      const headers = ["Location", keepQuery ? withQuery(target, exchange.query) : target, "Content-Length", "0"];
      return { status, headers, body: null };
    };
  },
});

/** Browsers would take what follows for the host: the path, which anybody can write into a link. */
const HOSTLESS = /^(?:https?:)?\/\/(?:[/?#:]|$)/i;
const NO_HOST = { detail: "Send a Host header: the place to go to is on the same host." };

/** `query` with its "?", or "". It stands before a fragment. */
function withQuery(target: string, query: string): string {
  if (query.length < 2) return target;
  const hash = target.indexOf("#");
  const whole = hash < 0 ? target : target.slice(0, hash);
  const added = escapedUri(whole.includes("?") ? `&${query.slice(1)}` : query);
  return hash < 0 ? whole + added : whole + added + target.slice(hash);
}

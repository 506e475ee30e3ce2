/**
 * The plugin kind `redirect`: answers with a redirect (RFC 9110 §15.4), without an upstream.
 */
import { boolean, object, oneOf, withDefault } from "../config/schema.ts";
import { givenVary } from "../http/given_origin.ts";
import { problem } from "../http/reply.ts";
import type { Plugin } from "./plugin.ts";
import { escapedUri, locationTemplate } from "./template.ts";

const schema = object(
  {
    status: withDefault(
      oneOf([301, 302, 303, 307, 308], { describe: "Status; with 307 and 308 clients keep method and body." }),
      308,
    ),
    location: locationTemplate(
      'Target: a path that starts with "/", or an http(s) URL. {param} is a placeholder of the route.',
    ),
    keep_query: withDefault(boolean({ describe: "Whether the query of the request is kept." }), true),
  },
  { describe: "Redirects every request." },
);

export const redirect: Plugin<typeof schema> = {
  name: "redirect",
  schema,
  create({ status, location, keepQuery }) {
    const noHost = { detail: "Send a Host header: the redirect leads to the same host." };
    return () => (exchange) => {
      const target = location.read(exchange);
      if (HOSTLESS.test(target)) return problem(exchange.call, "bad_request", noHost);
      const led = ["Location", keepQuery ? withQuery(target, exchange.query) : target, "Content-Length", "0"];
      return { status, headers: location.isGiven ? [...led, ...givenVary(exchange.call)] : led, body: null };
    };
  },
};

/**
 * The request named no host (HTTP/1.0). Browsers would read the path as the host, and attackers choose the path of a
 * link.
 */
const HOSTLESS = /^(?:https?:)?\/\/(?:[/?#:]|$)/i;

/** `query` with its "?", or "". It goes before a fragment and after the query of the location. */
function withQuery(target: string, query: string): string {
  if (query.length < 2) return target;
  const hash = target.indexOf("#");
  const end = hash < 0 ? target.length : hash;
  const whole = target.slice(0, end);
  return whole + escapedUri(whole.includes("?") ? `&${query.slice(1)}` : query) + target.slice(end);
}

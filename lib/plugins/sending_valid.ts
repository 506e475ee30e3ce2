/**
 * Has a reply that HTTP cannot carry be the fault of the plugin that made it: found at the end of the chain, it would be nobody's.
 */
import { headerProblem } from "../http/headers.ts";
import type { Middleware } from "../http/handler.ts";
import { discard, type Reply } from "../http/reply.ts";
import { isReply } from "./chain.ts";

/** Throws, or rejects with, a `TypeError` for a reply of the plugin's own whose headers cannot be sent. */
export function sendingValid(middleware: Middleware): Middleware {
  return (next) => {
    const handler = middleware(next);
    // Reported where plugins are created.
    if (typeof handler !== "function") return handler;
    return (exchange) => {
      const returned = handler(exchange);
      // Passed on as it came from the next plugin.
      if (returned === exchange.call.passed) return returned;
      return returned instanceof Promise ? returned.then(validated) : validated(returned);
    };
  };
}

function validated(reply: Reply): Reply {
  const problem = isReply(reply) ? headerProblem(reply.headers) : null;
  if (problem === null) return reply;
  discard(reply);
  throw new TypeError(problem);
}

/**
 * Has a reply that HTTP cannot carry be the fault of the plugin that made it: found at the end of the chain, it would be nobody's. Keeps the
 * headers that the plugin sets from being set again by trailers of the client.
 */
import type { Exchange } from "../http/exchange.ts";
import { dashed, headerProblem, type HeaderList } from "../http/headers.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { discard, type Reply } from "../http/reply.ts";
import { isReply } from "./chain.ts";

/** Throws, or rejects with, a `TypeError` for a reply of the plugin's own whose headers cannot be sent. */
export function sendingValid(middleware: Middleware): Middleware {
  return (next) => {
    const given = new WeakMap<object, HeaderList>();
    const handler = middleware(withoutOverlaid(next, given));
    // Reported where plugins are created.
    if (typeof handler !== "function") return handler;
    return (exchange) => {
      if (exchange.body !== null) given.set(exchange.call, exchange.headers);
      const returned = handler(exchange);
      // Passed on as it came from the next plugin.
      if (returned === exchange.call.passed) return returned;
      return returned instanceof Promise ? returned.then(validated) : validated(returned);
    };
  };
}

/** `given`: the headers that the plugin got of a request, by its call. */
function withoutOverlaid(next: Handler, given: WeakMap<object, HeaderList>): Handler {
  return (exchange) => {
    const before = given.get(exchange?.call);
    return next(before === undefined || exchange.headers === before ? exchange : exchange.with({ trailers: trailersBeside(exchange, before) }));
  };
}

/** The trailers, without fields that the plugin has added to the head, or changed there. */
function trailersBeside({ headers, trailers }: Exchange, before: HeaderList): () => HeaderList {
  const lines = new Set<string>();
  for (let i = 0; i < before.length; i += 2) lines.add(`${before[i]!}: ${before[i + 1]!}`);
  const own = new Set<string>();
  for (let i = 0; i < headers.length; i += 2) if (!lines.has(`${headers[i]!}: ${headers[i + 1]!}`)) own.add(dashed(headers[i]!));
  return () => {
    const list = trailers();
    return list.filter((_text, i) => !own.has(dashed(list[i & ~1]!)));
  };
}

function validated(reply: Reply): Reply {
  const problem = isReply(reply) ? headerProblem(reply.headers) : null;
  if (problem === null) return reply;
  discard(reply);
  throw new TypeError(problem);
}

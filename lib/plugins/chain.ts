/**
 * Keeps a plugin's fault to its own request, and reports which plugin of a chain it was. Logging and counting faults is `gateway/`.
 *
 * A reply that passes through a plugin as it came costs a comparison.
 */
import { byteStream } from "../http/body.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { discard, faultReply, isClientFault, isReply, type Reply } from "../http/reply.ts";
import { fold, type Scope } from "./plugin.ts";

/** One instance in the chain of a route. */
export interface Link {
  /** Its kind. */
  readonly name: string;
  readonly scope: Scope;
  readonly middleware: Middleware;
}

/** Told of every plugin that was at fault, with what it threw. */
export type OnFault = (link: Link, call: Call, error: unknown) => void;

/**
 * Folds like `fold`, so that a fault costs its own request only: what a plugin throws, rejects with, or gives in the place of a Reply becomes
 * the reply to its own request where it happens. The plugins around it see that reply like any other, and add what they add to all.
 */
export function composeChain(links: readonly Link[], innermost: Handler, onFault: OnFault): Handler {
  if (links.length === 0) return innermost;
  const guards = links.map((link): Middleware => (next) => {
    const handler = handlerOf(link, next);
    const replyTo = (exchange: Exchange, error: unknown): Reply => {
      const { call } = exchange;
      if (!isClientFault(error)) onFault(link, call, error);
      return faultReply(call, error);
    };
    const checked = (exchange: Exchange, reply: Reply): Reply => {
      try {
        if (isReply(reply) && (reply.tunnel === undefined || exchange.upgrade !== null)) return withSafeBody(reply);
      } catch (error) {
        discard(reply);
        return replyTo(exchange, error);
      }
      discard(reply);
      return replyTo(exchange, new TypeError(NO_REPLY));
    };
    return (exchange) => {
      const { call } = exchange;
      let returned: Reply | Promise<Reply>;
      try {
        returned = handler(exchange);
      } catch (error) {
        returned = replyTo(exchange, error);
      }
      // Whoever returns what the handler within has just returned has only passed it on.
      if (returned === call.passed) return returned;
      const own =
        returned instanceof Promise
          ? returned.then(
              (reply) => checked(exchange, reply),
              (error: unknown) => replyTo(exchange, error),
            )
          : checked(exchange, returned);
      call.passed = own;
      return own;
    };
  });
  return fold(guards, (exchange) => {
    const returned = innermost(exchange);
    exchange.call.passed = returned;
    return returned;
  });
}

/** A body of a plugin's own may be no stream of bytes. */
function withSafeBody(reply: Reply): Reply {
  const { body } = reply;
  if (body === null || Buffer.isBuffer(body)) return reply;
  const bytes = byteStream(body);
  return bytes === body ? reply : { ...reply, body: bytes };
}

const NO_REPLY = "a plugin returned no Reply: it gives back what next(exchange) does, or a Reply of its own";

function handlerOf({ name, middleware }: Link, next: Handler): Handler {
  const handler: unknown = middleware(next);
  if (typeof handler !== "function") throw new TypeError(`plugin ${name}: what "create" returns has to give a handler: (next) => (exchange) => next(exchange)`);
  return handler as Handler;
}

/**
 * Composes the plugins of a route into one handler. A plugin's fault ends its own request only, and is reported with the plugin's name.
 */
import { byteStream } from "../http/body.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { discard, faultReply, isClientFault, isReply, type Reply } from "../http/reply.ts";
import { fold, type Scope } from "./plugin.ts";

/** One plugin instance of a route. */
export interface Link {
  /** Its kind. */
  readonly name: string;
  readonly scope: Scope;
  readonly middleware: Middleware;
}

/** Called for every fault of a plugin, with what it threw. */
export type OnFault = (link: Link, call: Call, error: unknown) => void;

/**
 * Folds the plugins around `innermost`. Whatever a plugin throws, rejects with or returns instead of a Reply becomes an error reply at that
 * place: the plugins around it see this reply like any other. A reply that a plugin passes on unchanged costs one comparison.
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
      // The plugin has passed on what the next handler returned.
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

/** A plugin's own body may yield something other than bytes. */
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

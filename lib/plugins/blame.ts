/**
 * Finds out which plugin of a chain was at fault, for the log and the counts. Answering for it is `gateway/`.
 *
 * A reply that passes through a plugin as it came costs a comparison. Only a promise that a plugin makes itself is looked at twice,
 * by a reaction beside it: what the chain returns, and when, stays the same.
 */
import type { Call } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { isReply, type Reply } from "../http/reply.ts";
import { fold, type Scope } from "./plugin.ts";

/** One instance in the chain of a route. */
export interface Link {
  /** Its kind. */
  readonly name: string;
  readonly scope: Scope;
  readonly middleware: Middleware;
}

/** Folds like `fold`, so that `blamed` can tell afterwards who threw, rejected, or gave no Reply. */
export function foldBlaming(links: readonly Link[], innermost: Handler): Handler {
  if (links.length === 0) return innermost;
  // What the handler within has just returned: whoever returns the same has only passed it on.
  let passed: Reply | Promise<Reply> | null = null;
  const guards = links.map((link): Middleware => (next) => {
    const handler = handlerOf(link, next);
    return (exchange) => {
      let returned;
      try {
        returned = handler(exchange);
      } catch (error) {
        blame(exchange.call, link, error, "error");
        throw error;
      }
      if (returned === passed) return returned;
      watch(returned, exchange.call, link);
      return (passed = returned);
    };
  });
  const chain = fold(guards, (exchange) => (passed = innermost(exchange)));
  return (exchange) => {
    const returned = chain(exchange);
    passed = null; // or it would hold the reply until the next one
    return returned;
  };
}

/** Who is to blame for what came out of the chain, an error or something that is no Reply; null when it was no plugin. */
export function blamed(call: Call, outcome: unknown): Link | null {
  const found = BLAME.get(call);
  // Whatever a plugin does with something that is no Reply, the one that gave it is at fault.
  return found !== undefined && (found.kind === "no reply" || found.outcome === outcome) ? found.link : null;
}

interface Blame {
  readonly link: Link;
  readonly outcome: unknown;
  readonly kind: "error" | "no reply";
}

const BLAME = new WeakMap<Call, Blame>();

function blame(call: Call, link: Link, outcome: unknown, kind: Blame["kind"]): void {
  const before = BLAME.get(call);
  // The same error meets every plugin around the one that threw it.
  if (before === undefined || (before.kind === "error" && before.outcome !== outcome)) BLAME.set(call, { link, outcome, kind });
}

function watch(returned: Reply | Promise<Reply>, call: Call, link: Link): void {
  if (!(returned instanceof Promise)) {
    if (!isReply(returned)) blame(call, link, returned, "no reply");
    return;
  }
  returned.then(
    (reply) => {
      if (!isReply(reply)) blame(call, link, reply, "no reply");
    },
    (error: unknown) => blame(call, link, error, "error"),
  );
}

function handlerOf({ name, middleware }: Link, next: Handler): Handler {
  const handler: unknown = middleware(next);
  if (typeof handler !== "function") throw new TypeError(`plugin ${name}: what "create" returns has to give a handler: (next) => (exchange) => next(exchange)`);
  return handler as Handler;
}

/**
 * What plugin kinds that are not ours need: checks of their definitions, and of the replies of their instances. A reply
 * that HTTP cannot carry is the fault of the plugin that made it: found at the end of the chain, it would be nobody's.
 * The headers that a plugin sets are not set again by trailers of the client.
 */
import { verifyPassword } from "../base/password.ts";
import { SharedCount } from "../base/shared_counts.ts";
import { SharedMemory } from "../base/shared_memory.ts";
import { HttpClient } from "../client/client.ts";
import type { Exchange } from "../http/exchange.ts";
import { dashed, headerProblem, type HeaderList } from "../http/headers.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { discard, type Reply } from "../http/reply.ts";
import { HeldCounts } from "../store/held_counts.ts";
import { memoryCounters } from "../store/memory.ts";
import { isReply } from "./chain.ts";
import type { AnyPlugin, ToolCode } from "./plugin.ts";

/** They may use any tool. */
export const TOOL_CODE: Required<ToolCode> = {
  memoryCounters,
  SharedCount,
  HeldCounts,
  SharedMemory,
  HttpClient,
  verifyPassword,
};

/** Returns the error in a plugin's definition, for its author; undefined if it is valid. */
export function kindProblem(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return "a plugin is an object with name, schema and create";
  const {
    name,
    schema: own,
    create,
    takes,
    dials,
    secretParameters,
    ownHeaders,
    ...roles
  } = value as Partial<Record<keyof AnyPlugin, unknown>>;
  if (typeof name !== "string" || !KIND_NAME.test(name))
    return `plugin name ${shown(name)}: use lower-case letters, digits and underscores`;
  const { check, show, jsonSchema } = (own ?? {}) as Partial<Record<string, unknown>>;
  if (![check, show, jsonSchema].every((part) => typeof part === "function"))
    return `plugin ${name}: "schema" is none: make it with schema.object({ … })`;
  if (typeof create !== "function") return `plugin ${name}: "create" is no function`;
  if (takes !== undefined && takes !== "preflights")
    return `plugin ${name}: "takes" is ${shown(takes)}; it may be "preflights" only`;
  for (const [field, names] of Object.entries({ secretParameters, ownHeaders })) {
    if (names !== undefined && typeof names !== "function")
      return `plugin ${name}: "${field}" is ${shown(names)}; it is a function that returns names`;
  }
  const { why, urls } = (dials ?? {}) as Partial<Record<string, unknown>>;
  if (dials !== undefined && (typeof why !== "string" || typeof urls !== "function"))
    return (
      `plugin ${name}: "dials" is { why, urls }: a reason, ` + `and a function that returns the URLs of a configuration`
    );
  for (const role of ["guards", "identifies", "stores"] as const) {
    if (!["undefined", "boolean"].includes(typeof roles[role]))
      return `plugin ${name}: "${role}" is ${shown(roles[role])}; it is true or false`;
  }
  return roles.guards === true && roles.stores === true
    ? `plugin ${name}: it cannot guard and store: make two kinds of it`
    : undefined;
}

const KIND_NAME = /^[a-z][a-z0-9_]*$/;

function shown(value: unknown): string {
  return typeof value === "string" ? `"${value}"` : value === undefined ? "missing" : `a ${typeof value}`;
}

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
    return next(
      before === undefined || exchange.headers === before
        ? exchange
        : exchange.with({ trailers: trailersBeside(exchange, before) }),
    );
  };
}

/** The trailers, without fields that the plugin has added to the head, or changed there. */
function trailersBeside({ headers, trailers }: Exchange, before: HeaderList): () => HeaderList {
  const lines = new Set<string>();
  for (let i = 0; i < before.length; i += 2) lines.add(`${before[i]!}: ${before[i + 1]!}`);
  const own = new Set<string>();
  for (let i = 0; i < headers.length; i += 2)
    if (!lines.has(`${headers[i]!}: ${headers[i + 1]!}`)) own.add(dashed(headers[i]!));
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

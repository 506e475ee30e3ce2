/**
 * Composes the plugins of a route into one handler. A plugin's fault ends its own request only, and is reported with
 * the plugin's name.
 */
import type { Clock } from "../base/clock.ts";
import { byteStream } from "../http/body.ts";
import { stopPluginTime, type Call, type Exchange, type Notes, type PluginTime } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { discard, faultReply, isForeignFault, type Reply, type Tunnel } from "../http/reply.ts";
import type { AnyPlugin, Link, OnFault } from "./plugin.ts";

/**
 * Returns the instances of a route in running order: as written, except that plugins that store replies run after the
 * last guard.
 */
export function runningOrder<T extends { readonly kind: Pick<AnyPlugin, "guards" | "stores"> }>(
  written: readonly T[],
): readonly T[] {
  const afterGuards = written.findLastIndex(({ kind }) => kind.guards) + 1;
  const guarded = written.slice(0, afterGuards);
  const stores = guarded.filter(({ kind }) => kind.stores);
  return stores.length === 0
    ? written
    : [...guarded.filter(({ kind }) => !kind.stores), ...stores, ...written.slice(afterGuards)];
}

/**
 * Folds the plugins around `innermost`: the first one sees the request first and the reply last. Any value that a
 * plugin throws, rejects with or returns instead of a Reply becomes an error reply at that place: the plugins around it
 * see this reply like any other. A reply that a plugin passes on unchanged costs one comparison. `make` makes the
 * handler of a plugin.
 */
export function composeChain<L extends Link>(
  links: readonly L[],
  innermost: Handler,
  clock: Clock,
  onFault: OnFault,
  make: (link: L, next: Handler) => Handler = ({ middleware }, next) => middleware(next),
): Handler {
  if (links.length === 0) return innermost;
  let handler: Handler = (exchange) => {
    const { call } = exchange;
    if (call.notes.plugin !== null) stopPluginTime(call.notes, clock.now());
    call.notes.by = null;
    return (call.passed = innermost(exchange));
  };
  for (const link of links.toReversed()) handler = linkHandler(link, make(link, handler), clock, onFault);
  return handler;
}

/** The plugin gets the request: the time of the one before ends. */
function startPluginTime(notes: Notes, meter: PluginTime, now: number): void {
  stopPluginTime(notes, now);
  meter.requests++;
  notes.plugin = meter;
  notes.pluginFrom = now;
}

function linkHandler(link: Link, handler: Handler, clock: Clock, onFault: OnFault): Handler {
  return (exchange) => {
    const { call } = exchange;
    const { meter } = link;
    if (meter !== null) startPluginTime(call.notes, meter, clock.now());
    call.notes.by = link;
    let returned: Reply | Promise<Reply>;
    try {
      returned = handler(exchange);
    } catch (error) {
      returned = replyTo(error, call, link, onFault);
    }
    // The plugin has passed on the reply of the next handler.
    if (returned === call.passed) return returned;
    if (!(returned instanceof Promise)) return (call.passed = checked(returned, exchange, link, onFault));
    return (call.passed = returned.then(
      (reply) => checked(reply, exchange, link, onFault),
      (error: unknown) => replyTo(error, call, link, onFault),
    ));
  };
}

function replyTo(error: unknown, call: Call, link: Link, onFault: OnFault): Reply {
  if (!isForeignFault(error)) onFault(link, call, error);
  return faultReply(call, error);
}

function checked(reply: Reply, exchange: Exchange, link: Link, onFault: OnFault): Reply {
  let error: unknown = null;
  try {
    if (isReply(reply) && (reply.tunnel === undefined || exchange.upgrade !== null)) return withSafeBody(reply);
  } catch (thrown) {
    error = thrown;
  }
  discard(reply);
  return replyTo(error ?? new TypeError(NO_REPLY), exchange.call, link, onFault);
}

/** Whether a plugin's value is a Reply that can be sent. */
export function isReply(reply: Reply): boolean {
  if (typeof reply !== "object" || reply === null) return false;
  const { status, headers, body, trailers, tunnel } = reply;
  if (!Number.isInteger(status) || !Array.isArray(headers) || status > 999 || headers.length % 2 !== 0) return false;
  for (const each of headers as readonly unknown[]) if (typeof each !== "string") return false;
  if ((status < 200 && status !== 101) || (status === 101) !== (tunnel !== undefined)) return false;
  if (tunnel !== undefined && typeof (tunnel as Partial<Tunnel> | null)?.socket?.pipe !== "function") return false;
  if (trailers !== undefined && typeof trailers !== "function") return false;
  return body === null || Buffer.isBuffer(body) || typeof (body as { pipe?: unknown } | undefined)?.pipe === "function";
}

/** A plugin's own body may yield something other than bytes. */
function withSafeBody(reply: Reply): Reply {
  const { body } = reply;
  if (body === null || Buffer.isBuffer(body)) return reply;
  const bytes = byteStream(body);
  return bytes === body ? reply : { ...reply, body: bytes };
}

const NO_REPLY = "a plugin returned no Reply: it gives back what next(exchange) does, or a Reply of its own";

/**
 * Times what plugin instances do with requests: from the moment one gets a request until the next one or the upstream does, or until it
 * answers itself. What it does with replies on their way back is not in it: spans (`trace.ts`) have that.
 */
import type { Clock } from "../base/clock.ts";
import type { Notes, PluginTime } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";

export class PluginMeter implements PluginTime {
  requests = 0;
  ms = 0;
}

/** Costs a look at the clock and two additions a request. */
export function metered(meter: PluginMeter, middleware: Middleware, clock: Clock): Middleware {
  return (next) => {
    const handler = middleware(next);
    if (typeof handler !== "function") return handler;
    return (exchange) => {
      const { notes } = exchange.call;
      const now = clock.now();
      stopPluginTime(notes, now);
      meter.requests++;
      notes.plugin = meter;
      notes.pluginFrom = now;
      return handler(exchange);
    };
  };
}

/** What plugins hand requests on to in the end. */
export function endPluginTime(handler: Handler, clock: Clock): Handler {
  return (exchange) => {
    stopPluginTime(exchange.call.notes, clock.now());
    return handler(exchange);
  };
}

/** The plugin that has the request, if one has, is done with it at `now`. */
export function stopPluginTime(notes: Notes, now: number): void {
  if (notes.plugin === null) return;
  notes.plugin.ms += now - notes.pluginFrom;
  notes.plugin = null;
}

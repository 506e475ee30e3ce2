/**
 * Measures the time plugin instances spend on requests: from when an instance gets a request until the next one or the upstream gets it, or
 * until it answers. Time spent on replies is not included; spans (`trace.ts`) have it.
 */
import type { Clock } from "../base/clock.ts";
import type { Notes, PluginTime } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";

export class PluginMeter implements PluginTime {
  requests = 0;
  ms = 0;
}

/** Costs a reading of the clock and two additions per request. */
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

/** The handler after the last plugin. */
export function endPluginTime(handler: Handler, clock: Clock): Handler {
  return (exchange) => {
    stopPluginTime(exchange.call.notes, clock.now());
    return handler(exchange);
  };
}

/** Ends the time of the plugin that has the request, if there is one. */
export function stopPluginTime(notes: Notes, now: number): void {
  if (notes.plugin === null) return;
  notes.plugin.ms += now - notes.pluginFrom;
  notes.plugin = null;
}

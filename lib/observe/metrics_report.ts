/**
 * Reports the counts of a worker's `Metrics` to the main thread, whose own `Metrics` are then those of all workers.
 */
import { readCounts, RouteMeter } from "./metrics.ts";
import { type Metrics } from "./metrics_plan.ts";
import { PluginMeter } from "./plugin_meter.ts";
import type { ReportReader, ReportWriter } from "./report.ts";

/** Moves all counts into a report: it has what was counted since the last one. Nothing else reads them in a worker. */
export function takeMetrics({ services, plugins, pluginFaults, unrouted }: Metrics, report: ReportWriter): void {
  unrouted.take(report);
  for (const [service, { routes }] of services) {
    for (const [name, route] of routes) {
      if (route.recent.requests === 0 && route.inFlight === 0) continue;
      report.item(service, name).add([route.inFlight]);
      route.take(report);
    }
  }
  report.end();
  for (const [service, { meter }] of services) {
    for (const [id, recent] of meter.upstreams) if (recent.requests > 0) recent.take(report.item(service, id));
  }
  report.end();
  for (const [service, { meter }] of services) {
    if (meter.retries > 0) report.item(service).add([meter.retries]);
    meter.retries = 0;
  }
  report.end();
  for (const [labels, meter] of plugins) meter.take(labels, report);
  report.end();
  for (const [plugin, count] of pluginFaults) report.item(plugin).add([count]);
  pluginFaults.clear();
  report.end();
}

/**
 * Adds the counts of a report. `hold` gets the requests in flight of a route at this moment. A worker may report under another configuration:
 * requests of routes that this one does not have count in all only, as those do that end after a reload.
 */
export function addMetrics({ services, plugins, pluginFaults, steps, total, unrouted }: Metrics, report: ReportReader, hold: (meter: RouteMeter, inFlight: number) => void): void {
  unrouted.add(report);
  while (report.item()) {
    const [service, route] = [report.name(), report.name()];
    const meter = services.get(service)?.routes.get(route) ?? new RouteMeter(steps, total);
    hold(meter, report.number());
    meter.add(report);
  }
  while (report.item()) {
    const [service, upstream] = [report.name(), report.name()];
    const counts = readCounts(report);
    services.get(service)?.meter.upstreams.get(upstream)?.addCounts(counts);
  }
  while (report.item()) {
    const [service, retries] = [report.name(), report.number()];
    const meter = services.get(service)?.meter;
    if (meter !== undefined) meter.retries += retries;
  }
  while (report.item()) (plugins.get(report.name()) ?? new PluginMeter()).add(report);
  while (report.item()) {
    const plugin = report.name();
    pluginFaults.set(plugin, (pluginFaults.get(plugin) ?? 0) + report.number());
  }
}

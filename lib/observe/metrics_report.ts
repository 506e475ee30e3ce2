/**
 * Reports the counts of a worker's `Metrics` to the main thread, whose own `Metrics` are then those of all workers.
 */
import { increase, MAX_CODES, type Recent, type RouteMeter, type StepCounter } from "./metrics.ts";
import type { Metrics, ServicePlan } from "./metrics_plan.ts";

export type MetricsReport = ReturnType<typeof takeMetrics>;

/** Moves all counts into a report: it has what was counted since the last one. Nothing else reads them in a worker. */
export function takeMetrics({
  services,
  plugins,
  pluginFaults,
  handshakes,
  refusedHandshakes,
  total,
  unrouted,
  durations,
}: Metrics) {
  const report = {
    unrouted: unrouted.take(),
    services: Array.from(services, ([service, { meter, routes }]) => {
      const busyRoutes = [...routes].filter(([, route]) => route.recent.requests > 0 || route.inFlight > 0);
      const busyUpstreams = [...meter.upstreams].filter(([, recent]) => recent.requests > 0);
      const { retries } = meter;
      meter.retries = 0;
      return {
        service,
        routes: busyRoutes.map(([name, route]) => [name, route.take()] as const),
        upstreams: busyUpstreams.map(([id, recent]) => [id, recent.take()] as const),
        retries,
      };
    }).filter(({ routes, upstreams, retries }) => routes.length > 0 || upstreams.length > 0 || retries > 0),
    plugins: [...plugins].filter(([, meter]) => meter.isUsed).map(([labels, meter]) => [labels, meter.take()] as const),
    pluginFaults: [...pluginFaults],
    handshakes: [...handshakes],
    refusedHandshakes: [...refusedHandshakes],
    // Not a sum of those above: a route that a reload has removed may still end requests.
    total: total.take(),
    codes: [...total.codes],
    durations: durations?.take() ?? [],
  };
  total.codes.clear();
  pluginFaults.clear();
  handshakes.clear();
  refusedHandshakes.clear();
  return report;
}

/**
 * Adds the counts of a report. `hold` gets the requests in flight of a route at this moment. A worker may report under
 * another configuration:
 * requests of routes that this one does not have count in all only, as those do that end after a reload.
 */
export function addMetrics(
  { services, plugins, pluginFaults, handshakes, refusedHandshakes, total, unrouted, durations, steps }: Metrics,
  report: MetricsReport,
  hold: (meter: RouteMeter, inFlight: number) => void,
): void {
  total.addCounts(report.total);
  unrouted.add(report.unrouted);
  durations?.add(report.durations);
  for (const { service, routes, upstreams, retries } of report.services) {
    const known = services.get(service);
    if (known === undefined) continue;
    for (const [name, counts] of routes) {
      const meter = known.routes.get(name);
      if (meter === undefined) continue;
      hold(meter, counts.inFlight);
      meter.add(counts);
    }
    for (const [id, counts] of upstreams) triesOf(known, id, steps)?.addCounts(counts);
    known.meter.retries += retries;
  }
  for (const [labels, counts] of report.plugins) plugins.get(labels)?.add(counts);
  for (const [plugin, count] of report.pluginFaults) increase(pluginFaults, plugin, count);
  for (const [labels, count] of report.handshakes) increase(handshakes, labels, count);
  for (const [labels, count] of report.refusedHandshakes) increase(refusedHandshakes, labels, count);
  for (const [code, count] of report.codes) increase(total.codes, code, count, MAX_CODES);
}

/**
 * The tries of an upstream. Which endpoints have a name of their own depends on those before, which a worker may not
 * have had, or not together: what has none here is counted with the others that have none.
 */
function triesOf({ meter, isFollowing }: ServicePlan, upstream: string, steps: StepCounter): Recent | undefined {
  return meter.upstreams.get(upstream) ?? (isFollowing ? meter.others(steps) : undefined);
}

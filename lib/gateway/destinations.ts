/**
 * Lists the servers that a configuration connects to: what `Egress` permits, and what `edge-gateway audit` prints.
 */
import type { Destination } from "../base/egress.ts";
import type { Config, Service } from "../config/model.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { LoadedFeatures } from "./loaded_features.ts";

/** May contain a destination twice. Throws a `PluginError` for an instance whose `dials` fails. */
export function destinationsOf(
  config: Config,
  kinds: readonly AnyPlugin[],
  features: LoadedFeatures,
): readonly Destination[] {
  const ofServices = config.services.flatMap(destinationsOfUpstreams);
  const ofPlugins = features.loaded.plugins?.destinationsOfPlugins(config, kinds) ?? [];
  const { counters } = config.global;
  const ofCounters = counters === undefined ? [] : features.sharedCounters.destinationsOfCounters(counters);
  return [...ofServices, ...ofPlugins, ...ofCounters];
}

export function destinationsOfUpstreams({ upstreams, health }: Service): readonly Destination[] {
  const reasons = health.enabled ? ["upstream", "health"] : ["upstream"];
  return upstreams.flatMap(({ host, port }) => reasons.map((why) => ({ host, port, why })));
}

/**
 * Lists the servers that a configuration connects to, as `edge-gateway audit` prints them.
 */
import type { Destination } from "../base/egress.ts";
import type { Config } from "../config/model.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { destinationsOfUpstreams } from "./destinations.ts";
import type { LoadedFeatures } from "./loaded_features.ts";

/** May contain a destination twice. Throws a `PluginError` for an instance whose `dials` fails. */
export function destinationsOf(
  config: Config,
  kinds: readonly AnyPlugin[],
  features: LoadedFeatures,
): readonly Destination[] {
  const ofServices = config.services.flatMap(destinationsOfUpstreams);
  const ofPlugins = features.loaded.plugins?.destinationsOfPlugins(config, kinds) ?? [];
  const { acme, counters } = config.global;
  const ofCounters = counters === undefined ? [] : features.sharedCounters.destinationsOfCounters(counters);
  const ofCertificates = acme === undefined ? [] : features.serverTls.acmeDestinations(acme);
  return [...ofServices, ...ofPlugins, ...ofCounters, ...ofCertificates];
}

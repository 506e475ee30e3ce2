/**
 * Lists the servers that a configuration connects to: what `Egress` permits, and what `edge-gateway audit` prints.
 */
import type { Destination } from "../base/egress.ts";
import type { Config, Service } from "../config/model.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { Parts } from "./parts.ts";

/** May contain a destination twice. Throws a `PluginError` for an instance whose `dials` fails. */
export function destinationsOf(config: Config, kinds: readonly AnyPlugin[], parts: Parts): readonly Destination[] {
  const ofServices = config.services.flatMap(destinationsOfUpstreams);
  const ofPlugins = parts.partIfLoaded("dials")?.destinationsOfPlugins(config, kinds) ?? [];
  const ofCounters =
    config.global.counters === undefined ? [] : parts.part("redis").destinationsOfCounters(config.global.counters);
  return [...ofServices, ...ofPlugins, ...ofCounters];
}

export function destinationsOfUpstreams({ upstreams, health }: Service): readonly Destination[] {
  const reasons = health.enabled ? ["upstream", "health"] : ["upstream"];
  return upstreams.flatMap(({ host, port }) => reasons.map((why) => ({ host, port, why })));
}

/**
 * Lists the servers that a configuration connects to: what `Egress` permits, and what `edge-gateway audit` prints.
 */
import { destinationOf, type Destination } from "../base/egress.ts";
import { messageOf } from "../base/errors.ts";
import type { Config, PluginInstance } from "../config/model.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";

/** May contain a destination twice. Throws an `Error` that names the plugin kind whose `dials` fails. */
export function destinationsOf({ global, services }: Config, kinds: readonly AnyPlugin[]): readonly Destination[] {
  const byName = new Map(kinds.map((kind) => [kind.name, kind]));
  const ofPlugins = (instances: readonly PluginInstance[]) =>
    instances.flatMap(({ name, enabled, config }) => {
      const kind = byName.get(name);
      return enabled && kind !== undefined ? urlsOf(kind, config).map((url) => destinationOf(new URL(url), whyOf(kind))) : [];
    });
  const ofServices = services.flatMap(({ upstreams, health, plugins, routes }) => [
    ...upstreams.flatMap(({ host, port }) => (health.enabled ? ["upstream", "health"] : ["upstream"]).map((why) => ({ host, port, why }))),
    ...ofPlugins(plugins),
    ...routes.flatMap((route) => ofPlugins(route.plugins)),
  ]);
  return [...ofServices, ...ofPlugins(global.plugins), ...destinationsOfCounters(global.counters)];
}

/** The URLs that an instance with this configuration asks. Throws an `Error` where `dials` throws, or returns anything else than a list of URLs. */
export function urlsOf({ name, dials }: AnyPlugin, config: unknown): readonly string[] {
  if (dials === undefined) return [];
  let urls: unknown;
  try {
    urls = dials.urls(config);
  } catch (error) {
    throw new Error(`plugin ${name}: urls of its "dials" has thrown: ${messageOf(error)}`, { cause: error });
  }
  const isList = Array.isArray(urls) && urls.every((url) => typeof url === "string" && URL.canParse(url) && /^https?:$/.test(new URL(url).protocol));
  if (!isList) throw new Error(`plugin ${name}: urls of its "dials" has to return a list of http and https URLs`);
  return urls as readonly string[];
}

export function whyOf({ name, dials }: AnyPlugin): string {
  return dials?.why ?? `plugin ${name}, whose kind has no "dials"`;
}

/** A Cluster names its other servers itself: they may have any host, and one of the ports that are configured. */
export function destinationsOfCounters(counters: Config["global"]["counters"]): readonly Destination[] {
  if (counters === undefined) return [];
  const named = [counters.url].flat().map(({ host, port }) => ({ host, port, why: "redis" }));
  return Array.isArray(counters.url) ? [...named, ...named.map(({ port }) => ({ host: "*", port, why: "redis" }))] : named;
}

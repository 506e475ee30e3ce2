/**
 * Lists the servers that plugins ask, by the `dials` of their kinds.
 */
import type { Destination } from "../base/egress.ts";
import { DEFAULT_PORTS, destinationOf } from "../base/url_destination.ts";
import { messageOf } from "../base/errors.ts";
import type { Config, PluginInstance } from "../config/model.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { PluginOwner } from "./compile_types.ts";
import { creating } from "./plugin_error.ts";

/** As `destinationsOf`. */
export function destinationsOfPlugins(
  { global, services }: Config,
  kinds: readonly AnyPlugin[],
): readonly Destination[] {
  if (kinds.every(({ dials }) => dials === undefined)) return [];
  const byName = new Map(kinds.map((kind) => [kind.name, kind]));
  const ofPlugins = (
    instances: readonly PluginInstance[],
    level: PluginOwner["level"],
    service: string | null = null,
    route: string | null = null,
  ) =>
    instances.flatMap(({ name, enabled, config }, index) => {
      const kind = byName.get(name);
      return enabled && kind !== undefined
        ? creating(() => dialledBy(kind, config), name, { level, service, route }, index)
        : [];
    });
  const ofServices = services.flatMap(({ name, plugins, routes }) => [
    ...ofPlugins(plugins, "service", name),
    ...routes.flatMap((route) => ofPlugins(route.plugins, "route", name, route.name)),
  ]);
  return [...ofServices, ...ofPlugins(global.plugins, "global")];
}

/**
 * What an instance with this configuration asks. Throws an `Error` where `dials` throws, or returns anything else than
 * a list of URLs.
 */
export function dialledBy({ dials }: AnyPlugin, config: unknown): readonly Destination[] {
  if (dials === undefined) return [];
  let urls: unknown;
  try {
    urls = dials.urls(config);
  } catch (error) {
    throw new Error(`urls of its "dials" has thrown: ${messageOf(error)}`, { cause: error });
  }
  if (!Array.isArray(urls) || !urls.every(namesServer))
    throw new Error(
      'urls of its "dials" has to return a list of URLs, each with a host, ' +
        "and a port unless it is http, https, redis or rediss",
    );
  return urls.map((url) => destinationOf(new URL(url), dials.why));
}

function namesServer(url: unknown): url is string {
  if (typeof url !== "string" || !URL.canParse(url)) return false;
  const { protocol, hostname, port } = new URL(url);
  return hostname !== "" && (port !== "" || Object.hasOwn(DEFAULT_PORTS, protocol));
}

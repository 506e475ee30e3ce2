/**
 * The status of a gateway as the admin interface shows it, with the places of its warnings in the text of the
 * configuration in force.
 */
import type { Path, Position } from "../config/json.ts";
import type { Config } from "../config/model.ts";
import { placesIn } from "../config/places.ts";
import type { ConfigSource } from "../config/source.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type { ConfigWarning, Warning } from "../gateway/status.ts";
import { statusView, type ShownGateway } from "./views.ts";

/** Found so far, by the path as JSON: a large text is looked through again only for a place that is new. */
const known = new WeakMap<ConfigSource, Map<string, Position | null>>();

export function placedStatus(gateway: Pick<ShownGateway, "status">) {
  const { status } = gateway;
  return statusView(status, positionsOf(status.warnings, gateway));
}

/** One for each warning; null where it is about nothing in the text, or the configuration came without one. */
function positionsOf(warnings: readonly Warning[], gateway: object): readonly (Position | null)[] {
  if (warnings.length === 0 || !(gateway instanceof GatewayCore)) return [];
  const {
    snapshot: { config, source },
  } = GatewayCore.internalsOf(gateway).configuration;
  if (!("text" in source)) return [];
  const found = known.get(source) ?? new Map<string, Position | null>();
  known.set(source, found);
  const paths = warnings.map((warning) => pathOf(warning, config));
  const missing = paths.filter((path) => path !== null && !found.has(JSON.stringify(path))) as Path[];
  if (missing.length > 0) {
    const places = placesIn(source, missing);
    for (const [i, path] of missing.entries()) found.set(JSON.stringify(path), places[i]!);
  }
  return paths.map((path) => found.get(JSON.stringify(path)) ?? null);
}

/** By indexes. Warnings about the state of the gateway name what they are about. */
function pathOf(warning: Warning | ConfigWarning, { services }: Config): Path | null {
  if ("at" in warning) return warning.at;
  const { path, service, route } = warning;
  if (service === null) return path?.match(/^(?:global\.\w+|\w+$)/)?.[0].split(".") ?? null;
  const i = services.findIndex(({ name }) => name === service);
  if (i < 0) return null;
  const { routes, upstreams } = services[i]!;
  const j = routes.findIndex(({ name }) => name === route);
  const k = upstreams.findIndex(({ id }) => path === `services.${service}.upstreams.${id}`);
  return ["services", i, ...(j >= 0 ? ["routes", j] : k >= 0 ? ["upstreams", k] : [])];
}

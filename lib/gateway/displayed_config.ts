/**
 * Types of the displayed configuration, as far as it is read here: defaults are filled in, references to secrets are
 * unresolved.
 */
import type { Json } from "../config/json.ts";
import type { AnyConfigInput } from "../config/model.ts";

type ServiceInput = AnyConfigInput["services"][number];
type RouteInput = ServiceInput["routes"][number];

/** Of a configuration as written, where a default fills in what is missing. */
type Present<T> = { readonly [Key in keyof T]-?: NonNullable<T[Key]> };

export interface DisplayedPlugin {
  readonly name: string;
  readonly id?: string;
  readonly enabled: boolean;
  readonly config: Readonly<Record<string, Json>>;
}

interface WithPlugins {
  readonly plugins: readonly DisplayedPlugin[];
}

export type DisplayedRoute = Present<Pick<RouteInput, "name" | "path">> &
  Pick<RouteInput, "methods" | "match" | "timeouts"> &
  WithPlugins;

export type DisplayedService = Present<Pick<ServiceInput, "name" | "base_path" | "load_balancing_strategy">> &
  Pick<ServiceInput, "hosts" | "hash_on" | "hash_balance_factor" | "sticky"> &
  WithPlugins & { readonly routes: readonly DisplayedRoute[] };

export interface DisplayedConfig {
  readonly global: WithPlugins & {
    readonly certificates: readonly unknown[];
    readonly tls?: { readonly client_crl?: string };
  };
  readonly services: readonly DisplayedService[];
}

/** Where plugins are named. */
export interface PluginPlace extends WithPlugins {
  readonly service: string | null;
  readonly route: string | null;
}

export function* pluginPlaces({ global, services }: DisplayedConfig): Iterable<PluginPlace> {
  yield { service: null, route: null, plugins: global.plugins };
  for (const { name: service, plugins, routes } of services) {
    yield { service, route: null, plugins };
    for (const route of routes) yield { service, route: route.name, plugins: route.plugins };
  }
}

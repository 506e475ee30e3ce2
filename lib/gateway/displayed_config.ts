/**
 * Types of the displayed configuration, as far as it is read here: defaults are filled in, references to secrets are unresolved.
 */
import type { Json } from "../config/json.ts";
import type { ConfigInput } from "../config/model.ts";

type ServiceInput = ConfigInput["services"][number];
type RouteInput = ServiceInput["routes"][number];

export interface DisplayedPlugin {
  readonly name: string;
  readonly id?: string;
  readonly enabled: boolean;
  readonly config: Readonly<Record<string, Json>>;
}

interface WithPlugins {
  readonly plugins: readonly DisplayedPlugin[];
}

export type DisplayedRoute = Required<Pick<RouteInput, "name" | "path">> & Pick<RouteInput, "methods" | "match"> & WithPlugins;

export type DisplayedService = Required<Pick<ServiceInput, "name" | "base_path" | "load_balancing_strategy">> &
  Pick<ServiceInput, "hosts" | "hash_on" | "hash_balance_factor" | "sticky"> &
  WithPlugins & { readonly routes: readonly DisplayedRoute[] };

export interface DisplayedConfig {
  readonly global: WithPlugins & { readonly certificates: readonly unknown[] };
  readonly services: readonly DisplayedService[];
}

/**
 * The configuration as it is displayed, as far as other files look into it: defaults filled in, references to secrets unresolved.
 * It is made in `config/load.ts`; what it says of single fields is `config/model.ts`.
 */
import type { Json } from "../config/json.ts";

export interface DisplayedPlugin {
  readonly name: string;
  readonly id?: string;
  readonly enabled: boolean;
  readonly config: Readonly<Record<string, Json>>;
}

export interface DisplayedRoute {
  readonly name: string;
  readonly path: string;
  /** Absent or empty: all. */
  readonly methods?: readonly string[];
  readonly plugins: readonly DisplayedPlugin[];
}

export interface DisplayedService {
  readonly name: string;
  readonly base_path: string;
  readonly load_balancing_strategy: string;
  readonly encoded_slashes: string;
  readonly path_parameters: string;
  readonly hosts?: readonly string[];
  readonly routes: readonly DisplayedRoute[];
  readonly plugins: readonly DisplayedPlugin[];
}

export interface DisplayedConfig {
  readonly global: { readonly certificates: readonly unknown[]; readonly plugins: readonly DisplayedPlugin[] };
  readonly services: readonly DisplayedService[];
}

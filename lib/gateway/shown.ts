/**
 * The configuration as it is displayed, as far as other files look into it: defaults filled in, references to secrets unresolved.
 * It is made in `config/load.ts`; what it says of single fields is `config/model.ts`.
 */
import type { Json } from "../config/json.ts";

export interface ShownPlugin {
  readonly name: string;
  readonly id?: string;
  readonly enabled: boolean;
  readonly config: Readonly<Record<string, Json>>;
}

export interface ShownRoute {
  readonly name: string;
  readonly path: string;
  /** Absent or empty: all. */
  readonly methods?: readonly string[];
  readonly plugins: readonly ShownPlugin[];
}

export interface ShownService {
  readonly name: string;
  readonly base_path: string;
  readonly load_balancing_strategy: string;
  readonly encoded_slashes: string;
  readonly path_parameters: string;
  readonly hosts?: readonly string[];
  readonly routes: readonly ShownRoute[];
  readonly plugins: readonly ShownPlugin[];
}

export interface ShownConfig {
  readonly global: { readonly certificates: readonly unknown[]; readonly plugins: readonly ShownPlugin[] };
  readonly services: readonly ShownService[];
}

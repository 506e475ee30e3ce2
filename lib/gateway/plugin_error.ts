/**
 * A plugin instance that cannot be created, and where it is configured: as an error of the configuration.
 */
import { messageOf } from "../base/errors.ts";
import type { LoadResult } from "../config/load.ts";
import type { Config } from "../config/model.ts";
import type { Scope } from "../plugins/plugin.ts";
import { ConfigError } from "./config_error.ts";
import { describePlace } from "./place.ts";

export type Place = Pick<Scope, "level" | "service" | "route">;

class PluginError extends Error {
  readonly #place: Place;
  readonly #index: number;

  /** `index`: of the instance among the plugins of its place. */
  constructor(message: string, place: Place, index: number, cause: unknown) {
    super(message, { cause });
    this.#place = place;
    this.#index = index;
  }

  /** Secrets that the message repeats are concealed; then the cause, which may repeat them too, is left out. */
  in(loaded: Omit<Extract<LoadResult, { readonly ok: true }>, "ok">): ConfigError {
    const { config, file, positionOf } = loaded;
    const at = [...pathOf(this.#place, config), "plugins", this.#index];
    const message = loaded.concealed(this.message);
    return new ConfigError([{ at, message, position: positionOf(at) }], file, message === this.message ? this.cause : undefined);
  }
}

/** A `PluginError` as a `ConfigError`, any other error as it is. */
export function placed(error: unknown, loaded: Omit<Extract<LoadResult, { readonly ok: true }>, "ok">): unknown {
  return error instanceof PluginError ? error.in(loaded) : error;
}

/** Runs a function of a plugin's author. Throws a `PluginError` where it throws. */
export function creating<T>(run: () => T, name: string, place: Place, index: number): T {
  try {
    return run();
  } catch (error) {
    throw new PluginError(`plugin ${name} of ${describePlace(place)} cannot be created: ${messageOf(error)}`, place, index, error);
  }
}

function pathOf({ service, route }: Place, { services }: Config): (string | number)[] {
  if (service === null) return ["global"];
  const i = services.findIndex(({ name }) => name === service);
  return route === null ? ["services", i] : ["services", i, "routes", services[i]!.routes.findIndex(({ name }) => name === route)];
}

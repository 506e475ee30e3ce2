/**
 * A plugin instance that cannot be created, and where it is configured: as an error of the configuration.
 */
import { messageOf } from "../base/errors.ts";
import type { LoadResult } from "../config/load.ts";
import type { Config } from "../config/model.ts";
import { concealerOf } from "../config/secrets.ts";
import { placeInText } from "../config/places.ts";
import type { Scope } from "../plugins/plugin.ts";
import type { PluginOwner } from "./compile_types.ts";
import { ConfigError } from "./config_error.ts";

class PluginError extends Error {
  readonly place: PluginOwner;
  /** Of the instance among the plugins of its place. */
  readonly index: number;

  constructor(message: string, place: PluginOwner, index: number, cause: unknown) {
    super(message, { cause });
    this.place = place;
    this.index = index;
  }
}

/** Runs a function of a plugin's author. Throws a `PluginError` where it throws. */
export function creating<T>(run: () => T, name: string, place: PluginOwner, index: number): T {
  try {
    return run();
  } catch (error) {
    throw new PluginError(
      `plugin ${name} of ${describePlace(place)} cannot be created: ${messageOf(error)}`,
      place,
      index,
      error,
    );
  }
}

/** For messages: where a plugin is configured. */
export function describePlace({ service, route }: Pick<Scope, "service" | "route">): string {
  if (service === null) return "the global level";
  return route === null ? `service "${service}"` : `route "${route}" of service "${service}"`;
}

/** A `PluginError` as a `ConfigError`, any other error as it is. */
export function placed(
  error: unknown,
  { config, source, secrets }: Omit<Extract<LoadResult, { readonly ok: true }>, "ok">,
): unknown {
  if (!(error instanceof PluginError)) return error;
  const at = [...pathOf(error.place, config), "plugins", error.index];
  const message = concealerOf({ secrets })(error.message);
  // A cause may repeat the same secrets.
  return new ConfigError(
    [{ at, message, position: placeInText(source, at) }],
    source.file,
    message === error.message ? error.cause : undefined,
  );
}

function pathOf({ service, route }: PluginOwner, { services }: Config): (string | number)[] {
  if (service === null) return ["global"];
  const i = services.findIndex(({ name }) => name === service);
  return route === null
    ? ["services", i]
    : ["services", i, "routes", services[i]!.routes.findIndex(({ name }) => name === route)];
}

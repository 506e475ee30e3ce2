/**
 * Names the place of a plugin instance for people.
 */

/**
 * The path of a plugin by names: "services.shop.plugins.jwt". `name`: its id or its kind; `nth`: of those of its kind
 * without an id, from 0: "services.shop.plugins.rate_limit#2".
 */
export function pluginPath(
  { service, route }: { readonly service: string | null; readonly route: string | null },
  name: string,
  nth = 0,
): string {
  // Joined: a text that is put together from pieces takes three times the memory.
  const place = service === null ? ["global"] : ["services", service];
  if (route !== null) place.push("routes", route);
  return [...place, "plugins", nth > 0 ? `${name}#${nth + 1}` : name].join(".");
}

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
  return (
    `${service === null ? "global" : `services.${service}`}` +
    `${route === null ? "" : `.routes.${route}`}.plugins.${name}${nth > 0 ? `#${nth + 1}` : ""}`
  );
}

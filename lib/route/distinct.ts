/**
 * Tells quickly that nothing is wrong with the routes of a configuration, so that `checks.ts` is loaded only for
 * others.
 */
import type { Service } from "../config/model.ts";
import { parsePattern } from "./pattern.ts";
import { HostTrees } from "./tree.ts";

/**
 * Whether all patterns can be read, and no two routes of a pattern accept the same method: then `checkRoutes` finds no
 * issue. False proves nothing.
 */
export function areDistinct(services: readonly Service[]): boolean {
  const trees = new HostTrees<readonly string[]>();
  return services.every(({ basePath, hosts, routes }) => {
    const base = parsePattern(basePath, "base_path");
    if ("error" in base) return false;
    return routes.every(({ path, methods }) => {
      const below = parsePattern(path, "path", base.segments);
      if ("error" in below) return false;
      return trees.routesAt(hosts, base.segments.concat(below.segments)).every((taken) => {
        const isFree = taken.every(
          (others) => others.length > 0 && methods.length > 0 && !others.some((method) => methods.includes(method)),
        );
        taken.push(methods);
        return isFree;
      });
    });
  });
}

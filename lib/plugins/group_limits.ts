/**
 * Chooses among limits by the groups of the caller, for `limits_by_group`.
 */
import type { GroupLimits } from "../config/group_limits.ts";
import type { Middleware } from "../http/handler.ts";
import type { Tools } from "./plugin.ts";

export { fields } from "../config/group_limits.ts";

/**
 * A request passes the middleware of the first of these groups that its caller has; without one `usual`. `make` gets
 * the key under which the group counts, made of that of the plugin instance, and the path of the group's limits in the
 * `config`.
 */
export function chosenByGroup<T>(
  limits: GroupLimits<T>,
  usual: Middleware,
  { scope, groupsOf }: Pick<Tools, "scope" | "groupsOf">,
  make: (limits: T, key: string, path: string) => Middleware,
): Middleware {
  const keyOf = (group: string) => `${scope.key.slice(0, -1)},${JSON.stringify(group)}]`;
  const made = limits.map(({ group, limits: ofGroup }) => ({
    group,
    middleware: make(ofGroup, keyOf(group), `limits_by_group.${group}.`),
  }));
  return (next) => {
    const forOthers = usual(next);
    const handlers = made.map(({ group, middleware }) => ({ group, handler: middleware(next) }));
    return (exchange) => {
      const groups = groupsOf(exchange);
      if (groups.length > 0)
        for (const { group, handler } of handlers) if (groups.includes(group)) return handler(exchange);
      return forOthers(exchange);
    };
  };
}

/**
 * Says where a plugin is configured.
 */
import type { Scope } from "../plugins/plugin.ts";

/** For messages: where a plugin is configured. */
export function describePlace({ service, route }: Pick<Scope, "service" | "route">): string {
  if (service === null) return "the global level";
  return route === null ? `service "${service}"` : `route "${route}" of service "${service}"`;
}

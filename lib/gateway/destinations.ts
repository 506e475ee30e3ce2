/**
 * Lists the servers that the upstreams of a service are.
 */
import type { Destination } from "../base/egress.ts";
import type { Service } from "../config/model.ts";

export function destinationsOfUpstreams({ upstreams, health }: Service): readonly Destination[] {
  const reasons = health.enabled ? ["upstream", "health"] : ["upstream"];
  return upstreams.flatMap(({ host, port }) => reasons.map((why) => ({ host, port, why })));
}

/**
 * Lists the servers that the upstreams of a service are, and the SRV records that name some.
 */
import type { Destination } from "../base/egress.ts";
import type { ServerUpstream, Service } from "../config/model.ts";

export function destinationsOfUpstreams({ upstreams, health }: Service): readonly Destination[] {
  const reasons = health.enabled ? ["upstream", "health"] : ["upstream"];
  return upstreams.flatMap((upstream) => {
    const to = "srv" in upstream ? ({ host: upstream.srv, port: 0, srv: true } as const) : addressIn(upstream);
    return reasons.map((why) => ({ ...to, why }));
  });
}

function addressIn({ host, port }: ServerUpstream): Pick<Destination, "host" | "port"> {
  return { host, port };
}

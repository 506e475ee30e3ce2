/** All strategies, as the program loads them. */
import { balancerOf as made, type Balancing } from "../../lib/gateway/upstreams.ts";
import { withAllParts } from "../../lib/parts/all_parts.ts";
import type { Balancer } from "../../lib/upstream/balance.ts";

const parts = withAllParts();

export function balancerOf(balancing: Balancing, random?: () => number): Balancer {
  return made(balancing, parts, random);
}

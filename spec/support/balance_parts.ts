/** All strategies, as the program loads them. */
import { balancer, type BalanceParts, type Balancer, type Balancing } from "../../lib/upstream/balance.ts";
import * as byLoad from "../../lib/upstream/by_load.ts";
import * as hash from "../../lib/upstream/hash.ts";

const PARTS: BalanceParts = { byLoad, hash };

export function balancerOf(balancing: Balancing, random?: () => number): Balancer {
  return balancer(balancing, (name) => PARTS[name], random);
}

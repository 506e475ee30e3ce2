/** All strategies, as the program loads them. */
import { balancerOf as made, type Balancer, type StrategySettings } from "../../lib/upstream/balance.ts";
import { hashing } from "../../lib/upstream/hash.ts";

export function balancerOf(settings: StrategySettings, random?: () => number): Balancer {
  return made(settings, hashing, random);
}

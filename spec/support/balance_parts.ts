/** All strategies, as the program loads them. */
import { balancerOf as made, type Balancer, type Balancing } from "../../lib/upstream/balance.ts";
import { hashing } from "../../lib/upstream/hash.ts";

export function balancerOf(balancing: Balancing, random?: () => number): Balancer {
  return made(balancing, hashing, random);
}

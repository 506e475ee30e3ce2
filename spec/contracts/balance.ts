/** The promises of every balancing strategy. */
import { expect, it } from "vitest";
import type { Strategy } from "../../lib/upstream/balance.ts";
import type { WeighedUpstream } from "../../lib/upstream/contracts.ts";
import { balancerOf } from "../support/balancers.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { random } from "../support/random.ts";

export interface MadeUpUpstream extends WeighedUpstream {
  weightNow: number;
  load: number;
}

/** "a:5 b:1": ids and weights. */
export function madeUp(text: string): MadeUpUpstream[] {
  return text.split(" ").map((item) => {
    const [id, weight = "1"] = item.split(":");
    return { id: id!, weightNow: Number(weight), load: 0, turn: 0 };
  });
}

/** A different client address for each number. */
export const caller = (i: number) =>
  madeUpExchange({ clientAddress: `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}` });

export function balancing(strategy: Strategy): void {
  const strategyOf = () => balancerOf({ loadBalancingStrategy: strategy }, random(7).next);

  it("gives null without upstreams", () => {
    expect(strategyOf().pick([], caller(1))).toBeNull();
  });

  it("gives the only candidate", () => {
    const [a] = madeUp("a:3");
    for (let i = 0; i < 5; i++) expect(strategyOf().pick([a!], caller(i))).toBe(a);
  });

  it("gives only upstreams that may be chosen, and each of them in time", () => {
    const all = madeUp("a b c d");
    const strategy = strategyOf();
    const seen = new Set<string>();
    for (let i = 0; i < 400; i++) {
      const picked = strategy.pick(all.slice(0, 3), caller(i))!;
      expect(all.indexOf(picked)).toBeLessThan(3);
      seen.add(picked.id);
    }
    expect([...seen].sort()).toEqual(["a", "b", "c"]);
  });

  it("gives idle upstreams by weight", () => {
    const all = madeUp("a:5 b:3 c:2");
    const strategy = strategyOf();
    const counts = new Map<string, number>();
    const n = 10_000;
    for (let i = 0; i < n; i++) {
      const { id } = strategy.pick(all, caller(i))!;
      counts.set(id, (counts.get(id) ?? 0) + 1);
    }
    for (const { id, weightNow } of all) {
      expect(counts.get(id)! / n, id).toBeGreaterThan(weightNow / 10 - 0.03);
      expect(counts.get(id)! / n, id).toBeLessThan(weightNow / 10 + 0.03);
    }
  });
}

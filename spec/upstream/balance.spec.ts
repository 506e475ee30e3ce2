import { describe, expect, it } from "vitest";
import { balancer, STRATEGIES } from "../../lib/upstream/balance.ts";
import { balancing, caller, candidates, type MadeUpCandidate } from "../contracts/balance.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { random } from "../support/random.ts";

describe.each(STRATEGIES)("%s", balancing);

const picks = (strategy: ReturnType<typeof balancer>, all: readonly MadeUpCandidate[], n: number) =>
  Array.from({ length: n }, (_each, i) => strategy.pick(all, caller(i))?.id ?? "none").join("");

describe.each(["round_robin", "weighted"] as const)("%s", (name) => {
  const strategy = balancer({ loadBalancingStrategy: name });

  it("uses the upstreams in turn, in the order of the configuration", () => {
    expect(picks(strategy, candidates("a b c"), 7)).toBe("abcabca");
  });

  it("spreads the turns of a heavy upstream: 5:1:1 never sends five in a row", () => {
    const order = picks(strategy, candidates("a:5 b c"), 14);
    expect(order).toBe("aabacaaaabacaa");
    expect(order).not.toContain("aaaaa");
  });

  it("continues at its position when other upstreams come and go", () => {
    const [a, b, c] = candidates("a b c");
    expect(picks(strategy, [a!, b!, c!], 2)).toBe("ab");
    expect(picks(strategy, [b!, c!], 5)).toBe("ccbcb");
    expect(picks(strategy, [a!, b!, c!], 6).split("").sort().join("")).toBe("aabbcc");
  });

  it("follows a weight that grows", () => {
    const [a, b] = candidates("a b:0.1");
    const share = () => picks(strategy, [a!, b!], 110).split("b").length - 1;
    expect(share()).toBe(10);
    b!.weightNow = 1;
    expect(share()).toBe(55);
  });
});

describe("least_connections", () => {
  const strategy = balancer({ loadBalancingStrategy: "least_connections" });
  const busy = (text: string, ...loads: number[]) => candidates(text).map((each, i) => ({ ...each, load: loads[i]! }));

  it("selects the upstream with the least load", () => {
    expect(strategy.pick(busy("a b c", 3, 1, 2), caller(1))!.id).toBe("b");
  });

  it("compares loads by weight", () => {
    expect(strategy.pick(busy("a:4 b", 3, 1), caller(1))!.id).toBe("a");
    expect(strategy.pick(busy("a:4 b", 5, 1), caller(1))!.id).toBe("b");
  });

  it("selects upstreams with equal load in turn", () => {
    expect(picks(strategy, busy("a b c", 1, 2, 1), 4)).toBe("acac");
  });
});

describe("random_two_choices", () => {
  it("selects the less loaded of two upstreams, so that the most loaded of all gets nothing", () => {
    const all = candidates("a b c d").map((each, i) => ({ ...each, load: i === 2 ? 9 : 1 }));
    const order = picks(balancer({ loadBalancingStrategy: "random_two_choices" }, random(1).next), all, 500);
    expect(order).not.toContain("c");
    expect(new Set(order).size).toBe(3);
  });

  it("keeps loads closer together than random choice", () => {
    const spread = (strategy: ReturnType<typeof balancer>) => {
      const all = candidates("a b c d e f g h");
      for (let i = 0; i < 8000; i++) strategy.pick(all, caller(i))!.load++;
      const loads = all.map(({ load }) => load);
      return Math.max(...loads) - Math.min(...loads);
    };
    expect(spread(balancer({ loadBalancingStrategy: "random_two_choices" }, random(3).next))).toBeLessThan(20);
  });
});

describe("ip_hash", () => {
  const strategy = balancer({ loadBalancingStrategy: "ip_hash" });
  const N = 10;
  const callers = 20_000;
  const all = candidates(Array.from({ length: N }, (_each, i) => `10.0.0.${i}:8080`).map((id) => id.replace(":", "_")).join(" "));
  const homes = (among: readonly MadeUpCandidate[]) => Array.from({ length: callers }, (_each, i) => strategy.pick(among, caller(i))!.id);

  it("gives the same client the same upstream, whatever the order of the configuration", () => {
    expect(homes([...all].reverse())).toEqual(homes(all));
  });

  it("moves only the clients of an upstream that is removed: at most 1.5/N of all", () => {
    const before = homes(all);
    for (const gone of all) {
      const after = homes(all.filter((each) => each !== gone));
      const moved = after.filter((home, i) => home !== before[i]).length;
      expect(moved).toBe(before.filter((home) => home === gone.id).length);
      expect(moved / callers).toBeLessThan(1.5 / N);
    }
  });

  it("takes the share of a new upstream evenly from the others", () => {
    const before = homes(all.slice(1));
    const after = homes(all);
    expect(after.every((home, i) => home === before[i] || home === all[0]!.id)).toBe(true);
  });

  it.each([
    ["IPv4 and its IPv6-mapped form", "192.0.2.7", "::ffff:192.0.2.7", true],
    ["two addresses of one IPv6 /64", "2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true],
    ["two spellings of one address", "2001:db8::1", "2001:0DB8:0:0:0:0:0:1", true],
  ])("treats %s as one client", (_title, one, other) => {
    const home = (clientAddress: string) => strategy.pick(all, madeUpExchange({ clientAddress }))!.id;
    expect(home(other)).toBe(home(one));
  });

  it("treats two IPv6 networks as two clients", () => {
    const spread = new Set(Array.from({ length: 50 }, (_each, i) => strategy.pick(all, madeUpExchange({ clientAddress: `2001:db8:0:${i}::1` }))!.id));
    expect(spread.size).toBeGreaterThan(5);
  });

  it("accepts a client without an IP address", () => {
    expect(strategy.pick(all, madeUpExchange({ clientAddress: "" }))).not.toBeNull();
  });
});

import { describe, expect, it } from "vitest";
import { STRATEGIES } from "../../lib/config/model.ts";
import type { Balancer } from "../../lib/upstream/balance.ts";
import { balancing, caller, madeUp, type MadeUpUpstream } from "../contracts/balance.ts";
import { balancerOf } from "../support/balancers.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { random } from "../support/random.ts";

describe.each(STRATEGIES)("%s", balancing);

const picks = (strategy: Balancer, all: readonly MadeUpUpstream[], n: number) =>
  Array.from({ length: n }, (_each, i) => strategy.pick(all, caller(i))?.id ?? "none").join("");

describe.each(["round_robin", "weighted"] as const)("%s", (name) => {
  const strategy = balancerOf({ loadBalancingStrategy: name });

  it("uses the upstreams in turn, in the order of the configuration", () => {
    expect(picks(strategy, madeUp("a b c"), 7)).toBe("abcabca");
  });

  it("spreads the turns of a heavy upstream: 5:1:1 never sends five in a row", () => {
    const order = picks(strategy, madeUp("a:5 b c"), 14);
    expect(order).toBe("aabacaaaabacaa");
    expect(order).not.toContain("aaaaa");
  });

  it("continues at its position when other upstreams come and go", () => {
    const [a, b, c] = madeUp("a b c");
    expect(picks(strategy, [a!, b!, c!], 2)).toBe("ab");
    expect(picks(strategy, [b!, c!], 5)).toBe("ccbcb");
    expect(picks(strategy, [a!, b!, c!], 6).split("").sort().join("")).toBe("aabbcc");
  });

  it("follows a weight that grows", () => {
    const [a, b] = madeUp("a b:0.1");
    const share = () => picks(strategy, [a!, b!], 110).split("b").length - 1;
    expect(share()).toBe(10);
    b!.weightNow = 1;
    expect(share()).toBe(55);
  });
});

describe("least_connections", () => {
  const strategy = balancerOf({ loadBalancingStrategy: "least_connections" });
  const busy = (text: string, ...loads: number[]) => madeUp(text).map((each, i) => ({ ...each, load: loads[i]! }));

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
    const all = madeUp("a b c d").map((each, i) => ({ ...each, load: i === 2 ? 9 : 1 }));
    const order = picks(balancerOf({ loadBalancingStrategy: "random_two_choices" }, random(1).next), all, 500);
    expect(order).not.toContain("c");
    expect(new Set(order).size).toBe(3);
  });

  it("keeps loads closer together than random choice", () => {
    const spread = (strategy: Balancer) => {
      const all = madeUp("a b c d e f g h");
      for (let i = 0; i < 8000; i++) strategy.pick(all, caller(i))!.load++;
      const loads = all.map(({ load }) => load);
      return Math.max(...loads) - Math.min(...loads);
    };
    expect(spread(balancerOf({ loadBalancingStrategy: "random_two_choices" }, random(3).next))).toBeLessThan(20);
  });
});

describe("ip_hash", () => {
  const strategy = balancerOf({ loadBalancingStrategy: "ip_hash" });
  const N = 10;
  const callers = 20_000;
  const all = madeUp(
    Array.from({ length: N }, (_each, i) => `10.0.0.${i}:8080`)
      .map((id) => id.replace(":", "_"))
      .join(" "),
  );
  const homes = (among: readonly MadeUpUpstream[]) =>
    Array.from({ length: callers }, (_each, i) => strategy.pick(among, caller(i))!.id);

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
    const spread = new Set(
      Array.from(
        { length: 50 },
        (_each, i) => strategy.pick(all, madeUpExchange({ clientAddress: `2001:db8:0:${i}::1` }))!.id,
      ),
    );
    expect(spread.size).toBeGreaterThan(5);
  });

  it("accepts a client without an IP address", () => {
    expect(strategy.pick(all, madeUpExchange({ clientAddress: "" }))).not.toBeNull();
  });
});

describe("hash", () => {
  const byTenant = (balanceFactor = 0) =>
    balancerOf({ loadBalancingStrategy: "hash", hashOn: "header:X-Tenant", hashBalanceFactor: balanceFactor });
  const tenant = (name: string | number) => madeUpExchange({ headers: ["X-Tenant", String(name)] });
  const N = 10;
  const all = madeUp(Array.from({ length: N }, (_each, i) => `10.0.1.${i}_8080`).join(" "));
  const tenants = Array.from({ length: 20_000 }, (_each, i) => tenant(`tenant-${i}`));

  it(
    "hash moves 1/N of the values, within 20 %, when one of N upstreams is removed, " +
      "and no value of another upstream",
    () => {
      const strategy = byTenant();
      const homes = (among: readonly MadeUpUpstream[]) => tenants.map((each) => strategy.pick(among, each)!.id);
      const before = homes(all);
      for (const gone of all) {
        const after = homes(all.filter((each) => each !== gone));
        const moved = after.filter((home, i) => home !== before[i]);
        expect(after.every((home, i) => home === before[i] || before[i] === gone.id)).toBe(true);
        expect(moved.length / tenants.length).toBeGreaterThan(0.8 / N);
        expect(moved.length / tenants.length).toBeLessThan(1.2 / N);
        expect(new Set(moved).size).toBe(N - 1);
      }
    },
  );

  it(
    "hash gives an upstream a share by its weight, and a weight that grows takes values from others " +
      "without moving any between them",
    () => {
      const strategy = byTenant();
      const [first, ...rest] = madeUp(all.map(({ id }) => id).join(" "));
      const homes = () => tenants.map((each) => strategy.pick([first!, ...rest], each)!.id);
      const before = homes();
      first!.weightNow = 3;
      const after = homes();
      expect(after.every((home, i) => home === before[i] || home === first!.id)).toBe(true);
      expect(after.filter((home) => home === first!.id).length / tenants.length).toBeCloseTo(3 / 12, 1);
    },
  );

  it("hash sends requests without the value to each upstream in turn, by weight", () => {
    const [a, b] = madeUp("a:2 b");
    const order = Array.from({ length: 6 }, () => byTenant().pick([a!, b!], madeUpExchange())!.id);
    expect(order.join("")).toBe("abaaba");
  });

  /** Places `requests` of one tenant, each of which stays in progress; the load of each upstream. */
  const loadsOf = (text: string, balanceFactor: number, requests: number) => {
    const among = madeUp(text);
    for (let i = 0; i < requests; i++) byTenant(balanceFactor).pick(among, tenant("hot"))!.load++;
    return among;
  };

  it("without a balance factor one value loads one upstream with all of its requests", () => {
    expect(
      loadsOf("a b c d", 0, 100)
        .map(({ load }) => load)
        .sort(),
    ).toEqual([0, 0, 0, 100]);
  });

  it.each([101, 125, 150, 300])(
    "with a balance factor of %i one value never loads an upstream with more than that share of the mean, rounded up",
    (factor) => {
      for (let requests = 1; requests <= 200; requests++) {
        const loads = loadsOf("a b c d e", factor, requests).map(({ load }) => load);
        expect(loads.reduce((sum, load) => sum + load)).toBe(requests);
        expect(Math.max(...loads)).toBeLessThanOrEqual(Math.ceil(((factor / 100) * requests) / 5));
      }
    },
  );

  it("a balance factor counts loads by weight", () => {
    for (const { load, weightNow } of loadsOf("a:4 b:3 c:2 d", 125, 200))
      expect(load).toBeLessThanOrEqual(Math.ceil((1.25 * 200 * weightNow) / 10));
  });

  it(
    "a balance factor sends the requests that an upstream has no room for to the upstream " +
      "that would follow without it",
    () => {
      const among = madeUp("a b c d");
      const [home] = [byTenant().pick(among, tenant("hot"))!];
      const next = byTenant().pick(
        among.filter((each) => each !== home),
        tenant("hot"),
      )!;
      home.load = 8;
      expect(byTenant(200).pick(among, tenant("hot"))).toBe(next);
      home.load = 0;
      expect(byTenant(200).pick(among, tenant("hot"))).toBe(home);
    },
  );

  it("a balance factor moves no value while the loads are even", () => {
    const even = madeUp("a b c d").map((each) => ({ ...each, load: 10 }));
    for (let i = 0; i < 500; i++)
      expect(byTenant(110).pick(even, tenant(i))!.id).toBe(byTenant().pick(even, tenant(i))!.id);
  });

  it("ip_hash has a balance factor, too", () => {
    const among = madeUp("a b c d");
    const strategy = balancerOf({ loadBalancingStrategy: "ip_hash", hashBalanceFactor: 150 });
    for (let i = 0; i < 100; i++) strategy.pick(among, caller(1))!.load++;
    expect(Math.max(...among.map(({ load }) => load))).toBeLessThanOrEqual(38);
  });
});

import { describe, expect, it } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import type { Exchange } from "../../lib/http/exchange.ts";
import { applyHealth, pickerAmong } from "../../lib/upstream/choice.ts";
import type { HealthTools } from "../../lib/upstream/contracts.ts";
import { hashKey } from "../../lib/upstream/hash.ts";
import { Health } from "../../lib/upstream/health.ts";
import { sideAt, SplitPicker, type Share } from "../../lib/upstream/split.ts";
import { UpstreamSet, type UpstreamPlan, type Peer } from "../../lib/upstream/upstream_set.ts";
import { madeUp } from "../contracts/balance.ts";
import { balancerOf } from "../support/balancers.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { madeUpPool } from "../support/peer.ts";
import { random } from "../support/random.ts";

const HEALTH = {
  active: { healthyThreshold: 1, unhealthyThreshold: 1 },
  passive: { maxFailures: 1, windowMs: 1000, ejectMs: 100, statuses: [], slowStartMs: 0 },
};

/** "canary:5 beta:10@header:X-User": groups, percentages, and what their callers are known by. */
function sharesOf(text: string, match: Share["match"] = null): Share[] {
  return text.split(" ").map((item) => {
    const [share, hashOn] = item.split("@");
    const [group, percent] = share!.split(":");
    return { group: group!, percent: Number(percent), hash: hashOn === undefined ? null : hashKey(hashOn), match };
  });
}

/** Draws that are spread evenly: of any 1000 in a row, as many as its percentage are in a share. */
function inTurn(): () => number {
  let drawn = 0;
  return () => ((drawn++ % 1000) + 0.5) / 1000;
}

/** A service with the upstreams "v1 v2/canary:0 v3!": ids, groups, weights, and a backup. */
function bench(upstreams: string, shares: readonly Share[], draw = inTurn()) {
  const clock = manualClock();
  const set = new UpstreamSet("s");
  const tools: HealthTools = {
    clock,
    log: silentLog,
    changes: new Int32Array(1),
    make: (options) => new Health(options),
  };
  const plans = upstreams.split(" ").map((item): UpstreamPlan => {
    const [name, weight = "1"] = item.replace("!", "").split(":");
    const [id, group] = name!.split("/");
    const rank = item.endsWith("!") ? 1 : 0;
    return { peer: set.peer(id!, madeUpPool()), weight: Number(weight), group, rank, health: HEALTH };
  });
  set.apply(plans, null);
  applyHealth(set, plans, tools);
  const strategy = balancerOf({ loadBalancingStrategy: "round_robin" });
  const split = new SplitPicker({
    shares,
    plans,
    picker: (peers, choosable) => pickerAmong(tools.changes, peers, strategy, choosable),
    random: draw,
  });
  const peer = (id: string): Peer => plans.find((member) => member.peer.id === id)!.peer;
  const pick = (exchange: Exchange = madeUpExchange(), tried: readonly Peer[] = []) =>
    split.pick(exchange, tried)?.id ?? "-";
  const picks = (n: number, exchange?: Exchange) => Array.from({ length: n }, () => pick(exchange));
  const down = (id: string) => (peer(id).health as Health).checked("status 500");
  const shown = (exchange: Exchange | null = null) =>
    split.destinations(exchange).map(({ peers, share }) => `${peers.map(({ id }) => id).join("+")} ${share}`);
  return { clock, split, peer, pick, picks, down, shown };
}

/** The shares of all places, by the sizes of the shares in hundredths of a percent. */
const sidesOf = (sizes: readonly number[]) =>
  Array.from({ length: 10_000 }, (_, place) => sideAt(place, withRest(sizes)));
const withRest = (sizes: readonly number[]) => [...sizes, 10_000 - sizes.reduce((sum, size) => sum + size, 0)];
const count = (all: readonly string[], id: string) => all.filter((each) => each === id).length;
const user = (name: string | number) => madeUpExchange({ headers: ["X-User", `user ${name}`] });
const USERS = Array.from({ length: 2000 }, (_, i) => user(i));

describe("a split by request", () => {
  it("each group gets its percentage of the draws, exactly, whatever the others are", () => {
    const dice = random(1);
    for (let round = 0; round < 40; round++) {
      const sizes: number[] = [];
      for (let left = 1000; sizes.length < 1 + (round % 4); left -= sizes.at(-1)!) sizes.push(dice.int(0, left));
      const shares = sizes.map((size, i) => `g${i}:${size / 10}`).join(" ");
      const { picks } = bench(`rest ${sizes.map((_, i) => `v${i}/g${i}`).join(" ")}`, sharesOf(shares));
      const found = picks(1000);
      expect(sizes.map((_, i) => count(found, `v${i}`))).toEqual(sizes);
    }
  });

  it("each request has a draw of its own: requests in a row are independent", () => {
    const found = bench("v1 v2/canary", sharesOf("canary:50"), random(2).next).picks(10_000).join("");
    const pairs = found.match(/v[12]v[12]/g) ?? [];
    for (const pair of ["v1v1", "v1v2", "v2v1", "v2v2"]) expect(Math.abs(count(pairs, pair) - 1250)).toBeLessThan(200);
  });

  it("0 % sends no request to a group, and 100 % sends every one", () => {
    expect(new Set(bench("v1 v2/canary", sharesOf("canary:0")).picks(1000))).toEqual(new Set(["v1"]));
    expect(new Set(bench("v1 v2/canary", sharesOf("canary:100")).picks(1000))).toEqual(new Set(["v2"]));
  });

  it("balances within the group and within the rest", () => {
    const found = bench("a b:3 c/canary d/canary:4", sharesOf("canary:50")).picks(1000);
    expect(["a", "b", "c", "d"].map((id) => count(found, id))).toEqual([125, 375, 100, 400]);
  });
});

describe("a split by caller", () => {
  it("sends all requests of a caller to the same side, and about the percentage of the callers to the group", () => {
    const { pick } = bench("v1 v2/canary", sharesOf("canary:10@header:X-User"));
    const sides = USERS.map((each) => pick(each));
    for (let round = 0; round < 3; round++) expect(USERS.map((each) => pick(each))).toEqual(sides);
    expect(Math.abs(count(sides, "v2") / USERS.length - 0.1)).toBeLessThan(0.02);
  });

  it("another gateway puts each caller on the same side, whatever its upstreams and services are called", () => {
    const sides = ([one, other]: [string, string]) => {
      const { pick } = bench(`${one} ${other}/canary`, sharesOf("canary:30@header:X-User"));
      return USERS.map((each) => pick(each) === other);
    };
    expect(sides(["a", "b"])).toEqual(sides(["v1", "v2"]));
  });

  it("draws for each request without the value", () => {
    const { picks, pick } = bench("v1 v2/canary", sharesOf("canary:5@header:X-User"));
    USERS.forEach((each) => pick(each));
    expect(count(picks(1000), "v2")).toBe(50);
  });

  it("a higher percentage moves callers to the group and none away, and a lower one the other way round", () => {
    let before = new Set<number>();
    for (const percent of [0, 0.01, 1, 5, 5.5, 50, 100]) {
      const { pick } = bench("v1 v2/canary", sharesOf(`canary:${percent}@header:X-User`));
      const now = new Set(USERS.flatMap((each, i) => (pick(each) === "v2" ? [i] : [])));
      expect([...before].every((i) => now.has(i))).toBe(true);
      before = now;
    }
    expect(before.size).toBe(USERS.length);
  });

  it.each([
    [
      [500, 1000],
      [900, 1000],
    ],
    [
      [500, 1000],
      [500, 4000],
    ],
    [
      [5000, 5000],
      [2000, 5000],
    ],
    [
      [100, 9900],
      [100, 1],
    ],
    [
      [200, 300, 400],
      [200, 300, 900],
    ],
  ])("from %j to %j hundredths of a percent only the callers of the changed share move", (before, after) => {
    const [from, to] = [sidesOf(before), sidesOf(after)];
    const moved = from.filter((side, i) => side !== to[i]).length;
    expect(moved).toBe(Math.max(...before.map((size, i) => Math.abs(size - after[i]!))));
  });

  it("each share has exactly as many places as its percentage says, whatever the others are", () => {
    const { next } = random(5);
    for (let round = 0; round < 50; round++) {
      const sizes: number[] = [];
      for (let left = 10_000; sizes.length < 1 + (round % 5); left -= sizes.at(-1)!)
        sizes.push(Math.floor(next() * (left + 1)));
      const sides = sidesOf(sizes);
      expect(sizes.map((_, share) => sides.filter((side) => side === share).length)).toEqual(sizes);
    }
  });

  it("with three shares, a change of one moves at most twice the callers that it must", () => {
    const { next } = random(9);
    for (let round = 0; round < 200; round++) {
      const sizes = [0, 0, 0].map(() => Math.floor(next() * 3000));
      const changed = sizes.map((size, i) => (i === round % 3 ? Math.floor(next() * 3000) : size));
      const [from, to] = [sidesOf(sizes), sidesOf(changed)];
      const must = Math.abs(sizes[round % 3]! - changed[round % 3]!);
      expect(from.filter((side, i) => side !== to[i]).length).toBeLessThanOrEqual(2 * must);
    }
  });

  it("the highest and the lowest key have a side", () => {
    for (const key of [0, 1, 0xffff_ffff]) {
      const keyed = sharesOf("canary:50").map((share) => ({ ...share, hash: () => key }));
      expect(bench("v1 v2/canary", keyed).pick()).toBe(key < 0x8000_0000 ? "v2" : "v1");
    }
  });

  it("the sides do not follow the draws of the strategy hash: the callers of a group use all of its upstreams", () => {
    const strategy = balancerOf({ loadBalancingStrategy: "hash", hashOn: "header:X-User" });
    const peers = madeUp("a b c d");
    const inGroup = USERS.filter((each) => hashKey("header:X-User")(each)! < 0x1_0000_0000 * 0.1);
    const used = inGroup.map((each) => strategy.pick(peers, each)!.id);
    for (const { id } of peers) expect(count(used, id) / used.length).toBeGreaterThan(0.15);
  });
});

describe("a share with a match", () => {
  const tester = (headers: readonly string[]) => headers.includes("X-Canary");
  const asked = madeUpExchange({ headers: ["X-Canary", "1"] });

  it("sends requests that fit to its group, and all others by the other shares", () => {
    const { picks } = bench("v1 v2/canary", [...sharesOf("canary:10"), ...sharesOf("canary:100", tester)]);
    expect(new Set(picks(100, asked))).toEqual(new Set(["v2"]));
    expect(count(picks(1000), "v2")).toBe(100);
  });

  it("takes its percentage of the requests that fit; the remaining ones are divided by the other shares", () => {
    const { picks } = bench(
      "v1 v2/canary v3/beta",
      [...sharesOf("canary:50", tester), ...sharesOf("beta:20")],
      random(3).next,
    );
    const found = picks(10_000, asked);
    for (const [id, due] of [
      ["v1", 4000],
      ["v2", 5000],
      ["v3", 1000],
    ] as const)
      expect(Math.abs(count(found, id) - due)).toBeLessThan(150);
  });

  it("the first share whose match holds is asked first, in the order of the file", () => {
    const { picks } = bench("v1 v2/canary v3/beta", [
      ...sharesOf("beta:100", tester),
      ...sharesOf("canary:100", tester),
    ]);
    expect(new Set(picks(20, asked))).toEqual(new Set(["v3"]));
  });

  it("keeps a caller on one side by its own key", () => {
    const { pick } = bench("v1 v2/canary", sharesOf("canary:50@header:X-User", tester));
    const testers = USERS.slice(0, 200).map((each) => madeUpExchange({ headers: [...each.headers, "X-Canary", "1"] }));
    const sides = testers.map((each) => pick(each));
    expect(testers.map((each) => pick(each))).toEqual(sides);
    expect(Math.abs(count(sides, "v2") - 100)).toBeLessThan(30);
  });

  it(
    "takes its percentage of the callers that earlier shares leave, " +
      "also where all shares know callers by the same value",
    () => {
      const { pick } = bench("v1 v2/canary v3/beta v4/next", [
        ...sharesOf("canary:50@header:X-User", tester),
        ...sharesOf("beta:50@header:X-User", tester),
        ...sharesOf("canary:50@header:X-User", tester),
        ...sharesOf("next:50@header:X-User"),
      ]);
      const sides = USERS.map(({ headers }) => pick(madeUpExchange({ headers: [...headers, "X-Canary", "1"] })));
      // Half of all, a quarter, an eighth to canary again, and half of what is left.
      for (const [id, due] of [
        ["v2", 1250],
        ["v3", 500],
        ["v4", 125],
        ["v1", 125],
      ] as const)
        expect(Math.abs(count(sides, id) - due)).toBeLessThan(60);
    },
  );

  it("looks at the query as well", () => {
    const { pick } = bench(
      "v1 v2/canary",
      sharesOf("canary:100", (_headers, query) => query === "?beta"),
    );
    expect([pick(), pick(madeUpExchange({ query: "?beta" }))]).toEqual(["v1", "v2"]);
  });
});

describe("the rest of a split", () => {
  it("goes to the upstreams without a group, and to no other group", () => {
    const found = bench("v1:2 v2/canary v3/spare v4", sharesOf("canary:10")).picks(1000);
    expect(["v1", "v2", "v3", "v4"].map((id) => count(found, id))).toEqual([600, 100, 0, 300]);
  });

  it("goes to the groups without a share where every upstream has a group", () => {
    const found = bench("v1/stable v2/canary", sharesOf("canary:10")).picks(1000);
    expect(["v1", "v2"].map((id) => count(found, id))).toEqual([900, 100]);
  });

  it("goes to all upstreams by weight where every group has a share", () => {
    const found = bench("v1/stable:4 v2/canary", sharesOf("canary:10 stable:40")).picks(1000);
    expect(["v1", "v2"].map((id) => count(found, id))).toEqual([800, 200]);
  });
});

describe("a split while upstreams fail", () => {
  it("the rest serves the requests of a group without a usable upstream: unhealthy, ejected or with weight 0", () => {
    const { picks, down, peer, clock } = bench("v1 v2/canary v3/beta v4/gone:0", sharesOf("canary:20 beta:20 gone:20"));
    down("v2");
    peer("v3").health.countFailure("reset");
    expect(new Set(picks(1000))).toEqual(new Set(["v1"]));
    clock.advance(100);
    expect(count(picks(1000), "v3")).toBe(200);
  });

  it("an upstream that fails does not change the percentage of its group while the group has another", () => {
    const { picks, down } = bench("v1 v2/canary v3/canary", sharesOf("canary:20"));
    down("v2");
    expect(count(picks(1000), "v3")).toBe(200);
  });

  it(
    "any usable upstream serves the requests of the rest when that has none, " + "and an ejected one if none is left",
    () => {
      const { picks, down, peer } = bench("v1 v2/canary v3/spare", sharesOf("canary:5"));
      down("v1");
      expect(new Set(picks(100))).toEqual(new Set(["v2", "v3"]));
      down("v3");
      expect(new Set(picks(100))).toEqual(new Set(["v2"]));
      expect(peer("v2").health.usable).toBe(true);
      down("v2");
      expect(new Set(picks(100))).toEqual(new Set(["-"]));
    },
  );

  it(
    "a retry stays in the group of the first try while that has another upstream, " +
      "then goes to the rest, and to no other group",
    () => {
      const { pick, peer } = bench("v1 v2/canary v3/canary v4/beta", sharesOf("canary:0 beta:100"));
      expect(pick(madeUpExchange(), [peer("v2")])).toBe("v3");
      expect(pick(madeUpExchange(), [peer("v2"), peer("v3")])).toBe("v1");
      expect(pick(madeUpExchange(), [peer("v2"), peer("v3"), peer("v1")])).toBe("-");
      expect(pick(madeUpExchange(), [peer("v1")])).toBe("-");
      expect(pick(madeUpExchange(), [peer("v4")])).toBe("v1");
    },
  );
});

describe("the destinations of a split", () => {
  it("are the groups with their shares, and the rest", () => {
    expect(bench("v1 v2/canary v3/canary v4/beta", sharesOf("canary:5 beta:20")).shown()).toEqual([
      "v2+v3 0.05",
      "v4 0.2",
      "v1 0.75",
    ]);
  });

  it("are exact: shares that add up to 100 % leave no rest", () => {
    expect(bench("v1 v2/a v3/b v4/c", sharesOf("a:33.4 b:33.3 c:33.3")).shown()).toEqual([
      "v2 0.334",
      "v3 0.333",
      "v4 0.333",
    ]);
  });

  it("are the one side of a caller", () => {
    const { shown, pick } = bench("v1 v2/canary", sharesOf("canary:50@header:X-User"));
    for (const each of USERS.slice(0, 20)) expect(shown(each)).toEqual([`${pick(each)} 1`]);
    expect(shown(madeUpExchange())).toEqual(["v2 0.5", "v1 0.5"]);
  });

  it("count shares with a match only for requests that fit", () => {
    const { shown } = bench("v1 v2/canary v3/beta", [
      ...sharesOf("beta:50", (headers) => headers.includes("X-Beta")),
      ...sharesOf("canary:20"),
    ]);
    expect(shown(madeUpExchange({ headers: ["X-Beta", "1"] }))).toEqual(["v3 0.5", "v2 0.1", "v1 0.4"]);
    expect(shown(madeUpExchange())).toEqual(["v2 0.2", "v1 0.8"]);
    expect(shown(null)).toEqual(["v2 0.2", "v1 0.8"]);
  });

  it("are the upstreams that serve now in place of those that cannot", () => {
    const { shown, down } = bench("v1 v2/canary", sharesOf("canary:20"));
    down("v2");
    expect(shown()).toEqual(["v1 0.2", "v1 0.8"]);
    down("v1");
    expect(shown()).toEqual([" 0.2", " 0.8"]);
  });
});

describe("a split with backups", () => {
  const all = "v1 v2/canary spare! other/canary!";

  it("gives them nothing while an upstream of any group can be used, and then everything", () => {
    const { picks, down, shown } = bench(all, sharesOf("canary:50"));
    expect(new Set(picks(1000))).toEqual(new Set(["v1", "v2"]));
    expect(shown()).toEqual(["v2 0.5", "v1 0.5"]);
    down("v2");
    expect(new Set(picks(100))).toEqual(new Set(["v1"]));
    down("v1");
    expect(new Set(picks(100))).toEqual(new Set(["spare", "other"]));
    expect(shown()).toEqual(["spare+other 0.5", "spare+other 0.5"]);
  });

  it("asks the only group that is left before them", () => {
    const { picks, down } = bench(all, sharesOf("canary:50"));
    down("v1");
    expect(new Set(picks(100))).toEqual(new Set(["v2"]));
  });

  it("makes them the last place of retries, behind the rest and behind other groups", () => {
    const { pick, peer } = bench("v1 v2/canary v3/beta spare!", sharesOf("canary:100 beta:0"));
    const tried = [peer("v2")];
    for (const next of ["v1", "v3", "spare"]) {
      expect(pick(undefined, tried)).toBe(next);
      tried.push(peer(next));
    }
    expect(pick(undefined, tried)).toBe("-");
  });

  it("counts those without a group as no rest where every other upstream has a group", () => {
    const { picks } = bench("v1/stable v2/canary spare!", sharesOf("canary:50"));
    expect(new Set(picks(1000))).toEqual(new Set(["v1", "v2"]));
  });
});

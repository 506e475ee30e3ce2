import { describe, expect, it } from "vitest";
import { balancingNotes, groupsOf, hashedText, sharesOf, strategyText } from "../../../lib/manager/assets/balancing.ts";

const upstream = (id: string, weight: number, group?: string) => ({ id, host: "10.0.0.1", port: 80, weight, ...(group !== undefined && { group }) });
const BETA = { headers: { "X-Beta": "1" } };

describe("the text of a strategy", () => {
  it("says how an upstream is chosen", () => {
    expect(strategyText({ load_balancing_strategy: "round_robin" })).toBe("In turn, by weight");
    expect(strategyText({ load_balancing_strategy: "hash", hash_on: "header:X-Tenant" })).toBe("The same upstream for the same header X-Tenant");
    expect(strategyText({ load_balancing_strategy: "of a later version" })).toBe("");
  });

  it.each([
    ["client_ip", "client address"],
    ["credential", "credential"],
    ["cookie:session", "cookie session"],
    ["param:user_id", "path parameter user_id"],
    ["later:a:b", "later a:b"],
  ])("reads %s as %s", (hashOn, text) => expect(hashedText(hashOn)).toBe(text));

  it("is followed by what is decided before it, and by the limit of the load", () => {
    const service = { load_balancing_strategy: "hash", upstreams: [], sticky: { cookie: "route", ttl_s: 0 }, hash_balance_factor: 125 };
    const split = [
      { group: "beta", percent: 100, match: BETA },
      { group: "canary", percent: 0.05 },
    ];
    expect(balancingNotes({ ...service, split })).toEqual([
      "Sticky by the cookie route",
      "100 % to beta where header X-Beta = 1",
      "0.05 % to canary",
      "At most 125 % of the mean load",
    ]);
    expect(balancingNotes({ load_balancing_strategy: "round_robin", upstreams: [], hash_balance_factor: 0 })).toEqual([]);
  });
});

describe("the groups of a service", () => {
  const [old, fresh] = [upstream("old", 1), upstream("fresh", 1, "canary")];

  it("come in the order of the splits, each with what it gets; upstreams without a group get the rest", () => {
    const split = [
      { group: "canary", percent: 5, hash_on: "credential" },
      { group: "canary", percent: 100, match: BETA },
    ];
    expect(groupsOf({ upstreams: [old, fresh], split })).toEqual([
      { group: "canary", upstreams: [fresh], rules: ["5 %, by credential", "100 %, by request, where header X-Beta = 1"] },
      { group: null, upstreams: [old], rules: ["the rest, by weight"] },
    ]);
  });

  const rulesOf = (upstreams: readonly ReturnType<typeof upstream>[], split?: Parameters<typeof groupsOf>[0]["split"]) =>
    groupsOf({ upstreams, ...(split !== undefined && { split }) }).map(({ group, rules }) => [group, ...rules]);

  it("get the rest if they have no split and every upstream has a group, and divide it if all have a split", () => {
    const [canary, blue] = [{ group: "canary", percent: 5 }, { group: "blue", percent: 50 }];
    expect(rulesOf([fresh, upstream("b", 1, "blue")], [canary])).toEqual([
      ["canary", "5 %, by request"],
      ["blue", "the rest, by weight"],
    ]);
    expect(rulesOf([fresh, upstream("b", 1, "blue")], [canary, blue])).toEqual([
      ["canary", "5 %, by request", "the rest, by weight"],
      ["blue", "50 %, by request", "the rest, by weight"],
    ]);
  });

  it("have their share by weight without a split", () => {
    expect(rulesOf([fresh, old])).toEqual([
      ["canary", "its share by weight"],
      [null, "its share by weight"],
    ]);
  });

  it("get nothing if no split names them and there are upstreams without a group", () => {
    const groups = groupsOf({ upstreams: [old, fresh, upstream("spare", 1, "spare")], split: [{ group: "canary", percent: 5 }] });
    expect(groups.find(({ group }) => group === "spare")!.rules).toEqual([]);
  });

  it("are none where no upstream has one", () => expect(groupsOf({ upstreams: [old] })).toEqual([]));
});

describe("shares of upstreams", () => {
  const upstreams = [upstream("a", 2), upstream("b", 1), upstream("c", 1)];
  const idle = () => 0;
  const down = (...ids: readonly string[]) => ids.map((id) => ({ id, usable: false }));
  const sharesAs = (map: ReturnType<typeof sharesOf>) => [...map.values()].map(({ share }) => share);

  it("shares of upstreams use measured values when there is traffic", () => {
    const shares = sharesOf({ upstreams }, null, (id) => ({ a: 1, b: 3 })[id] ?? 0);
    expect(sharesAs(shares)).toEqual([0.25, 0.75, 0]);
    expect(shares.get("a")!.how).toBe("measured");
  });

  it("shares of upstreams use the weights of the usable upstreams when there is no traffic", () => {
    expect(sharesAs(sharesOf({ upstreams }, null, idle))).toEqual([0.5, 0.25, 0.25]);
    expect(sharesAs(sharesOf({ upstreams }, [...down("a"), { id: "b", usable: true }], idle))).toEqual([0, 0.5, 0.5]);
  });

  it("shares of upstreams stay empty when no upstream is usable, or all are draining", () => {
    expect(sharesAs(sharesOf({ upstreams }, down("a", "b", "c"), idle))).toEqual([0, 0, 0]);
    expect(sharesAs(sharesOf({ upstreams: [upstream("a", 0)] }, null, idle))).toEqual([0]);
  });

  it("shares of upstreams follow the splits when there is no traffic, without those for requests that meet conditions", () => {
    const service = {
      upstreams: [upstream("a", 3), upstream("b", 1), upstream("new", 5, "canary"), upstream("other", 1, "spare")],
      split: [
        { group: "spare", percent: 100, match: BETA },
        { group: "canary", percent: 20 },
      ],
    };
    expect(sharesAs(sharesOf(service, null, idle))).toEqual([0.6000000000000001, 0.2, 0.2, 0]);
    expect(sharesAs(sharesOf(service, down("new"), idle))).toEqual([0.75, 0.25, 0, 0]);
  });

  it("shares of upstreams spread the rest over all groups if every one has a split, or if no other upstream is usable", () => {
    const split = [{ group: "canary", percent: 20 }];
    const grouped = { upstreams: [upstream("new", 1, "canary"), upstream("old", 1, "stable")], split: [...split, { group: "stable", percent: 40 }] };
    expect(sharesAs(sharesOf(grouped, null, idle))).toEqual([0.4, 0.6000000000000001]);
    const stable = { upstreams: [upstream("new", 1, "canary"), upstream("old", 1)], split };
    expect(sharesAs(sharesOf(stable, down("old"), idle))).toEqual([1, 0]);
  });

  it("shares of upstreams ignore groups without a split", () => {
    expect(sharesAs(sharesOf({ upstreams: [upstream("a", 1, "x"), upstream("b", 3)] }, null, idle))).toEqual([0.25, 0.75]);
  });
});

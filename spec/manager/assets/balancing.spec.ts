import { describe, expect, it } from "vitest";
import { balancingNotes, groupsOf, hashedText, sharesOf, strategyText } from "../../../lib/manager/assets/balancing.ts";

const upstream = (id: string, weight: number, group?: string) => ({
  id,
  host: "10.0.0.1",
  port: 80,
  weight,
  ...(group !== undefined && { group }),
});
const BETA = { headers: { "X-Beta": "1" } };

describe("the text of a strategy", () => {
  it("says how an upstream is chosen", () => {
    expect(strategyText({ load_balancing_strategy: "round_robin" })).toBe("In turn, by weight");
    expect(strategyText({ load_balancing_strategy: "hash", hash_on: "header:X-Tenant" })).toBe(
      "The same upstream for the same header X-Tenant",
    );
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
    const service = {
      load_balancing_strategy: "hash",
      upstreams: [],
      sticky: { cookie: "route", ttl_s: 0 },
      hash_balance_factor: 125,
    };
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
    expect(balancingNotes({ load_balancing_strategy: "round_robin", upstreams: [], hash_balance_factor: 0 })).toEqual(
      [],
    );
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
      {
        group: "canary",
        upstreams: [fresh],
        rules: ["5 %, by credential", "100 %, by request, where header X-Beta = 1"],
        rest: "the rest, by weight",
      },
      { group: null, upstreams: [old], rules: [], rest: "the rest, by weight" },
    ]);
  });

  it("have their share by weight without a split, and nothing by rule if no split names them", () => {
    expect(groupsOf({ upstreams: [fresh, old] }).map(({ group, rules, rest }) => [group, rules, rest])).toEqual([
      ["canary", [], "its share by weight"],
      [null, [], "its share by weight"],
    ]);
    const groups = groupsOf({
      upstreams: [old, fresh, upstream("spare", 1, "spare")],
      split: [{ group: "canary", percent: 5 }],
    });
    expect(groups.find(({ group }) => group === "spare")!.rules).toEqual([]);
  });

  it("are none where no upstream has one", () => expect(groupsOf({ upstreams: [old] })).toEqual([]));
});

describe("shares of upstreams", () => {
  const upstreams = [upstream("a", 2), upstream("b", 1)];
  const states = [
    { id: "a", share: 0.9 },
    { id: "b", share: 0.1 },
  ];

  it("are measured where there is traffic", () => {
    const shares = sharesOf(upstreams, states, (id) => ({ a: 1, b: 3 })[id] ?? 0);
    expect([...shares]).toEqual([
      ["a", { share: 0.25, how: "measured" }],
      ["b", { share: 0.75, how: "measured" }],
    ]);
  });

  it("are those that the gateway plans where there is none, and not known before it has told them", () => {
    expect([...sharesOf(upstreams, states, () => 0)]).toEqual([
      ["a", { share: 0.9, how: "planned" }],
      ["b", { share: 0.1, how: "planned" }],
    ]);
    expect(sharesOf(upstreams, null, () => 0).size).toBe(0);
  });
});

import { describe, expect, it } from "vitest";
import type { ExchangeParts } from "../../lib/http/exchange.ts";
import { headerValue } from "../../lib/http/headers.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { quota } from "../../lib/plugins/quota.ts";
import { rateLimit } from "../../lib/plugins/rate_limit.ts";
import type { CostedLimiter, Undecided } from "../../lib/store/counters.ts";
import { manualClock } from "../support/clock.ts";
import {
  atOnce,
  checked,
  exercise,
  instance,
  madeUpExchange,
  madeUpTools,
  plainReply,
  problemOf,
} from "../support/exercise.ts";

/** An instance on a manual clock at noon of 31 January, and a way to ask it. */
function limited(config: object, options: { id?: string } = {}) {
  const clock = manualClock(Date.parse("2026-01-31T12:00:00Z"));
  const tools = madeUpTools({ clock, ...options });
  const middleware = instance(quota, config, tools);
  const ask = (parts: Partial<ExchangeParts> = {}) => atOnce(exercise(middleware, madeUpExchange(parts)).returned);
  return { clock, tools, middleware, ask };
}

const limits = (reply: Reply) => [
  headerValue(reply.headers, "ratelimit-policy"),
  headerValue(reply.headers, "ratelimit"),
];

describe("quota", () => {
  it(
    "quota admits a caller's limit in a period; the next request gets 429 quota_exceeded until the period ends, " +
      "and does not reach the upstream",
    () => {
      const { clock, middleware, ask } = limited({ limit: 2, per: "month" });
      expect([ask().status, ask().status]).toEqual([200, 200]);
      const { returned, forwarded } = exercise(middleware, madeUpExchange());
      const refused = atOnce(returned);
      expect(forwarded).toBeNull();
      expect(problemOf(refused)).toMatchObject({
        status: 429,
        code: "quota_exceeded",
        detail: "The quota of this month is used up. The next month begins in 43200 seconds.",
      });
      expect(headerValue(refused.headers, "retry-after")).toBe("43200");
      clock.advance(43_199_001);
      expect(headerValue(ask().headers, "retry-after")).toBe("1");
      clock.advance(999);
      expect(ask().status).toBe(200);
    },
  );

  it.each([
    [{ per: "day" }, undefined, ['"quota-day";q=2;w=86400', '"quota-day";r=1;t=43200']],
    [{ per: "week" }, "tier", ['"tier-week";q=2;w=604800', '"tier-week";r=1;t=129600']],
    [
      { per: "month", time_zone: "America/New_York" },
      undefined,
      ['"quota-month";q=2;w=2592000', '"quota-month";r=1;t=61200'],
    ],
  ])("every reply tells with the headers of rate_limit what is left: %j", (config, id, expected) => {
    const { ask } = limited({ limit: 2, ...config }, id === undefined ? {} : { id });
    expect(limits(ask())).toEqual(expected);
    ask();
    expect(limits(ask())).toEqual([expected[0], expected[1]!.replace("r=1", "r=0")]);
  });

  it("counts by identity unless another limit_by is set, and by address without one", () => {
    const { ask } = limited({ limit: 1, per: "day" });
    expect([ask({ identity: "ada" }).status, ask({ identity: "ada" }).status, ask({ identity: "bob" }).status]).toEqual(
      [200, 429, 200],
    );
    expect([
      ask({ clientAddress: "192.0.2.1" }).status,
      ask({ clientAddress: "192.0.2.1" }).status,
      ask({ clientAddress: "192.0.2.2" }).status,
    ]).toEqual([200, 429, 200]);
    const all = limited({ limit: 1, per: "day", limit_by: "all" });
    expect([all.ask({ identity: "ada" }).status, all.ask({ identity: "bob" }).status]).toEqual([200, 429]);
  });

  it(
    "limits_by_group: the first group here that a caller has decides the limit, " +
      "and what was counted stays when the group changes",
    () => {
      const { ask } = limited({ limit: 1, per: "day", limits_by_group: { gold: { limit: 3 }, silver: { limit: 2 } } });
      const left = (groups: readonly string[], identity: string) => {
        const reply = ask({ identity, groups });
        return [reply.status, limits(reply)[1]!.replace(/;t=.*/, "")];
      };
      expect([left([], "ada"), left([], "ada")]).toEqual([
        [200, '"quota-day";r=0'],
        [429, '"quota-day";r=0'],
      ]);
      expect([left(["silver", "gold"], "ada"), left(["silver"], "ada"), left(["silver"], "bob")]).toEqual([
        [200, '"quota-day";r=1'],
        [429, '"quota-day";r=0'],
        [200, '"quota-day";r=1'],
      ]);
    },
  );

  it.each([
    [{}, /at least one group/],
    [{ gold: {} }, /limit/],
    [{ gold: { limit: 0 } }, /limit/],
    [{ gold: 5 }, /gold/],
    [{ gold: { limit_min: 5 } }, /limit/],
  ])("limits_by_group %j is refused", (limits_by_group, expected) => {
    expect(() => instance(quota, { limit: 1, per: "day", limits_by_group })).toThrow(expected);
  });

  it("an instance is counted by itself, and not with a rate_limit at the same place", () => {
    const tools = madeUpTools({ clock: manualClock() });
    const [day, second] = [
      instance(quota, { limit: 1, per: "day" }, tools),
      instance(
        rateLimit,
        { limit_hour: 1, limit_by: "credential" },
        { ...tools, scope: { ...tools.scope, key: "another" } },
      ),
    ];
    for (const each of [day, second]) expect(atOnce(exercise(each, madeUpExchange()).returned).status).toBe(200);
  });

  it.each<[Undecided, number, string | undefined]>([
    ["allow", 200, undefined],
    ["deny", 503, "limiter_unavailable"],
  ])('where the shared counters do not decide, on_error "%s" holds', async (undecided, status, code) => {
    const never: CostedLimiter = { decide: async () => undecided, book: () => {} };
    const shared = { costed: () => never, quota: () => never };
    const clock = manualClock();
    const made = madeUpTools({ clock });
    const tools = {
      ...made,
      limiterBy: ((make) => made.limiterBy((own, key) => make({ ...own, shared }, key))) as typeof made.limiterBy,
    };
    const reply = await exercise(instance(quota, { limit: 1, per: "day" }, tools), madeUpExchange()).returned;
    expect(reply.status).toBe(status);
    if (code !== undefined) expect(problemOf(reply).code).toBe(code);
    expect(headerValue(reply.headers, "ratelimit")).toBeUndefined();
  });

  it.each([
    [{}, [/limit/, /per/]],
    [{ limit: 0, per: "day" }, [/limit/]],
    [{ limit: 1.5, per: "day" }, [/limit/]],
    [{ limit: 1e15, per: "day" }, [/limit/]],
    [{ limit: 1, per: "year" }, [/per: .*day.*week.*month/]],
    [{ limit: 1, per: "day", time_zone: "Berlin" }, [/time_zone: .*Europe\/Berlin/]],
    [{ limit: 1, per: "day", time_zone: "+02:00" }, [/time_zone: .*offset/]],
    [{ limit: 1, per: "day", time_zone: 2 }, [/time_zone/]],
    [{ limit: 1, per: "day", limit_by: "ip" }, [/limit_by/]],
    [{ limit: 1, per: "day", max_callers: 0 }, [/max_callers/]],
    [{ limit: 1, per: "day", max_callers: 1_000_001 }, [/max_callers/]],
    [{ limit: 1, per: "day", mode: "shadow" }, [/mode/]],
  ])("%j is refused", (config, expected) => {
    const { issues } = checked(quota.schema, config);
    expect(issues).toHaveLength(expected.length);
    for (const each of expected)
      expect(
        issues.some((issue) => each.test(issue)),
        issues.join("\n"),
      ).toBe(true);
  });
});

/** What a request with this reply costs, of 1000. */
function costOf(reply: Reply, cost: object, kind: typeof quota | typeof rateLimit): number {
  const config = kind === quota ? { limit: 1000, per: "day" } : { limit_hour: 1000 };
  const middleware = instance(kind, { ...config, cost }, madeUpTools());
  const ask = (answer: Reply) => {
    const exchange = madeUpExchange();
    const { headers } = atOnce(exercise(middleware, exchange, () => answer).returned);
    exchange.call.close();
    return Number(/;r=(\d+)/.exec(headerValue(headers, "ratelimit")!)![1]);
  };
  expect(ask(reply)).toBe(1000);
  return 1000 - ask(plainReply);
}

describe("cost", () => {
  it.each([
    ["17", 17],
    [" 17 ", 17],
    ["0", 0],
    ["1.2", 2],
    ["1e2", 100],
    ["-1", 5],
    ["", 5],
    ["17 tokens", 5],
    ["17, 18", 5],
    ["NaN", 5],
    ["Infinity", 5],
    ["0x10", 5],
    ["1000000000000000", 1_000],
  ])("response_header: the value %j costs %i", (value, cost) => {
    for (const kind of [quota, rateLimit] as const) {
      expect(
        costOf({ ...plainReply, headers: ["x-cost", value] }, { response_header: "X-Cost", default: 5 }, kind),
      ).toBe(cost);
    }
  });

  it("a reply without the header, and one of the gateway itself, have the default, which is 1 unless it is set", () => {
    expect(costOf(plainReply, { response_header: "X-Cost" }, quota)).toBe(1);
    expect(costOf(plainReply, { response_header: "X-Cost", default: 0 }, quota)).toBe(0);
  });

  it.each([
    [{ response_header: "X-Cost", response_json: "a" }, /not both/],
    [{}, /"response_header" or "response_json"/],
    [{ default: 3 }, /"response_header" or "response_json"/],
    [{ response_header: "X Cost" }, /response_header.*the name of a header/],
    [{ response_header: "" }, /response_header/],
    [{ response_json: "usage..total" }, /response_json.*separated by dots/],
    [{ response_json: ".usage" }, /response_json/],
    [{ response_json: 'a"b' }, /response_json/],
    [{ response_json: "" }, /response_json/],
    [{ response_json: Array(17).fill("a").join(".") }, /response_json/],
    [{ response_json: "a", default: -1 }, /default/],
    [{ response_json: "a", default: 0.5 }, /default/],
    ["usage", /cost/],
  ])("cost %j is refused", (cost, expected) => {
    for (const [kind, config] of [
      [quota, { limit: 1, per: "day" }],
      [rateLimit, { limit_min: 1 }],
    ] as const) {
      expect(() => instance(kind, { ...config, cost })).toThrow(expected);
    }
  });
});

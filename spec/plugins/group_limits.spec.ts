import { describe, expect, it } from "vitest";
import type { ExchangeParts } from "../../lib/http/exchange.ts";
import { headerValue } from "../../lib/http/headers.ts";
import { fieldsOf } from "../../lib/config/feature_fields.ts";
import type { FeatureSchemas } from "../../lib/config/feature_schemas.ts";
import { fields } from "../../lib/config/group_limits.ts";
import { rateLimit } from "../../lib/plugins/rate_limit.ts";
import { manualClock } from "../support/clock.ts";
import { atOnce, checked, exercise, madeUpExchange, madeUpTools } from "../support/exercise.ts";

const SCHEMA = rateLimit.schemaWith!(fieldsOf<FeatureSchemas>([fields]));

/** An instance on a manual clock with these limits of groups beside others. */
function limited(
  config: object,
  tools = madeUpTools({ clock: manualClock(), key: '["route","a","b","rate_limit",0]' }),
) {
  const { value, issues } = checked(SCHEMA, config);
  expect(issues).toEqual([]);
  const middleware = rateLimit.create(value!, tools);
  const ask = (groups: readonly string[], parts: Partial<ExchangeParts> = {}) =>
    atOnce(exercise(middleware, madeUpExchange({ groups, ...parts })).returned);
  const statuses = (n: number, groups: readonly string[], parts?: Partial<ExchangeParts>) =>
    Array.from({ length: n }, () => ask(groups, parts).status);
  return { tools, ask, statuses };
}

const TIERS = { limit_min: 1, limits_by_group: { gold: { limit_min: 3, limit_day: 4 }, silver: { limit_min: 2 } } };

describe("limits_by_group of rate_limit", () => {
  it("a caller has the limits of its group instead of the others, and one without such a group has the others", () => {
    const { statuses } = limited(TIERS);
    expect(statuses(4, ["gold"])).toEqual([200, 200, 200, 429]);
    expect(statuses(3, ["x", "silver"])).toEqual([200, 200, 429]);
    expect([statuses(2, ["x"]), statuses(1, [])]).toEqual([[200, 429], [429]]);
  });

  it("the first group of the configuration counts, whatever the order of the caller's groups", () => {
    const { statuses } = limited(TIERS);
    expect(statuses(4, ["silver", "gold"])).toEqual([200, 200, 200, 429]);
    const reversed = limited({ limit_min: 1, limits_by_group: { silver: { limit_min: 2 }, gold: { limit_min: 3 } } });
    expect(reversed.statuses(3, ["gold", "silver"])).toEqual([200, 200, 429]);
  });

  it("each group counts by itself, also callers of one address", () => {
    const { tools, statuses } = limited(TIERS);
    expect([statuses(1, []), statuses(2, ["silver"]), statuses(3, ["gold"])]).toEqual([
      [200],
      [200, 200],
      [200, 200, 200],
    ]);
    expect([statuses(1, []), statuses(1, ["silver"]), statuses(1, ["gold"])]).toEqual([[429], [429], [429]]);
    (tools.clock as ReturnType<typeof manualClock>).advance(60_000);
    expect([statuses(2, []), statuses(3, ["silver"]), statuses(2, ["gold"])]).toEqual([
      [200, 429],
      [200, 200, 429],
      [200, 429],
    ]);
  });

  it("replies have the limits of the caller's group", () => {
    const { ask } = limited(TIERS);
    expect(headerValue(ask(["gold"]).headers, "ratelimit-policy")).toBe('"minute";q=3;w=60, "day";q=4;w=86400');
    expect(headerValue(ask([]).headers, "ratelimit-policy")).toBe('"minute";q=1;w=60');
  });

  it("counts stay over a reload that changes other groups", () => {
    const { tools, statuses } = limited(TIERS);
    expect(statuses(2, ["silver"])).toEqual([200, 200]);
    const after = limited({ limit_min: 9, limits_by_group: { silver: { limit_min: 2 } } }, tools);
    expect([after.statuses(1, ["silver"]), after.statuses(1, ["gold"])]).toEqual([[429], [200]]);
  });

  it("names of groups that objects have anyway are names like any other", () => {
    const { statuses } = limited(
      JSON.parse(
        '{ "limit_min": 1, "limits_by_group": { "__proto__": { "limit_min": 2 }, "constructor": { "limit_min": 3 } } }',
      ) as object,
    );
    expect([statuses(3, ["__proto__"]), statuses(4, ["constructor"]), statuses(2, ["toString"])]).toEqual([
      [200, 200, 429],
      [200, 200, 200, 429],
      [200, 429],
    ]);
  });

  it("shadow mode counts by group, too, and refuses nobody", () => {
    const { tools, statuses } = limited({ ...TIERS, mode: "shadow" });
    expect(statuses(5, ["gold"])).toEqual([200, 200, 200, 200, 200]);
    expect(tools.lines.map(({ message }) => message)).toEqual(["rate_limit in shadow mode would have refused"]);
  });

  it.each<[unknown, string]>([
    [{}, "limits_by_group: expected at least one group"],
    [[], "limits_by_group: expected an object"],
    [{ gold: 600 }, "limits_by_group.gold: expected an object"],
    [{ gold: {} }, 'limits_by_group.gold: needs "limit_second", "limit_min", "limit_hour" or "limit_day"'],
    [{ gold: { limit_min: 0 } }, "limits_by_group.gold.limit_min: expected an integer"],
    [{ gold: { limit_mins: 5 } }, 'limits_by_group.gold.limit_mins: is not a known field; did you mean "limit_min"?'],
    [{ gold: { limit_min: 5, mode: "shadow" } }, "limits_by_group.gold.mode: is not a known field"],
    [
      { gold: { limit_min: 1 }, 10: { limit_min: 2 } },
      'limits_by_group: has a group "10": JSON does not keep the order of such names, and the first group counts',
    ],
  ])("%j is a configuration error", (limits_by_group, issue) => {
    const { issues } = checked(SCHEMA, { limit_min: 1, limits_by_group });
    expect(issues.length).toBe(1);
    expect(issues[0]).toContain(issue);
  });

  it("a single group may be a number, and limits for all others are needed", () => {
    expect(checked(SCHEMA, { limit_min: 1, limits_by_group: { 10: { limit_min: 2 } } }).issues).toEqual([]);
    expect(checked(SCHEMA, { limits_by_group: { gold: { limit_min: 2 } } }).issues).toEqual([
      ': needs "limit_second", "limit_min", "limit_hour" or "limit_day"',
    ]);
  });

  it("the memory of all groups together is bounded", () => {
    const groups = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`g${i}`, { limit_min: 64 }]));
    expect(checked(SCHEMA, { limit_min: 64, limits_by_group: groups }).issues).toEqual([
      expect.stringMatching(
        new RegExp(
          String.raw`^max_callers: 100000 callers of up to 23560 bytes each could take 2\.4 GB, ` +
            String.raw`more than 2 GB: with these limits at most 84889$`,
        ),
      ),
    ]);
    expect(checked(SCHEMA, { limit_min: 64, limits_by_group: groups, max_callers: 80_000 }).issues).toEqual([]);
  });
});

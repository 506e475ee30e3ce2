import { describe, expect, it } from "vitest";
import { Call, type ExchangeParts } from "../../lib/http/exchange.ts";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { rateLimit } from "../../lib/plugins/rate_limit.ts";
import type { Counters, Decision, LimiterOptions, Undecided } from "../../lib/store/counters.ts";
import type { MemoryCounters } from "../../lib/store/caller_tables.ts";
import { manualClock } from "../support/clock.ts";
import { sizeOf } from "../support/limiters.ts";
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

/** An instance on a manual clock, and a way to ask it. */
function limited(config: unknown, options: { id?: string; key?: string } = {}) {
  const clock = manualClock();
  const tools = madeUpTools({ clock, ...options });
  const middleware = instance(rateLimit, config, tools);
  const ask = (parts: Partial<ExchangeParts> = {}) => atOnce(exercise(middleware, madeUpExchange(parts)).returned);
  const statuses = (n: number) => Array.from({ length: n }, () => ask().status);
  return { clock, tools, middleware, ask, statuses };
}

describe("what is admitted", () => {
  it("rate_limit admits the first N requests; the next one gets 429 and does not reach the upstream", () => {
    const { middleware, statuses } = limited({ limit_second: 2 });
    expect(statuses(2)).toEqual([200, 200]);
    const { returned, forwarded } = exercise(middleware, madeUpExchange());
    expect(atOnce(returned).status).toBe(429);
    expect(forwarded).toBeNull();
  });

  it("rate_limit admits N requests in any second, not N per second of the clock", () => {
    const { clock, statuses } = limited({ limit_second: 2 });
    clock.advance(900);
    expect(statuses(2)).toEqual([200, 200]);
    clock.advance(200);
    expect(statuses(1)).toEqual([429]);
    clock.advance(800);
    expect(statuses(3)).toEqual([200, 200, 429]);
  });

  it.each([
    ["limit_second", 1_000],
    ["limit_min", 60_000],
    ["limit_hour", 3_600_000],
    ["limit_day", 86_400_000],
  ])("%s counts over %i ms", (field, ms) => {
    const { clock, statuses } = limited({ [field]: 1 });
    expect(statuses(2)).toEqual([200, 429]);
    clock.advance(ms - 1);
    expect(statuses(1)).toEqual([429]);
    clock.advance(1);
    expect(statuses(1)).toEqual([200]);
  });

  it("rate_limit consumes nothing from the other windows when one window refuses", () => {
    const { clock, statuses } = limited({ limit_second: 1, limit_min: 3 });
    for (let i = 0; i < 3; i++) {
      expect(statuses(4)).toEqual([200, 429, 429, 429]);
      clock.advance(1_000);
    }
    expect(statuses(1)).toEqual([429]);
  });

  it("rate_limit counts each plugin instance by itself", () => {
    const tools = madeUpTools({ key: "one" });
    const other = { ...tools, scope: { ...tools.scope, key: "two" } };
    const status = (t: typeof tools) =>
      atOnce(exercise(instance(rateLimit, { limit_min: 1 }, t), madeUpExchange()).returned).status;
    expect([status(tools), status(other), status(tools)]).toEqual([200, 200, 429]);
  });

  it("rate_limit refills nothing on a reload", () => {
    const tools = madeUpTools();
    const status = (config: unknown) =>
      atOnce(exercise(instance(rateLimit, config, tools), madeUpExchange()).returned).status;
    expect([status({ limit_min: 2 }), status({ limit_min: 2 }), status({ limit_min: 2 })]).toEqual([200, 200, 429]);
    expect([status({ limit_min: 3 }), status({ limit_min: 3 })]).toEqual([200, 429]);
  });

  it(
    "rate_limit remembers at most max_callers callers: where all have used up a limit, " +
      "new callers share one allowance",
    () => {
      const { tools, ask } = limited({ limit_min: 1, max_callers: 3 });
      const statuses = Array.from({ length: 9 }, (_, i) => ask({ clientAddress: `192.0.2.${i}` }).status);
      expect(statuses).toEqual([200, 200, 200, 200, 429, 429, 429, 429, 429]);
      expect(sizeOf(tools.counters as unknown as MemoryCounters).callers).toBe(3);
    },
  );
});

describe("limit_by", () => {
  it("client_ip, the default, counts by address, IPv6 by /64 and mapped IPv4 as IPv4", () => {
    const { ask } = limited({ limit_min: 1 });
    const status = (clientAddress: string) => ask({ clientAddress }).status;
    expect([status("192.0.2.1"), status("192.0.2.2"), status("192.0.2.1"), status("::ffff:192.0.2.2")]).toEqual([
      200, 200, 429, 429,
    ]);
    expect([status("2001:db8::1"), status("2001:db8::ffff:1"), status("2001:db8:0:1::1")]).toEqual([200, 429, 200]);
  });

  it("credential counts by identity, and by address where there is none", () => {
    const { ask } = limited({ limit_min: 1, limit_by: "credential" });
    const status = (identity: string | null, clientAddress: string) => ask({ identity, clientAddress }).status;
    expect([status("alice", "192.0.2.1"), status("alice", "192.0.2.2"), status("bob", "192.0.2.1")]).toEqual([
      200, 429, 200,
    ]);
    expect([status(null, "192.0.2.1"), status(null, "192.0.2.1"), status(null, "192.0.2.2")]).toEqual([200, 429, 200]);
  });

  it("header:<name> counts by the header's first value, and by address where there is none", () => {
    const { ask } = limited({ limit_min: 1, limit_by: "header:X-Tenant" });
    const status = (...headers: string[]) => ask({ headers }).status;
    expect([status("x-tenant", "a"), status("X-TENANT", "a"), status("X-Tenant", "b")]).toEqual([200, 429, 200]);
    expect([status("X-Tenant", "c", "X-Tenant", "a"), status("X-Tenant", "c")]).toEqual([200, 429]);
    expect([status(), status(), status("X-Tenant", "")]).toEqual([200, 429, 200]);
  });

  it("all counts all callers together", () => {
    const { ask } = limited({ limit_min: 1, limit_by: "all" });
    expect([
      ask({ clientAddress: "192.0.2.1" }).status,
      ask({ clientAddress: "192.0.2.2", identity: "bob" }).status,
    ]).toEqual([200, 429]);
  });

  it("never takes a header's value or an identity for an address", () => {
    const header = limited({ limit_min: 1, limit_by: "header:x" });
    for (const value of ["192.0.2.1", "ip:192.0.2.1", "all"])
      expect(header.ask({ headers: ["x", value] }).status).toBe(200);
    expect(header.ask().status).toBe(200);
    const credential = limited({ limit_min: 1, limit_by: "credential" });
    expect([credential.ask({ identity: "ip:192.0.2.1" }).status, credential.ask().status]).toEqual([200, 200]);
    expect([
      credential.ask({ identity: "0:0:0::/64" }).status,
      credential.ask({ clientAddress: "c::1" }).status,
    ]).toEqual([200, 200]);
  });
});

describe("a client", () => {
  it("a client gets RateLimit-Policy and RateLimit on every reply", () => {
    const { clock, ask } = limited({ limit_second: 10, limit_min: 60, limit_hour: 64 });
    const reply = ask();
    expect(headerValue(reply.headers, "ratelimit-policy")).toBe(
      '"second";q=10;w=1, "minute";q=60;w=60, "hour";q=64;w=3600',
    );
    expect(headerValue(reply.headers, "ratelimit")).toBe('"second";r=9;t=1, "minute";r=59;t=60, "hour";r=63;t=3600');
    clock.advance(1_500);
    expect(headerValue(ask().headers, "ratelimit")).toBe('"second";r=9;t=1, "minute";r=58;t=59, "hour";r=62;t=3599');
  });

  it("of several windows that are full, the rule is the one that gives a request back last", () => {
    const { clock, middleware, statuses } = limited({ limit_min: 1, limit_day: 2 });
    const ruleNow = () => {
      const exchange = madeUpExchange();
      const reply = atOnce(exercise(middleware, exchange).returned);
      return [reply.status, headerValue(reply.headers, "retry-after"), exchange.call.notes.rule];
    };
    expect(statuses(1)).toEqual([200]);
    clock.advance(86_400_000 - 11_000);
    expect(statuses(1)).toEqual([200]);
    clock.advance(10_000);
    // The day gives one back in a second, the minute in 50.
    expect(ruleNow()).toEqual([429, "50", "limit_min"]);
    clock.advance(50_000);
    expect(statuses(1)).toEqual([200]);
    // Now the minute in 60 seconds, the day once its second request is a day old.
    expect(ruleNow()).toEqual([429, "86340", "limit_day"]);
  });

  it("a client gets the limit of a day, and when it can try again", () => {
    const { clock, ask } = limited({ limit_min: 9, limit_day: 1 });
    const reply = ask();
    expect(headerValue(reply.headers, "ratelimit-policy")).toBe('"minute";q=9;w=60, "day";q=1;w=86400');
    expect(headerValue(reply.headers, "ratelimit")).toBe('"minute";r=8;t=60, "day";r=0;t=86400');
    clock.advance(3_600_000);
    expect(headerValue(ask().headers, "retry-after")).toBe("82800");
  });

  it("a client gets the upstream's reply with everything it had", () => {
    const { ask } = limited({ limit_min: 1 });
    expect(ask()).toEqual({
      ...plainReply,
      headers: [...plainReply.headers, "RateLimit-Policy", '"minute";q=1;w=60', "RateLimit", '"minute";r=0;t=60'],
    });
  });

  it("a client gets 429 rate_limited with Retry-After in whole seconds, rounded up, and the limits", () => {
    const { clock, ask } = limited({ limit_min: 1 });
    ask();
    clock.advance(100);
    const refused = ask();
    expect(refused.status).toBe(429);
    expect(problemOf(refused)).toMatchObject({ status: 429, code: "rate_limited", detail: "Try again in 60 seconds." });
    expect(headerValue(refused.headers, "retry-after")).toBe("60");
    expect(headerValue(refused.headers, "ratelimit-policy")).toBe('"minute";q=1;w=60');
    expect(headerValue(refused.headers, "ratelimit")).toBe('"minute";r=0;t=60');
    clock.advance(59_899.5);
    expect(headerValue(ask().headers, "retry-after")).toBe("1");
    clock.advance(0.5);
    expect(ask().status).toBe(200);
  });

  it("a client is admitted after waiting as long as Retry-After says", () => {
    const { clock, ask } = limited({ limit_second: 3, limit_min: 5 });
    for (let i = 0; i < 40; i++) {
      const reply = ask();
      if (reply.status === 200) clock.advance(77);
      else {
        clock.advance(Number(headerValue(reply.headers, "retry-after")) * 1_000);
        expect(ask().status).toBe(200);
      }
    }
  });

  it("a client sees the plugin's id in the names of policies, quoted as a structured field", () => {
    expect(headerValue(limited({ limit_min: 1 }, { id: "api" }).ask().headers, "ratelimit")).toBe(
      '"api-minute";r=0;t=60',
    );
    const odd = limited({ limit_min: 1 }, { id: 'a"b\\ü\n' });
    expect(headerValue(odd.ask().headers, "ratelimit-policy")).toBe('"a\\"b\\\\??-minute";q=1;w=60');
  });

  it("a client gets the headers of several instances, and of the upstream, side by side", () => {
    const tools = madeUpTools();
    const named = (id: string, limit: number) =>
      instance(rateLimit, { limit_min: limit }, { ...tools, scope: { ...tools.scope, id, key: id } });
    const upstream: Reply = { ...plainReply, headers: ["RateLimit", '"own";r=1'] };
    const handler = named("outer", 5)(named("inner", 1)(() => upstream));
    const first = atOnce(handler(madeUpExchange()));
    expect(headerValues(first.headers, "ratelimit")).toEqual([
      '"own";r=1',
      '"inner-minute";r=0;t=60',
      '"outer-minute";r=4;t=60',
    ]);
    const second = atOnce(handler(madeUpExchange()));
    expect(second.status).toBe(429); // the inner one's refusal passes through the outer one
    expect(headerValues(second.headers, "ratelimit")).toEqual(['"inner-minute";r=0;t=60', '"outer-minute";r=3;t=60']);
  });

  it("a client causes the code rate_limited in the log when it is refused", () => {
    const { ask } = limited({ limit_min: 1 });
    ask();
    const call = new Call({ id: "x", remoteAddress: "", trustedRemote: false, startedAt: 0, inform: () => {} });
    ask({ call });
    expect(call.notes.code).toBe("rate_limited");
  });
});

describe("shadow mode", () => {
  it("admits every request and adds no RateLimit headers", () => {
    const { ask } = limited({ limit_min: 1, mode: "shadow" });
    for (let i = 0; i < 5; i++) expect(ask()).toBe(plainReply);
  });

  it("logs at most one line a second, with the number of requests that would have been refused", () => {
    const { clock, tools, statuses } = limited({ limit_hour: 2, mode: "shadow" }, { key: "global:x" });
    statuses(2);
    expect(tools.lines).toEqual([]);
    statuses(10);
    clock.advance(999);
    statuses(5);
    const line = (requests: number) => ({
      level: "warn",
      message: "rate_limit in shadow mode would have refused",
      fields: { plugin: "global:x", requests },
    });
    expect(tools.lines).toEqual([line(1)]);
    clock.advance(1);
    statuses(3);
    expect(tools.lines).toEqual([line(1), line(15)]);
  });

  it("counts as if it refused", () => {
    const { clock, tools, statuses } = limited({ limit_second: 1, mode: "shadow" });
    for (let i = 0; i < 5; i++) {
      statuses(1);
      clock.advance(1_000);
    }
    expect(tools.lines).toEqual([]);
  });
});

describe("promises", () => {
  const decisions = (...list: (Decision | Undecided)[]): Counters => ({
    limiter: () => ({ decide: () => Promise.resolve(list.shift()!) }),
  });
  const yes: Decision = { admitted: true, remaining: [4], resetMs: [1_000], retryMs: 0 };
  const no: Decision = { admitted: false, remaining: [0], resetMs: [2_500], retryMs: 2_500 };

  it("adds its headers to a reply that comes as a promise", async () => {
    const { middleware } = limited({ limit_min: 3 });
    const { returned } = exercise(middleware, madeUpExchange(), () => Promise.resolve(plainReply));
    expect(returned).toBeInstanceOf(Promise);
    expect(headerValue((await returned).headers, "ratelimit")).toBe('"minute";r=2;t=60');
  });

  it("adds the limits decided for a request, not for later ones, to a reply that comes as a promise", async () => {
    const { middleware } = limited({ limit_min: 3 });
    const replies = [1, 2, 3].map(
      () => exercise(middleware, madeUpExchange(), () => Promise.resolve(plainReply)).returned,
    );
    const left = (await Promise.all(replies)).map((reply) => headerValue(reply.headers, "ratelimit"));
    expect(left).toEqual(['"minute";r=2;t=60', '"minute";r=1;t=60', '"minute";r=0;t=60']);
  });

  it("waits for a decision that comes as a promise", async () => {
    const middleware = instance(rateLimit, { limit_min: 5 }, madeUpTools({ counters: decisions(yes, no) }));
    const first = await exercise(middleware, madeUpExchange()).returned;
    expect([first.status, headerValue(first.headers, "ratelimit")]).toEqual([200, '"minute";r=4;t=1']);
    const second = exercise(middleware, madeUpExchange());
    expect([(await second.returned).status, headerValue((await second.returned).headers, "retry-after")]).toEqual([
      429,
      "3",
    ]);
    expect(second.forwarded).toBeNull();
  });

  it.each<[Undecided, string, number, string | null]>([
    ["deny", "enforce", 503, "limiter_unavailable"],
    ["deny", "shadow", 200, null],
    ["allow", "enforce", 200, null],
    ["allow", "shadow", 200, null],
  ])(
    "answers a request without a decision (%s, mode %s) with %i, and adds no RateLimit headers",
    async (answer, mode, status, code) => {
      const tools = madeUpTools({ counters: decisions(answer) });
      const { returned } = exercise(instance(rateLimit, { limit_min: 5, mode }, tools), madeUpExchange());
      const reply = await returned;
      expect(reply.status).toBe(status);
      expect(reply.headers.some((each) => /^ratelimit/i.test(each))).toBe(false);
      if (code !== null)
        expect(problemOf(reply)).toMatchObject({
          code,
          detail: "The request could not be counted. Try again shortly.",
        });
      expect(tools.lines).toEqual([]);
    },
  );

  it.each([
    [{}, undefined],
    [{ counters: "memory" }, "memory"],
  ])("asks for the counters that %j names", (config, counters) => {
    const asked: LimiterOptions[] = [];
    const recording: Counters = { limiter: (_key, options) => (asked.push(options), { decide: () => yes }) };
    instance(rateLimit, { limit_min: 5, ...config }, madeUpTools({ counters: recording }));
    expect(asked.map((options) => options.counters)).toEqual([counters]);
  });

  it("never sends a Retry-After of less than a second", async () => {
    const middleware = instance(
      rateLimit,
      { limit_min: 5 },
      madeUpTools({ counters: decisions({ ...no, retryMs: 0 }) }),
    );
    expect(headerValue((await exercise(middleware, madeUpExchange()).returned).headers, "retry-after")).toBe("1");
  });

  it("lets a fault from a plugin further in pass", async () => {
    const { middleware } = limited({ limit_min: 5 });
    const fault = new Error("broken");
    expect(() =>
      exercise(middleware, madeUpExchange(), () => {
        throw fault;
      }),
    ).toThrow(fault);
    await expect(exercise(middleware, madeUpExchange(), () => Promise.reject(fault)).returned).rejects.toBe(fault);
  });
});

describe("configuration", () => {
  it("rate_limit needs one limit and has defaults for the rest", () => {
    const defaults = { limitBy: "client_ip", mode: "enforce", maxCallers: 100_000 };
    expect(checked(rateLimit.schema, { limit_min: 1 }).value).toEqual({ limitMin: 1, ...defaults });
    for (const limit_by of ["client_ip", "credential", "all", "header:X-Tenant"]) {
      expect(checked(rateLimit.schema, { limit_hour: 1, limit_by }).issues).toEqual([]);
    }
  });

  it.each<[string, unknown, RegExp]>([
    ["no limit", {}, /needs "limit_second", "limit_min", "limit_hour" or "limit_day"/],
    ["a limit of 0", { limit_second: 0 }, /limit_second: expected an integer/],
    ["a fraction", { limit_min: 1.5 }, /limit_min: expected an integer/],
    ["a limit in quotes", { limit_hour: "5" }, /limit_hour: expected an integer/],
    ["a limit no header can tell", { limit_hour: 1e15 }, /limit_hour: expected an integer/],
    ["a day's limit of 0", { limit_day: 0 }, /limit_day: expected an integer/],
    [
      "a day's limit beside others that may take too much memory",
      { limit_min: 64, limit_day: 64, max_callers: 2_000_000 },
      /of up to 1480 bytes each .* at most 1351351$/,
    ],
    ["a header without name", { limit_min: 1, limit_by: "header:" }, /limit_by: expected "client_ip"/],
    ["a header name with a space", { limit_min: 1, limit_by: "header:x y" }, /limit_by: expected "client_ip"/],
    ["an unknown caller", { limit_min: 1, limit_by: "ip" }, /limit_by: expected "client_ip"/],
    ["an unknown mode", { limit_min: 1, mode: "shadows" }, /mode: expected .*did you mean "shadow"/],
    ["no callers", { limit_min: 1, max_callers: 0 }, /max_callers: expected an integer/],
    [
      "more callers than may take memory",
      { limit_second: 64, limit_min: 1000, limit_hour: 100_000, max_callers: 10_000_000 },
      new RegExp(
        String.raw`max_callers: 10000000 callers of up to 2200 bytes each could take 22\.0 GB, ` +
          String.raw`more than 2 GB: with these limits at most 909090$`,
      ),
    ],
    ["more callers than fit for one small limit", { limit_min: 16, max_callers: 10_000_000 }, /at most 7\d{6}$/],
    [
      "an unknown field",
      { limit_minute: 1, limit_hour: 2 },
      /limit_minute: is not a known field; did you mean "limit_min"/,
    ],
  ])("rate_limit reports %s as a configuration error", (_, config, message) => {
    const { issues } = checked(rateLimit.schema, config);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });
});

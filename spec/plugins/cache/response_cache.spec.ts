import { PassThrough, Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import type { Exchange, ExchangeParts } from "../../../lib/http/exchange.ts";
import { headerValue, headerValues } from "../../../lib/http/headers.ts";
import { discard, problem, type Reply } from "../../../lib/http/reply.ts";
import { responseCache } from "../../../lib/plugins/cache/response_cache.ts";
import { turn } from "../../support/addresses.ts";
import { manualClock } from "../../support/clock.ts";
import { atOnce, checked, instance, madeUpTools, problemOf } from "../../support/exercise.ts";
import { gate } from "../../journeys/harness.ts";
import { aCall, anExchange, cached, flat, FRESH, ok, read } from "./cached.ts";
import { CASES, type Headers, type Step } from "./response_cache.cases.ts";

describe("RFC 9111, case by case", () => {
  it.each(CASES.map((each, i) => [`${each.section}: ${each.promise} (${i})`, each] as const))(
    "%s",
    async (_title, { steps, defaultTtl = 0 }) => {
      let step: Step = {};
      const bodies = steps.map((_step, i) => `body ${i + 1}`);
      const origin = cached(
        async ({ headers, method }, nth) => {
          const { says = {}, takes = 0 } = step;
          if (takes > 0) origin.clock.advance(takes * 1_000);
          const validates =
            headerValue(headers, "if-none-match") !== undefined ||
            headerValue(headers, "if-modified-since") !== undefined;
          const status = step.status ?? (validates && steps.indexOf(step) > 0 ? 304 : 200);
          const bodiless = status === 304 || status === 204 || method === "HEAD";
          return { status, headers: flat(says), body: bodiless ? null : Readable.from([Buffer.from(`body ${nth}`)]) };
        },
        { default_ttl_s: defaultTtl },
      );
      for (const [i, each] of steps.entries()) {
        step = each;
        const where = `step ${i + 1}`;
        const { ask = {}, method = "GET", from = i === 0 ? "origin" : "store", gets = {} } = each;
        origin.clock.advance((each.after ?? (i === 0 ? 0 : 1)) * 1_000);
        const before = origin.asked.length;
        const got = await origin.get({
          method,
          headers: flat(ask),
          identity: each.identity ?? null,
          ...target(each.target ?? "/a/b"),
        });
        await turn();
        const asked = origin.asked.slice(before);
        if (from === "store") expect(asked.length, `${where} asks nobody`).toBe(0);
        else expect(asked.length, `${where} asks the origin`).toBeGreaterThan(0);
        const last = asked.at(-1);
        for (const [name, value] of Object.entries(each.sent ?? {}))
          expect(headerValue(last!.headers, name) ?? null, `${where} sends ${name}`).toBe(value);
        if (gets.status !== undefined) expect(got.status, where).toBe(gets.status);
        else if (from === "origin") expect(got.status, where).toBe(each.status ?? 200);
        for (const [name, value] of Object.entries(gets.headers ?? {})) {
          const values = headerValues(got.headers, name);
          expect(values.length === 0 ? null : values.join(", "), `${where} gets ${name}`).toBe(value);
        }
        if (method !== "HEAD" && got.status !== 304 && got.status !== 204 && got.status !== 504) {
          if (from === "origin") expect(got.body, where).toBe(`body ${origin.asked.length}`);
          else expect(bodies.slice(0, before), where).toContain(got.body);
          if (each.like !== undefined) expect(got.body, where).toBe(`body ${each.like}`);
        }
      }
    },
  );
});

function target(text: string): Partial<ExchangeParts> {
  const absolute = /^(https?):\/\/([^/]+)(.*)$/.exec(text);
  const [path = "", query] = (absolute?.[3] ?? text).split("?");
  const parts = { path, query: query === undefined ? "" : `?${query}` };
  return absolute === null ? parts : { ...parts, scheme: absolute[1] as "http", authority: absolute[2]! };
}

describe("the Cache-Status header (RFC 9211)", () => {
  const key = (text: string) => `key="${text}"`;

  it("the Cache-Status header reports a stored miss, then a hit with its remaining lifetime", async () => {
    const origin = cached(() => ok(FRESH));
    expect((await origin.get()).cacheStatus).toBe(
      `edge-gateway; fwd=uri-miss; ${key("http://gateway.example/a/b")}; stored; ttl=60`,
    );
    origin.clock.advance(15_500);
    expect((await origin.get()).cacheStatus).toBe(`edge-gateway; hit; ttl=44; ${key("http://gateway.example/a/b")}`);
  });

  it.each<[string, string, Partial<ExchangeParts>, Headers]>([
    ["what is not stored", "fwd=uri-miss;", {}, {}],
    ["another variant", "fwd=vary-miss;", { headers: ["A", "2"] }, { ...FRESH, Vary: "A" }],
    ["another method", "fwd=method", { method: "PUT" }, FRESH],
    ["a QUERY", "fwd=method", { method: "QUERY" }, FRESH],
    ["a range", "hit;", { headers: ["Range", "bytes=0-1"] }, FRESH],
    [
      "a range of what is stale",
      "fwd=stale;",
      { headers: ["Range", "bytes=0-1"] },
      { "Cache-Control": "max-age=0", ETag: '"1"' },
    ],
    ["a range in another unit", "fwd=bypass", { headers: ["Range", "lines=0-1"] }, FRESH],
    ["a condition for the origin", "fwd=bypass", { headers: ["If-Match", '"1"'] }, FRESH],
    ["a wish for news", "fwd=request;", { headers: ["Cache-Control", "no-cache"] }, FRESH],
    ["what is stale", "fwd=stale;", {}, { "Cache-Control": "max-age=0", ETag: '"1"' }],
  ])("%s: %s", async (_what, expected, parts, says) => {
    const origin = cached(() => ok(says));
    await origin.get();
    expect((await origin.get(parts)).cacheStatus).toContain(`edge-gateway; ${expected}`);
  });

  it("the Cache-Status header reports the status of a validation", async () => {
    const origin = cached((_exchange, nth) =>
      nth === 1 ? ok({ "Cache-Control": "max-age=1", ETag: '"1"' }) : { status: 304, headers: [], body: null },
    );
    await origin.get();
    origin.clock.advance(2_000);
    expect((await origin.get()).cacheStatus).toContain("edge-gateway; fwd=stale; fwd-status=304; stored; ttl=1;");
  });

  it(
    "the Cache-Status header stands behind the entries of caches further in, " +
      "with the gateway's name quoted and the query as a digest",
    async () => {
      const clock = manualClock();
      const handle = instance(
        responseCache,
        {},
        madeUpTools({ clock, gatewayName: 'my "gateway"' }),
      )(() => ok({ ...FRESH, "Cache-Status": "inner; hit" }));
      const { headers } = await read(await handle(anExchange({ query: "?apiKey=secret" })));
      const told = headerValues(headers, "cache-status");
      expect(told[0]).toBe("inner; hit");
      expect(told[1]).toMatch(
        /^"my \\"gateway\\""; fwd=uri-miss; key="http:\/\/gateway\.example\/a\/b\?[0-9a-f]{12}"; stored; ttl=60$/,
      );
    },
  );

  it("the header is not added to WebSockets and gRPC, which pass unchanged", () => {
    const reply: Reply = { status: 200, headers: [], body: null };
    const handle = instance(responseCache, {})(() => reply);
    expect(handle(anExchange({ upgrade: "websocket" }))).toBe(reply);
    expect(handle(anExchange({ method: "POST", headers: ["content-type", "application/grpc+proto"] }))).toBe(reply);
  });

  it("the header is part of the 504 that only-if-cached gets where nothing is stored", async () => {
    const origin = cached(() => ok(FRESH));
    const exchange = anExchange({ headers: ["Cache-Control", "only-if-cached"] });
    const reply = atOnce(origin.handle(exchange));
    expect(problemOf(reply)).toMatchObject({ status: 504, code: "not_cached" });
    expect(exchange.call.notes.code).toBe("not_cached");
  });
});

describe("targets", () => {
  it("targets differ by X-Forwarded-Host of a trusted proxy only", async () => {
    for (const trustedRemote of [true, false]) {
      const origin = cached(({ method }) =>
        method === "GET" ? ok(FRESH) : { status: 204, headers: ["Content-Location", "/a/b"], body: null },
      );
      const ask = (host: string, parts: Partial<ExchangeParts> = {}) =>
        origin.get({ call: aCall("request-1", trustedRemote), headers: ["X-Forwarded-Host", host], ...parts });
      await ask("one.example");
      await ask("two.example");
      expect(origin.asked.length).toBe(trustedRemote ? 2 : 1);
      await ask("one.example");
      expect(origin.asked.length).toBe(trustedRemote ? 2 : 1);
      await ask("one.example", { method: "POST", path: "/a" });
      expect((await ask("one.example")).cacheStatus).toContain("uri-miss");
      expect((await ask("two.example")).cacheStatus).toContain("hit");
    }
  });
});

describe("targets of a trusted proxy", () => {
  it.each([
    ["https://shop.example/edge/a/b", "uri-miss"],
    ["https://shop.example/a/b", "uri-miss"],
    ["http://gateway.example/a/b", "hit"],
    ["https://gateway.example/a/b", "uri-miss"],
    ["/edge/a/b", "uri-miss"],
    ["/a/b", "uri-miss"],
    ["b", "uri-miss"],
    ["https://other.example/edge/a/b", "hit"],
    ["https://shop.example/edge/a/c", "hit"],
  ])("a POST that names %s, as its client or the upstream writes the URL, leaves a %s there", async (named, result) => {
    const origin = cached(({ method }) =>
      method === "GET" ? ok(FRESH) : { status: 201, headers: ["Location", named], body: null },
    );
    const headers = ["X-Forwarded-Host", "shop.example", "X-Forwarded-Prefix", "/edge"];
    const ask = (parts: Partial<ExchangeParts>) =>
      origin.get({ call: aCall("request-1", true), scheme: "https", headers, path: "/a/b", ...parts });
    await ask({});
    expect((await ask({})).cacheStatus).toContain("hit");
    await ask({ method: "POST", path: "/a/new" });
    expect((await ask({})).cacheStatus).toContain(result);
  });

  it("a target differs by each line of X-Forwarded-Host, so that a second one changes no stored reply", async () => {
    const origin = cached(() => ok(FRESH));
    const ask = (headers: readonly string[]) => origin.get({ call: aCall("request-1", true), headers });
    await ask(["X-Forwarded-Host", "one.example", "X-Forwarded-Host", "two.example"]);
    expect((await ask(["X-Forwarded-Host", "one.example"])).cacheStatus).toContain("uri-miss");
  });
});

describe("interim responses", () => {
  it("interim responses of the upstream are sent to the client that waits for it, and are not stored", async () => {
    const origin = cached(({ call }) => {
      call.inform(103, ["Link", "</style.css>; rel=preload"]);
      return ok(FRESH);
    });
    for (const expected of [[[103, ["Link", "</style.css>; rel=preload"]]], []]) {
      const got: unknown[] = [];
      const { headers } = await origin.get({
        call: aCall("1", false, (status, informed) => void got.push([status, informed])),
      });
      expect(got).toEqual(expected);
      expect(headerValue(headers, "link")).toBeUndefined();
    }
  });
});

describe("hits", () => {
  it("hits are answered synchronously and note no upstream", async () => {
    const origin = cached((exchange) => {
      exchange.call.notes.upstream = "u:1";
      exchange.call.notes.attempts = 2;
      return ok(FRESH);
    });
    const first = anExchange();
    await origin.handle(first);
    expect(first.call.notes).toMatchObject({ upstream: "u:1", attempts: 2 });
    const second = anExchange();
    expect(atOnce(origin.handle(second)).status).toBe(200);
    expect(second.call.notes).toMatchObject({ upstream: null, attempts: 0 });
  });

  it("hits are not made from replies to a caller whom an auth plugin further in has identified", async () => {
    const origin = cached((exchange) => {
      exchange.call.notes.identity = "alice";
      return ok(FRESH);
    });
    const first = anExchange();
    await origin.handle(first);
    expect(first.call.notes.identity).toBe("alice");
    await origin.get();
    expect(origin.asked.length).toBe(2);
  });

  it("hits are not made from the gateway's own errors, which are noted for the log", async () => {
    const origin = cached((exchange) => ({ ...problem(exchange.call, "rate_limited"), headers: flat(FRESH) }));
    const exchange = anExchange();
    await origin.handle(exchange);
    expect(exchange.call.notes.code).toBe("rate_limited");
    await origin.get();
    expect(origin.asked.length).toBe(2);
  });

  it(
    "hits survive a refused no-cache request, unless its reply shows that the target " + "changed or no longer exists",
    async () => {
      const refused = (status: number, own: boolean) =>
        cached((exchange, nth) =>
          nth === 1 ? ok(FRESH) : own ? problem(exchange.call, "rate_limited") : { status, headers: [], body: null },
        );
      for (const [status, own, remains] of [
        [429, true, true],
        [401, false, true],
        [400, false, true],
        [200, false, false],
        [302, false, false],
        [404, false, false],
        [410, false, false],
      ] as const) {
        const origin = refused(status, own);
        await origin.get();
        expect((await origin.get({ headers: ["Cache-Control", "no-cache"] })).status).toBe(status);
        expect((await origin.get()).cacheStatus!.includes("hit"), String(status)).toBe(remains);
      }
    },
  );

  it("hits for stale-if-error leave no error in the notes of the request", async () => {
    const origin = cached((exchange, nth) =>
      nth === 1
        ? ok({ "Cache-Control": "max-age=1, stale-if-error=60" })
        : problem(exchange.call, "upstream_connect_failed"),
    );
    await origin.get();
    origin.clock.advance(5_000);
    const exchange = anExchange();
    const got = await read(await origin.handle(exchange));
    expect(got).toMatchObject({ status: 200, body: "hello" });
    expect(got.cacheStatus).toContain("fwd=stale; detail=stale-if-error; ttl=-4");
    expect(exchange.call.notes.code).toBe(null);
  });
});

describe("plugins further in", () => {
  it("plugins further in see the end of a fetch when its client has the reply and the reply is stored", async () => {
    const { origin, reply } = slowly();
    const ends: string[] = [];
    const listen = (name: string) => {
      const { call } = origin.asked.at(-1)!;
      call.onEnd(() => ends.push(call.aborted ? `${name} aborted` : name));
    };
    const says = { "Cache-Control": "max-age=10, stale-while-revalidate=60" };
    const [leaving, asking] = [aCall("1"), aCall("2")];
    const one = Promise.resolve(origin.handle(anExchange({ call: leaving })));
    listen("shared");
    const other = Promise.resolve(origin.handle(anExchange({ call: asking })));
    leaving.abort();
    expect(ends).toEqual([]);
    reply(ok(says));
    await Promise.all([one, other]);
    expect(ends).toEqual(["shared"]);
    origin.clock.advance(20_000);
    await origin.get();
    listen("background");
    reply(ok(says));
    await turn();
    expect(ends).toEqual(["shared", "background"]);
    const call = aCall("3");
    const passed = Promise.resolve(origin.handle(anExchange({ call, path: "/other" })));
    listen("passed");
    reply(ok({ "Cache-Control": "no-store" }));
    await passed;
    expect(ends.length).toBe(2);
    call.close();
    expect(ends).toEqual(["shared", "background", "passed"]);
    const last = aCall("4");
    void origin.handle(anExchange({ call: last, path: "/last" }));
    listen("last");
    last.abort();
    expect(ends[3]).toBe("last aborted");
  });
});

describe("stale-while-revalidate (RFC 5861 3)", () => {
  const SWR = { "Cache-Control": "max-age=10, stale-while-revalidate=60", ETag: '"1"' };

  it("answers with the stale reply and renews it in the background, once", async () => {
    const opened = gate();
    const origin = cached(async (_exchange, nth) => {
      if (nth === 1) return ok(SWR, "old");
      await opened.opened;
      return ok(SWR, Readable.from([Buffer.from("new")]));
    });
    await origin.get();
    origin.clock.advance(20_000);
    const call = aCall();
    const reply = atOnce(origin.handle(anExchange({ call, headers: ["If-None-Match", '"0"'] })));
    expect((await read(reply)).body).toBe("old");
    call.close();
    expect((await origin.get()).body).toBe("old");
    expect(origin.asked.length).toBe(2);
    expect(headerValues(origin.asked[1]!.headers, "if-none-match")).toEqual(['"1"']);
    opened.open();
    await turn();
    await turn();
    expect((await origin.get()).body).toBe("new");
    expect(origin.asked.length).toBe(2);
  });

  it("keeps the failure of a renewal out of the notes of the client that got the stale reply", async () => {
    const origin = cached(({ call }, nth) => {
      if (nth === 1) return ok(SWR, "old");
      Object.assign(call.notes, { upstream: "u", attempts: 1 });
      return problem(call, "upstream_connect_failed", { why: "refused" });
    });
    await origin.get();
    origin.clock.advance(20_000);
    const call = aCall();
    expect((await read(atOnce(origin.handle(anExchange({ call }))))).body).toBe("old");
    await turn();
    await turn();
    expect(origin.asked.length).toBe(2);
    expect(call.notes).toMatchObject({ code: null, fault: null, upstream: null, attempts: 0, cache: "hit" });
  });

  it("goes on with the stale reply when a renewal fails, and tries again", async () => {
    const origin = cached((_exchange, nth) => {
      if (nth === 1) return ok(SWR, "old");
      throw new Error("no");
    });
    await origin.get();
    origin.clock.advance(20_000);
    for (let i = 0; i < 3; i++) {
      expect((await origin.get()).body).toBe("old");
      await turn();
    }
    expect(origin.asked.length).toBe(4);
  });

  it("renews by GET when HEAD is asked", async () => {
    const origin = cached(() => ok(SWR));
    await origin.get();
    origin.clock.advance(20_000);
    await origin.get({ method: "HEAD" });
    expect(origin.asked.map(({ method }) => method)).toEqual(["GET", "GET"]);
  });
});

/** An origin that answers when it is told to. */
function slowly(config: object = {}) {
  const replies: ((reply: Reply) => void)[] = [];
  const origin = cached(() => new Promise((resolve) => replies.push(resolve)), config);
  return { origin, reply: (reply: Reply, nth = replies.length) => replies[nth - 1]!(reply) };
}

describe("requests for the same", () => {
  it("requests for the same target wait for the first one and get its reply", async () => {
    const { origin, reply } = slowly();
    const all = [origin.get(), origin.get(), origin.get()];
    expect(origin.asked.length).toBe(1);
    reply(ok(FRESH, Readable.from([Buffer.from("shared")])));
    const got = await Promise.all(all);
    expect(got.map(({ body }) => body)).toEqual(["shared", "shared", "shared"]);
    expect(got.map(({ cacheStatus }) => /collapsed/.test(cacheStatus!))).toEqual([false, true, true]);
    expect(origin.asked.length).toBe(1);
  });

  it(
    "requests for the same target go to the upstream all at once when the reply may not be shared, " +
      "and do not wait again for a minute",
    async () => {
      const { origin, reply } = slowly();
      const all = [origin.get(), origin.get(), origin.get()];
      reply(ok({ "Cache-Control": "private" }));
      await all[0];
      expect(origin.asked.length).toBe(3);
      all.push(origin.get());
      expect(origin.asked.length).toBe(4);
      for (const nth of [2, 3, 4]) reply(ok({ "Cache-Control": "private" }), nth);
      await Promise.all(all);
      origin.clock.advance(60_000);
      all.push(origin.get(), origin.get());
      expect(origin.asked.length).toBe(5);
      reply(ok(FRESH));
      await Promise.all(all);
    },
  );

  it(
    "requests for the same target go to the upstream when the first one fails, " +
      "before its reply or within its body",
    async () => {
      const first = slowly();
      const all = [first.origin.get(), first.origin.get()];
      first.reply({ status: 502, headers: [], body: null });
      await all[0];
      expect(first.origin.asked.length).toBe(2);
      first.reply(ok(FRESH));
      expect((await all[1]!).status).toBe(200);

      const second = slowly();
      const body = new PassThrough();
      const [one, other] = [second.origin.get(), second.origin.get()];
      second.reply(ok(FRESH, body));
      body.write("half of ");
      await turn();
      body.destroy(new Error("broken"));
      await expect(one).rejects.toThrow("broken");
      second.reply(ok(FRESH, "whole"), 2);
      expect((await other).body).toBe("whole");
      expect((await second.origin.get()).body).toBe("whole");
    },
  );

  it(
    "requests for the same target get the reply although the first client disconnects, " +
      "before the reply or within its body",
    async () => {
      for (const when of ["before", "within"]) {
        const { origin, reply } = slowly();
        const call = aCall("gone");
        const gone = Promise.resolve(origin.handle(anExchange({ call })));
        const other = origin.get();
        const body = new PassThrough();
        if (when === "before") call.abort();
        expect(origin.asked[0]!.call.aborted).toBe(false);
        reply(ok(FRESH, body));
        const passed = await gone;
        body.write("all ");
        await turn();
        if (when === "within") call.abort();
        discard(passed);
        body.end("of it");
        expect((await other).body).toBe("all of it");
        expect(origin.asked.length).toBe(1);
      }
    },
  );

  it("requests for the same target do not wait for the fetch of a client that had disconnected before", async () => {
    const { origin, reply } = slowly();
    const call = aCall();
    call.abort();
    const gone = Promise.resolve(origin.handle(anExchange({ call })));
    expect(origin.asked[0]!.call.aborted).toBe(true);
    const other = origin.get();
    expect(origin.asked.length).toBe(2);
    reply({ status: 502, headers: [], body: null }, 1);
    await gone;
    reply(ok(FRESH), 2);
    expect((await other).body).toBe("hello");
  });

  it(
    "requests for the same target abort the fetch when the last client " + "disconnects, and nothing is stored",
    async () => {
      const { origin, reply } = slowly();
      const calls = [aCall("1"), aCall("2")];
      const all = calls.map((call) => Promise.resolve(origin.handle(anExchange({ call }))));
      const body = new PassThrough();
      reply(ok(FRESH, body));
      discard(await all[0]!);
      body.write("half");
      await turn();
      calls[0]!.abort();
      expect(origin.asked[0]!.call.aborted).toBe(false);
      calls[1]!.abort();
      expect(origin.asked[0]!.call.aborted).toBe(true);
      expect(body.destroyed).toBe(true);
      await all[1];
      void origin.get();
      expect(origin.asked.length).toBe(2);
    },
  );

  it("requests for the same target wait at most five seconds for a body that does not end", async () => {
    const { origin, reply } = slowly();
    const all = [origin.get(), origin.get()];
    reply(ok(FRESH, new PassThrough()));
    await turn();
    origin.clock.advance(4_999);
    await turn();
    expect(origin.asked.length).toBe(1);
    origin.clock.advance(1);
    await turn();
    expect(origin.asked.length).toBe(2);
    reply(ok(FRESH, "2"), 2);
    expect((await all[1]!).body).toBe("2");
  });

  it(
    "requests for the same target do not wait for event streams, " +
      "nor for bodies whose Content-Length is too long to be stored",
    async () => {
      for (const says of [
        { ...FRESH, "Content-Type": "text/event-stream" },
        { ...FRESH, "Content-Length": "2000000" },
      ]) {
        const { origin, reply } = slowly();
        const all = [origin.get(), origin.get()];
        reply(ok(says, new PassThrough()));
        await turn();
        expect(origin.asked.length).toBe(2);
        reply(ok(FRESH, "2"), 2);
        await all[1];
      }
    },
  );

  it(
    "requests for the same target do not wait with no-cache, " + "nor for a request with a condition of its own",
    async () => {
      const { origin, reply } = slowly();
      const all = [
        origin.get({ headers: ["If-None-Match", '"1"'] }),
        origin.get(),
        origin.get({ headers: ["Cache-Control", "no-cache"] }),
      ];
      expect(origin.asked.length).toBe(3);
      for (const nth of [1, 2, 3]) reply(ok(FRESH), nth);
      await Promise.all(all);
    },
  );

  it("requests for the same target do not share a reply with another variant", async () => {
    const { origin, reply } = slowly();
    const all = [origin.get({ headers: ["A", "1"] }), origin.get({ headers: ["A", "2"] })];
    reply(ok({ ...FRESH, Vary: "A" }, "1"));
    await all[0];
    reply(ok({ ...FRESH, Vary: "A" }, "2"), 2);
    expect((await all[1]!).body).toBe("2");
    // From now on it is known before.
    origin.clock.advance(61_000);
    void origin.get({ headers: ["A", "1"] });
    void origin.get({ headers: ["A", "2"] });
    expect(origin.asked.length).toBe(4);
  });

  it("requests for the same target wait for a validation", async () => {
    const { origin, reply } = slowly();
    const first = origin.get();
    reply(ok({ "Cache-Control": "max-age=10", ETag: '"1"' }, "kept"));
    await first;
    origin.clock.advance(11_000);
    const all = [origin.get(), origin.get()];
    reply({ status: 304, headers: [], body: null });
    expect((await Promise.all(all)).map(({ body }) => body)).toEqual(["kept", "kept"]);
    expect(origin.asked.length).toBe(2);
  });
});

describe("a change while a reply is on its way", () => {
  const OLD = { "Cache-Control": "max-age=10", ETag: '"1"' };

  it.each(["GET", "HEAD"])(
    "a change while a reply is on its way stays in effect after the reply to an older %s that validates the old entry",
    async (method) => {
      const { origin, reply } = slowly();
      const first = origin.get();
      reply(ok(OLD, "old"));
      await first;
      origin.clock.advance(11_000);
      const late = origin.get({ method });
      const change =
        method === "GET" ? origin.get({ headers: ["Cache-Control", "no-cache"] }) : origin.get({ method: "POST" });
      reply(method === "GET" ? ok({ ...FRESH, ETag: '"2"' }, "new") : { status: 204, headers: [], body: null }, 3);
      await change;
      reply(
        method === "GET"
          ? { status: 304, headers: flat(OLD), body: null }
          : { status: 200, headers: flat(OLD), body: null },
        2,
      );
      await late;
      if (method === "GET") return expect((await origin.get()).body).toBe("new");
      void origin.get();
      expect(origin.asked.length).toBe(4);
    },
  );

  it(
    "a change while a reply is on its way keeps an older reply out of the store, " +
      "and later requests do not wait for it",
    async () => {
      const { origin, reply } = slowly();
      const before = origin.get();
      const change = origin.get({ method: "POST" });
      reply({ status: 204, headers: [], body: null }, 2);
      await change;
      const after = origin.get();
      expect(origin.asked.length).toBe(3);
      reply(ok(FRESH, "old"), 1);
      expect((await before).body).toBe("old");
      reply(ok(FRESH, "new"), 3);
      expect((await after).body).toBe("new");
      expect((await origin.get()).body).toBe("new");
    },
  );
});

describe("bodies", () => {
  it("bodies stay out of the store if their length differs from Content-Length", async () => {
    for (const body of [() => "hello", () => Readable.from([Buffer.from("hello")])]) {
      for (const length of ["4", "6"]) {
        const origin = cached(() => ok({ ...FRESH, "Content-Length": length }, body()));
        await origin.get();
        await origin.get();
        expect(origin.asked.length).toBe(2);
      }
    }
  });

  it("bodies beyond max_object_bytes pass and are not stored, with or without Content-Length", async () => {
    const parts = Array.from({ length: 40 }, (_each, i) => Buffer.alloc(1_000, i));
    for (const says of [FRESH, { ...FRESH, "Content-Length": "40000" }]) {
      const origin = cached(() => ok(says, Readable.from(parts)), { max_object_bytes: 20_000 });
      expect((await origin.get()).body).toBe(Buffer.concat(parts).toString());
      await origin.get();
      expect(origin.asked.length).toBe(2);
    }
  });

  it("bodies count against max_bytes until slow clients have read them, stored or not", async () => {
    for (const body of [() => Buffer.alloc(40_000), () => Readable.from([Buffer.alloc(40_000)])]) {
      const origin = cached(() => ({ ...ok(FRESH), body: body() }), { max_bytes: 70_000, max_object_bytes: 50_000 });
      await origin.get({ path: "/1" });
      const [slow, other] = [aCall("slow"), aCall("other")];
      await origin.handle(anExchange({ path: "/1", call: slow }));
      await origin.handle(anExchange({ path: "/1", call: other }));
      slow.close();
      await origin.get({ path: "/2" });
      expect((await origin.get({ path: "/1" })).cacheStatus).toContain("hit");
      other.abort();
      await origin.get({ path: "/3" });
      expect((await origin.get({ path: "/3" })).cacheStatus).toContain("hit");
    }
  });

  it("bodies pass with their trailers, which are not stored", async () => {
    const trailers = () => ["X-Sum", "1"];
    const origin = cached(() => ({
      ...ok({ ...FRESH, Trailer: "X-Sum" }, Readable.from([Buffer.from("a")])),
      trailers,
    }));
    const first = await origin.handle(anExchange());
    expect(first.trailers).toBe(trailers);
    await read(first);
    const second = atOnce(origin.handle(anExchange()));
    expect([second.trailers, headerValue(second.headers, "trailer")]).toEqual([undefined, undefined]);
  });

  it(
    "bodies stay out of the store if an outer plugin discards them, " + "and the upstream's body is destroyed",
    async () => {
      const body = new PassThrough();
      const origin = cached(() => ok(FRESH, body));
      discard(await origin.handle(anExchange()));
      await turn();
      expect(body.destroyed).toBe(true);
    },
  );
});

describe("configuration", () => {
  it("response_cache has defaults for every field", () => {
    expect(checked(responseCache.schema, {}).value).toEqual({
      maxBytes: 67_108_864,
      maxObjectBytes: 1_048_576,
      defaultTtlS: 0,
      varyBy: [],
    });
  });

  it.each<[object, RegExp]>([
    [{ vary_by: "cookie:a" }, /vary_by: expected an array/],
    [{ vary_by: ["session"] }, /vary_by\[0\]: expected "cookie:<name>" or "header:<name>"/],
    [{ vary_by: ["cookie:"] }, /vary_by\[0\]: expected "cookie:<name>" or "header:<name>"/],
    [{ vary_by: ["query:a"] }, /vary_by\[0\]: expected "cookie:<name>" or "header:<name>"/],
    [{ vary_by: ["header:Cache-Control"] }, /vary_by\[0\]: is evaluated by the cache itself/],
    [{ vary_by: ["header:X-A", "cookie:a", "header:x-a"] }, /vary_by\[2\]: is the same as vary_by\[0\]/],
    [{ max_bytes: 1000 }, /max_bytes: expected an integer/],
    [{ max_object_bytes: 0 }, /max_object_bytes: expected an integer/],
    [{ max_bytes: 100_000, max_object_bytes: 100_001 }, /max_object_bytes: must not be more than "max_bytes"/],
    [{ max_bytes: 100_000 }, /max_object_bytes: must not be more than "max_bytes", and is 1048576 by default/],
    [{ default_ttl_s: -1 }, /default_ttl_s: expected an integer/],
    [{ default_ttl: 5 }, /did you mean "default_ttl_s"/],
  ])("response_cache reports %j as a configuration error", (config, message) => {
    const { issues } = checked(responseCache.schema, config);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });
});

describe("what is kept over reloads", () => {
  it(
    "depends on max_bytes, default_ttl_s and vary_by; " +
      "once closed it stores nothing and aborts fetches in the background",
    async () => {
      const kept: { settings: unknown; value: { close(): void | Promise<void> } }[] = [];
      const clock = manualClock();
      const tools = madeUpTools({
        clock,
        keep(_name, settings, make) {
          const value = make();
          kept.push({ settings, value });
          return value;
        },
      });
      const asked: Exchange[] = [];
      const handle = instance(
        responseCache,
        { default_ttl_s: 5 },
        tools,
      )((exchange) => {
        asked.push(exchange);
        return asked.length === 2
          ? new Promise<Reply>(() => {})
          : ok({ "Cache-Control": "max-age=1, stale-while-revalidate=60" });
      });
      expect(kept.map(({ settings }) => settings)).toEqual([
        null,
        { maxBytes: 67_108_864, defaultTtlS: 5, places: [] },
      ]);
      await handle(anExchange());
      clock.advance(2_000);
      await handle(anExchange());
      expect(asked[1]!.call.aborted).toBe(false);
      await kept[1]!.value.close();
      expect(asked[1]!.call.aborted).toBe(true);
      for (let i = 0; i < 2; i++) await handle(anExchange());
      expect(asked.length).toBe(4);
    },
  );
});

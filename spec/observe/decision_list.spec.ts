import { describe, expect, it, onTestFinished, vi } from "vitest";
import { listDecisions, MAX_LOOKED, type ListQuestion } from "../../lib/observe/decision_list.ts";
import { DecisionRing } from "../../lib/observe/decisions.ts";
import { KEYS, LIMIT, remembering, tried } from "../support/remembered.ts";

const ALL: ListQuestion = { filter: {}, since: -Infinity, until: Infinity, before: null, limit: 100 };

function listing(count?: number) {
  const all = remembering(count);
  const list = async (filter: ListQuestion["filter"] = {}, changes: Partial<ListQuestion> = {}) =>
    (await listDecisions(all.metrics, { ...ALL, filter, ...changes }))!;
  const ids = async (filter: ListQuestion["filter"] = {}) => (await list(filter)).requests.map(({ id }) => id);
  return { ...all, list, ids };
}

describe("a list of decisions", () => {
  it("looks at a bounded number of them, and says where to go on", async () => {
    const { end, list } = listing(30_000);
    for (let i = 1; i <= MAX_LOOKED + 500; i++) end(`r${i}`, {}, { status: i <= 3 ? 500 : 200 });
    const first = await list({ status: "5xx" });
    expect(first).toMatchObject({
      requests: [],
      looked: MAX_LOOKED,
      matching: 0,
      before: expect.stringMatching(/^r501~/),
    });
    const second = await list({ status: "5xx" }, { before: first.before });
    expect(second.requests.map(({ id }) => id)).toEqual(["r3", "r2", "r1"]);
    expect(second).toMatchObject({ looked: 500, before: null });
  });

  it(
    "looks at those of a time alone, so that bars over a minute are seconds, " + "and the bound is one of that time",
    async () => {
      const { end, list, clock } = listing(30_000);
      const start = clock.wall();
      for (let i = 0; i < 600; i++) {
        end(`r${i}`);
        clock.advance(1_000);
      }
      for (let i = 0; i < MAX_LOOKED; i++) end(`late${i}`);
      const found = await list({}, { since: start + 60_000, until: start + 65_000, limit: 3 });
      expect(found).toMatchObject({ looked: 5, matching: 5, since: new Date(start + 60_000).toISOString() });
      expect(found.requests.map(({ id }) => id)).toEqual(["r64", "r63", "r62"]);
      expect(found.histogram).toMatchObject({ step_s: 1, bars: [{}, {}, {}, {}, {}] });
      const older = await list({}, { since: start + 60_000, until: start + 65_000, before: found.before });
      expect(older.requests.map(({ id }) => id)).toEqual(["r61", "r60"]);
      expect(older.before).toBeNull();
      expect(await list({}, { since: start + 700_000 })).toMatchObject({ looked: 0, since: null, before: null });
    },
  );

  it("ends a thousand behind the time that is asked for, however many are remembered", async () => {
    const { end, list, clock } = listing(30_000);
    for (let i = 0; i < 5_000; i++) end(`old${i}`);
    clock.advance(60_000);
    for (let i = 0; i < 5; i++) end(`new${i}`);
    const looked = vi.spyOn(DecisionRing.prototype, "before");
    onTestFinished(() => looked.mockRestore());
    expect(await list({}, { since: clock.wall() })).toMatchObject({ looked: 5, matching: 5, before: null });
    expect(looked.mock.calls.length).toBeLessThanOrEqual(1_010);
  });

  it("says no place to go on where the last one that fits is in the list", async () => {
    const { end, list } = listing();
    for (let i = 1; i <= 4; i++) end(`r${i}`, {}, { status: i % 2 === 0 ? 404 : 200 });
    expect(await list({ status: "404" }, { limit: 2 })).toMatchObject({ matching: 2, before: null });
    expect(await list({ status: "404" }, { limit: 1 })).toMatchObject({
      matching: 2,
      before: expect.stringMatching(/^r4~/),
    });
  });

  it("counts each upstream of a request once, and names of values that are many together", async () => {
    const { end, list } = listing();
    end("twice", {}, { tried: tried("a", 503, 1, tried("a", 503, 1, tried("b", null, 1))) });
    for (let i = 0; i < 25; i++)
      end(`r${i}`, { clientAddress: `10.0.0.${i}` }, { by: { name: "key_auth", scope: KEYS } });
    const { facets } = await list();
    expect(facets.upstream.values).toEqual([
      { value: "a", count: 1 },
      { value: "b", count: 1 },
    ]);
    expect([facets.client.values.length, facets.client.others]).toEqual([20, 6]);
    expect(facets.by.values[0]).toEqual({ value: "key_auth", count: 25 });
  });

  it("has at most 61 bars, whatever time it spans, each with its classes of statuses", async () => {
    for (const ms of [0, 1_000, 100_000, 86_400_000, 400 * 86_400_000]) {
      const { clock, end, list } = listing(200);
      for (let i = 0; i < 150; i++) {
        end(`r${i}`, {}, { status: i % 2 === 0 ? 200 : 502 });
        clock.advance(ms / 149);
      }
      const { bars, step_s: step } = (await list()).histogram;
      expect(bars.length).toBeLessThanOrEqual(61);
      expect(bars.reduce((sum, { status }) => sum + (status["2xx"] ?? 0), 0)).toBe(75);
      for (const { at, count, status } of bars) {
        expect((Date.parse(at) / 1_000) % step).toBe(0);
        expect((status["2xx"] ?? 0) + (status["5xx"] ?? 0)).toBe(count);
      }
    }
  });

  it("finds callers also where their ids are cut or not printable, and never tears a line", async () => {
    const { end, list, ids, find } = listing();
    const long = `https://issuer.example/users/${"x".repeat(80)}`;
    end(
      "long",
      {},
      {
        identity: long,
        status: 429,
        code: "rate_limited",
        by: { name: "rate_limit", scope: LIMIT },
        rule: "limit_min",
      },
    );
    end("odd", {}, { identity: "\u010aada\n\t\u2026" });
    end("none", {}, { code: "key_missing", status: 401 });
    expect(await ids({ caller: long })).toEqual(["long"]);
    expect(await ids({ caller: "other" })).toEqual([]);
    expect(await find("long")).toMatchObject({
      code: "rate_limited",
      rule: "limit_min",
      path: "/a/b",
      caller: expect.stringMatching(/^https.*…$/),
    });
    expect(await find("odd")).toMatchObject({ caller: "?ada???", code: null, rule: null, path: "/a/b" });
    expect((await list()).facets.caller.values.map(({ value }) => value)).toContain("?ada???");
  });

  it("leaves room for a try and the end of a path, however long all texts are", async () => {
    const { end, find } = listing();
    end(
      "i".repeat(39),
      { clientAddress: "c".repeat(60), method: "M".repeat(20), target: `/${"p".repeat(90)}` },
      {
        identity: "n".repeat(90),
        code: "k".repeat(40),
        rule: "r".repeat(90),
        by: { name: "x", scope: KEYS },
        status: 500,
        tried: tried("a", 500, 1),
      },
    );
    const found = await find("i".repeat(39));
    expect(found).toMatchObject({ tries: [{ upstream: "a" }], status: 500 });
    expect(found!.path).toMatch(/^\/p*…$/);
  });

  it("has the id of a trace, with all tries and the path beside it, where other texts leave room for it", async () => {
    const { end, find } = listing();
    const trace = "f0f067aa0ba902b7ffffffff00000001";
    const headers = ["traceparent", `00-${trace}-00f067aa0ba902b7-01`];
    const tries = tried("b", 200, 2, tried("a", null, 1));
    end("traced", { headers }, { tried: tries });
    end("spanned", { headers }, { span: { traceId: trace.replace("f0", "0a") } as never, identity: "ada" });
    const long = "n".repeat(60);
    end(
      "i".repeat(39),
      { headers, clientAddress: "c".repeat(39) },
      { identity: long, code: "k".repeat(20), tried: tries },
    );
    expect(await find("traced")).toMatchObject({ trace_id: trace, path: "/a/b", host: "shop.example", status: 200 });
    expect((await find("traced"))!.tries).toEqual([
      { upstream: "a", status: null, at_ms: 5, ms: 1 },
      { upstream: "b", status: 200, at_ms: 5, ms: 2 },
    ]);
    expect(await find("spanned")).toMatchObject({ trace_id: trace.replace("f0", "0a"), caller: "ada", tries: [] });
    expect(await find("i".repeat(39))).toMatchObject({ trace_id: null, tries: [{ upstream: "b" }] });
  });
});

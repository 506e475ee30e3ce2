import { describe, expect, it } from "vitest";
import { ApiError, type Now, type Point, type ProxyConfig, type Status } from "../../../lib/manager/assets/api.ts";
import { LiveState } from "../../../lib/manager/assets/live_state.ts";
import type { Shown } from "../../../lib/manager/assets/page.ts";

const STEP_MS = 5000;
const START = 100_000;
/** How far the gateway's clock is behind. */
const BEHIND_MS = 1_200_000;

function pointAt(ms: number): Point {
  return {
    at: new Date(ms).toISOString(),
    requests: 1,
    errors: 0,
    limited: 0,
    statuses: {},
    p50_ms: null,
    p95_ms: null,
    p99_ms: null,
  };
}

function statusOf(digest: string, uptime = 1): Status {
  return {
    ...{
      version: "1.0.0",
      state: "serving",
      ready: true,
      uptime_s: uptime,
      in_flight: 0,
      digest,
      loaded_at: new Date(0).toISOString(),
    },
    ...{
      counts: { services: 0, routes: 0, upstreams: 0 },
      last_reload: null,
      last_change: null,
      counters: null,
      workers: null,
      tests: null,
      plugin_faults: [],
      certificates: [],
      revocation_lists: [],
      source: null,
      acme: null,
      warnings: [],
    },
  };
}

const CONFIG: ProxyConfig = { services: [], plugins: [], global: { name: "shop", plugins: [] } };
const DOWN = new ApiError(502, { detail: "The admin interface does not answer." }, null);
const NO_SESSION = new ApiError(401, { code: "unauthenticated" }, null);

/** A gateway behind `ask`, and a hand on both clocks. */
function made(first: { fails?: ApiError | null } = {}) {
  const asked: string[] = [];
  const timers = new Set<{ at: number; run: () => void }>();
  const gateway = {
    fails: first.fails ?? null,
    digest: "a",
    uptime: 1,
    behind: 0,
    held: [] as (() => void)[],
    holds: false,
  };
  const page: { shown: Shown } = { shown: "total" };
  let now = START;
  const ended: ApiError[] = [];
  const answer = (path: string): unknown => {
    if (path.startsWith("/gateway?")) return CONFIG;
    const [tag, at] = [`${gateway.digest}.h`, now - gateway.behind];
    const known = new URLSearchParams(path.split("?")[1]).get("known");
    const figures = {
      requests_per_s: 1,
      errors_per_s: 0,
      limited_per_s: 0,
      statuses_per_s: {},
      p50_ms: null,
      p95_ms: null,
      p99_ms: null,
      in_flight: 0,
    };
    const step = Math.floor(at / STEP_MS) * STEP_MS;
    const stats = {
      at: new Date(at).toISOString(),
      window_s: 60,
      total: figures,
      unrouted: figures,
      codes_per_s: {},
      services: [],
      point: pointAt(step),
    };
    const past = { ...stats, step_s: STEP_MS / 1000, history: [pointAt(step - STEP_MS)] };
    const state = { status: statusOf(gateway.digest, gateway.uptime), health: { services: [] } };
    return { known: tag, ...(known !== tag && state), stats: known === null ? past : stats } satisfies Now;
  };
  const live: LiveState = new LiveState({
    ask<T>(_method: string, path: string): Promise<T> {
      asked.push(path);
      if (gateway.fails !== null) return Promise.reject(gateway.fails);
      const value = answer(path) as T;
      return gateway.holds ? new Promise((resolve) => gateway.held.push(() => resolve(value))) : Promise.resolve(value);
    },
    shown: () => page.shown,
    now: () => now,
    after(ms, run) {
      const timer = { at: now + ms, run };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    changed: () => {},
    ended: (error) => void ended.push(error),
  });
  const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
  return {
    ...{ live, gateway, asked, timers, page, ended, settle },
    async pass(ms: number) {
      now += ms;
      for (const timer of [...timers].filter(({ at }) => at <= now)) {
        timers.delete(timer);
        timer.run();
      }
      await settle();
    },
  };
}

async function connected() {
  const all = made();
  all.live.start();
  await all.settle();
  return all;
}

const startsOf = (history: readonly Point[]) => history.map(({ at }) => Date.parse(at));

describe("the known state of the gateway", () => {
  it("is asked for as a whole, then each second for what the page shows and what has changed", async () => {
    const { live, asked, page, pass } = await connected();
    expect(asked).toEqual(["/gateway/now?figures=total", "/gateway?secrets=masked"]);
    expect(live.known).toMatchObject({
      connection: "live",
      config: CONFIG,
      status: { digest: "a" },
      health: { services: [] },
      stepS: 5,
    });
    await pass(1000);
    page.shown = { service: "a & b" };
    await pass(1000);
    expect(asked.slice(2)).toEqual(["/gateway/now?figures=total&known=a.h", "/gateway/now?service=a+%26+b&known=a.h"]);
    expect(live.known).toMatchObject({ status: { digest: "a" }, health: { services: [] } });
  });

  it(
    "is asked for later after an answer that took long, " +
      "so that a page takes no more than a fifth of the gateway's time",
    async () => {
      const { gateway, asked, pass } = await connected();
      const asks = async (tookMs: number, pause: number) => {
        gateway.holds = true;
        await pass(pause);
        const before = asked.length;
        await pass(tookMs);
        gateway.holds = false;
        gateway.held.pop()!();
        await pass(0);
        return before;
      };
      const before = await asks(600, 1000);
      await pass(2399);
      expect(asked).toHaveLength(before);
      await asks(30_000, 1);
      await pass(4_999);
      expect(asked).toHaveLength(before + 1);
      await pass(1);
      expect(asked).toHaveLength(before + 2);
    },
  );

  it("adds each step to the history", async () => {
    const { live, pass } = await connected();
    for (let i = 0; i < 6; i++) await pass(1000);
    expect(startsOf(live.known.history)).toEqual([95_000, 100_000, 105_000]);
  });

  it("has no figures of services that the page has not asked for yet", async () => {
    const { live, page, pass } = await connected();
    page.shown = "busy";
    expect(live.known.stats).toMatchObject({ services: null, total: { requests_per_s: 1 } });
    await pass(1000);
    expect(live.known.stats!.services).toEqual([]);
  });

  it("reloads the configuration when its digest changes", async () => {
    const { gateway, asked, pass } = await connected();
    gateway.digest = "b";
    await pass(1000);
    await pass(1000);
    expect(asked.filter((path) => path.startsWith("/gateway?"))).toHaveLength(2);
  });

  it("goes by the gateway's clock, also where the browser's is 20 minutes ahead", async () => {
    const { live, gateway, pass } = made();
    gateway.behind = BEHIND_MS;
    live.start();
    await pass(0);
    expect([live.known.now, live.known.uptimeS]).toEqual([START - BEHIND_MS, 1]);
    for (let i = 0; i < 5; i++) await pass(1000);
    expect([live.known.now, live.known.uptimeS]).toEqual([START - BEHIND_MS + 5000, 6]);
    Object.assign(gateway, { digest: "restarted", uptime: 0 });
    await pass(1000);
    expect(live.known.uptimeS).toBe(0);
  });

  it("is forgotten on logout, and a reply that arrives later is ignored", async () => {
    const { live, gateway, settle, timers } = await connected();
    gateway.holds = true;
    void live.refresh();
    live.stop();
    for (const answer of gateway.held) answer();
    await settle();
    expect(timers.size).toBe(0);
    expect(live.known).toMatchObject({ config: null, status: null, health: null, stats: null, history: [] });
  });

  it("is not overwritten by an earlier request whose reply comes later", async () => {
    const { live, gateway, settle } = await connected();
    gateway.holds = true;
    void live.refresh();
    gateway.digest = "b";
    void live.refresh();
    for (const answer of gateway.held.reverse()) answer();
    await settle();
    expect(live.known.status!.digest).toBe("b");
  });
});

describe("a lost connection", () => {
  it("asks again at once, without a message to the user", async () => {
    const { live, gateway, asked, pass } = await connected();
    gateway.fails = DOWN;
    const before = asked.length;
    await pass(1000);
    expect([asked.length - before, live.known.connection]).toEqual([2, "lost"]);
    gateway.fails = null;
    await pass(1000);
    expect([live.known.connection, live.loss]).toEqual(["live", null]);
  });

  it("reports its reason and the next attempt, with pauses that grow to 15 s, and keeps what is known", async () => {
    const { live, gateway, pass } = await connected();
    gateway.fails = DOWN;
    await pass(1000);
    let now = START + 1000;
    const pauses: number[] = [];
    for (let i = 0; i < 7; i++) {
      const { why, retryAt } = live.loss!;
      expect(why).toBe("The admin interface does not answer.");
      pauses.push(retryAt! - now);
      now = retryAt!;
      await pass(pauses.at(-1)!);
    }
    expect(pauses).toEqual([1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
    expect(live.known.config).toEqual(CONFIG);
  });

  it("asks for everything when it is back, and the pauses start again", async () => {
    const { live, gateway, asked, pass } = await connected();
    gateway.fails = DOWN;
    await pass(1000);
    await pass(1000);
    gateway.fails = null;
    await pass(2000);
    expect([live.loss, asked.at(-1)]).toEqual([null, "/gateway/now?figures=total"]);
    gateway.fails = DOWN;
    await pass(1000);
    expect(live.loss!.retryAt).toBe(START + 6000);
  });

  it("asks at once when the user wants it", async () => {
    const { live, gateway, pass, settle } = await connected();
    gateway.fails = DOWN;
    await pass(1000);
    await pass(1000);
    gateway.fails = null;
    live.start();
    expect(live.loss).toMatchObject({ retryAt: null });
    await settle();
    expect([live.known.connection, live.loss]).toEqual(["live", null]);
  });

  it("reports its reason also when the first connection fails", async () => {
    const { live, settle } = made({ fails: DOWN });
    live.start();
    await settle();
    expect(live.known).toMatchObject({ status: null, connection: "lost" });
    expect(live.loss).toEqual({ why: "The admin interface does not answer.", retryAt: START + 1000 });
  });
});

describe("a session", () => {
  it("that is missing is reported once, and nothing more is asked", async () => {
    const { live, ended, settle, timers, asked } = made({ fails: NO_SESSION });
    live.start();
    await settle();
    expect([ended, timers.size, asked.length]).toEqual([[NO_SESSION], 0, 1]);
  });

  it("that ends is reported with the reply that says so, also to whoever asked", async () => {
    const { live, gateway, ended, pass, timers } = await connected();
    gateway.fails = NO_SESSION;
    await pass(1000);
    expect([ended, timers.size, live.known.status]).toEqual([[NO_SESSION], 0, null]);
    await expect(live.refresh()).rejects.toBe(NO_SESSION);
  });
});

describe("a hidden page", () => {
  it(
    "asks nothing, also before it was visible for the first time, keeps its state, " +
      "and asks for everything when it is visible",
    async () => {
      const { live, asked, timers, settle, pass } = await connected();
      live.pause();
      expect([timers.size, live.known.connection]).toEqual([0, "live"]);
      await pass(60_000);
      live.start();
      await settle();
      expect(asked.slice(2)).toEqual(["/gateway/now?figures=total"]);
    },
  );

  it("does not begin to ask again each second after one request of its own", async () => {
    const { live, timers } = await connected();
    live.pause();
    await live.refresh();
    expect(timers.size).toBe(0);
  });

  it("does not begin to ask again after its own request has failed", async () => {
    const { live, gateway, timers, asked } = await connected();
    live.pause();
    gateway.fails = DOWN;
    await expect(live.refresh()).rejects.toBe(DOWN);
    expect([timers.size, asked.length]).toEqual([0, 3]);
  });
});

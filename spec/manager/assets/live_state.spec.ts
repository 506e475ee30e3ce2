import { describe, expect, it } from "vitest";
import { ApiError, type Point, type ProxyConfig, type StatsWithHistory, type Status } from "../../../lib/manager/assets/api.ts";
import { LiveState, type EventStream } from "../../../lib/manager/assets/live_state.ts";

const STEP_MS = 5000;

class FakeStream implements EventStream {
  closed = false;
  readonly #listeners = new Map<string, ((event: { data?: unknown }) => void)[]>();

  addEventListener(type: string, listener: (event: { data?: unknown }) => void): void {
    this.#listeners.set(type, [...(this.#listeners.get(type) ?? []), listener]);
  }

  close(): void {
    this.closed = true;
  }

  send(type: string, value?: unknown): void {
    for (const listener of this.#listeners.get(type) ?? []) listener({ data: typeof value === "string" ? value : JSON.stringify(value) });
  }
}

function pointAt(ms: number, requests = 1): Point {
  return { at: new Date(ms).toISOString(), requests, errors: 0, limited: 0, p50_ms: null, p95_ms: null, p99_ms: null };
}

function statsAt(ms: number, history: readonly Point[] = []): StatsWithHistory {
  const total = { requests_per_s: 1, errors_per_s: 0, limited_per_s: 0, p50_ms: null, p95_ms: null, p99_ms: null, in_flight: 0 };
  return { at: new Date(ms).toISOString(), window_s: 60, total, services: [], point: pointAt(ms), step_s: STEP_MS / 1000, history };
}

function statusOf(digest: string): Status {
  return {
    ...{ version: "1.0.0", state: "serving", ready: true, uptime_s: 1, in_flight: 0, digest, loaded_at: new Date(0).toISOString() },
    ...{ counts: {}, last_reload: null, last_change: null, plugin_faults: [], certificates: [], warnings: [] },
  };
}

const CONFIG: ProxyConfig = { services: [], plugins: [], global: { name: "shop", plugins: [] } };

/** A gateway behind `ask`, and a hand on its clock. */
function start(first: { fails?: ApiError | null } = {}) {
  const streams: FakeStream[] = [];
  const asked: string[] = [];
  const timers = new Set<{ at: number; run: () => void }>();
  const gateway = { fails: first.fails ?? null, digest: "a", stats: statsAt(100_000, [pointAt(95_000)]), silent: false };
  let now = 100_000;
  let ended = 0;
  const live: LiveState = new LiveState({
    ask<T>(_method: string, path: string): Promise<T> {
      asked.push(path);
      if (gateway.silent) return new Promise<T>(() => {});
      if (gateway.fails !== null) return Promise.reject(gateway.fails);
      const answers: Record<string, unknown> = {
        "/gateway": CONFIG,
        "/gateway/status": statusOf(gateway.digest),
        "/gateway/health": { services: [] },
        "/gateway/stats": gateway.stats,
      };
      return Promise.resolve(answers[path] as T);
    },
    open() {
      const stream = new FakeStream();
      streams.push(stream);
      return stream;
    },
    now: () => now,
    after(ms, run) {
      const timer = { at: now + ms, run };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    changed: () => {},
    ended: () => (ended += 1),
  });
  return {
    ...{ live, gateway, streams, asked, timers },
    last: () => streams.at(-1)!,
    ended: () => ended,
    /** Lets answers arrive. */
    settle: () => new Promise<void>((resolve) => setImmediate(resolve)),
    pass(ms: number) {
      now += ms;
      for (const timer of [...timers].filter(({ at }) => at <= now)) {
        timers.delete(timer);
        timer.run();
      }
    },
  };
}

const DOWN = new ApiError(502, { detail: "The admin interface does not answer." }, null);
const NO_SESSION = new ApiError(401, { code: "unauthenticated" }, null);

async function connected() {
  const made = start();
  made.live.start();
  await made.settle();
  made.last().send("stats", statsAt(101_000));
  return made;
}

describe("the known state of the gateway", () => {
  it("requests the state once, then receives changes from the stream", async () => {
    const { live, last, settle } = start();
    live.start();
    expect(live.known.connection).toBe("connecting");
    await settle();
    expect(live.known).toMatchObject({ config: CONFIG, status: { digest: "a" }, health: { services: [] }, stepS: 5 });
    expect(live.known.connection).toBe("connecting");
    last().send("stats", statsAt(105_000));
    last().send("health", { services: [{ name: "shop", circuit_breaker: null, upstreams: [] }] });
    expect(live.known).toMatchObject({ connection: "live", health: { services: [{ name: "shop" }] } });
    expect(live.known.history.map(({ at }) => Date.parse(at))).toEqual([95_000, 100_000, 105_000]);
  });

  it("the known state of the gateway keeps newer data from the stream when an older reply arrives later", async () => {
    const { live, last, settle } = start();
    live.start();
    await Promise.resolve();
    await Promise.resolve();
    last().send("stats", statsAt(105_000));
    await settle();
    expect(live.known.history.map(({ at }) => Date.parse(at))).toEqual([95_000, 100_000, 105_000]);
  });

  it("the known state of the gateway advances the uptime only with new statistics", async () => {
    const { live, last, pass } = await connected();
    expect(live.known.uptimeS).toBe(1);
    pass(5_000);
    expect(live.known.uptimeS).toBe(1);
    last().send("stats", statsAt(106_000));
    expect(live.known.uptimeS).toBe(6);
    last().send("status", { ...statusOf("a"), uptime_s: 0 });
    expect(live.known.uptimeS).toBe(0);
  });

  it("the known state of the gateway reloads the configuration when its digest changes", async () => {
    const { live, asked, last, settle } = await connected();
    const before = asked.filter((path) => path === "/gateway").length;
    last().send("status", statusOf("a"));
    last().send("status", statusOf("b"));
    await settle();
    expect(asked.filter((path) => path === "/gateway").length).toBe(before + 1);
    expect(live.loss).toBeNull();
  });

  it("the known state of the gateway ignores an event that is not JSON", async () => {
    const { live, last } = await connected();
    const before = live.known;
    last().send("stats", "{");
    expect(live.known).toBe(before);
  });

  it("the known state of the gateway clears the state on logout, and ignores replies that arrive later", async () => {
    const { live, last, settle, timers } = await connected();
    const refreshed = live.refresh();
    const stream = last();
    live.stop();
    await refreshed;
    await settle();
    expect([stream.closed, timers.size]).toEqual([true, 0]);
    expect(live.known).toMatchObject({ config: null, status: null, health: null, stats: null, history: [] });
  });
});

describe("a lost connection", () => {
  it("a lost connection reconnects at once, without a message to the user", async () => {
    const { live, streams, last, settle } = await connected();
    last().send("error");
    expect(live.known.connection).toBe("lost");
    expect(live.loss).toBeNull();
    await settle();
    expect([streams.length, streams[0]!.closed]).toEqual([2, true]);
    last().send("stats", statsAt(106_000));
    expect(live.known.connection).toBe("live");
  });

  it("a lost connection reports its reason and the next attempt, with pauses that grow to 15 s", async () => {
    const { live, gateway, last, settle, pass } = await connected();
    gateway.fails = DOWN;
    last().send("error");
    const pauses: number[] = [];
    let now = 100_000;
    for (let i = 0; i < 7; i++) {
      await settle();
      const loss = live.loss!;
      expect(loss.why).toBe("The admin interface does not answer.");
      pauses.push(loss.retryAt! - now);
      now = loss.retryAt!;
      pass(pauses.at(-1)!);
      expect(live.loss).toMatchObject({ retryAt: null });
    }
    expect(pauses).toEqual([1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
    expect(live.known.config).toEqual(CONFIG);
  });

  it("a lost connection resets its pauses only after a successful reconnect", async () => {
    const { live, gateway, last, settle, pass, streams } = await connected();
    last().send("error");
    await settle();
    // The stream opens and breaks off before it has told anything: that is no recovery.
    last().send("error");
    expect(live.loss!.retryAt).toBe(101_000);
    pass(1000);
    await settle();
    last().send("error");
    expect(live.loss!.retryAt).toBe(103_000);
    pass(2000);
    await settle();
    last().send("stats", statsAt(107_000));
    expect(live.loss).toBeNull();
    gateway.fails = DOWN;
    last().send("error");
    await settle();
    expect(live.loss!.retryAt).toBe(104_000);
    expect(streams.length).toBe(4);
  });

  it("a lost connection covers a stream without data for ten seconds, and a reply that takes more than twelve", async () => {
    const { live, gateway, last, pass, settle } = await connected();
    gateway.silent = true;
    const stream = last();
    pass(9999);
    expect(live.known.connection).toBe("live");
    pass(1);
    expect([live.known.connection, stream.closed]).toEqual(["lost", true]);
    await settle();
    pass(12_000);
    expect(live.loss!.why).toContain("takes too long");
  });

  it("a lost connection reconnects when the user asks for it", async () => {
    const { live, gateway, last, settle } = await connected();
    gateway.fails = DOWN;
    last().send("error");
    await settle();
    gateway.fails = null;
    live.start();
    await settle();
    last().send("stats", statsAt(106_000));
    expect([live.known.connection, live.loss]).toEqual(["live", null]);
  });

  it("a lost connection reports its reason also when the first connection fails", async () => {
    const { live, settle } = start({ fails: DOWN });
    live.start();
    await settle();
    expect(live.known).toMatchObject({ status: null, connection: "lost" });
    expect(live.loss).toEqual({ why: "The admin interface does not answer.", retryAt: 101_000 });
  });
});

describe("a session", () => {
  it("a session reports a missing session as ended once, and sends no more requests", async () => {
    const { live, ended, settle, timers, asked } = start({ fails: NO_SESSION });
    live.start();
    await settle();
    expect([ended(), timers.size, asked]).toEqual([1, 0, ["/gateway/status"]]);
  });

  it("a session reports its end when the stream ends with it", async () => {
    const { live, gateway, ended, last, settle, timers } = await connected();
    gateway.fails = NO_SESSION;
    last().send("error");
    await settle();
    expect([ended(), timers.size, live.known.status]).toEqual([1, 0, null]);
  });

  it("a session reports its end when a request gets 401, and the request fails", async () => {
    const { live, gateway, ended } = await connected();
    gateway.fails = NO_SESSION;
    await expect(live.refresh()).rejects.toBe(NO_SESSION);
    expect(ended()).toBe(1);
  });
});

it("a hidden page has no stream and no timer, keeps its state, and continues when it is visible again", async () => {
  const { live, last, timers, settle } = await connected();
  live.pause();
  expect([last().closed, timers.size, live.known.connection]).toEqual([true, 0, "live"]);
  live.start();
  await settle();
  expect(last().closed).toBe(false);
});

import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { createLog } from "../../lib/base/log.ts";
import { WriteBatch } from "../../lib/base/event_loop.ts";
import type { Decision, Window } from "../../lib/store/counters.ts";
import { memoryCounters } from "../../lib/store/memory.ts";
import { RedisCounters, type RedisSettings } from "../../lib/store/redis.ts";
import { slotOf } from "../../lib/store/redis_cluster.ts";
import { SCRIPT } from "../../lib/store/redis_script.ts";
import { connect, readyEvent } from "../../lib/upstream/connect.ts";
import type { UpstreamTlsSettings } from "../../lib/upstream/contracts.ts";
import { UpstreamTls } from "../../lib/upstream/tls.ts";
import { ANYWHERE } from "../support/anywhere.ts";
import { counting, Model } from "../contracts/counters.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { random } from "../support/random.ts";
import { cluster, proxy, redis, until, type Redis } from "./redis.ts";

interface Made {
  readonly counters: RedisCounters;
  readonly errors: ReadonlyMap<string, number>;
  /** Lines of the log: "warn message server=…". */
  readonly log: string[];
}

/** Without a gateway around it. */
function countersOn(
  ports: number | readonly number[],
  settings: Partial<RedisSettings> = {},
  script?: string,
  tls: UpstreamTlsSettings | null = null,
  clock = systemClock,
): Made {
  const errors = new Map<string, number>();
  const log: string[] = [];
  const servers = [ports].flat().map((port) => ({ host: "127.0.0.1", port }));
  const fixed = {
    servers,
    isCluster: Array.isArray(ports),
    credentials: null,
    database: 0,
    timeoutMs: 5_000,
    onError: "deny",
    prefix: "p:",
  } as const;
  const counters = new RedisCounters(
    { ...fixed, ...settings },
    {
      clock,
      log: createLog({ write: (line) => log.push(line.trimEnd().replace(/^\S+ /, "")) }),
      local: memoryCounters(systemClock),
      errors,
      writeBatch: new WriteBatch(),
      random: Math.random,
      connect(server) {
        const socket = connect(
          { ...server, ...ANYWHERE },
          tls === null ? null : new UpstreamTls(tls).options(server.host),
          undefined,
        );
        return { socket, ready: readyEvent(socket) };
      },
      ...(script === undefined ? {} : { script }),
    },
  );
  onTestFinished(() => counters.close());
  counters.start();
  return { counters, errors, log };
}

const MINUTE: Window = { name: "minute", limit: 3, ms: 60_000 };

function limiterOf({ counters }: Made, window: Partial<Window> = {}, key = "k") {
  return counters.limiter(key, { windows: [{ ...MINUTE, ...window }], maxCallers: 100 });
}

async function isUp({ counters }: Made): Promise<void> {
  await until(
    () => counters.report.state === "up",
    () => JSON.stringify(counters.report),
  );
}

async function isDown({ counters }: Made, reason: RegExp): Promise<void> {
  await until(
    () => counters.report.state === "down" && counters.report.servers.some((each) => reason.test(each.reason ?? "")),
    () => JSON.stringify(counters.report),
  );
}

/** The time of a decision begins when its command is on the wire, at the end of this round of the event loop. */
const isWritten = () => new Promise((resolve) => setImmediate(resolve));

/** Lets time pass until it is down. */
async function passesUntilDown(made: Made, clock: ManualClock, reason: RegExp): Promise<void> {
  await until(
    () => (clock.advance(10), made.counters.report.servers.some((each) => reason.test(each.reason ?? ""))),
    () => JSON.stringify(made.counters.report),
  );
}

/**
 * Lets time pass until it is up, but none while the server is asked: a slow machine is not to be taken for a server
 * that hangs.
 */
async function passesUntilUp(made: Made, clock: ManualClock): Promise<void> {
  await until(
    () => {
      if (made.counters.report.servers[0]!.state === "down") clock.advance(10);
      return made.counters.report.state === "up";
    },
    () => JSON.stringify(made.counters.report),
  );
}

/**
 * The same script by a clock that a key has, in microseconds. Keys stay: the server would drop them by its own clock,
 * of which a second may pass between two decisions.
 */
const SET_CLOCK = SCRIPT.replace("redis.call('TIME')", "{ 0, redis.call('GET', 'clock') or 0 }").replace(
  "math.ceil(longest)",
  "math.ceil(longest) + 1e9",
);

/** Sets that clock. */
async function clockOf(server: Redis): Promise<(ms: number) => Promise<void>> {
  const control = net.connect(server.port, "127.0.0.1");
  onTestFinished(() => void control.destroy());
  await once(control, "connect");
  return async (ms) => {
    control.write(`SET clock ${ms * 1000}\r\n`);
    await once(control, "data");
  };
}

/** Of servers that decide for their own slots while others are missing. */
const PARTIAL = ["--cluster-require-full-coverage", "no"];

/**
 * Servers need seconds to become a Cluster. All that the tests of this file take begin with it, three at a time, in the
 * order in which they are taken.
 */
const begun = new Map<string, Promise<Redis[]>[]>();
const ends: (() => Promise<void>)[] = [];
beforeAll(() => {
  const lanes: Promise<unknown>[] = Array(3).fill(Promise.resolve());
  const all: readonly Parameters<typeof begunCluster>[] = [
    [3],
    [3],
    [3, 0, PARTIAL],
    [3, 1],
    [3, 0, PARTIAL],
    [3, 0, PARTIAL],
    [3, 0, PARTIAL],
    [3],
    [3],
  ];
  for (const [i, words] of all.entries()) {
    const [primaries, replicas, args] = words;
    const own = lanes[i % 3]!.then(() => cluster(primaries, replicas, args, (end) => void ends.push(end)));
    lanes[i % 3] = own.catch(() => {});
    const key = JSON.stringify(words);
    begun.set(key, [...(begun.get(key) ?? []), own]);
  }
});
afterAll(async () => void (await Promise.all(ends.map((end) => end()))));

function begunCluster(...words: [primaries: number, replicas?: number, args?: readonly string[]]): Promise<Redis[]> {
  return begun.get(JSON.stringify(words))!.shift()!;
}

describe("counters in Redis", () => {
  counting(async () => {
    const server = await redis();
    return { counters: countersOn(server.port, {}, SET_CLOCK).counters, at: await clockOf(server) };
  });

  it(
    "two processes with one server admit together exactly what the model admits: " + "windows of a second and a minute",
    async () => {
      const server = await redis();
      const at = await clockOf(server);
      const windows = [
        { name: "second", limit: 5, ms: 1_000 },
        { name: "minute", limit: 40, ms: 60_000 },
      ];
      const both = [0, 1].map(() =>
        countersOn(server.port, {}, SET_CLOCK).counters.limiter("k", { windows, maxCallers: 100 }),
      );
      const model = new Model(windows);
      const from = random(17);
      let now = 1_000;
      let admitted = 0;
      for (let i = 0; i < 800; i++) {
        now += from.pick([0, 0, 0, 1, 150, 250, 1_000, from.chance(0.02) ? 30_000 : 0]);
        await at(now);
        const decision = (await from.pick(both).decide("a")) as Decision;
        expect([i, decision]).toEqual([i, model.decide("a", now)]);
        if (decision.admitted) admitted++;
      }
      expect(admitted).toBeGreaterThan(80);
    },
  );

  it("requests of two processes at one moment: exactly N are admitted, by the server's own clock", async () => {
    const server = await redis();
    const both = [countersOn(server.port), countersOn(server.port)].map((made) => limiterOf(made, { limit: 60 }));
    const decisions = (await Promise.all(
      Array.from({ length: 400 }, (_, i) => both[i % 2]!.decide("a")),
    )) as Decision[];
    expect(decisions.filter(({ admitted }) => admitted)).toHaveLength(60);
    const refused = decisions.filter(({ admitted }) => !admitted);
    expect(refused.every(({ retryMs, resetMs }) => retryMs > 0 && retryMs <= 60_000 && resetMs[0] === retryMs)).toBe(
      true,
    );
  });

  it("every key has the prefix and a time to live of its longest window, and no name of a caller", async () => {
    const server = await redis();
    const made = countersOn(server.port, { prefix: "shop:" });
    const limiter = made.counters.limiter("k", {
      windows: [{ name: "second", limit: 9, ms: 1_000 }, MINUTE],
      maxCallers: 10,
    });
    for (let i = 0; i < 50; i++) await limiter.decide(`ip:10.0.0.${i}`);
    const keys = (await server.cli("KEYS", "*")).split("\n").filter((key) => !key.includes("{probe}"));
    expect(keys).toHaveLength(50);
    for (const key of keys) {
      expect(key).toMatch(/^shop:\{[\w-]{22}\}$/);
      const left = Number(await server.cli("PTTL", key));
      expect(left).toBeGreaterThan(1_000);
      expect(left).toBeLessThanOrEqual(60_000);
      expect(await server.cli("GET", key)).not.toContain("10.0.0.");
    }
  });

  it("a caller takes at most 900 bytes in the server with one limit of 64 or more, and 2 kB with three", async () => {
    const server = await redis();
    const made = countersOn(server.port);
    const windows = [
      { name: "second", limit: 64, ms: 1_000_000 },
      { name: "minute", limit: 6_400, ms: 6_000_000 },
      { name: "hour", limit: 64, ms: 36_000_000 },
    ];
    const sizes = await Promise.all(
      [windows.slice(0, 1), windows].map(async (some) => {
        const limiter = made.counters.limiter(`k${some.length}`, { windows: some, maxCallers: 10 });
        await Promise.all(Array.from({ length: 64 }, () => limiter.decide("a")));
        const keys = (await server.cli("KEYS", "*")).split("\n").filter((key) => !key.includes("{probe}"));
        return Promise.all(keys.map(async (key) => Number(await server.cli("MEMORY", "USAGE", key))));
      }),
    );
    const all = sizes.flat();
    expect(Math.min(...all)).toBeLessThanOrEqual(900);
    expect(Math.max(...all)).toBeLessThanOrEqual(2_000);
    expect(Math.max(...all)).toBeGreaterThan(500);
  });

  it("calls of one round of the event loop arrive in one write on one connection", async () => {
    const server = await redis();
    const between = await proxy(server.port);
    const made = countersOn(between.port);
    await isUp(made);
    const before = between.chunks;
    await Promise.all(Array.from({ length: 40 }, (_, i) => limiterOf(made).decide(`caller ${i}`)));
    expect(between.chunks - before).toBe(1);
    expect(between.accepted).toBe(1);
  });
});

describe("a server of rate counters", () => {
  it("that forgets the script gets it again, and no decision is lost", async () => {
    const server = await redis();
    const made = countersOn(server.port);
    await isUp(made);
    await server.cli("SCRIPT", "FLUSH");
    const limiter = limiterOf(made, { limit: 20 });
    const decisions = (await Promise.all(Array.from({ length: 30 }, () => limiter.decide("a")))) as Decision[];
    expect(decisions.filter(({ admitted }) => admitted)).toHaveLength(20);
    expect(made.log.filter((line) => line.startsWith("warn"))).toEqual([]);
  });

  it("that restarts empty is used again, and its state is logged once for each change", async () => {
    const server = await redis();
    const made = countersOn(server.port);
    await isUp(made);
    const limiter = limiterOf(made);
    for (let i = 0; i < 3; i++) expect(await limiter.decide("a")).toMatchObject({ admitted: true });
    expect(await limiter.decide("a")).toMatchObject({ admitted: false });
    await server.stop();
    await isDown(made, /ECONNREFUSED/);
    for (let i = 0; i < 5; i++) expect(await limiter.decide("a")).toBe("deny");
    await server.restart();
    await isUp(made);
    expect(await limiter.decide("a")).toMatchObject({ admitted: true, remaining: [2] });
    const address = `127.0.0.1:${server.port}`;
    expect(made.log).toEqual([
      `info  rate counters are shared servers=${address}`,
      expect.stringMatching(
        new RegExp(
          String.raw`^warn {2}rate counters are not shared: their server cannot be used server=\S+ ` +
            String.raw`reason="(the server closed the connection|connect ECONNREFUSED .*)" ` +
            String.raw`on_error=deny$`,
        ),
      ),
      `info  rate counters are shared servers=${address}`,
    ]);
    expect(made.errors.get("connection")).toBe(5);
  });

  it("that restarts at once loses no decision that comes while the connection is opened again", async () => {
    const server = await redis();
    const between = await proxy(server.port);
    let skipped = 0;
    const made = countersOn(between.port, {}, undefined, null, {
      ...systemClock,
      now: () => systemClock.now() + skipped,
    });
    await isUp(made);
    // A connection that is lost within its first second counts as failed.
    skipped += 2_000;
    between.cut();
    while (made.counters.report.servers[0]!.state !== "connecting")
      await new Promise((resolve) => setImmediate(resolve));
    expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true });
    expect(made.log.filter((line) => line.startsWith("warn"))).toEqual([]);
  });

  it(
    "that hangs costs its decisions timeout_ms until it has been silent for three times as long, " +
      "further ones nothing, and is used again when it goes on",
    async () => {
      const server = await redis();
      const clock = manualClock();
      const made = countersOn(server.port, { timeoutMs: 50, onError: "local" }, undefined, null, clock);
      await isUp(made);
      const limiter = limiterOf(made);
      expect(await limiter.decide("a")).toMatchObject({ admitted: true, remaining: [2] });
      server.process.kill("SIGSTOP");
      onTestFinished(() => void server.process.kill("SIGCONT"));
      // Counted in memory, from the beginning.
      const first = Promise.all([limiter.decide("a"), limiter.decide("a")]);
      await isWritten();
      clock.advance(50);
      expect(await first).toMatchObject([
        { admitted: true, remaining: [2] },
        { admitted: true, remaining: [1] },
      ]);
      await passesUntilDown(made, clock, /no answer within 150 ms/);
      expect(limiter.decide("a")).toMatchObject({ admitted: true, remaining: [0] });
      expect(limiter.decide("a")).toMatchObject({ admitted: false });
      await passesUntilDown(made, clock, /no answer within 1?0?00? ms/);
      server.process.kill("SIGCONT");
      await passesUntilUp(made, clock);
      expect((await limiter.decide("b")) as Decision).toMatchObject({ admitted: true, remaining: [2] });
      expect([...made.errors]).toEqual([
        ["timeout", 2],
        ["connection", 2],
        ["server", 0],
        ["queue", 0],
      ]);
    },
  );

  it("behind a network that swallows packets is given up, and used again when packets pass", async () => {
    const server = await redis();
    const between = await proxy(server.port);
    const clock = manualClock();
    const made = countersOn(between.port, { timeoutMs: 50 }, undefined, null, clock);
    await isUp(made);
    between.swallows = true;
    const swallowed = limiterOf(made).decide("a");
    await isWritten();
    clock.advance(50);
    expect(await swallowed).toBe("deny");
    await passesUntilDown(made, clock, /no answer within/);
    between.swallows = false;
    await passesUntilUp(made, clock);
    expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true });
  });

  it("that is out of memory is not used until it has memory", async () => {
    const server = await redis(["--maxmemory-policy", "noeviction"]);
    const made = countersOn(server.port);
    await isUp(made);
    await server.cli("CONFIG", "SET", "maxmemory", "1");
    expect(await limiterOf(made).decide("a")).toBe("deny");
    await isDown(made, /^the script: OOM/);
    await server.cli("CONFIG", "SET", "maxmemory", "0");
    await isUp(made);
    expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true });
  });

  it("that is a replica is used once it is a primary, and no longer when it becomes a replica", async () => {
    const primary = await redis();
    const server = await redis(["--replicaof", `127.0.0.1 ${primary.port}`]);
    const made = countersOn(server.port);
    await isDown(made, /READONLY|MASTERDOWN|LOADING/);
    expect(await limiterOf(made).decide("a")).toBe("deny");
    await server.cli("REPLICAOF", "NO", "ONE");
    await isUp(made);
    expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true, remaining: [2] });
    await server.cli("REPLICAOF", "127.0.0.1", String(primary.port));
    await until(async () => (await server.cli("ROLE")).includes("connected"));
    expect(await limiterOf(made).decide("a")).toBe("deny");
    await isDown(made, /READONLY/);
  });

  it("that runs another script for too long is not used until that ends", async () => {
    const server = await redis(["--lua-time-limit", "20"]);
    const made = countersOn(server.port);
    await isUp(made);
    const endless = server.cli("EVAL", "while true do end", "0").catch(() => {});
    await until(async () => (await server.cli("PING")).startsWith("BUSY"));
    expect(await limiterOf(made).decide("a")).toBe("deny");
    await isDown(made, /BUSY/);
    await server.cli("SCRIPT", "KILL");
    await endless;
    await isUp(made);
    expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true });
  });

  it("that still loads its data is used once it has", async () => {
    const server = await redis();
    await server.cli("EVAL", "for i = 1, 60000 do redis.call('SET', 'k' .. i, 1) end", "0");
    await server.cli("SAVE");
    await server.stop();
    // Each key takes a millisecond, until that has been seen.
    writeFileSync(
      join(server.folder, "slow.conf"),
      "key-load-delay 1000\nloading-process-events-interval-bytes 1024\n",
    );
    await server.restart("SIGKILL", [join(server.folder, "slow.conf"), ...server.args], "Server initialized");
    const made = countersOn(server.port);
    await isDown(made, /LOADING/);
    await server.cli("CONFIG", "SET", "key-load-delay", "0");
    await isUp(made);
    expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true });
  });

  it("with a spoiled key fails that caller's decisions only, and logs it once", async () => {
    const server = await redis();
    const made = countersOn(server.port);
    const limiter = limiterOf(made);
    await limiter.decide("a");
    const key = (await server.cli("KEYS", "p:*")).split("\n").find((each) => !each.includes("probe"))!;
    await server.cli("SET", key, "something else");
    expect(await limiter.decide("a")).toBe("deny");
    expect(await limiter.decide("a")).toBe("deny");
    expect(await limiter.decide("b")).toMatchObject({ admitted: true });
    expect(made.counters.report.state).toBe("up");
    expect(made.log.filter((line) => line.startsWith("warn"))).toEqual([
      expect.stringMatching(/the server of the rate counters refused a decision server=\S+ reason="the script: ERR/),
    ]);
    expect(made.errors.get("server")).toBe(2);
  });

  it("whose clock goes back refuses no longer than a window", async () => {
    const server = await redis();
    const at = await clockOf(server);
    const made = countersOn(server.port, {}, SET_CLOCK);
    const limiter = limiterOf(made);
    await at(10_000_000);
    for (let i = 0; i < 3; i++) await limiter.decide("a");
    await at(1_000_000);
    expect(await limiter.decide("a")).toEqual({ admitted: false, remaining: [0], resetMs: [60_000], retryMs: 60_000 });
    await at(1_059_999);
    expect(await limiter.decide("a")).toEqual({ admitted: false, remaining: [0], resetMs: [1], retryMs: 1 });
    await at(1_060_000);
    for (let i = 0; i < 3; i++) expect(await limiter.decide("a")).toMatchObject({ admitted: true, remaining: [2 - i] });
    expect(await limiter.decide("a")).toMatchObject({ admitted: false, retryMs: 60_000 });
  });

  it("whose clock goes back keeps the counts of every window, also of those that are not full", async () => {
    const server = await redis();
    const at = await clockOf(server);
    const windows = [
      { name: "second", limit: 2, ms: 1_000 },
      { name: "hour", limit: 60, ms: 3_600_000 },
    ];
    const limiter = countersOn(server.port, {}, SET_CLOCK).counters.limiter("k", { windows, maxCallers: 100 });
    await at(10_000_000);
    for (let i = 0; i < 2; i++) await limiter.decide("a");
    await at(1_000_000);
    expect(await limiter.decide("a")).toEqual({
      admitted: false,
      remaining: [0, 58],
      resetMs: [1_000, 3_600_000],
      retryMs: 1_000,
    });
    await at(1_001_000);
    expect(await limiter.decide("a")).toEqual({
      admitted: true,
      remaining: [1, 57],
      resetMs: [1_000, 3_599_000],
      retryMs: 0,
    });
  });

  it("admits the last of 999,999,999,999,999 requests of a limit, and no further one", async () => {
    const server = await redis();
    const made = countersOn(server.port);
    const limit = 999_999_999_999_999;
    const limiter = limiterOf(made, { limit });
    expect(await limiter.decide("a")).toMatchObject({ admitted: true, remaining: [limit - 1] });
    // Counted up to all except one, in 64 marks of the time that the first one has.
    const key = (await server.cli("KEYS", "p:*")).split("\n").find((each) => !each.includes("probe"))!;
    const count = "local old = redis.call('GET', KEYS[1]); local mark = string.sub(old, -8)";
    const batch = Math.ceil(limit / 64);
    const text = `struct.pack('>Hc0dd', 6, 'minute', ${batch}, ${limit - 1}) .. string.rep(mark, 64)`;
    await server.cli("EVAL", `${count} redis.call('SET', KEYS[1], ${text}, 'KEEPTTL')`, "1", key);
    expect(await limiter.decide("a")).toMatchObject({ admitted: true, remaining: [0] });
    expect(await limiter.decide("a")).toMatchObject({ admitted: false, remaining: [0] });
  });
});

describe("a server of rate counters that asks for credentials", () => {
  async function withUsers(): Promise<Redis> {
    const server = await redis();
    await server.cli(
      "ACL",
      "SETUSER",
      "gateway",
      "on",
      ">secret-1",
      "~p:*",
      "+eval",
      "+evalsha",
      "+get",
      "+set",
      "+time",
    );
    await server.cli("ACL", "SETUSER", "default", "off");
    return server;
  }

  it(
    "gets user and password, and needs to allow only eval, evalsha, get, " + "set and time on keys with the prefix",
    async () => {
      const server = await withUsers();
      const made = countersOn(server.port, { credentials: { user: "gateway", password: "secret-1" } });
      expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true });
      await isUp(made);
    },
  );

  it("gets the password alone for the default user", async () => {
    const server = await redis(["--requirepass", "secret 2"]);
    const made = countersOn(server.port, { credentials: { user: null, password: "secret 2" } });
    expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true });
  });

  it.each([
    ["a wrong password", { credentials: { user: "gateway", password: "wrong-secret" } }, /^AUTH: WRONGPASS$/],
    ["no credentials", {}, /^the script: NOAUTH/],
    [
      "a prefix that the user may not use",
      { credentials: { user: "gateway", password: "secret-1" }, prefix: "q:" },
      /NOPERM|ACL failure|can't access/,
    ],
  ])("is not used with %s, and nothing that is reported has the password", async (_what, settings, reason) => {
    const server = await withUsers();
    const made = countersOn(server.port, settings);
    await isDown(made, reason);
    expect(await limiterOf(made).decide("a")).toBe("deny");
    expect(JSON.stringify([made.log, made.counters.report])).not.toContain("secret");
  });

  it("whose user may send scripts but not run cached ones is not used, and that is logged once", async () => {
    const server = await redis();
    await server.cli("ACL", "SETUSER", "gateway", "on", ">secret-1", "~p:*", "+eval", "+get", "+set", "+time");
    const made = countersOn(server.port, { credentials: { user: "gateway", password: "secret-1" } });
    await isDown(made, /^the script: NOPERM/);
    expect(made.log).toHaveLength(1);
  });

  it("that has no password gives AUTH an error, which is reported by its code", async () => {
    const server = await redis();
    const made = countersOn(server.port, { credentials: { user: "gateway", password: "secret-1" } });
    await isDown(made, /^AUTH: WRONGPASS$/);
  });

  it("keeps the keys in the database that is named", async () => {
    const server = await redis();
    const made = countersOn(server.port, { database: 7 });
    expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true });
    expect(await server.cli("-n", "0", "DBSIZE")).toBe("0");
    expect(Number(await server.cli("-n", "7", "DBSIZE"))).toBeGreaterThan(0);
  });

  it("without that many databases is not used", async () => {
    const server = await redis();
    const made = countersOn(server.port, { database: 99 });
    await isDown(made, /^SELECT: ERR DB index is out of range/);
  });
});

describe("a server of rate counters behind TLS", () => {
  const file = (server: Redis, name: string) => ({ content: readFileSync(join(server.folder, name)) });

  it("is verified by the CA that is named, and gets the client certificate", async () => {
    const server = await redis([], true);
    const made = countersOn(server.port, {}, undefined, {
      ca: file(server, "ca.pem"),
      cert: file(server, "client.pem"),
      key: file(server, "client.key"),
      verify: true,
    });
    expect(await limiterOf(made).decide("a")).toMatchObject({ admitted: true });
  });

  it.each([
    ["a CA that did not sign its certificate", () => ({ verify: true }), /self-signed|unable to (verify|get)/],
    [
      "another name",
      (server: Redis) => ({ ca: file(server, "ca.pem"), servername: "other.example", verify: true }),
      /other\.example/,
    ],
    [
      "no client certificate",
      (server: Redis) => ({ ca: file(server, "ca.pem"), verify: true }),
      /^TLS: [\w/ ]*alert certificate required$/,
    ],
  ])("is not used with %s", async (_what, settings, reason) => {
    const server = await redis([], true);
    const made = countersOn(server.port, {}, undefined, settings(server));
    await isDown(made, reason);
    expect(await limiterOf(made).decide("a")).toBe("deny");
  });

  it("is not used without TLS", async () => {
    const server = await redis([], true);
    await isDown(countersOn(server.port), /./);
  });
});

describe("a Cluster of servers of rate counters", () => {
  it("has each caller's key on one server, and admits exactly N over two processes", async () => {
    const nodes = await begunCluster(3);
    const both = [countersOn(nodes[0]!.port && [nodes[0]!.port]), countersOn([nodes[2]!.port])];
    for (const made of both) await isUp(made);
    expect(both[0]!.counters.report.servers).toHaveLength(3);
    const limiters = both.map((made) => limiterOf(made, { limit: 10 }));
    const callers = Array.from({ length: 30 }, (_, i) => `caller ${i}`);
    for (const caller of callers) {
      const decisions = (await Promise.all(
        Array.from({ length: 24 }, (_, i) => limiters[i % 2]!.decide(caller)),
      )) as Decision[];
      expect([caller, decisions.filter(({ admitted }) => admitted).length]).toEqual([caller, 10]);
    }
    const sizes = await Promise.all(nodes.map(async (node) => Number(await node.cli("DBSIZE"))));
    expect(sizes.every((size) => size > 0)).toBe(true);
    expect(both.flatMap(({ log }) => log.filter((line) => line.startsWith("warn")))).toEqual([]);
  });

  it("whose slots move is followed by MOVED and ASK, and no decision is lost", async () => {
    const nodes = await begunCluster(3);
    const made = countersOn(nodes.map(({ port }) => port));
    await isUp(made);
    const limiter = limiterOf(made, { limit: 100 });
    const ids = await Promise.all(nodes.map((node) => node.cli("CLUSTER", "MYID")));
    await limiter.decide("a");
    const owners = await Promise.all(
      nodes.map(async (node) =>
        (await node.cli("KEYS", "p:*")).split("\n").filter((key) => key.includes("{") && !key.includes("probe")),
      ),
    );
    const from = owners.findIndex((keys) => keys.length > 0);
    const to = (from + 1) % 3;
    const slot = String(slotOf(/\{(.*)\}/.exec(owners[from]![0]!)![1]!));
    expect(await nodes[from]!.cli("CLUSTER", "KEYSLOT", owners[from]![0]!)).toBe(slot);
    // While it moves, the old server answers ASK for keys that it no longer has.
    await nodes[to]!.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from]!);
    await nodes[from]!.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to]!);
    await nodes[from]!.cli("MIGRATE", "127.0.0.1", String(nodes[to]!.port), owners[from]![0]!, "0", "1000");
    expect(await limiter.decide("a")).toMatchObject({ admitted: true, remaining: [98] });
    for (const node of nodes) await node.cli("CLUSTER", "SETSLOT", slot, "NODE", ids[to]!);
    const decisions = (await Promise.all(Array.from({ length: 10 }, () => limiter.decide("a")))) as Decision[];
    expect(decisions.map(({ remaining }) => remaining[0])).toEqual([97, 96, 95, 94, 93, 92, 91, 90, 89, 88]);
    expect(made.counters.report.state).toBe("up");
    expect([...made.errors.values()].every((count) => count === 0)).toBe(true);
  });

  it("with a server that is down decides for the callers of the other servers", async () => {
    const nodes = await begunCluster(3, 0, PARTIAL);
    const made = countersOn(nodes.map(({ port }) => port));
    await isUp(made);
    await nodes[1]!.stop();
    await isDown(made, /ECONNREFUSED/);
    const limiter = limiterOf(made);
    const answers = await Promise.all(Array.from({ length: 60 }, (_, i) => limiter.decide(`caller ${i}`)));
    expect(answers.filter((each) => each === "deny").length).toBeGreaterThan(5);
    expect(answers.filter((each) => typeof each === "object" && each.admitted).length).toBeGreaterThan(20);
    expect(made.log.filter((line) => line.startsWith("warn"))).toHaveLength(1);
  });

  it("whose replica takes over is followed to it", async () => {
    const nodes = await begunCluster(3, 1);
    const made = countersOn([nodes[0]!.port]);
    await isUp(made);
    const limiter = limiterOf(made, { limit: 5 });
    const callers = Array.from({ length: 20 }, (_, i) => `caller ${i}`);
    for (const caller of callers) await limiter.decide(caller);
    const roles = await Promise.all(nodes.map(async (node) => (await node.cli("ROLE")).split("\n")));
    const first = roles.find(([role]) => role === "slave");
    const replica = nodes[roles.indexOf(first!)]!;
    // Connected, it may still have to get what was written since its copy was made.
    const primary = nodes.find(({ port }) => String(port) === first![2])!;
    await until(async () => (await replica.cli("ROLE")).split("\n")[4] === (await primary.cli("ROLE")).split("\n")[1]);
    await replica.cli("CLUSTER", "FAILOVER", "TAKEOVER");
    await until(async () => (await replica.cli("ROLE")).startsWith("master"));
    for (const caller of callers)
      expect([caller, await limiter.decide(caller)]).toMatchObject([caller, { admitted: true, remaining: [3] }]);
    await until(() => made.counters.report.servers.some(({ address }) => address === `127.0.0.1:${replica.port}`));
    await isUp(made);
  });

  it.each(["moves", "no server has"])(
    "is used while the slot of the key that is written first on a connection %s",
    async (what) => {
      const nodes = await begunCluster(3, 0, PARTIAL);
      const slot = await nodes[0]!.cli("CLUSTER", "KEYSLOT", "p:{probe}");
      const from = nodes[Math.floor((Number(slot) * 3) / 16_384)]!;
      const to = nodes.find((node) => node !== from)!;
      if (what === "moves") {
        await to.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", await from.cli("CLUSTER", "MYID"));
        await from.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", await to.cli("CLUSTER", "MYID"));
      } else {
        for (const node of nodes) await node.cli("CLUSTER", "DELSLOTS", slot);
      }
      const made = countersOn([from.port]);
      await until(
        () => [...made.counters.servers.connections].filter(({ state }) => state === "up").length === 3,
        () => JSON.stringify(made.counters.report),
      );
      for (let i = 0; i < 20; i++)
        expect([i, await limiterOf(made).decide(`caller ${i}`)]).toMatchObject([i, { admitted: true }]);
    },
  );

  it("with a hash slot that no server has decides for the callers of all other slots", async () => {
    const nodes = await begunCluster(3, 0, PARTIAL);
    const made = countersOn([nodes[0]!.port]);
    const limiter = limiterOf(made);
    await limiter.decide("lost");
    const keys = await Promise.all(nodes.map(async (node) => (await node.cli("KEYS", "p:*")).split("\n")));
    const slot = String(
      slotOf(/\{(.*)\}/.exec(keys.flat().find((key) => key.includes("{") && !key.includes("probe"))!)![1]!),
    );
    for (const node of nodes) await node.cli("CLUSTER", "DELSLOTS", slot);
    const other = countersOn([nodes[0]!.port]);
    await until(() => other.counters.report.state === "down");
    const limiters = limiterOf(other);
    expect(await limiters.decide("lost")).toBe("deny");
    for (let i = 0; i < 20; i++)
      expect([i, await limiters.decide(`caller ${i}`)]).toMatchObject([i, { admitted: true }]);
    expect([...other.errors]).toEqual([
      ["timeout", 0],
      ["connection", 0],
      ["server", 1],
      ["queue", 0],
    ]);
  });

  it("is used by a user that may also read the table of slots and send ASKING", async () => {
    const nodes = await begunCluster(3);
    for (const node of nodes)
      await node.cli(
        "ACL",
        "SETUSER",
        "gateway",
        "on",
        ">secret-1",
        "~p:*",
        "+eval",
        "+evalsha",
        "+get",
        "+set",
        "+time",
        "+cluster|slots",
        "+asking",
      );
    const made = countersOn(
      nodes.map(({ port }) => port),
      { credentials: { user: "gateway", password: "secret-1" } },
    );
    await isUp(made);
    const limiter = limiterOf(made);
    for (let i = 0; i < 20; i++) expect(await limiter.decide(`caller ${i}`)).toMatchObject({ admitted: true });
    await nodes[0]!.cli("ACL", "SETUSER", "gateway", "-cluster|slots");
    const other = countersOn([nodes[0]!.port], { credentials: { user: "gateway", password: "secret-1" } });
    await isDown(other, /^CLUSTER SLOTS: NOPERM/);
  });

  it("is found out from one of its servers, too", async () => {
    const nodes = await begunCluster(3);
    const made = countersOn(nodes[1]!.port);
    const limiter = limiterOf(made, { limit: 2 });
    const answers = (await Promise.all(
      Array.from({ length: 60 }, (_, i) => limiter.decide(`caller ${i % 20}`)),
    )) as Decision[];
    expect(answers.filter(({ admitted }) => admitted)).toHaveLength(40);
    await until(() => made.counters.report.servers.length === 3);
    await isUp(made);
  });
});

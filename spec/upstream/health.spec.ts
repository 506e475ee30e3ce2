import { describe, expect, it } from "vitest";
import type { LogFields } from "../../lib/base/log.ts";
import { Health } from "../../lib/upstream/health.ts";
import type { HealthSettings } from "../../lib/upstream/contracts.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpTools } from "../support/exercise.ts";

const PASSIVE = { maxFailures: 3, windowMs: 1000, ejectMs: 100, statuses: [] as number[], slowStartMs: 0 };

function bench(
  settings: { active?: HealthSettings["active"]; passive?: Partial<HealthSettings["passive"]> } = {},
  mayEject = () => true,
) {
  const clock = manualClock();
  const { log, lines } = madeUpTools();
  let changes = 0;
  const health = new Health({ clock, log, service: "s", upstream: "u", mayEject, changed: () => void changes++ });
  const configure = (next: typeof settings) =>
    health.configure({ active: next.active ?? null, passive: { ...PASSIVE, ...next.passive } });
  configure(settings);
  const fail = (times: number) => {
    for (let i = 0; i < times; i++) health.countFailure("connect ECONNREFUSED");
  };
  const said = () => lines.map(({ level, message, fields }) => `${level} ${message}${reasonOf(fields)}`);
  return { clock, health, fail, said, configure, changes: () => changes };
}

const reasonOf = (fields: LogFields | undefined) =>
  fields?.["reason"] === undefined ? "" : ` (${String(fields["reason"])})`;

describe("active checks", () => {
  const active = { healthyThreshold: 2, unhealthyThreshold: 3 };
  const run = (health: Health, verdicts: string) => {
    for (const verdict of verdicts) health.checked(verdict === "+" ? null : "status 500");
  };

  it.each([
    ["", "unknown"],
    ["+", "unknown"],
    ["++", "healthy"],
    ["--", "unknown"],
    ["---", "unhealthy"],
    ["+-+-+-", "unknown"],
    ["--+---", "unhealthy"],
    ["++--+--", "healthy"],
    ["++---", "unhealthy"],
    ["---+", "unhealthy"],
    ["---+-+-+", "unhealthy"],
    ["---++", "healthy"],
  ])("active checks lead, after %j, to %s", (verdicts, state) => {
    const { health } = bench({ active });
    run(health, verdicts);
    expect(health.report.state).toBe(state);
    expect(health.usable).toBe(state !== "unhealthy");
  });

  it("active checks log a change once, with its reason and time", () => {
    const { health, said, clock } = bench({ active });
    clock.advance(5000);
    run(health, "-----++++");
    expect(said()).toEqual([
      "warn upstream unhealthy: its checks fail (status 500)",
      "info upstream healthy: its checks pass",
    ]);
    expect(health.report).toEqual({ state: "healthy", since: Date.UTC(2026, 0, 1) + 5000, reason: null, until: null });
  });

  it("active checks do not count after they are switched off", () => {
    const { health, configure } = bench({ active });
    run(health, "---");
    configure({});
    expect(health.usable).toBe(true);
    expect(health.report).toEqual({ state: "unknown", since: null, reason: null, until: null });
    run(health, "---");
    expect(health.usable).toBe(true);
  });
});

it("the log speaks of a change only once it has been told to all, who may be other threads", () => {
  const told: boolean[] = [];
  const seen: unknown[] = [];
  const note = (message: string) => void seen.push([message.split(":")[0], told.at(-1)]);
  const log = { ...madeUpTools().log, warn: note, info: note };
  const clock = manualClock();
  const health: Health = new Health({
    clock,
    log,
    service: "s",
    upstream: "u",
    mayEject: () => true,
    changed: () => void told.push(health.usable),
  });
  health.configure({ active: { healthyThreshold: 1, unhealthyThreshold: 1 }, passive: { ...PASSIVE, maxFailures: 1 } });
  health.checked("status 500");
  health.checked(null);
  health.countFailure("connect ECONNREFUSED");
  clock.advance(100);
  expect(seen).toEqual([
    ["upstream unhealthy", false],
    ["upstream healthy", true],
    ["upstream ejected", false],
    ["upstream back", true],
  ]);
});

describe("passive checks", () => {
  it("passive checks eject an upstream for eject_ms after max_failures within the window", () => {
    const { health, fail, clock, said } = bench();
    fail(2);
    expect(health.usable).toBe(true);
    fail(1);
    expect(health.usable).toBe(false);
    expect(health.ejected).toBe(true);
    expect(health.report).toMatchObject({
      state: "ejected",
      reason: "connect ECONNREFUSED",
      until: Date.UTC(2026, 0, 1) + 100,
    });
    clock.advance(99);
    expect(health.usable).toBe(false);
    clock.advance(1);
    expect(health.usable).toBe(true);
    expect(said()).toEqual([
      "warn upstream ejected: it fails requests (connect ECONNREFUSED)",
      "info upstream back: its ejection is over",
    ]);
  });

  it("passive checks do not eject an upstream for failures that are further apart", () => {
    const { health, fail, clock } = bench();
    for (let i = 0; i < 10; i++) {
      fail(1);
      clock.advance(501);
    }
    expect(health.usable).toBe(true);
  });

  it(
    "passive checks eject an upstream for twice as long each time, up to ten times, " +
      "and for eject_ms again after a quiet time",
    () => {
      const { health, fail, clock } = bench();
      const lengths: number[] = [];
      for (let i = 0; i < 6; i++) {
        fail(3);
        const began = clock.now();
        while (!health.usable) clock.advance(10);
        lengths.push(clock.now() - began);
      }
      expect(lengths).toEqual([100, 200, 400, 800, 1000, 1000]);
      clock.advance(1001);
      fail(3);
      clock.advance(100);
      expect(health.usable).toBe(true);
    },
  );

  it("passive checks do not eject the last usable upstream, until another one is usable", () => {
    let others = false;
    const { health, fail } = bench({}, () => others);
    fail(9);
    expect(health.usable).toBe(true);
    others = true;
    fail(1);
    expect(health.usable).toBe(false);
  });

  it("passive checks count listed statuses only", () => {
    const { health } = bench({ passive: { statuses: [503] } });
    for (let i = 0; i < 9; i++) health.countAnswer(500);
    expect(health.usable).toBe(true);
    for (let i = 0; i < 3; i++) health.countAnswer(503);
    expect(health.usable).toBe(false);
    expect(health.report.reason).toBe("status 503");
  });

  it("passive checks stop at max_failures 0, which ends an ejection", () => {
    const { health, fail, configure, clock } = bench();
    fail(3);
    configure({ passive: { maxFailures: 0 } });
    expect(health.usable).toBe(true);
    expect(clock.pending).toBe(0);
    fail(9);
    expect(health.usable).toBe(true);
  });

  it("passive checks count only the latest failures under a lower max_failures", () => {
    const { health, fail, configure, clock } = bench({ passive: { maxFailures: 5 } });
    fail(4);
    configure({ passive: { maxFailures: 2 } });
    clock.advance(1001);
    fail(1);
    expect(health.usable).toBe(true);
    fail(1);
    expect(health.usable).toBe(false);
  });

  it("passive checks keep an ejection under other new settings", () => {
    const { health, fail, configure, clock } = bench();
    fail(3);
    configure({ passive: { maxFailures: 7 } });
    expect(health.usable).toBe(false);
    clock.advance(100);
    expect(health.usable).toBe(true);
  });

  it("passive checks leave an ejected upstream that its checks find unhealthy unused even as the last one", () => {
    const { health, fail } = bench({ active: { healthyThreshold: 1, unhealthyThreshold: 1 } });
    fail(3);
    expect(health.ejected).toBe(true);
    health.checked("status 500");
    expect(health.ejected).toBe(false);
  });

  it("passive checks do not leave an upstream ejected for ever that is closed and configured again", () => {
    const { health, fail, configure } = bench();
    fail(3);
    health.close();
    configure({});
    expect([health.usable, health.ejected]).toEqual([true, false]);
    fail(3);
    expect(health.ejected).toBe(true);
  });

  it("passive checks leave no timer when the health is closed", () => {
    const { health, fail, clock } = bench();
    fail(3);
    health.close();
    expect(clock.pending).toBe(0);
  });

  it(
    "passive checks neither eject nor log anything for requests that are still in progress " +
      "when the health is closed",
    () => {
      const { health, fail, clock, said } = bench();
      health.close();
      fail(3);
      expect(health.usable).toBe(true);
      expect(clock.pending).toBe(0);
      expect(said()).toEqual([]);
    },
  );
});

describe("slow start", () => {
  it("lets the upstream's share grow from a tenth to the whole after a return", () => {
    const { health, fail, clock } = bench({ passive: { slowStartMs: 1000 } });
    expect(health.share).toBe(1);
    fail(3);
    clock.advance(100);
    const shares = [0, 50, 450, 400, 100].map((ms) => (clock.advance(ms), health.share));
    expect(shares).toEqual([0.1, 0.1, 0.5, 0.9, 1]);
  });

  it("takes as long as the settings say after a reload", () => {
    const { health, fail, clock, configure } = bench({ passive: { slowStartMs: 60_000 } });
    fail(3);
    clock.advance(100);
    clock.advance(5000);
    const shares = [10_000, 50_000, 1000, 0].map(
      (slowStartMs) => (configure({ passive: { slowStartMs } }), health.share),
    );
    expect(shares).toEqual([0.5, 0.1, 1, 1]);
  });

  it("follows checks that find the upstream healthy again, not checks that find it healthy for the first time", () => {
    const { health } = bench({
      active: { healthyThreshold: 1, unhealthyThreshold: 1 },
      passive: { slowStartMs: 1000 },
    });
    health.checked(null);
    expect(health.share).toBe(1);
    health.checked("no response");
    health.checked(null);
    expect(health.share).toBe(0.1);
  });
});

it("reports every change that may make other upstreams usable", () => {
  const { fail, changes, clock } = bench();
  const before = changes();
  fail(3);
  expect(changes()).toBe(before + 1);
  clock.advance(100);
  expect(changes()).toBe(before + 2);
});

it("applies a lower max_failures at once, to the failures so far", () => {
  const { health, configure, fail, clock } = bench({ passive: { maxFailures: 5 } });
  fail(2);
  clock.advance(900);
  fail(1);
  configure({ passive: { maxFailures: 2 } });
  clock.advance(500);
  fail(1);
  expect(health.report.state).toBe("ejected");
});

it("does not eject an upstream that is no longer configured for the last of its requests", () => {
  const { health, fail, said, clock } = bench();
  health.close();
  fail(3);
  expect(health.usable).toBe(true);
  expect(said()).toEqual([]);
  expect(clock.pending).toBe(0);
});

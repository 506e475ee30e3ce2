import { describe, expect, it } from "vitest";
import type { LogFields } from "../../lib/base/log.ts";
import { Health, type HealthSettings } from "../../lib/upstream/health.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpTools } from "../support/exercise.ts";

const PASSIVE = { maxFailures: 3, windowMs: 1000, ejectMs: 100, statuses: [] as number[], slowStartMs: 0 };

function bench(settings: { active?: HealthSettings["active"]; passive?: Partial<HealthSettings["passive"]> } = {}, mayEject = () => true) {
  const clock = manualClock();
  const { log, lines } = madeUpTools();
  let changes = 0;
  const health = new Health({ clock, log, service: "s", upstream: "u", mayEject, changed: () => void changes++ });
  const configure = (next: typeof settings) => health.configure({ active: next.active ?? null, passive: { ...PASSIVE, ...next.passive } });
  configure(settings);
  const fail = (times: number) => {
    for (let i = 0; i < times; i++) health.failed("connect ECONNREFUSED");
  };
  const said = () => lines.map(({ level, message, fields }) => `${level} ${message}${reasonOf(fields)}`);
  return { clock, health, fail, said, configure, changes: () => changes };
}

const reasonOf = (fields: LogFields | undefined) => (fields?.["reason"] === undefined ? "" : ` (${String(fields["reason"])})`);

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
  ])("after %j it is %s", (verdicts, state) => {
    const { health } = bench({ active });
    run(health, verdicts);
    expect(health.report.state).toBe(state);
    expect(health.usable).toBe(state !== "unhealthy");
  });

  it("a change is logged once, with its reason, and dated", () => {
    const { health, said, clock } = bench({ active });
    clock.advance(5000);
    run(health, "-----++++");
    expect(said()).toEqual(["warn upstream unhealthy: its checks fail (status 500)", "info upstream healthy: its checks pass"]);
    expect(health.report).toEqual({ state: "healthy", since: Date.UTC(2026, 0, 1) + 5000, reason: null, until: null });
  });

  it("switched off, what they found counts no more", () => {
    const { health, configure } = bench({ active });
    run(health, "---");
    configure({});
    expect(health.usable).toBe(true);
    expect(health.report).toEqual({ state: "unknown", since: null, reason: null, until: null });
    run(health, "---");
    expect(health.usable).toBe(true);
  });
});

describe("passive checks", () => {
  it("so many failures within the window put it out, for eject_ms", () => {
    const { health, fail, clock, said } = bench();
    fail(2);
    expect(health.usable).toBe(true);
    fail(1);
    expect(health.usable).toBe(false);
    expect(health.ejected).toBe(true);
    expect(health.report).toMatchObject({ state: "ejected", reason: "connect ECONNREFUSED", until: Date.UTC(2026, 0, 1) + 100 });
    clock.advance(99);
    expect(health.usable).toBe(false);
    clock.advance(1);
    expect(health.usable).toBe(true);
    expect(said()).toEqual(["warn upstream ejected: it fails requests (connect ECONNREFUSED)", "info upstream back: its ejection is over"]);
  });

  it("failures that are further apart do not", () => {
    const { health, fail, clock } = bench();
    for (let i = 0; i < 10; i++) {
      fail(1);
      clock.advance(501);
    }
    expect(health.usable).toBe(true);
  });

  it("it doubles while it repeats, to ten times, and starts anew after a good while", () => {
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
  });

  it("the last usable one stays, and goes as soon as another is there", () => {
    let others = false;
    const { health, fail } = bench({}, () => others);
    fail(9);
    expect(health.usable).toBe(true);
    others = true;
    fail(1);
    expect(health.usable).toBe(false);
  });

  it("listed statuses count, others do not", () => {
    const { health } = bench({ passive: { statuses: [503] } });
    for (let i = 0; i < 9; i++) health.answered(500);
    expect(health.usable).toBe(true);
    for (let i = 0; i < 3; i++) health.answered(503);
    expect(health.usable).toBe(false);
    expect(health.report.reason).toBe("status 503");
  });

  it("max_failures 0 switches them off, also for one that is out", () => {
    const { health, fail, configure, clock } = bench();
    fail(3);
    configure({ passive: { maxFailures: 0 } });
    expect(health.usable).toBe(true);
    expect(clock.pending).toBe(0);
    fail(9);
    expect(health.usable).toBe(true);
  });

  it("a lower max_failures counts the latest ones only", () => {
    const { health, fail, configure, clock } = bench({ passive: { maxFailures: 5 } });
    fail(4);
    configure({ passive: { maxFailures: 2 } });
    clock.advance(1001);
    fail(1);
    expect(health.usable).toBe(true);
    fail(1);
    expect(health.usable).toBe(false);
  });

  it("an ejection stays over other new settings", () => {
    const { health, fail, configure, clock } = bench();
    fail(3);
    configure({ passive: { maxFailures: 7 } });
    expect(health.usable).toBe(false);
    clock.advance(100);
    expect(health.usable).toBe(true);
  });

  it("out for its answers and found unhealthy, it is not even a last resort", () => {
    const { health, fail } = bench({ active: { healthyThreshold: 1, unhealthyThreshold: 1 } });
    fail(3);
    expect(health.ejected).toBe(true);
    health.checked("status 500");
    expect(health.ejected).toBe(false);
  });

  it("closed, it leaves no timer", () => {
    const { health, fail, clock } = bench();
    fail(3);
    health.close();
    expect(clock.pending).toBe(0);
  });

  it("closed, requests that are still under way put it out no more, and nothing is said of it", () => {
    const { health, fail, clock, said } = bench();
    health.close();
    fail(3);
    expect(health.usable).toBe(true);
    expect(clock.pending).toBe(0);
    expect(said()).toEqual([]);
  });
});

describe("slow start", () => {
  it("after a return its share grows from a tenth to the whole", () => {
    const { health, fail, clock } = bench({ passive: { slowStartMs: 1000 } });
    expect(health.share).toBe(1);
    fail(3);
    clock.advance(100);
    const shares = [0, 50, 450, 400, 100].map((ms) => (clock.advance(ms), health.share));
    expect(shares).toEqual([0.1, 0.1, 0.5, 0.9, 1]);
  });

  it("also when checks find it well again, not when they find it well for the first time", () => {
    const { health } = bench({ active: { healthyThreshold: 1, unhealthyThreshold: 1 }, passive: { slowStartMs: 1000 } });
    health.checked(null);
    expect(health.share).toBe(1);
    health.checked("no response");
    health.checked(null);
    expect(health.share).toBe(0.1);
  });
});

it("says so whenever who can be used may be another", () => {
  const { fail, changes, clock } = bench();
  const before = changes();
  fail(3);
  expect(changes()).toBe(before + 1);
  clock.advance(100);
  expect(changes()).toBe(before + 2);
});

it("a lower max_failures counts at once, with the failures there were", () => {
  const { health, configure, fail, clock } = bench({ passive: { maxFailures: 5 } });
  fail(2);
  clock.advance(900);
  fail(1);
  configure({ passive: { maxFailures: 2 } });
  clock.advance(500);
  fail(1);
  expect(health.report.state).toBe("ejected");
});

it("one that is no longer configured is not ejected for the last of its requests", () => {
  const { health, fail, said, clock } = bench();
  health.close();
  fail(3);
  expect(health.usable).toBe(true);
  expect(said()).toEqual([]);
  expect(clock.pending).toBe(0);
});

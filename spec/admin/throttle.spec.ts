import { describe, expect, it } from "vitest";
import { Throttle } from "../../lib/admin/throttle.ts";
import { manualClock } from "../support/clock.ts";
import { random } from "../support/random.ts";

const HALF_HOUR = 1_800_000;

function fail(throttle: Throttle, address: string, times: number): void {
  for (let i = 0; i < times; i++) throttle.begin(address);
}

describe("the throttle of logins", () => {
  it("the throttle of logins pauses an address from its fifth failure on, by 1 s, 2 s, 4 s, … 15 min", () => {
    const throttle = new Throttle(manualClock());
    fail(throttle, "a", 4);
    expect(throttle.pausedFor("a")).toBe(0);
    for (const seconds of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]) {
      throttle.begin("a");
      expect(throttle.pausedFor("a")).toBe(seconds * 1000);
    }
    fail(throttle, "a", 2000);
    expect(throttle.pausedFor("a")).toBe(900_000);
    expect(throttle.pausedFor("b")).toBe(0);
  });

  it("the throttle of logins forgets one failure of an address every half hour", () => {
    const clock = manualClock();
    const throttle = new Throttle(clock);
    fail(throttle, "a", 9);
    clock.advance(HALF_HOUR - 1);
    throttle.begin("a");
    expect(throttle.pausedFor("a")).toBe(32_000);
    clock.advance(1 + 4 * HALF_HOUR);
    throttle.begin("a");
    expect(throttle.pausedFor("a")).toBe(2_000);
  });

  it("the throttle of logins forgets an address after seven and a half hours, however often it failed", () => {
    const clock = manualClock();
    const throttle = new Throttle(clock);
    fail(throttle, "a", 2000);
    clock.advance(15 * HALF_HOUR);
    fail(throttle, "a", 4);
    expect(throttle.pausedFor("a")).toBe(0);
  });

  it("the throttle of logins takes back only the failure that a right attempt was counted as", () => {
    const clock = manualClock();
    const throttle = new Throttle(clock);
    fail(throttle, "a", 5);
    clock.advance(1000);
    for (let i = 0; i < 10; i++) {
      throttle.begin("a")();
      expect(throttle.pausedFor("a")).toBe(0);
    }
    throttle.begin("a");
    expect(throttle.pausedFor("a")).toBe(2000);
  });

  it("the throttle of logins keeps the pause after a failure during the verification of a right attempt", () => {
    const throttle = new Throttle(manualClock());
    fail(throttle, "a", 3);
    const takeBack = throttle.begin("a");
    throttle.begin("a");
    takeBack();
    expect(throttle.pausedFor("a")).toBe(1000);
  });

  it("the throttle of logins ends no pause in a flood of addresses", () => {
    const throttle = new Throttle(manualClock(), 100);
    fail(throttle, "victim", 12);
    for (let i = 0; i < 1000; i++) fail(throttle, `flood ${i}`, 5);
    expect(throttle.pausedFor("victim")).toBe(128_000);
  });

  it("the throttle of logins gives all addresses beyond its bound one common allowance, until others are forgotten", () => {
    const clock = manualClock();
    const throttle = new Throttle(clock, 100);
    for (let i = 0; i < 100; i++) throttle.begin(`known ${i}`);
    for (let i = 0; i < 6; i++) throttle.begin(`new ${i}`);
    expect(throttle.pausedFor("newest")).toBe(2000);
    expect(throttle.pausedFor("known 5")).toBe(0);
    throttle.begin("newest")();
    expect(throttle.pausedFor("newest")).toBe(2000);
    clock.advance(6 * HALF_HOUR);
    expect(throttle.pausedFor("newest")).toBe(0);
    fail(throttle, "newest", 5);
    expect(throttle.pausedFor("newest")).toBe(1000);
    expect(throttle.pausedFor("other")).toBe(0);
    for (let i = 0; i < 99; i++) throttle.begin(`known again ${i}`);
    expect(throttle.pausedFor("latest")).toBe(0);
  });

  it("the throttle of logins forgets an address whose only attempt was right", () => {
    const throttle = new Throttle(manualClock(), 2);
    throttle.begin("a")();
    fail(throttle, "b", 5);
    fail(throttle, "c", 4);
    expect(throttle.pausedFor("c")).toBe(0);
    expect(throttle.pausedFor("b")).toBe(1000);
  });

  it("the throttle of logins admits at most 15 wrong guesses and one every 15 minutes, with right ones in between (random guessers)", () => {
    const { int, chance } = random(11);
    for (let run = 0; run < 20; run++) {
      const clock = manualClock();
      const throttle = new Throttle(clock);
      let admitted = 0;
      for (let i = 0; i < 2000; i++) {
        if (throttle.pausedFor("a") === 0) {
          const takeBack = throttle.begin("a");
          if (chance(0.5)) takeBack();
          else admitted += 1;
        }
        clock.advance(chance(0.05) ? int(0, 3_600_000) : int(0, 3000));
      }
      expect(admitted).toBeLessThanOrEqual(15 + Math.ceil(clock.now() / 900_000));
    }
  });
});

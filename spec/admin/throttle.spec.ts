import { describe, expect, it } from "vitest";
import { Throttle } from "../../lib/admin/throttle.ts";
import { manualClock } from "../support/clock.ts";
import { random } from "../support/random.ts";

const HALF_HOUR = 1_800_000;

/** A network that counts for no other one here: somebody has logged in from it. */
const HOME = "home";

function throttleOf(...args: ConstructorParameters<typeof Throttle>): Throttle {
  const throttle = new Throttle(...args);
  throttle.begin("somebody at home", HOME)();
  return throttle;
}

const pausedFor = (throttle: Throttle, address: string) => throttle.pauseOf(address, HOME)?.ms ?? 0;

function fail(throttle: Throttle, address: string, times: number): void {
  for (let i = 0; i < times; i++) throttle.begin(address, HOME);
}

describe("the throttle of logins", () => {
  it("the throttle of logins pauses an address from its fifth failure on, by 1 s, 2 s, 4 s, … 15 min", () => {
    const throttle = throttleOf(manualClock());
    fail(throttle, "a", 4);
    expect(pausedFor(throttle, "a")).toBe(0);
    for (const seconds of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]) {
      throttle.begin("a", HOME);
      expect(pausedFor(throttle, "a")).toBe(seconds * 1000);
    }
    fail(throttle, "a", 2000);
    expect(pausedFor(throttle, "a")).toBe(900_000);
    expect(pausedFor(throttle, "b")).toBe(0);
  });

  it("the throttle of logins forgets one failure of an address every half hour", () => {
    const clock = manualClock();
    const throttle = throttleOf(clock);
    fail(throttle, "a", 9);
    clock.advance(HALF_HOUR - 1);
    throttle.begin("a", HOME);
    expect(pausedFor(throttle, "a")).toBe(32_000);
    clock.advance(1 + 4 * HALF_HOUR);
    throttle.begin("a", HOME);
    expect(pausedFor(throttle, "a")).toBe(2_000);
  });

  it("the throttle of logins forgets an address after seven and a half hours, however often it failed", () => {
    const clock = manualClock();
    const throttle = throttleOf(clock);
    fail(throttle, "a", 2000);
    clock.advance(15 * HALF_HOUR);
    fail(throttle, "a", 4);
    expect(pausedFor(throttle, "a")).toBe(0);
  });

  it("the throttle of logins takes back only the failure that a right attempt was counted as", () => {
    const clock = manualClock();
    const throttle = throttleOf(clock);
    fail(throttle, "a", 5);
    clock.advance(1000);
    for (let i = 0; i < 10; i++) {
      throttle.begin("a", HOME)();
      expect(pausedFor(throttle, "a")).toBe(0);
    }
    throttle.begin("a", HOME);
    expect(pausedFor(throttle, "a")).toBe(2000);
  });

  it("the throttle of logins keeps the pause after a failure during the verification of a right attempt", () => {
    const throttle = throttleOf(manualClock());
    fail(throttle, "a", 3);
    const takeBack = throttle.begin("a", HOME);
    throttle.begin("a", HOME);
    takeBack();
    expect(pausedFor(throttle, "a")).toBe(1000);
  });

  it("the throttle of logins ends no pause in a flood of addresses", () => {
    const throttle = throttleOf(manualClock(), 100);
    fail(throttle, "victim", 12);
    for (let i = 0; i < 1000; i++) fail(throttle, `flood ${i}`, 5);
    expect(pausedFor(throttle, "victim")).toBe(128_000);
  });

  it(
    "the throttle of logins gives all addresses beyond its bound one common allowance, " + "until others are forgotten",
    () => {
      const clock = manualClock();
      const throttle = throttleOf(clock, 100);
      for (let i = 0; i < 100; i++) throttle.begin(`known ${i}`, HOME);
      for (let i = 0; i < 6; i++) throttle.begin(`new ${i}`, HOME);
      expect(pausedFor(throttle, "newest")).toBe(2000);
      expect(pausedFor(throttle, "known 5")).toBe(0);
      throttle.begin("newest", HOME)();
      expect(pausedFor(throttle, "newest")).toBe(2000);
      clock.advance(6 * HALF_HOUR);
      expect(pausedFor(throttle, "newest")).toBe(0);
      fail(throttle, "newest", 5);
      expect(pausedFor(throttle, "newest")).toBe(1000);
      expect(pausedFor(throttle, "other")).toBe(0);
      for (let i = 0; i < 99; i++) throttle.begin(`known again ${i}`, HOME);
      expect(pausedFor(throttle, "latest")).toBe(0);
    },
  );

  it("the throttle of logins forgets an address whose only attempt was right", () => {
    const throttle = throttleOf(manualClock(), 2);
    throttle.begin("a", HOME)();
    fail(throttle, "b", 5);
    fail(throttle, "c", 4);
    expect(pausedFor(throttle, "c")).toBe(0);
    expect(pausedFor(throttle, "b")).toBe(1000);
  });

  it(
    "the throttle of logins admits at most 15 wrong guesses and one every 15 minutes, " +
      "with right ones in between (random guessers)",
    () => {
      const { int, chance } = random(11);
      for (let run = 0; run < 20; run++) {
        const clock = manualClock();
        const throttle = throttleOf(clock);
        let admitted = 0;
        for (let i = 0; i < 2000; i++) {
          if (pausedFor(throttle, "a") === 0) {
            const takeBack = throttle.begin("a", HOME);
            if (chance(0.5)) takeBack();
            else admitted += 1;
          }
          clock.advance(chance(0.05) ? int(0, 3_600_000) : int(0, 3000));
        }
        expect(admitted).toBeLessThanOrEqual(15 + Math.ceil(clock.now() / 900_000));
      }
    },
  );

  it(
    "the throttle of logins lets all addresses of unknown networks fail 50 times together, " +
      "and once every half minute from then on",
    () => {
      const clock = manualClock();
      const throttle = new Throttle(clock);
      let guesses = 0;
      const flood = (from: number, to: number) => {
        for (let i = from; i < to; i++) {
          if (throttle.pauseOf(`a${i}`, `n${i}`) !== null) continue;
          throttle.begin(`a${i}`, `n${i}`);
          guesses += 1;
        }
      };
      flood(0, 4_000);
      expect([guesses, throttle.pauseOf("new", "new")]).toEqual([50, { ms: 30_000, because: "all" }]);
      for (let minute = 1; minute <= 60; minute++) {
        clock.advance(60_000);
        flood(minute * 10_000, minute * 10_000 + 4_000);
      }
      expect(guesses).toBeLessThanOrEqual(50 + 120);
    },
  );

  it(
    "the throttle of logins never has a network wait for others from which somebody has logged in, " +
      "and counts its failures by address",
    () => {
      const throttle = throttleOf(manualClock());
      for (let i = 0; i < 200; i++) throttle.begin(`a${i}`, `n${i}`);
      expect([throttle.pauseOf("other", "elsewhere")?.because, throttle.pauseOf("new at home", HOME)]).toEqual([
        "all",
        null,
      ]);
      fail(throttle, "a", 5);
      expect(throttle.pauseOf("a", HOME)).toEqual({ ms: 1_000, because: "address" });
    },
  );

  it("the throttle of logins remembers the last thousand networks", () => {
    const throttle = throttleOf(manualClock());
    for (let i = 0; i < 999; i++) throttle.begin("a", `n${i}`)();
    throttle.begin("a", HOME)();
    throttle.begin("a", "n999")();
    for (let i = 0; i < 50; i++) throttle.begin("b", `unknown ${i}`);
    expect([
      throttle.pauseOf("new", "n0")?.because,
      throttle.pauseOf("new", "n1"),
      throttle.pauseOf("new", HOME),
    ]).toEqual(["all", null, null]);
  });
});

import { describe, expect, it } from "vitest";
import { circuitCondition, conditionOf, usableText } from "../../../lib/manager/assets/conditions.ts";

describe("the state of an upstream in words", () => {
  it.each([
    ["healthy", true, "Healthy", "good"],
    ["draining", false, "Draining", "warn"],
    ["draining", true, "Draining", "warn"],
    ["unknown", true, "Not checked", "idle"],
    ["unhealthy", false, "Unhealthy", "bad"],
    ["ejected", false, "Ejected", "bad"],
    ["warming_up", false, "Warming up", "warn"],
  ])("%s (usable: %s) is %j", (state, usable, word, tone) => {
    expect(conditionOf({ state, usable })).toMatchObject({ word, tone });
  });

  it("ranks the worst highest, so that sorting finds trouble first", () => {
    const states = ["healthy", "unknown", "draining", "ejected", "unhealthy"].map(
      (state) => conditionOf({ state, usable: state === "healthy" || state === "unknown" }).rank,
    );
    expect(states).toEqual([...states].sort((a, b) => a - b));
    expect(new Set(states).size).toBe(5);
  });

  it("says so when nothing is known", () => expect(conditionOf(null)).toMatchObject({ word: "Not known", tone: "idle" }));
});

describe("a circuit breaker in words", () => {
  it("is nothing where there is none", () => expect([circuitCondition(null), circuitCondition(undefined)]).toEqual([null, null]));

  it.each([
    ["closed", "Circuit closed", "good"],
    ["open", "Circuit open", "bad"],
    ["half_open", "Circuit half open", "warn"],
  ])("%s is %j", (state, word, tone) => expect(circuitCondition({ state })).toEqual({ word, tone }));
});

describe("all upstreams of a service in words", () => {
  const upstreams = (...usable: readonly boolean[]) => usable.map((each) => ({ usable: each }));

  it("are good when all can be used, a warning when some, bad when none can", () => {
    expect(usableText(upstreams(true, true), 2)).toEqual({ word: "2 of 2 usable", tone: "good" });
    expect(usableText(upstreams(true, false), 2)).toEqual({ word: "1 of 2 usable", tone: "warn" });
    expect(usableText(upstreams(false), 1)).toEqual({ word: "0 of 1 usable", tone: "bad" });
  });

  it("are only counted while nothing is known", () => expect(usableText(null, 3)).toEqual({ word: "3", tone: "idle" }));
});

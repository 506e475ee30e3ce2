import { describe, expect, it } from "vitest";
import { circuitLabel, upstreamLabel, usableLabel } from "../../../lib/manager/assets/state_labels.ts";

describe("the state of an upstream label", () => {
  it.each([
    ["healthy", true, "Healthy", "good"],
    ["draining", false, "Draining", "warn"],
    ["draining", true, "Draining", "warn"],
    ["unknown", true, "Not checked", "idle"],
    ["unhealthy", false, "Unhealthy", "bad"],
    ["ejected", false, "Ejected", "bad"],
    ["warming_up", false, "Warming up", "warn"],
  ])("%s (usable: %s) is %j", (state, usable, text, tone) => {
    expect(upstreamLabel({ state, usable })).toMatchObject({ text, tone });
  });

  it("ranks the worst highest, so that sorting finds trouble first", () => {
    const states = ["healthy", "unknown", "draining", "ejected", "unhealthy"].map(
      (state) => upstreamLabel({ state, usable: state === "healthy" || state === "unknown" }).rank,
    );
    expect(states).toEqual([...states].sort((a, b) => a - b));
    expect(new Set(states).size).toBe(5);
  });

  it("says so when nothing is known", () => expect(upstreamLabel(null)).toMatchObject({ text: "Not known", tone: "idle" }));
});

describe("a circuit breaker label", () => {
  it("is nothing where there is none", () => expect([circuitLabel(null), circuitLabel(undefined)]).toEqual([null, null]));

  it.each([
    ["closed", "Circuit closed", "good"],
    ["open", "Circuit open", "bad"],
    ["half_open", "Circuit half open", "warn"],
  ])("%s is %j", (state, text, tone) => expect(circuitLabel({ state })).toEqual({ text, tone }));
});

describe("all upstreams of a service label", () => {
  const upstreams = (...usable: readonly boolean[]) => usable.map((each) => ({ usable: each }));

  it("are good when all can be used, a warning when some, bad when none can", () => {
    expect(usableLabel(upstreams(true, true), 2)).toEqual({ text: "2 of 2 usable", tone: "good" });
    expect(usableLabel(upstreams(true, false), 2)).toEqual({ text: "1 of 2 usable", tone: "warn" });
    expect(usableLabel(upstreams(false), 1)).toEqual({ text: "0 of 1 usable", tone: "bad" });
  });

  it("are only counted while nothing is known", () => expect(usableLabel(null, 3)).toEqual({ text: "3", tone: "idle" }));
});

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { circuitLabel, upstreamLabel, usableLabel } from "../../../lib/manager/assets/state_labels.ts";

describe("the label of an upstream's state", () => {
  /** What the table of states says that the UI calls it. */
  const documented = Object.fromEntries(
    Array.from(
      readFileSync(new URL("../../../docs/health-and-resilience.md", import.meta.url), "utf8").matchAll(
        /^\| (.*?`) \| (.*?) \|/gm,
      ),
      ([, state, text]) => [state!.replaceAll("`", ""), text],
    ),
  );

  it.each([
    ["healthy", "good"],
    ["draining", "warn"],
    ["unknown", "idle"],
    ["unhealthy", "bad"],
    ["ejected", "bad"],
  ] as const)("the label of an upstream's state is the word that is documented for %s", (state, tone) => {
    expect(upstreamLabel({ state, admin_state: null })).toMatchObject({ text: documented[state], tone });
  });

  it.each(["drain", "eject"] as const)(
    "the label of an upstream's state shows what an administrator said (%s) before its health, as documented",
    (admin_state) => {
      const text = documented[`admin_state ${admin_state}`];
      expect(text).toMatch(/^Taken out: /);
      for (const state of ["healthy", "unhealthy", "draining"] as const)
        expect(upstreamLabel({ state, admin_state })).toMatchObject({ text, tone: "warn" });
    },
  );

  it("the label of an upstream's state ranks the worst highest, so that sorting finds trouble first", () => {
    const states = (["healthy", "unknown", "draining", "ejected", "unhealthy"] as const).map(
      (state) => upstreamLabel({ state, admin_state: null }).rank,
    );
    expect(states).toEqual([...states].sort((a, b) => a - b));
    expect(new Set(states).size).toBe(5);
  });

  it("the label of an upstream's state shows an unknown state as not known", () =>
    expect(upstreamLabel(null)).toMatchObject({ text: "Not known", tone: "idle" }));
});

describe("the label of a circuit breaker", () => {
  it("the label of a circuit breaker does not exist without a circuit breaker", () =>
    expect([circuitLabel(null), circuitLabel(undefined)]).toEqual([null, null]));

  it.each([
    ["closed", "Circuit closed", "good"],
    ["open", "Circuit open", "bad"],
    ["half_open", "Circuit half open", "warn"],
  ] as const)("the label of a circuit breaker shows the state %s as %j", (state, text, tone) =>
    expect(circuitLabel({ state })).toEqual({ text, tone }),
  );
});

describe("the label of all upstreams of a service", () => {
  const upstreams = (...usable: readonly boolean[]) => usable.map((each) => ({ usable: each }));

  it(
    "the label of all upstreams of a service shows good if all upstreams are usable, " +
      "a warning if some are, and bad if none is",
    () => {
      expect(usableLabel(upstreams(true, true), 2)).toEqual({ text: "2 of 2 usable", tone: "good" });
      expect(usableLabel(upstreams(true, false), 2)).toEqual({ text: "1 of 2 usable", tone: "warn" });
      expect(usableLabel(upstreams(false), 1)).toEqual({ text: "0 of 1 usable", tone: "bad" });
    },
  );

  it("the label of all upstreams of a service shows only the number of upstreams while their state is unknown", () =>
    expect(usableLabel(null, 3)).toEqual({ text: "3", tone: "idle" }));
});

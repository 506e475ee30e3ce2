import { describe, expect, it } from "vitest";
import { Breaker, type BreakerSettings, type Verdict } from "../../lib/upstream/breaker.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpTools } from "../support/exercise.ts";

function bench(parts: Partial<BreakerSettings> = {}) {
  const clock = manualClock();
  const { log, lines } = madeUpTools();
  const settings = { errorRatio: 0.5, minRequests: 4, windowMs: 1000, openMs: 500, probes: 1, ...parts };
  const breaker = new Breaker({ clock, log, service: "s" }, settings);
  /** One request after the other; "x" where it was refused. */
  const requests = (verdicts: string) => [...verdicts].map((verdict) => request(verdict === "+" ? "passed" : verdict === "-" ? "failed" : "unknown")).join("");
  const request = (verdict: Verdict) => {
    const admission = breaker.admit();
    if (admission < 0) return "x";
    breaker.settle(admission, verdict);
    return verdict === "passed" ? "+" : verdict === "failed" ? "-" : "?";
  };
  return { clock, breaker, settings, requests, lines };
}

describe("a closed circuit breaker", () => {
  it.each([
    ["---", "closed"],
    ["----", "open"],
    ["+++-", "closed"],
    ["++--", "open"],
    ["--???", "closed"],
    ["+++++----", "closed"],
    ["+++++-----", "open"],
  ])("a closed circuit breaker reaches, after the results %s, the state %s", (verdicts, state) => {
    const { breaker, requests } = bench();
    requests(verdicts);
    expect(breaker.report.state).toBe(state);
  });

  it("a closed circuit breaker ignores results older than the window", () => {
    const { breaker, requests, clock } = bench();
    requests("---");
    clock.advance(1000);
    requests("-");
    expect(breaker.report.state).toBe("closed");
  });
});

describe("an open circuit breaker", () => {
  it("an open circuit breaker refuses all requests for open_ms, and reports the remaining time", () => {
    const { breaker, requests, clock } = bench();
    requests("----");
    expect(breaker.retryAfterMs).toBe(500);
    clock.advance(499);
    expect(requests("+++")).toBe("xxx");
    expect(breaker.retryAfterMs).toBe(1);
    clock.advance(1);
    expect(breaker.retryAfterMs).toBe(0);
    expect(requests("+++")).toBe("+++");
    expect(breaker.report.state).toBe("closed");
  });

  it("an open circuit breaker ignores the results of requests that were admitted before", () => {
    const { breaker, requests, clock } = bench();
    const late = breaker.admit();
    requests("----");
    breaker.settle(late, "passed");
    expect(breaker.report.state).toBe("open");
    clock.advance(500);
    requests("+");
    breaker.settle(late, "failed");
    expect(breaker.report.state).toBe("closed");
  });
});

describe("a half-open circuit breaker", () => {
  const halfOpen = (parts: Partial<BreakerSettings> = {}) => {
    const made = bench(parts);
    made.requests("----");
    made.clock.advance(500);
    return made;
  };

  it("a half-open circuit breaker admits at most `probes` at a time, all of which must succeed", () => {
    const { breaker } = halfOpen({ probes: 2 });
    const [one, two] = [breaker.admit(), breaker.admit()];
    expect(breaker.admit()).toBe(-1);
    breaker.settle(one, "passed");
    expect(breaker.admit()).toBe(-1);
    expect(breaker.report.state).toBe("half_open");
    breaker.settle(two, "passed");
    expect(breaker.report.state).toBe("closed");
  });

  it("a half-open circuit breaker opens again for open_ms when a probe fails", () => {
    const { breaker, requests, clock } = halfOpen();
    expect(requests("-+")).toBe("-x");
    clock.advance(499);
    expect(requests("+")).toBe("x");
    clock.advance(1);
    expect(requests("+")).toBe("+");
    expect(breaker.report.state).toBe("closed");
  });

  it("a half-open circuit breaker admits another probe when the client of a probe has disconnected", () => {
    const { breaker, requests } = halfOpen();
    expect(requests("??+")).toBe("??+");
    expect(breaker.report.state).toBe("closed");
  });

  it("a half-open circuit breaker admits another probe when a probe has taken open_ms", () => {
    const { breaker, requests, clock } = halfOpen();
    const hung = breaker.admit();
    clock.advance(499);
    expect(requests("+")).toBe("x");
    clock.advance(1);
    const second = breaker.admit();
    expect(breaker.admit()).toBe(-1);
    breaker.settle(second, "passed");
    breaker.settle(hung, "failed");
    expect(breaker.report.state).toBe("closed");
  });

  it("a half-open circuit breaker closes when a reload requires no more probes than have passed", () => {
    const { breaker, settings, requests } = halfOpen({ probes: 3 });
    requests("++");
    breaker.configure({ ...settings, probes: 2 });
    expect(breaker.report.state).toBe("closed");
    expect(requests("+")).toBe("+");
  });

  it("a half-open circuit breaker counts from zero when it is closed again", () => {
    const { breaker, requests } = halfOpen();
    requests("+---");
    expect(breaker.report.state).toBe("closed");
    requests("-");
    expect(breaker.report.state).toBe("open");
  });
});

it("logs each change once, with its reason and time", () => {
  const { breaker, requests, clock, lines } = bench();
  clock.advance(1000);
  requests("+------");
  expect(breaker.report).toEqual({ state: "open", since: Date.UTC(2026, 0, 1) + 1000 });
  clock.advance(500);
  requests("+");
  expect(lines.map(({ message, fields }) => [message, fields?.["reason"]])).toEqual([
    ["circuit opened: requests are refused", "3 of 4 requests failed within 1000 ms"],
    ["circuit closed: requests pass again", undefined],
  ]);
});

it("keeps its state under new settings", () => {
  const { breaker, requests, settings } = bench();
  requests("----");
  breaker.configure({ ...settings, windowMs: 9000, minRequests: 1 });
  expect(requests("+")).toBe("x");
});

it("closes when fewer probes are required than have passed", () => {
  const { breaker, requests, settings, clock } = bench({ probes: 5 });
  requests("----");
  clock.advance(500);
  requests("++");
  breaker.configure({ ...settings, probes: 3 });
  expect(breaker.report.state).toBe("half_open");
  breaker.configure({ ...settings, probes: 2 });
  expect(breaker.report.state).toBe("closed");
  expect(requests("+")).toBe("+");
});

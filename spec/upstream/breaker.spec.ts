import { describe, expect, it } from "vitest";
import { Breaker, BREAKER_BYTES } from "../../lib/upstream/breaker.ts";
import type { BreakerSettings, Verdict } from "../../lib/upstream/contracts.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpTools } from "../support/exercise.ts";
import { inThreads, threadsOf, type Inside } from "../support/threads.ts";

function bench(parts: Partial<BreakerSettings> = {}) {
  const clock = manualClock();
  const { log, lines } = madeUpTools();
  const settings = { errorRatio: 0.5, minRequests: 4, windowMs: 1000, openMs: 500, probes: 1, ...parts };
  const breaker = new Breaker({ clock, log, service: "s" }, settings);
  /** One request after the other; "x" where it was refused. */
  const requests = (verdicts: string) =>
    [...verdicts]
      .map((verdict) => request(verdict === "+" ? "passed" : verdict === "-" ? "failed" : "unknown"))
      .join("");
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

describe("a circuit breaker over several threads", () => {
  const SETTINGS: BreakerSettings = { errorRatio: 0.5, minRequests: 4, windowMs: 1000, openMs: 500, probes: 3 };

  /** The breakers of two workers and of the main thread. */
  function shared(parts: Partial<BreakerSettings> = {}) {
    const clock = manualClock();
    const { log, lines } = madeUpTools();
    const memory = new SharedArrayBuffer(BREAKER_BYTES);
    const made = () => new Breaker({ clock, log, service: "s", memory }, { ...SETTINGS, ...parts });
    const [main, one, two] = [made(), made(), made()];
    const fail = (breaker: Breaker, times: number) => {
      for (let i = 0; i < times; i++) breaker.settle(breaker.admit(), "failed");
    };
    return { clock, lines, main, one, two, fail };
  }

  it("opens for all threads by the failures of all, and logs it once", () => {
    const { main, one, two, fail, lines } = shared();
    fail(one, 2);
    expect(main.report.state).toBe("closed");
    fail(two, 2);
    expect([main.report.state, one.admit(), two.admit(), one.retryAfterMs]).toEqual(["open", -1, -1, 500]);
    expect(lines.map(({ message }) => message)).toEqual(["circuit opened: requests are refused"]);
  });

  it("admits exactly `probes` probes, whichever threads ask, and closes for all when all have passed", () => {
    const { clock, main, one, two, fail, lines } = shared();
    fail(one, 4);
    clock.advance(500);
    const probes = [one.admit(), two.admit(), two.admit()];
    expect([...probes.map((admission) => admission > 0), one.admit(), two.admit()]).toEqual([true, true, true, -1, -1]);
    one.settle(probes[0]!, "passed");
    two.settle(probes[1]!, "passed");
    expect(main.report.state).toBe("half_open");
    // A thread may settle what another one has admitted: there is one count.
    one.settle(probes[2]!, "passed");
    expect([main.report.state, two.admit() > 0, lines.length]).toEqual(["closed", true, 2]);
  });

  it("admits other probes open_ms after a worker died with its own", () => {
    const { clock, one, two, fail } = shared({ probes: 1 });
    fail(one, 4);
    clock.advance(500);
    expect([one.admit() > 0, two.admit()]).toEqual([true, -1]);
    clock.advance(499);
    expect(two.admit()).toBe(-1);
    clock.advance(1);
    expect(two.admit()).toBeGreaterThan(0);
  });

  it("closes once, whichever threads take settings that require fewer probes than have passed", () => {
    const { main, one, fail, clock, lines } = shared();
    fail(one, 4);
    clock.advance(500);
    one.settle(one.admit(), "passed");
    main.configure({ ...SETTINGS, probes: 1 });
    expect(main.report.state).toBe("closed");
    one.configure({ ...SETTINGS, probes: 1 });
    expect([one.report.state, lines.length]).toEqual(["closed", 2]);
  });

  it("starts to count again when the window changes, whichever thread is the first to use the new one", () => {
    const { main, one, two, fail } = shared();
    fail(one, 3);
    for (const breaker of [main, one, two]) breaker.configure({ ...SETTINGS, windowMs: 10 });
    fail(two, 3);
    expect(main.report.state).toBe("closed");
    fail(one, 1);
    expect(main.report.state).toBe("open");
  });

  it("admits exactly `probes` of the requests with which three threads compete, in each of many turns", async () => {
    const memories = new Map<string, SharedArrayBuffer>();
    threadsOf(3, memories)(-1).memory("b", BREAKER_BYTES);
    const admitted = await inThreads(
      3,
      "upstream/breaker",
      memories,
      ({ module, threads, meet, words }: Inside<typeof import("../../lib/upstream/breaker.ts")>) => {
        // A clock that the first thread moves.
        const clock = {
          now: () => Atomics.load(words, 0),
          wall: () => 1,
          after: () => ({ cancel() {}, restart() {} }),
        };
        const silent = { debug() {}, info() {}, warn() {}, error() {} };
        const settings = { errorRatio: 0.5, minRequests: 1, windowMs: 1000, openMs: 500, probes: 2_000 };
        const breaker = new module.Breaker(
          { clock, log: silent, service: "s", memory: threads.memory("b", 0) },
          settings,
        );
        return Array.from({ length: 30 }, () => {
          if (threads.worker === 0) {
            breaker.settle(breaker.admit(), "failed");
            Atomics.add(words, 0, 500);
          }
          meet();
          const admissions: number[] = [];
          for (let i = 0; i < 3_000; i++) admissions.push(breaker.admit());
          meet();
          for (const admission of admissions) if (admission > 0) breaker.settle(admission, "passed");
          meet();
          const { state } = breaker.report;
          meet();
          return { probes: admissions.filter((admission) => admission > 0).length, state };
        });
      },
    );
    const probes = admitted[0]!.map((_, turn) => admitted.reduce((sum, each) => sum + each[turn]!.probes, 0));
    expect(new Set(probes)).toEqual(new Set([2_000]));
    expect(new Set(admitted.flat().map(({ state }) => state))).toEqual(new Set(["closed"]));
  });
});

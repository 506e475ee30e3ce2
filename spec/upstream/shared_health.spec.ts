import { describe, expect, it } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { applyHealth, pickerAmong } from "../../lib/upstream/choice.ts";
import type { HealthTools } from "../../lib/upstream/contracts.ts";
import { Health, HEALTH_BYTES, PublishedHealth } from "../../lib/upstream/health.ts";
import type { HealthSettings } from "../../lib/upstream/contracts.ts";
import { FailureReports } from "../../lib/upstream/shared_health.ts";
import type { UpstreamFailures } from "../../lib/upstream/contracts.ts";
import { upstreamSetReport } from "../../lib/upstream/upstream_report.ts";
import { UpstreamSet } from "../../lib/upstream/upstream_set.ts";
import { balancerOf } from "../support/balancers.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange, madeUpTools } from "../support/exercise.ts";
import { madeUpPool } from "../support/peer.ts";
import { threadsOf } from "../support/threads.ts";

const HEALTH: HealthSettings = {
  active: { healthyThreshold: 1, unhealthyThreshold: 1 },
  passive: { maxFailures: 2, windowMs: 1000, ejectMs: 100, statuses: [503], slowStartMs: 0 },
};

const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

/**
 * The upstreams "a" and "b" as the main thread and two workers have them, without anything between them but memory and
 * reports.
 */
function bench(settings: HealthSettings = HEALTH) {
  const clock = manualClock();
  const { log, lines } = madeUpTools();
  const threads = threadsOf(2);
  const sent: UpstreamFailures[] = [];
  const setOf = (place: number) => {
    const reports = new FailureReports();
    reports.send = (failures) => void sent.push(...failures);
    const own = threads(place);
    const changes = new Int32Array(own.memory("changes", 4));
    const upstreamSet = new UpstreamSet("s");
    const make: HealthTools["make"] = (of, memory) =>
      place < 0 ? new Health(of, memory) : new PublishedHealth(of, memory!, reports);
    const apply = (next: HealthSettings) => {
      const plans = ["a", "b"].map((id) => ({
        peer: upstreamSet.peer(id, pools[id]!),
        memory: own.memory(id, HEALTH_BYTES),
        weight: 1,
        health: next,
      }));
      upstreamSet.apply(plans, null);
      applyHealth(upstreamSet, plans, { clock, log: place < 0 ? log : silentLog, changes, make });
    };
    const pools: Record<string, ReturnType<typeof madeUpPool>> = { a: madeUpPool(), b: madeUpPool() };
    apply(settings);
    const picker = pickerAmong(changes, upstreamSet.peers, balancerOf({ loadBalancingStrategy: "round_robin" }));
    const picks = () => Array.from({ length: 4 }, () => picker.pick(madeUpExchange(), [])?.id ?? "-").join("");
    return {
      upstreamSet,
      health: (id: string) => upstreamSet.peers.find((peer) => peer.id === id)!.health,
      picks,
      apply,
    };
  };
  const [main, one, two] = [setOf(-1), setOf(0), setOf(1)];
  return {
    clock,
    lines,
    sent,
    main,
    one,
    two,
    start: () => setOf(0),
    checked: (id: string, failure: string | null) => (main.health(id) as Health).checked(failure),
  };
}

describe("the health of upstreams with workers", () => {
  it(
    "an upstream that the main thread finds unhealthy gets no request of any worker from that moment on, " +
      "and gets them again when its checks pass",
    () => {
      const { one, two, checked, lines } = bench();
      expect([one.picks(), two.picks()]).toEqual(["abab", "abab"]);
      checked("a", "status 500");
      expect([one.picks(), two.picks()]).toEqual(["bbbb", "bbbb"]);
      checked("a", null);
      expect([one.picks(), two.picks()].every((picks) => picks.includes("a") && picks.includes("b"))).toBe(true);
      expect(lines.map(({ message }) => message)).toEqual([
        "upstream unhealthy: its checks fail",
        "upstream healthy: its checks pass",
      ]);
    },
  );

  it(
    "failures of all workers count together in the main thread, " +
      "and an ejection holds for all of them until it is over",
    () => {
      const { main, one, two, clock } = bench();
      main.health("a").countFailure("broken");
      main.health("a").countFailure("broken");
      expect([one.picks(), two.picks(), one.health("a").ejected]).toEqual(["bbbb", "bbbb", true]);
      clock.advance(100);
      expect([one.picks(), two.picks()].every((picks) => picks.includes("a"))).toBe(true);
    },
  );

  it("a worker uses ejected upstreams when no other is left, and no unhealthy ones", () => {
    const { main, one, checked } = bench();
    for (let i = 0; i < 2; i++) main.health("a").countFailure("broken");
    checked("b", "status 500");
    expect(one.picks()).toBe("aaaa");
    checked("a", "status 500");
    expect(one.picks()).toBe("----");
  });

  it(
    "a worker reports its failures once a turn, with their number and the latest reason, " +
      "and statuses that count as failures",
    async () => {
      const { sent, one, two } = bench();
      one.health("a").countFailure("first");
      one.health("a").countFailure("second");
      one.health("b").countAnswer(503);
      one.health("b").countAnswer(200);
      two.health("b").countAnswer(503);
      expect(sent).toEqual([]);
      await nextTurn();
      expect(sent).toEqual([
        { service: "s", upstream: "a", count: 2, reason: "second" },
        { service: "s", upstream: "b", count: 1, reason: "status 503" },
        { service: "s", upstream: "b", count: 1, reason: "status 503" },
      ]);
    },
  );

  it(
    "a worker reports no failures of an upstream that is ejected, that cannot be ejected, " +
      "or that is no longer configured",
    async () => {
      const { sent, main, one, two } = bench();
      for (let i = 0; i < 2; i++) main.health("a").countFailure("broken");
      one.health("a").countFailure("broken");
      one.health("b").close();
      one.health("b").countFailure("broken");
      two.apply({ ...HEALTH, passive: { ...HEALTH.passive, maxFailures: 0 } });
      two.health("b").countFailure("broken");
      await nextTurn();
      expect(sent).toEqual([]);
    },
  );

  it("a worker starts slowly with an upstream that is back, by the time at which the main thread found it so", () => {
    const { one, clock, checked } = bench({ ...HEALTH, passive: { ...HEALTH.passive, slowStartMs: 1000 } });
    clock.advance(5);
    checked("a", "status 500");
    checked("a", null);
    expect(one.health("a").share).toBe(0.1);
    clock.advance(500);
    expect(one.health("a").share).toBe(0.5);
    clock.advance(500);
    expect([one.health("a").share, one.health("b").share]).toEqual([1, 1]);
  });

  it("a worker that starts later has the state of every upstream at once", () => {
    const { main, start, checked } = bench();
    checked("a", "status 500");
    const late = start();
    expect(late.picks()).toBe("bbbb");
    expect(upstreamSetReport(late.upstreamSet).upstreams.map(({ state, usable }) => [state, usable])).toEqual([
      ["unhealthy", false],
      ["unknown", true],
    ]);
    expect(upstreamSetReport(main.upstreamSet).upstreams.map(({ state, reason }) => [state, reason])).toEqual([
      ["unhealthy", "status 500"],
      ["unknown", null],
    ]);
  });
});

/** The health of a service's upstreams in memory that all threads share, over reloads that change this memory. */
import { describe, expect, it } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import type { Service } from "../../lib/config/model.ts";
import { applyPlans, balancedBy } from "../../lib/gateway/balancing.ts";
import type { HealthTools } from "../../lib/upstream/contracts.ts";
import { Health, PublishedHealth } from "../../lib/upstream/health.ts";
import { FailureReports } from "../../lib/upstream/shared_health.ts";
import { UpstreamSet } from "../../lib/upstream/upstream_set.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpPool } from "../support/peer.ts";
import { threadsOf } from "../support/threads.ts";

const EJECT_MS = 1000;

/** A service with these upstreams, of which a name with a dot is a record. */
function serviceOf(upstreams: string): Service {
  return {
    name: "s",
    protocol: "http",
    loadBalancingStrategy: "round_robin",
    health: {
      enabled: false,
      passive: { maxFailures: 1, windowMs: 1000, ejectMs: EJECT_MS, statuses: [], slowStartMs: 0 },
    },
    upstreams: upstreams.split(" ").map((id) => (id.includes(".") ? { id, srv: id } : { id })),
  } as unknown as Service;
}

function bench() {
  const clock = manualClock();
  const threads = threadsOf(2);
  const pools = { a: madeUpPool(), b: madeUpPool() };
  return {
    clock,
    /** A thread with the upstreams "a" and "b", of servers or of records; -1: the main thread. */
    thread(place: number) {
      const lasting = threads(place);
      const set = new UpstreamSet("s");
      const reports = new FailureReports();
      const make: HealthTools["make"] = (of, memory) =>
        place < 0 ? new Health(of, memory) : new PublishedHealth(of, memory!, reports);
      const changes = new Int32Array(lasting.memory("changes", 4));
      const { memory } = lasting;
      const tools = { clock, log: silentLog, changes, make, memory, lasting, dialTo: () => null as never };
      return {
        apply(upstreams: string) {
          const service = serviceOf(upstreams);
          const followed = service.upstreams.filter((each) => "srv" in each).length;
          const plans = (["a", "b"] as const).map((id) => ({ peer: set.peer(id, pools[id]), weight: 1, health: null }));
          applyPlans(set, balancedBy(service, set, { ...tools, followed })(plans), tools, false);
        },
        usable: () => set.peers.map(({ health }) => health.usable),
        fail: (id: string) => set.withId(id)!.health.countFailure("refused"),
      };
    },
  };
}

describe("a worker that begins after a reload", () => {
  it.each([
    ["adds a server beside a record", "u.test", "u.test v"],
    ["removes a server beside a record", "u.test v", "u.test"],
    ["adds a record beside a record", "u.test", "u.test v.test"],
    ["adds the first record", "v w", "u.test v w"],
    ["removes the last record", "u.test v w", "v w"],
  ])("has what was decided before, where the reload %s, and what is decided later", (_title, before, after) => {
    const { clock, thread } = bench();
    const [main, old] = [thread(-1), thread(0)];
    for (const each of [main, old]) each.apply(before);
    main.fail("a");
    expect(old.usable()).toEqual([false, true]);
    for (const each of [main, old]) each.apply(after);
    const fresh = thread(1);
    fresh.apply(after);
    const all = () => [main, old, fresh].map((each) => each.usable());
    expect(all()).toEqual(Array(3).fill([false, true]));
    clock.advance(EJECT_MS);
    expect(all()).toEqual(Array(3).fill([true, true]));
    main.fail("b");
    expect(all()).toEqual(Array(3).fill([true, false]));
  });
});

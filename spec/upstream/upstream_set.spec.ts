import { describe, expect, it } from "vitest";
import { Fault, type ErrorCode } from "../../lib/base/errors.ts";
import { silentLog } from "../../lib/base/log.ts";
import { Breaker } from "../../lib/upstream/breaker.ts";
import { applyPlans, pickerAmong } from "../../lib/upstream/choice.ts";
import type { HealthTools } from "../../lib/upstream/contracts.ts";
import { exactly } from "../../lib/upstream/endpoints.ts";
import { Health } from "../../lib/upstream/health.ts";
import type { HealthSettings } from "../../lib/upstream/contracts.ts";
import { UpstreamTls } from "../../lib/upstream/tls.ts";
import { upstreamSetReport } from "../../lib/upstream/upstream_report.ts";
import { UpstreamSet, type UpstreamPlan, type Peer } from "../../lib/upstream/upstream_set.ts";
import { balancerOf } from "../support/balancers.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { madeUpPool, madeUpPeer } from "../support/peer.ts";

const HEALTH: HealthSettings = {
  active: { healthyThreshold: 1, unhealthyThreshold: 1 },
  passive: { maxFailures: 1, windowMs: 1000, ejectMs: 100, statuses: [], slowStartMs: 0 },
};
const BREAKER = { errorRatio: 0.5, minRequests: 1, windowMs: 1000, openMs: 1000, probes: 1 };

/** A fleet of upstreams in force: "a b:0 c:2", ids and weights. */
function bench(text: string) {
  const clock = manualClock();
  const fleet = new UpstreamSet("s");
  const tools: HealthTools = {
    clock,
    log: silentLog,
    changes: new Int32Array(1),
    make: (options) => new Health(options),
  };
  const force = (plans: readonly UpstreamPlan[]) => applyPlans(fleet, { plans, breaker: null }, tools, false);
  const pools = new Map<string, ReturnType<typeof madeUpPool>>();
  const apply = (next: string) => {
    const plans = next.split(" ").map((item): UpstreamPlan => {
      const [id, weight = "1"] = item.split(":");
      if (!pools.has(id!)) pools.set(id!, madeUpPool());
      return { peer: fleet.peer(id!, pools.get(id!)!), weight: Number(weight), health: HEALTH };
    });
    force(plans);
    const peers = plans.map(({ peer }) => peer);
    return { peers, picker: pickerAmong(tools.changes, peers, balancerOf({ loadBalancingStrategy: "round_robin" })) };
  };
  const first = apply(text);
  const picks = (n: number, tried: readonly Peer[] = []) =>
    Array.from({ length: n }, () => first.picker.pick(madeUpExchange(), tried)?.id ?? "-").join("");
  return { clock, fleet, force, apply, ...first, picks };
}

describe("the choice of upstreams", () => {
  it("the choice of upstreams uses all healthy upstreams", () => {
    expect(bench("a b c").picks(6)).toBe("abcabc");
  });

  it("the choice of upstreams uses no upstream with weight 0, and finds no upstream if all have weight 0", () => {
    expect(bench("a b:0 c").picks(4)).toBe("acac");
    expect(bench("a:0 b:0").picks(2)).toBe("--");
  });

  it("the choice of upstreams skips an ejected upstream until it returns", () => {
    const { picks, peers, clock } = bench("a b c");
    peers[1]!.health.countFailure("broken");
    expect(picks(4)).toBe("acac");
    clock.advance(100);
    expect([...picks(3)].sort().join("")).toBe("abc");
  });

  it("the choice of upstreams skips an unhealthy upstream, and finds no upstream if all are unhealthy", () => {
    const { picks, peers } = bench("a b");
    (peers[0]!.health as Health).checked("status 500");
    expect(picks(2)).toBe("bb");
    (peers[1]!.health as Health).checked("status 500");
    expect(picks(1)).toBe("-");
    (peers[1]!.health as Health).checked(null);
    expect(picks(1)).toBe("b");
  });

  it("the choice of upstreams follows the new weights after a reload, whatever turns were left", () => {
    const { picks, apply, picker } = bench("a:100 b");
    picks(60);
    apply("a b");
    expect(Array.from({ length: 4 }, () => picker.pick(madeUpExchange(), [])!.id).join("")).toBe("abab");
  });

  it("the choice of upstreams goes on in its order where all weights change alike, without a drift", () => {
    const shares = (count: number) => ["a", "b", "c", "d"].slice(0, count).map((id) => `${id}:${exactly(1 / count)}`);
    const { apply, picks } = bench(shares(3).join(" "));
    expect(picks(4)).toBe("abca");
    for (const count of [4, 3]) {
      const { picker } = apply(shares(count).join(" "));
      const next = () => picker.pick(madeUpExchange(), [])!.id;
      const order = Array.from({ length: 40 }, next).join("");
      // After a it is b's turn, and not a's, as it is where turns begin anew.
      expect(order.startsWith("b")).toBe(true);
      const round = order.slice(-count);
      expect(new Set(round).size).toBe(count);
      expect(order.endsWith(round + round + round)).toBe(true);
      while (next() !== "a");
    }
  });

  it("the choice of upstreams skips an upstream that was tried", () => {
    const { picks, peers } = bench("a b");
    expect(picks(2, [peers[0]!])).toBe("bb");
    expect(picks(1, peers)).toBe("-");
  });
});

describe("the last usable upstream", () => {
  it("the last usable upstream stays in use: it is never ejected", () => {
    const { picks, peers } = bench("a b c:0");
    peers[0]!.health.countFailure("broken");
    for (let i = 0; i < 5; i++) peers[1]!.health.countFailure("broken");
    expect(picks(2)).toBe("bb");
  });

  it("the last usable upstream makes the ejected upstreams usable when it is unhealthy", () => {
    const { picks, peers } = bench("a b");
    peers[0]!.health.countFailure("broken");
    (peers[1]!.health as Health).checked("status 500");
    expect(picks(2)).toBe("aa");
  });

  it("the last usable upstream cannot be an upstream that a reload removed", () => {
    const { peers, apply } = bench("a b");
    apply("a");
    peers[0]!.health.countFailure("broken");
    expect(peers[0]!.health.usable).toBe(true);
  });
});

describe("a reload", () => {
  it("a reload keeps an upstream and its health", () => {
    const { peers, apply } = bench("a b");
    peers[0]!.health.countFailure("broken");
    const { peers: next, picker } = apply("a b c");
    expect(next.slice(0, 2)).toEqual(peers);
    expect(picker.pick(madeUpExchange(), [])!.id).not.toBe("a");
  });

  it("a reload changes weights, even for requests in progress", () => {
    const { picks, apply } = bench("a b");
    apply("a:0 b");
    expect(picks(2)).toBe("bb");
  });

  it("a reload creates a new upstream for an id with other connections", () => {
    const { fleet, peers } = bench("a");
    expect(fleet.peer("a", peers[0]!.pool)).toBe(peers[0]);
    expect(fleet.peer("a", madeUpPool())).not.toBe(peers[0]);
  });

  it(
    "a reload keeps the health of an upstream with new connections to the same place, its ejection included; " +
      "at another place it is unknown",
    () => {
      const { fleet, force, peers, apply, clock } = bench("a b");
      peers[0]!.health.countFailure("broken");
      const next = fleet.peer("a", madeUpPool({ keepaliveIdleMs: 2 }));
      expect(fleet.peer("a", madeUpPool({ port: 81 })).health.usable).toBe(true);
      expect(fleet.peer("b", madeUpPool({ host: "127.0.0.2" })).health).not.toBe(peers[1]!.health);
      force([
        { peer: next, weight: 1, health: HEALTH },
        { peer: peers[1]!, weight: 1, health: HEALTH },
      ]);
      expect(upstreamSetReport(fleet).upstreams).toMatchObject([
        { id: "a", state: "ejected", usable: false },
        { id: "b", usable: true },
      ]);
      clock.advance(100);
      expect(upstreamSetReport(fleet).upstreams[0]).toMatchObject({ state: "unknown", usable: true });
      next.health.countFailure("broken");
      apply("b");
      expect(clock.pending).toBe(0);
    },
  );

  it(
    "a reload that gives an upstream settings for its health begins to count its failures, " +
      "and one that takes them away makes it usable",
    () => {
      const { fleet, force, peers, clock } = bench("a b");
      const [a, b] = peers as [Peer, Peer];
      const put = (health: HealthSettings | null) => force([a, b].map((peer) => ({ peer, weight: 1, health })));
      const states = () => {
        a.health.countFailure("broken");
        return upstreamSetReport(fleet).upstreams.map(({ state }) => state);
      };
      put(null);
      expect(states()).toEqual(["unknown", "unknown"]);
      put(HEALTH);
      expect(states()).toEqual(["ejected", "unknown"]);
      put(null);
      expect([states(), a.health.usable, clock.pending]).toEqual([["unknown", "unknown"], true, 0]);
      put(HEALTH);
      expect(states()).toEqual(["ejected", "unknown"]);
    },
  );

  it("a reload looks at each of a thousand upstreams a few times, whatever their number", () => {
    let looks = 0;
    const { fleet, apply, force } = bench("first");
    const ids = Array.from({ length: 1000 }, (_none, i) => `u${i}`);
    const { peers } = apply(ids.join(" "));
    for (const peer of peers) {
      const { id } = peer;
      Object.defineProperty(peer, "id", { get: () => (looks++, id) });
    }
    const { pool } = peers[0]!;
    const next = ids.map((id): UpstreamPlan => ({ peer: fleet.peer(`${id}+`, pool), weight: 1, health: HEALTH }));
    force([...peers.map((peer) => ({ peer, weight: 1, health: HEALTH })), ...next]);
    expect(looks).toBeLessThan(10 * ids.length);
  });

  it("a reload leaves no timer when it removes an upstream or when the service ends", () => {
    const { peers, apply, clock, fleet } = bench("a b c");
    peers[0]!.health.countFailure("broken");
    apply("b c");
    expect(clock.pending).toBe(0);
    peers[1]!.health.countFailure("broken");
    fleet.close();
    expect(clock.pending).toBe(0);
  });

  it("a reload keeps the state of the circuit breaker, and drops it if none is configured", () => {
    const { fleet, clock } = bench("a");
    const breaker = new Breaker({ clock, log: silentLog, service: "s" }, BREAKER);
    fleet.apply([], { breaker, settings: BREAKER });
    breaker.settle(breaker.admit(), "failed");
    fleet.apply([], { breaker, settings: { ...BREAKER, probes: 2 } });
    expect(fleet.breaker).toBe(breaker);
    expect(upstreamSetReport(fleet).circuitBreaker).toMatchObject({ state: "open" });
    fleet.apply([], null);
    expect(upstreamSetReport(fleet).circuitBreaker).toBeNull();
  });
});

it("reports the state of each upstream, and whether it gets requests", () => {
  const { fleet, peers } = bench("a b c:0");
  peers[0]!.health.countFailure("connect ECONNREFUSED");
  const at = {
    host: "127.0.0.1",
    port: 80,
    group: null,
    backup: false,
    inFlight: 0,
    adminState: null,
    adminSince: null,
    adminId: null,
  };
  expect(upstreamSetReport(fleet)).toEqual({
    name: "s",
    circuitBreaker: null,
    upstreams: [
      {
        id: "a",
        ...at,
        weight: 1,
        state: "ejected",
        since: Date.UTC(2026, 0, 1),
        reason: "connect ECONNREFUSED",
        until: Date.UTC(2026, 0, 1) + 100,
        usable: false,
        share: 0,
        rest: true,
      },
      {
        id: "b",
        ...at,
        weight: 1,
        state: "unknown",
        since: null,
        reason: null,
        until: null,
        usable: true,
        share: 1,
        rest: true,
      },
      {
        id: "c",
        ...at,
        weight: 0,
        state: "draining",
        since: null,
        reason: null,
        until: null,
        usable: false,
        share: 0,
        rest: true,
      },
    ],
  });
});

it.each([
  ["127.0.0.1", 8080, "http", "127.0.0.1:8080"],
  ["backend.example", 80, "http", "backend.example"],
  ["backend.example", 443, "http", "backend.example:443"],
  ["backend.example", 443, "https", "backend.example"],
  ["backend.example", 80, "https", "backend.example:80"],
  ["2001:db8::1", 80, "http", "[2001:db8::1]"],
  ["2001:db8::1", 8080, "http", "[2001:db8::1]:8080"],
] as const)("the authority of %s, port %d, over %s is %s", (host, port, protocol, authority) => {
  expect(
    madeUpPeer("a", madeUpPool({ host, port, protocol, ...(protocol === "https" ? { tls: new UpstreamTls() } : {}) }))
      .authority,
  ).toBe(authority);
});

it("has the same headers of its own until a configuration has others, or none", () => {
  const { fleet, force } = bench("a");
  const peer = fleet.withId("a")!;
  const headersWith = (requestHeaders: Readonly<Record<string, string>> | undefined) => {
    force([{ peer, weight: 1, health: HEALTH, requestHeaders }]);
    return peer.ownHeaders;
  };
  const values = { "X-Key": "1" };
  const first = headersWith(values);
  expect(first?.list).toEqual(["X-Key", "1"]);
  expect(headersWith(values)).toBe(first);
  expect(headersWith({ "X-Key": "2" })?.list).toEqual(["X-Key", "2"]);
  expect(headersWith(undefined)).toBeNull();
});

it.each<[ErrorCode, number]>([
  ["upstream_reset", 1],
  ["upstream_invalid", 1],
  ["upstream_timeout", 0],
  ["body_too_large", 0],
])("counts a response that breaks off with %s as a failure of the upstream: %d", (code, times) => {
  const peer = madeUpPeer("a");
  let failures = 0;
  peer.health.countFailure = () => void failures++;
  peer.brokeOff(new Fault(code, "in the middle"));
  expect(failures).toBe(times);
});

it("counts requests in progress and waiting requests as its load", async () => {
  const pool = madeUpPool({}, 1);
  const peer = madeUpPeer("a", pool);
  expect(peer.load).toBe(0);
  pool.tryLease("");
  void pool.leases.wait({ holder: "", onAbort: () => {} }, 1000).catch(() => {});
  expect(peer.load).toBe(2);
  pool.destroy();
});

/** Upstreams that are SRV records: a service follows their targets without a reload. */
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { takenOutOf } from "../../lib/gateway/taken_out.ts";
import { takeOut } from "../../lib/upstream/taken_out.ts";
import { manualClock } from "../support/clock.ts";
import { dnsServer } from "../support/dns_server.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { pem } from "../cli/pem.ts";
import { CA } from "../support/certs.ts";
import { asksOf, followedByAll, lookedUpAgain } from "./changing_endpoints.ts";
import { closedLoop, gate, recordedLog, restartableBackend, speaking, type Protocol } from "./harness.ts";

type Parts = Partial<AnyConfigInput["services"][number]>;

const RECORD = "_http._tcp.orders.test";
const OTHER = "_http._tcp.others.test";
const TTL_MS = 30_000;
/** The clock is faster than the checks are. */
const CHECKED = { enabled: true, interval_ms: 500, timeout_ms: 60_000, unhealthy_threshold: 1, healthy_threshold: 1 };
/** Every name is this machine. */
const lookup = async () => [{ address: "127.0.0.1", family: 4 }];

/** Backends `a`, `b`, …, each at a name of its own, and a name server. */
async function service(names: string, parts: Parts = {}, protocol: Protocol = "http") {
  const dns = await dnsServer();
  const ids = names.split(" ");
  const backends = await Promise.all(ids.map(() => restartableBackend(protocol)));
  backends.forEach((each, i) => (each.answer = (_request, response) => void response.end(ids[i])));
  const of = (id: string) => backends[ids.indexOf(id)]!;
  /** "a", "b:3" with a weight, "c@10" with a priority. */
  const says = (targets: string, record = RECORD) => {
    const found = targets.split(" ").map((target) => {
      const [, id, weight = "1", priority = "0"] = /^(\w+)(?::(\d+))?(?:@(\d+))?$/.exec(target)!;
      return { name: `${id}.test`, port: of(id!).port, weight: Number(weight), priority: Number(priority) };
    });
    dns.answers.set(record, found);
  };
  const clock = manualClock();
  const { log, lines } = recordedLog();
  const config = (more: Parts = {}) =>
    oneService([], { ...speaking(protocol), upstreams: [{ id: "u", srv: RECORD }], ...parts, ...more });
  const start = (more: Parts = {}) => running(config(more), { clock, log, lookup, lookUpService: dns.lookUpService });
  const told = () => lines.map(({ level, message }) => `${level} ${message}`);
  return { dns, of, says, clock, config, start, told };
}

/** A gateway in front of them, once the first answer is in force. */
async function started(names: string, first: string, parts: Parts = {}, protocol: Protocol = "http") {
  const made = await service(names, parts, protocol);
  const { dns, clock, says } = made;
  says(first);
  const { gateway, port } = await made.start();
  const { asked, answers } = asksOf(port);
  const upstreams = () => gateway.health.services[0]!.upstreams;
  /** "a", "b:3", "c!": in their order, with weights other than 1, and marks of backups. */
  const shown = () =>
    upstreams()
      .map(
        ({ id, weight, backup }) =>
          /\/(\w+)\./.exec(id)![1]! + (weight === 1 ? "" : `:${weight}`) + (backup ? "!" : ""),
      )
      .join(" ");
  /** Look-ups take their time, and the clock stands still meanwhile. */
  const until = (wanted: string) => eventually(() => (clock.advance(10), shown() === wanted), `${wanted}`);
  /** Looks the record up again, once its answer is old, or after a failure. */
  const again = () => lookedUpAgain(dns, clock, TTL_MS);
  await eventually(() => (clock.advance(10), upstreams().length > 0), "the first answer");
  const { runtime } = Gateway.internalsOf(gateway as Gateway);
  return { ...made, gateway, port, asked, answers, upstreams, shown, until, again, runtime };
}

describe("an upstream that is an SRV record", () => {
  it("is its targets, each an upstream under its name and port", async () => {
    const { upstreams, answers, of } = await started("a b", "b a");
    expect(upstreams()).toMatchObject([
      { id: `u/a.test:${of("a").port}`, host: "a.test", port: of("a").port, usable: true, share: 0.5 },
      { id: `u/b.test:${of("b").port}`, host: "b.test", port: of("b").port, usable: true, share: 0.5 },
    ]);
    expect(await answers(4)).toBe("a b a b");
  });

  it("gives its targets the weights of RFC 2782: 0 is a very small share among others, and equal alone", async () => {
    const { shown, answers, says, again, until } = await started("a b c", "a:3 b:1 c:0");
    expect(shown()).toBe("a:3 b c:0.01");
    const got = (await answers(40)).split(" ");
    expect(["a", "b", "c"].map((id) => got.filter((each) => each === id).length)).toEqual([30, 10, 0]);
    says("a:0 b:0");
    await again();
    await until("a b");
    // Whose turn it is depends on the turns before.
    expect(["a b a b", "b a b a"]).toContain(await answers(4));
  });

  it("asks targets of each further priority only while no target before can be used, as it does backups", async () => {
    const ejecting = { health: { passive: { max_failures: 1, eject_ms: 600_000 } } };
    const { shown, answers, of } = await started("a b c", "c@30 a@10 b@20", ejecting);
    expect(shown()).toBe("a b! c!");
    expect(await answers(3)).toBe("a a a");
    await of("a").kill();
    expect(await answers(3)).toBe("b b b");
    await of("b").kill();
    expect(await answers(2)).toBe("c c");
    expect([of("b").requests, of("c").requests]).toEqual([3, 2]);
  });

  it("merges targets that occur twice, and leaves out those that are no hosts", async () => {
    const { dns, of, again, until, told } = await started("a b", "a");
    const [a, b] = [of("a").port, of("b").port];
    dns.answers.set(RECORD, [
      { name: "a.test", port: a, weight: 1 },
      { name: "A.test", port: a, weight: 2 },
      { name: "b.test", port: b, priority: 5 },
      { name: "b.test", port: b, priority: 7, weight: 9 },
      { name: "no host.test", port: a },
      { name: "zero.test", port: 0 },
    ]);
    await again();
    await until("a:3 b!");
    expect(told()).toContain("warn targets of an SRV record are left out");
  });

  it("follows its targets without a reload: those that stay keep connections, turns and their state", async () => {
    const { says, again, until, answers, runtime, gateway, of, asked } = await started("a b c", "a b");
    expect(await answers(3)).toBe("a b a");
    const peer = (id: string) => runtime.peer("s", `u/${id}.test:${of(id).port}`)!;
    const [a, b] = [peer("a"), peer("b")];
    const { loadedAt, digest } = gateway.status;
    takeOut(runtime.upstreamsOf("s")!.upstreamSet, { id: a.id, state: "drain" }, runtime.healthTools.changes);
    says("a b c");
    await again();
    await until("a b c");
    expect([peer("a"), peer("b")]).toEqual([a, b]);
    expect(peer("a")).toBe(a);
    expect(a.takenOut?.state).toBe("drain");
    expect([a.pool.open, b.pool.open]).toEqual([1, 1]);
    takeOut(runtime.upstreamsOf("s")!.upstreamSet, { id: a.id, state: "use" }, runtime.healthTools.changes);
    // It was b's turn, and a new one takes none from those that stay.
    expect((await asked()).from).toBe("b");
    expect(gateway.status).toMatchObject({ loadedAt, digest });
  });

  it("lets requests to a target that has left finish, and closes its connections that are not used", async () => {
    const { says, again, until, asked, answers, runtime, of } = await started("a b", "a b");
    const held = gate();
    of("a").answer = async (_request, response) => {
      response.write("begun ");
      await held.opened;
      response.end("and finished");
    };
    const { pool } = runtime.peer("s", `u/a.test:${of("a").port}`)!;
    expect(await answers(0)).toBe("");
    const first = asked();
    await eventually(() => of("a").requests === 1);
    says("b");
    await again();
    await until("b");
    expect(pool.open).toBe(1);
    held.open();
    expect((await first).from).toBe("begun and finished");
    await eventually(() => pool.open === 0);
    expect(await answers(3)).toBe("b b b");
  });

  it("has figures of a target that has left for a minute, also while the set changes more often", async () => {
    const { says, again, until, gateway, clock, answers } = await started("a b c", "a");
    const labels = () => {
      const series = gateway
        .metrics()
        .matchAll(/^edge_gateway_upstream_duration_seconds_count\{.*upstream="u\/(\w)\./gm);
      return [...new Set(Array.from(series, ([, id]) => id))].sort().join(" ");
    };
    expect(await answers(1)).toBe("a");
    for (const [i, now] of ["b", "c", "b", "c", "b"].entries()) {
      says(now);
      await again();
      await until(now);
      expect(await answers(1)).toBe(now);
      if (i === 0) expect(labels()).toBe("a b");
    }
    expect(labels()).toBe("b c");
    clock.advance(59_000);
    expect(labels()).toBe("b c");
    clock.advance(1000);
    expect(labels()).toBe("b");
  });

  it("changes under load without a failed request", { timeout: 30_000 }, async () => {
    const { says, again, until, port } = await started("a b c d", "a b");
    const load = closedLoop(port, 8);
    for (const [said, wanted] of [
      ["b c", "b c"],
      ["c d", "c d"],
      ["a b c d", "a b c d"],
      ["d@5 a", "a d!"],
      ["d", "d"],
      ["a b", "a b"],
    ] as const) {
      says(said);
      await again();
      await until(wanted);
      await load.more(40);
    }
    await load.stop();
    expect(load.lost).toEqual([]);
  });
});

describe("a record without an answer", () => {
  it.each(["NXDOMAIN", "SERVFAIL", "malformed", "silent", "empty", "."] as const)(
    "(%s) keeps its old targets for ten times dns_ttl_ms, with a warning, and then has none",
    { timeout: 30_000 },
    async (answer) => {
      const { dns, again, gateway, answers, clock, shown, told, says, until } = await started("a", "a");
      dns.answers.set(RECORD, answer === "empty" ? [] : answer === "." ? [{ name: ".", port: 0 }] : answer);
      const codes = () => gateway.status.warnings.map(({ code }) => code);
      await again();
      await eventually(() => codes().includes("srv_unresolved"), "the warning");
      expect(told()).toContain("warn an SRV record could not be looked up: its last targets stay in use");
      clock.advance(10 * TTL_MS - 1);
      expect(await answers(1)).toBe("a");
      clock.advance(1);
      await until("");
      expect(told()).toContain("warn an SRV record could not be looked up for too long: it has no targets any more");
      expect(await answers(1)).toBe("503");
      expect(shown()).toBe("");
      expect(codes()).toEqual(expect.arrayContaining(["srv_unresolved", "no_upstream"]));
      says("a");
      await again();
      await until("a");
      expect(await answers(2)).toBe("a a");
      expect(codes()).toEqual([]);
    },
  );

  it("has requests wait for its first answer, but not longer than for a connection", async () => {
    const { dns, says, start, clock } = await service("a", { timeouts: { connect_ms: 500 } });
    says("a");
    dns.delayMs = 30;
    const { port } = await start();
    const early = ask(port, { path: "/a/x" });
    let isOver = false;
    void early.finally(() => (isOver = true));
    await eventually(() => (clock.advance(10), isOver), "the answer");
    expect([(await early).status, (await early).body.toString()]).toEqual([200, "a"]);
    const other = await service("a", { timeouts: { connect_ms: 500 } });
    other.dns.answers.set(RECORD, "silent");
    const late = await other.start();
    const refused = ask(late.port, { path: "/a/x" });
    await eventually(() => late.gateway.status.inFlight === 1);
    other.clock.advance(500);
    expect((await refused).status).toBe(503);
    expect((await refused).body.toString()).toContain("upstream_unavailable");
  });

  it("is 503 at once where its first look-up has failed, and is looked up again after a second", async () => {
    const { dns, says, start, clock, told } = await service("a");
    const { port, gateway } = await start();
    const there = "warn an SRV record could not be looked up: there are no targets yet";
    await eventually(() => (clock.advance(10), told().includes(there)), "the failure");
    clock.advance(10);
    expect((await ask(port, { path: "/a/x" })).status).toBe(503);
    says("a");
    const { length } = dns.asked;
    clock.advance(1000);
    await eventually(() => dns.asked.length > length);
    await eventually(() => (clock.advance(10), gateway.health.services[0]!.upstreams.length === 1));
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });

  it("is asked for over TCP where its answer is longer than a datagram: a thousand targets, and no more", async () => {
    const { dns, again, of, upstreams, clock, told, answers, gateway } = await started("a", "a");
    const targets = (count: number) =>
      Array.from({ length: count }, (_none, i) => ({
        name: `t${String(i).padStart(4, "0")}.test`,
        port: of("a").port,
      }));
    dns.answers.set(RECORD, targets(1100));
    await again();
    await eventually(() => (clock.advance(10), upstreams().length === 1000), "a thousand targets");
    expect(dns.asked.slice(-2)).toEqual([`udp SRV ${RECORD}`, `tcp SRV ${RECORD}`]);
    expect(told()).toContain("warn targets of an SRV record are left out");
    expect(await answers(2)).toBe("a a");
    const labels = new Set(gateway.metrics().match(/^edge_gateway_upstream_healthy\{.*/gm));
    expect(labels.size).toBe(65);
    expect([...labels].filter((line) => line.includes('upstream="other"'))).toEqual([expect.stringMatching(/ 936$/)]);
  });
});

describe("targets of a record", () => {
  it.each([
    ["least_connections", {}],
    ["random_two_choices", {}],
    ["ip_hash", {}],
    ["hash", { hash_on: "header:x-key" }],
  ] as const)("are chosen by %s as upstreams are, and by another set after a change", async (strategy, parts) => {
    const { answers, says, again, until } = await started("a b c", "a b", {
      load_balancing_strategy: strategy,
      ...parts,
    } as Parts);
    const named = async () => new Set((await answers(6, { headers: { "X-Key": "one" } })).split(" "));
    const first = await named();
    expect([...first].every((id) => "ab".includes(id))).toBe(true);
    if (strategy.includes("hash")) expect(first.size).toBe(1);
    says("c");
    await again();
    await until("c");
    expect([...(await named())]).toEqual(["c"]);
  });

  it("have sticky sessions, which stay with targets that stay", async () => {
    const { asked, says, again, until, answers } = await started("a b c", "a b", { sticky: {} } as Parts);
    const first = await asked();
    const cookie = first.headers["set-cookie"]![0]!.split(";")[0]!;
    says("a b c");
    await again();
    await until("a b c");
    expect(new Set((await answers(6, { headers: { Cookie: cookie } })).split(" "))).toEqual(new Set([first.from]));
  });

  it("are of the group of their upstream, and a split goes on where a record of a group has none", async () => {
    const upstreams = [
      { id: "u", srv: RECORD, group: "old" },
      { id: "v", srv: OTHER, group: "new" },
    ];
    const split = [{ group: "new", percent: 100 }];
    const made = await started("a b", "a", { upstreams, split } as Parts);
    expect(await made.answers(2)).toBe("a a");
    made.says("b", OTHER);
    await eventually(() => (made.clock.advance(1000), made.shown() === "a b"), "the other record");
    expect(await made.answers(3)).toBe("b b b");
  });

  it("stand beside servers: a record as the backup of one, and one as the backup of a record", async () => {
    const { of, says, dns, start, clock } = await service("a b");
    says("b");
    const backups = (port: number) => [
      [
        { host: "127.0.0.1", port },
        { id: "u", srv: RECORD, backup: true },
      ],
      [
        { host: "127.0.0.1", port, backup: true },
        { id: "u", srv: RECORD },
      ],
    ];
    for (const [i, upstreams] of backups(of("a").port).entries()) {
      const { gateway, port } = await start({ upstreams } as Parts);
      await eventually(() => (clock.advance(10), gateway.health.services[0]!.upstreams.length === 2));
      expect((await ask(port, { path: "/a/x" })).body.toString()).toBe(i === 0 ? "a" : "b");
      await of(i === 0 ? "a" : "b").kill();
      expect((await ask(port, { path: "/a/x" })).body.toString()).toBe(i === 0 ? "b" : "a");
      await of(i === 0 ? "a" : "b").start();
    }
    expect(dns.asked.length).toBeGreaterThan(1);
  });

  it("are tried again, checked, and judged by the circuit breaker of their service", async () => {
    const { answers, of, upstreams, clock } = await started("a b", "a b", {
      retries: { on: [503], attempts: 2 },
      health: CHECKED,
      circuit_breaker: { min_requests: 2, error_ratio: 1 },
    } as Parts);
    of("a").answer = (_request, response) => void response.writeHead(503).end();
    expect(await answers(4)).toBe("b b b b");
    const states = () => upstreams().map(({ state }) => state);
    await eventually(() => (clock.advance(20), String(states()) === "unhealthy,healthy"), "both checks");
    of("b").answer = of("a").answer;
    await answers(6);
    expect(await answers(1)).toBe("503");
  });

  it("are verified by their own names over TLS, unless servername says another", async () => {
    const tls = { ca: pem({ ca: CA.cert }).ca! };
    const wrong = await started("a", "a", { tls } as Parts, "https");
    expect(await wrong.answers(1)).toBe("502");
    const right = await started("a", "a", { tls: { ...tls, servername: "localhost" } } as Parts, "https");
    expect(await right.answers(1)).toBe("a");
    const made = await service("a", { tls } as Parts, "https");
    made.dns.answers.set(RECORD, [{ name: "localhost", port: made.of("a").port }]);
    const { gateway, port } = await made.start();
    await eventually(() => (made.clock.advance(10), gateway.health.services[0]!.upstreams.length === 1));
    expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("a");
  });

  it("are explained, and the record is named where there are none", async () => {
    const { gateway, of, dns, again, clock, until } = await started("a", "a");
    const explained = async () => await (gateway as Gateway).explain({ method: "GET", url: "http://x.test/a/x" });
    const first = await explained();
    expect(first.upstreams.map(({ id, share }) => [id, share])).toEqual([[`u/a.test:${of("a").port}`, 1]]);
    expect(first.reasons.join(" ")).toContain(`the targets of the SRV record ${RECORD}`);
    dns.answers.set(RECORD, "NXDOMAIN");
    await again();
    await eventually(() => gateway.status.warnings.length > 0);
    clock.advance(10 * TTL_MS);
    await until("");
    expect((await explained()).reasons.join(" ")).toContain("No targets are known at the moment.");
  });
});

describe("targets that were taken out", () => {
  const restored = async (known: string) => {
    const made = await service("a b");
    const { gateway, port } = await made.start();
    const internals = Gateway.internalsOf(gateway as Gateway);
    const id = `u/${known}.test:${made.of(known === "b" ? "b" : "a").port}`;
    takenOutOf(internals).restore([{ service: "s", id, state: "eject", since: 1 }]);
    const shown = () => gateway.health.services[0]!.upstreams;
    const until = (count: number) => eventually(() => (made.clock.advance(100), shown().length === count));
    return { ...made, internals, port, shown, until };
  };

  it("before a restart are out once they are known, and not before", async () => {
    const { says, until, shown, port, told } = await restored("b");
    says("a b");
    await until(2);
    expect(shown().map(({ adminState }) => adminState)).toEqual([null, "eject"]);
    for (let i = 0; i < 3; i++) expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("a");
    expect(told().filter((line) => line.includes("no longer taken out"))).toEqual([]);
  });

  it("and are gone are reported once the record has had an answer", async () => {
    const { says, until, told } = await restored("gone");
    says("a");
    await until(1);
    expect(told()).toContain("warn upstream is no longer taken out: the configuration has it no longer");
  });
});

describe("a thousand targets", () => {
  it("of which other ones leave and come with each answer are put into force in turns of milliseconds", async () => {
    const { dns, runtime, clock, of, answers } = await started("a", "a");
    const { port } = of("a");
    const targets = (from: number) => Array.from({ length: 1000 }, (_none, i) => ({ name: `t${from + i}.test`, port }));
    const turns: number[] = [];
    const come: number[] = [];
    const replace = runtime.replace.bind(runtime);
    vi.spyOn(runtime, "replace").mockImplementation((plan, pools) => {
      come.push(plan.plans.filter(({ peer }) => runtime.peer("s", peer.id) !== peer).length);
      const begun = performance.now();
      replace(plan, pools);
      turns.push(performance.now() - begun);
    });
    const planned = vi.spyOn(runtime, "pool");
    onTestFinished(() => void vi.restoreAllMocks());
    const follows = async (from: number) => {
      dns.answers.set(RECORD, targets(from));
      const { length } = dns.asked;
      clock.advance(TTL_MS);
      await eventually(() => dns.asked.length > length);
      const isThere = () => {
        const { peers } = runtime.upstreamSet("s");
        return peers.length === 1000 && [from, from + 999].every((i) => runtime.peer("s", `u/t${i}.test:${port}`));
      };
      await eventually(() => (clock.advance(10), isThere()), "the change");
    };
    for (let change = 0; change < 30; change++) {
      planned.mockClear();
      await follows(change * 10);
      // What stays is taken over as it is.
      expect(planned).toHaveBeenCalledTimes(change === 0 ? 1000 : 10);
    }
    expect(come.splice(0)).toEqual([...Array<number>(5).fill(200), ...Array<number>(29).fill(10)]);
    expect(await answers(2)).toBe("a a");
    // All of them are others. A quarter of the turns: others may need the machine in between.
    turns.length = 0;
    for (let change = 1; change <= 4; change++) await follows(change * 10_000);
    expect(come).toEqual(Array<number>(20).fill(200));
    expect(turns.sort((a, b) => a - b)[4]).toBeLessThan(5);
    expect(await answers(2)).toBe("a a");
  });
});

describe("a reload", () => {
  it("of another service leaves the set as it is, and one of this service takes over what is known", async () => {
    const { gateway, config, runtime, of, answers, says, again, until } = await started("a b", "a b");
    const peer = () => runtime.peer("s", `u/a.test:${of("a").port}`);
    expect(await answers(2)).toBe("a b");
    const [before, plan] = [peer(), runtime.upstreamsOf("s")];
    const other = { name: "t", base_path: "/t", upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/" }] };
    const with2 = config();
    await gateway.reload({ ...with2, services: [...with2.services, other] });
    expect(peer()).toBe(before);
    await gateway.reload(config({ timeouts: { response_ms: 1234 } } as Parts));
    expect(runtime.upstreamsOf("s")).not.toBe(plan);
    expect(peer()).toBe(before);
    expect(await answers(2)).toBe("a b");
    expect(before!.pool.open).toBe(1);
    says("b");
    await again();
    await until("b");
    expect(await answers(2)).toBe("b b");
  });

  it("that is being compiled while the set changes comes into force with the new one", async () => {
    const { gateway, config, says, again, until, answers, runtime, of } = await started("a b", "a");
    const { configuration } = Gateway.internalsOf(gateway as Gateway);
    const pool = runtime.peer("s", `u/a.test:${of("a").port}`)!.pool;
    for (const changed of [{}, { timeouts: { response_ms: 4321 } }]) {
      const read = configuration.reader.load({ value: config(changed as Parts) } as never);
      const made = await configuration.compileInSlices(read);
      const [now, wanted] = Object.keys(changed).length === 0 ? ["b", "b"] : ["a", "a"];
      says(now);
      await again();
      await until(wanted);
      configuration.apply(made);
      expect(await answers(2)).toBe(`${wanted} ${wanted}`);
    }
    expect(pool.open).toBe(0);
  });

  it("that is being compiled while a target leaves and returns, or comes, has the one in force", async () => {
    const { gateway, config, says, again, until, answers, runtime, of } = await started("a b", "a");
    const { configuration } = Gateway.internalsOf(gateway as Gateway);
    const peer = (id: string) => runtime.peer("s", `u/${id}.test:${of(id).port}`)!;
    const compiled = (parts: Parts) =>
      configuration.compileInSlices(configuration.reader.load({ value: config(parts) } as never));
    const first = await compiled({ timeouts: { response_ms: 4321 } });
    for (const said of ["b", "a"]) {
      says(said);
      await again();
      await until(said);
    }
    expect(await answers(1)).toBe("a");
    const returned = peer("a");
    configuration.apply(first);
    expect(peer("a")).toBe(returned);
    expect(await answers(2)).toBe("a a");
    expect(returned.pool.open).toBe(1);
    says("a b");
    await again();
    // Known, and not in force yet.
    await eventually(() => runtime.record(RECORD).targets.length === 2, "the answer");
    const second = await compiled({ timeouts: { response_ms: 1234 } });
    await until("a b");
    const come = peer("b");
    configuration.apply(second);
    expect(peer("a")).toBe(returned);
    expect(peer("b")).toBe(come);
  });

  it.each([
    ["before the answer", false],
    ["after the answer, and before it is in force", true],
  ])("%s has requests that wait for the first answer go on waiting", async (_when, isKnown) => {
    const parts = { timeouts: { connect_ms: 60_000 } };
    const { dns, says, config, clock } = await service("a", parts);
    says("a");
    const held = gate();
    const lookUpService = async (record: string) => (await held.opened, await dns.lookUpService(record));
    const { gateway, port } = await running(config(), { clock, lookup, lookUpService });
    const { runtime } = Gateway.internalsOf(gateway as Gateway);
    const waiting = ask(port, { path: "/a/x" });
    let isOver = false;
    void waiting.finally(() => (isOver = true));
    await eventually(() => gateway.status.inFlight === 1, "the request");
    if (isKnown) {
      held.open();
      await eventually(() => runtime.record(RECORD).targets.length === 1, "the answer");
    }
    await gateway.reload(config({ timeouts: { ...parts.timeouts, response_ms: 1234 } } as Parts));
    held.open();
    await eventually(() => (clock.advance(10), isOver), "the response");
    expect([(await waiting).status, (await waiting).body.toString()]).toEqual([200, "a"]);
  });

  it("that brings a record back has it looked up, though its last look-up ended while nobody used it", async () => {
    const { dns, of, says, config, clock } = await service("a b");
    says("a");
    const held = gate();
    let answered = 0;
    const lookUpService = async (record: string) => {
      if (answered === 1) await held.opened;
      const found = await dns.lookUpService(record);
      answered++;
      return found;
    };
    const { gateway } = await running(config(), { clock, lookup, lookUpService });
    const { configuration } = Gateway.internalsOf(gateway as Gateway);
    const count = () => gateway.health.services[0]!.upstreams.length;
    await eventually(() => (clock.advance(10), answered === 1 && count() === 1), "the first answer");
    clock.advance(TTL_MS);
    await gateway.reload(oneService(of("a").port));
    const made = await configuration.compileInSlices(configuration.reader.load({ value: config() } as never));
    held.open();
    await eventually(() => answered === 2, "the answer that nobody waits for");
    says("a b");
    configuration.apply(made);
    await eventually(() => (clock.advance(10), count() === 2), "the next answer");
  });

  it("that drops the record ends its look-ups, and leaves no timer of it", async () => {
    const { gateway, dns, clock, of, says, again, until } = await started("a b", "a");
    says("b");
    await again();
    await until("b");
    await gateway.reload(oneService(of("a").port));
    const { length } = dns.asked;
    clock.advance(20 * TTL_MS);
    expect(dns.asked).toHaveLength(length);
    expect(gateway.status.warnings).toEqual([]);
  });
});

describe("with two workers", () => {
  it("each follows the record; the main thread checks and ejects targets that came later, for all", async () => {
    const { dns, says, of, clock, config } = await service("a b");
    says("a");
    const options = { config: config({ health: CHECKED } as Parts), clock, lookup, lookUpService: dns.lookUpService };
    const isKnown = (gateway: Gateway) => gateway.health.services[0]!.upstreams.length === 1;
    await followedByAll({ options, a: of("a"), says, isKnown });
  });
});

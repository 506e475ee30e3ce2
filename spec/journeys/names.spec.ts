/** Upstreams whose names have several addresses: a service follows these without a reload, each has its own health. */
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import { ConfigError, createGateway } from "../../lib/index.ts";
import { takenOutOf } from "../../lib/gateway/taken_out.ts";
import { takeOut } from "../../lib/upstream/taken_out.ts";
import { pem } from "../cli/pem.ts";
import { CA } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import type { Answer } from "../support/dns_server.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { followedByAll } from "./changing_endpoints.ts";
import { closedLoop, gate, recordedLog, restartableBackend } from "./harness.ts";
import { addressOf, HOST, namedService, sorted, startedNames, TTL_MS, type Parts } from "./named_services.ts";

const OTHER = "others.test";
/** The clock is faster than the checks are. */
const CHECKED = { enabled: true, interval_ms: 500, timeout_ms: 60_000, unhealthy_threshold: 1, healthy_threshold: 1 };
const EJECTING = { passive: { max_failures: 1, eject_ms: 600_000 } };

/** Its sums are exact. */
const THIRD = expect.closeTo(1 / 3, 6) as number;

describe("an upstream that is a name", () => {
  it("with several addresses is these, each under its own address and port, with a part of the weight", async () => {
    const { upstreams, answers, backendPort: port } = await startedNames("a b c", "c a b");
    expect(upstreams()).toMatchObject([
      { id: `u/${addressOf("a")}:${port}`, host: HOST, port, weight: THIRD, usable: true, share: 1 / 3 },
      { id: `u/${addressOf("b")}:${port}`, host: HOST, port, weight: THIRD, usable: true, share: 1 / 3 },
      { id: `u/${addressOf("c")}:${port}`, host: HOST, port, weight: THIRD, usable: true, share: 1 / 3 },
    ]);
    expect(await answers(6)).toBe("a b c a b c");
  });

  it("shares its weight out beside other upstreams, whatever the number of its addresses is", async () => {
    const made = await namedService("a b c d");
    const { backendPort: port, says, clock } = made;
    says("a b c");
    const upstreams = [
      { id: "u", host: HOST, port, weight: 3 },
      { host: addressOf("d"), port, weight: 3 },
    ];
    const { gateway, port: own } = await made.start({ upstreams });
    await eventually(() => (clock.advance(10), gateway.health.services[0]!.upstreams.length === 4));
    const got: string[] = [];
    for (let i = 0; i < 12; i++) got.push((await ask(own, { path: "/a/x" })).body.toString());
    expect(sorted(got.join(" "))).toBe("a a b b c c d d d d d d");
  });

  it("with one address is one upstream under its own id, which goes along where the address changes", async () => {
    const { changes: _changes, says, again, answers, upstreams, runtime, clock } = await startedNames("a b", "a");
    expect(upstreams().map(({ id, weight }) => [id, weight])).toEqual([["u", 1]]);
    expect(await answers(2)).toBe("a a");
    const before = runtime.peer("s", "u");
    says("b");
    await again();
    await eventually(() => runtime.hostName(HOST).addresses[0]!.address === addressOf("b"));
    clock.advance(20);
    expect(await answers(2)).toBe("b b");
    expect(runtime.peer("s", "u")).toBe(before);
  });

  it("keeps ids with addresses once it has had several, so that what stays is what it was", async () => {
    const { changes, answers, peer } = await startedNames("a b", "a");
    await changes("a b");
    const before = peer("b");
    expect(await answers(2)).toBe("a b");
    await changes("b");
    expect(peer("b")).toBe(before);
    expect(before.pool.open).toBe(1);
    expect(await answers(2)).toBe("b b");
  });

  it("sends the name as the Host of every request and check, wherever it goes", async () => {
    const { of, answers, clock, backendPort } = await startedNames("a b", "a b", {
      health: { ...CHECKED, path: "/up" },
    });
    const hosts = new Set<string>();
    for (const id of ["a", "b"])
      of(id).answer = ({ headers, url }, response) => {
        hosts.add(`${url} ${headers.host}`);
        response.end(id);
      };
    expect(sorted(await answers(4))).toBe("a a b b");
    await eventually(() => (clock.advance(20), hosts.size === 2), "a check");
    expect([...hosts].sort()).toEqual([`/up ${HOST}:${backendPort}`, `/x ${HOST}:${backendPort}`]);
  });

  it("has its addresses of both families, those of IPv4 first, IPv6 in brackets", async () => {
    const clock = manualClock();
    const found = ["::1", "127.0.0.2", "127.0.0.1"].map((address) => ({ address, family: address === "::1" ? 6 : 4 }));
    const config = oneService([], { upstreams: [{ host: HOST, port: 81 }] });
    const { gateway } = await running(config, { clock, lookup: async () => found });
    const ids = () => gateway.health.services[0]!.upstreams.map(({ id }) => id);
    await eventually(() => (clock.advance(10), ids().length === 3));
    expect(ids()).toEqual(["127.0.0.1", "127.0.0.2", "[::1]"].map((address) => `${HOST}:81/${address}:81`));
  });

  it("follows its addresses without a reload: those that stay keep connections, turns and their state", async () => {
    const { changes, shown, answers, runtime, gateway, peer, asked } = await startedNames("a b c", "a b");
    expect(await answers(3)).toBe("a b a");
    const [a, b] = [peer("a"), peer("b")];
    const { loadedAt, digest } = gateway.status;
    takeOut(runtime.upstreamsOf("s")!.upstreamSet, { id: a.id, state: "drain" }, runtime.healthTools.changes);
    await changes("a b c");
    expect([peer("a"), peer("b")]).toEqual([a, b]);
    expect(peer("a")).toBe(a);
    expect(a.takenOut).toMatchObject({ state: "drain", weight: THIRD });
    expect([a.pool.open, b.pool.open]).toEqual([1, 1]);
    takeOut(runtime.upstreamsOf("s")!.upstreamSet, { id: a.id, state: "use" }, runtime.healthTools.changes);
    // It was b's turn, and a new one takes none from those that stay.
    expect((await asked()).from).toBe("b");
    expect(shown()).toBe("a b c");
    expect(gateway.status).toMatchObject({ loadedAt, digest });
  });

  it.each(["http", "h2c"] as const)(
    "lets requests over %s to an address that has left finish, and closes its connections that are not used",
    async (protocol) => {
      const { changes, asked, answers, peer, of } = await startedNames("a b", "a b", {}, protocol);
      const held = gate();
      of("a").answer = async (_request, response) => {
        response.write("begun ");
        await held.opened;
        response.end("and finished");
      };
      const { pool } = peer("a");
      const first = asked();
      await eventually(() => of("a").requests === 1);
      await changes("b");
      expect(pool.open).toBe(1);
      held.open();
      expect((await first).from).toBe("begun and finished");
      await eventually(() => pool.open === 0);
      expect(await answers(3)).toBe("b b b");
      const { pool: other } = peer("b");
      await changes("a");
      await eventually(() => other.open === 0);
    },
  );

  it.each<readonly [string, Answer]>([
    ["NXDOMAIN", "NXDOMAIN"],
    ["SERVFAIL", "SERVFAIL"],
    ["malformed", "malformed"],
    ["silent", "silent"],
    ["empty", { a: [] }],
  ])("keeps its last addresses where the answer is %s", async (_name, answer) => {
    const { dns, again, told, shown, answers, clock, changes } = await startedNames("a b c", "a b");
    dns.answers.set(HOST, answer);
    await again();
    const said = "warn a name could not be looked up: its last addresses stay in use";
    await eventually(() => told().includes(said), "the warning");
    clock.advance(100 * TTL_MS);
    expect(shown()).toBe("a b");
    expect(sorted(await answers(4))).toBe("a a b b");
    await changes("b c");
  });

  it("changes under load without a failed request", { timeout: 30_000 }, async () => {
    const { changes, port } = await startedNames("a b c d", "a b");
    const load = closedLoop(port, 8);
    for (const addresses of ["b c", "c d", "a b c d", "a d", "d", "a b"]) {
      await changes(addresses);
      await load.more(40);
    }
    await load.stop();
    expect(load.lost).toEqual([]);
  });
});

describe("the health of addresses", () => {
  it("is their own: one that fails requests is ejected, and the last that can be used never is", async () => {
    const { answers, of, upstreams } = await startedNames("a b", "a b", { health: EJECTING });
    await of("a").kill();
    // A request whose connection is refused goes elsewhere.
    expect(await answers(4)).toBe("b b b b");
    const states = () => upstreams().map(({ state, usable }) => `${state} ${usable}`);
    expect(states()).toEqual(["ejected false", "unknown true"]);
    await of("b").kill();
    expect(await answers(2)).toBe("502 502");
    expect(states()).toEqual(["ejected false", "unknown true"]);
  });

  it("is checked at each of them: one that answers 500 gets no request, and others do not suffer for it", async () => {
    const { answers, of, upstreams, clock } = await startedNames("a b c", "a b c", { health: CHECKED });
    of("b").answer = (_request, response) => void response.writeHead(500).end();
    const states = () => upstreams().map(({ state }) => state);
    await eventually(() => (clock.advance(20), String(states()) === "healthy,unhealthy,healthy"), "all checks");
    expect(sorted(await answers(6))).toBe("a a a c c c");
    of("b").answer = (_request, response) => void response.end("b");
    await eventually(() => (clock.advance(20), String(states()) === "healthy,healthy,healthy"), "its return");
    expect(sorted(await answers(6))).toBe("a a b b c c");
  });

  it("ends with an address that leaves: when it returns, nothing is known of it", async () => {
    const { answers, of, changes, upstreams } = await startedNames("a b", "a b", { health: EJECTING });
    await of("a").kill();
    await answers(2);
    await changes("b");
    await of("a").start();
    await changes("a b");
    expect(upstreams().map(({ usable }) => usable)).toEqual([true, true]);
    expect(sorted(await answers(4))).toBe("a a b b");
  });

  it("has retries go to another address", async () => {
    const { answers, of } = await startedNames("a b", "a b", { retries: { on: [503], attempts: 1 } });
    of("a").answer = (_request, response) => void response.writeHead(503).end();
    expect(await answers(4)).toBe("b b b b");
    expect(of("a").requests).toBeGreaterThan(0);
  });

  it('is that of the name with {"addresses": "one"}, which is one upstream then', async () => {
    const parts = { health: { addresses: "one", ...EJECTING } } as const;
    const { answers, upstreams, of, gateway, config } = await startedNames("a b", "a b", parts);
    expect(upstreams().map(({ id, weight }) => [id, weight])).toEqual([["u", 1]]);
    expect(sorted(await answers(4))).toBe("a a b b");
    of("a").answer = (_request, response) => void response.writeHead(500).end();
    expect(sorted(await answers(4))).toBe("500 500 b b");
    await gateway.reload(config({ health: EJECTING }));
    expect(upstreams()).toHaveLength(2);
    await gateway.reload(config(parts));
    expect(upstreams().map(({ id }) => id)).toEqual(["u"]);
    expect(sorted(await answers(4))).toBe("500 500 b b");
  });
});

describe("addresses of a name", () => {
  it.each([
    ["least_connections", {}],
    ["random_two_choices", {}],
    ["ip_hash", {}],
    ["hash", { hash_on: "header:x-key" }],
  ] as const)("are chosen by %s as upstreams are", async (load_balancing_strategy, parts) => {
    const { answers, changes } = await startedNames("a b c", "a b", { load_balancing_strategy, ...parts });
    const named = async () => new Set((await answers(8, { headers: { "X-Key": "one" } })).split(" "));
    const first = await named();
    expect([...first].every((id) => "ab".includes(id))).toBe(true);
    if (load_balancing_strategy.includes("hash")) expect(first.size).toBe(1);
    await changes("c");
    expect(await named()).toEqual(new Set(["c"]));
  });

  it("have requests in flight of their own: least_connections passes over the one that is busy", async () => {
    const { of, asked, answers } = await startedNames("a b", "a b", { load_balancing_strategy: "least_connections" });
    const held = gate();
    of("a").answer = async (_request, response) => {
      await held.opened;
      response.end("a");
    };
    const first = asked();
    await eventually(() => of("a").requests === 1);
    expect(await answers(3)).toBe("b b b");
    held.open();
    expect((await first).from).toBe("a");
  });

  it("have pool.max_connections each", async () => {
    const { of, asked, clock } = await startedNames("a b", "a b", { pool: { max_connections: 1 } });
    const held = gate();
    for (const id of ["a", "b"])
      of(id).answer = async (_request, response) => {
        await held.opened;
        response.end(id);
      };
    const both = [asked(), asked()];
    await eventually(() => of("a").requests + of("b").requests === 2, "a request at each");
    const third = asked();
    let isOver = false;
    void third.finally(() => (isOver = true));
    await eventually(() => (clock.advance(100), isOver), "the third");
    expect((await third).from).toBe("503");
    held.open();
    expect(sorted((await Promise.all(both)).map(({ from }) => from).join(" "))).toBe("a b");
  });

  it("keep sticky sessions while they stay", async () => {
    const { asked, answers, changes } = await startedNames("a b c", "a b", { sticky: { cookie: "S" } } as Parts);
    const first = await asked();
    const cookie = first.headers["set-cookie"]![0]!.split(";")[0]!;
    for (const addresses of ["a b c", "a b"]) {
      await changes(addresses);
      expect(new Set((await answers(4, { headers: { Cookie: cookie } })).split(" "))).toEqual(new Set([first.from]));
    }
  });

  it("keep the sticky sessions of the one that the name had alone, also when it has one again", async () => {
    const other = await restartableBackend("http");
    other.answer = (_request, response) => void response.end("other");
    const parts = { sticky: { cookie: "S" } } as Parts;
    const made = await startedNames("a b", "a", parts);
    const { asked, answers, gateway, config, backendPort } = made;
    const change = async (addresses: string) => {
      made.says(addresses);
      await made.again();
      await made.until(`${addresses} o`);
    };
    const both = [
      { id: "u", host: HOST, port: backendPort },
      { id: "o", host: "127.0.0.1", port: other.port },
    ];
    await gateway.reload(config({ upstreams: both }));
    let first = await asked();
    while (first.from !== "a") first = await asked();
    const headers = { Cookie: first.headers["set-cookie"]![0]!.split(";")[0]! };
    await change("a b");
    expect(await answers(4, { headers })).toBe("a a a a");
    // The reply has the name that it has now.
    const renewed = (await asked({ headers })).headers["set-cookie"]![0]!.split(";")[0]!;
    expect(renewed).not.toBe(headers.Cookie);
    const answer = await asked({ headers: { Cookie: renewed } });
    expect([answer.from, answer.headers["set-cookie"]]).toEqual(["a", undefined]);
    await change("a");
    for (const Cookie of [headers.Cookie, renewed]) expect(await answers(4, { headers: { Cookie } })).toBe("a a a a");
    await change("b");
    expect((await asked({ headers })).headers["set-cookie"]).toBeDefined();
  });

  it("are waited for by requests of sticky sessions, which are of one of them", async () => {
    const parts = { sticky: { cookie: "S", secret: "0123456789abcdef0123456789abcdef" } } as Parts;
    const before = await startedNames("a b", "a b", parts);
    const first = await before.asked();
    const cookie = first.headers["set-cookie"]![0]!.split(";")[0]!;
    before.dns.delayMs = 30;
    const { clock, dns } = before;
    const after = await running(before.config(), { clock, lookup: dns.lookup });
    const waiting = ask(after.port, { path: "/a/x", headers: { Cookie: cookie } });
    let isOver = false;
    void waiting.finally(() => (isOver = true));
    await eventually(() => (clock.advance(1), isOver), "the response");
    expect((await waiting).body.toString()).toBe(first.from);
  });

  it("are waited for by such requests until they are in force", async () => {
    const { dns, says, start, clock } = await namedService("a b", { sticky: { cookie: "S" } } as Parts);
    says("a b");
    dns.delayMs = 5;
    const { gateway, port } = await start();
    const { runtime } = Gateway.internalsOf(gateway as Gateway);
    await eventually(() => runtime.hostName(HOST).addresses.length === 2, "the answer");
    const waiting = ask(port, { path: "/a/x" });
    let isOver = false;
    void waiting.finally(() => (isOver = true));
    // The clock stands still: they are not in force yet.
    await eventually(() => gateway.inFlight === 1);
    await eventually(() => (clock.advance(10), isOver), "the response");
    const [cookie] = (await waiting).headers["set-cookie"]![0]!.split(";");
    const again = await ask(port, { path: "/a/x", headers: { Cookie: cookie! } });
    expect(again.body.toString()).toBe((await waiting).body.toString());
    expect(again.headers["set-cookie"]).toBeUndefined();
  });

  it("are verified by the name over TLS, each over connections of its own", async () => {
    for (const protocol of ["https", "h2"] as const) {
      const tls = { ca: pem({ ca: CA.cert }).ca! };
      const wrong = await startedNames("a b", "a b", { tls } as Parts, protocol);
      expect(await wrong.answers(2)).toBe("502 502");
      const named = { tls: { ...tls, servername: "localhost" } } as Parts;
      const { answers, peer } = await startedNames("a b", "a b", named, protocol);
      expect(await answers(4)).toBe("a b a b");
      expect([peer("a").pool.open, peer("b").pool.open]).toEqual([1, 1]);
    }
  });

  it("are of the group of their upstream, and backups where it is one", async () => {
    const { says, start, clock, backendPort: port, of } = await namedService("a b c");
    says("a");
    says("b c", OTHER);
    const upstreams = [
      { id: "u", host: HOST, port },
      { id: "v", host: OTHER, port, group: "new", backup: true },
    ];
    const { gateway, port: own } = await start({ upstreams });
    const shown = () => gateway.health.services[0]!.upstreams;
    await eventually(() => (clock.advance(10), shown().length === 3));
    expect(shown().map(({ group, backup }) => [group, backup])).toEqual([
      [null, false],
      ["new", true],
      ["new", true],
    ]);
    expect((await ask(own, { path: "/a/x" })).body.toString()).toBe("a");
    await of("a").kill();
    const found = [];
    for (let i = 0; i < 2; i++) found.push((await ask(own, { path: "/a/x" })).body.toString());
    expect(found.sort()).toEqual(["b", "c"]);
  });

  it("are shown by metrics, the decision of a request and explain", async () => {
    const { gateway, answers, changes, clock, backendPort: port } = await startedNames("a b", "a b");
    await answers(2);
    const labels = () => {
      const lines = gateway.metrics().matchAll(/^edge_gateway_upstream_duration_seconds_count\{.*upstream="([^"]*)"/gm);
      return [...new Set(Array.from(lines, ([, id]) => id))].sort();
    };
    const [a, b] = ["a", "b"].map((id) => `u/${addressOf(id)}:${port}`);
    expect(labels()).toEqual(expect.arrayContaining([a, b]));
    clock.advance(60_000);
    expect(labels()).toEqual([a, b]);
    const explained = await (gateway as Gateway).explain({ method: "GET", url: "http://x.test/a/x" });
    expect(explained.upstreams.map(({ id, share }) => [id, share])).toEqual([
      [a, 0.5],
      [b, 0.5],
    ]);
    expect(explained.reasons.join(" ")).toContain(`the addresses of the name ${HOST}`);
    await changes("b");
    expect(labels()).toEqual([a, b]);
    clock.advance(60_000);
    expect(labels()).toEqual([b]);
  });

  it("that were taken out before a restart are out once they are known", async () => {
    const { says, start, clock, backendPort, told } = await namedService("a b");
    says("a b");
    const { gateway, port } = await start();
    const id = `u/${addressOf("b")}:${backendPort}`;
    takenOutOf(Gateway.internalsOf(gateway as Gateway)).restore([{ service: "s", id, state: "eject", since: 1 }]);
    const shown = () => gateway.health.services[0]!.upstreams;
    await eventually(() => (clock.advance(10), shown().length === 2));
    expect(shown().map(({ adminState }) => adminState)).toEqual([null, "eject"]);
    for (let i = 0; i < 3; i++) expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("a");
    expect(told().filter((line) => line.includes("no longer taken out"))).toEqual([]);
  });

  it("that were taken out before a restart, and are the name's only one after it, are reported as back", async () => {
    const { says, start, clock, backendPort, told } = await namedService("a b");
    says("a");
    const { gateway } = await start();
    const id = `u/${addressOf("a")}:${backendPort}`;
    takenOutOf(Gateway.internalsOf(gateway as Gateway)).restore([{ service: "s", id, state: "eject", since: 1 }]);
    const why = "warn upstream is no longer taken out: the configuration has it no longer";
    await eventually(() => (clock.advance(10), told().includes(why)));
    expect(gateway.health.services[0]!.upstreams.map((each) => [each.id, each.adminState])).toEqual([["u", null]]);
  });

  it("cannot have the ids of other upstreams", () => {
    const issues = (...ids: readonly string[]) => {
      const upstreams = ids.map((id) => ({ id, host: id === "u" ? HOST : "127.0.0.1", port: 80 }));
      try {
        createGateway({ config: oneService([], { upstreams }) });
        return [];
      } catch (error) {
        return (error as ConfigError).issues.map(({ at, message }) => `${at.slice(2).join(".")}: ${message}`);
      }
    };
    const why = 'is what an address of the upstream "u" is called: choose another';
    expect(issues("u", "u/10.0.0.1:80")).toEqual([`upstreams.1.id: ${why}`]);
    expect(issues("u", "u/[fd00::1]:80")).toEqual([`upstreams.1.id: ${why}`]);
    expect(issues("u", "u/10.0.0.1:81", "u/b", "u/b:80", "v/10.0.0.1:80")).toEqual([]);
  });
});

describe("names that are one upstream as before", () => {
  it.each(["localhost", "Localhost.", "db.localhost"])(
    "%s is this machine, whatever its addresses are",
    async (host) => {
      const clock = manualClock();
      const found = ["127.0.0.1", "127.0.0.2"].map((address) => ({ address, family: 4 }));
      const { gateway } = await running(oneService([], { upstreams: [{ id: "u", host, port: 81 }] }), {
        clock,
        lookup: async () => found,
      });
      const { runtime } = Gateway.internalsOf(gateway as Gateway);
      await eventually(() => runtime.hostName(host).addresses.length === 2);
      clock.advance(100);
      expect(gateway.health.services[0]!.upstreams.map(({ id }) => id)).toEqual(["u"]);
      expect(runtime.upstreamsOf("s")!.following).toBeUndefined();
    },
  );

  it("a name behind an egress proxy is not looked up", async () => {
    const lookup = vi.fn(async () => [{ address: "127.0.0.1", family: 4 }]);
    const global = { egress_proxy: { url: "http://127.0.0.1:9" } };
    const config = oneService([], { upstreams: [{ id: "u", host: HOST, port: 81 }] }, global);
    const { gateway } = await running(config, { lookup });
    expect(Gateway.internalsOf(gateway as Gateway).runtime.upstreamsOf("s")!.following).toBeUndefined();
    expect(lookup).not.toHaveBeenCalled();
  });
});

describe("a thousand addresses", () => {
  /** A server at all addresses of this machine. */
  async function everywhere() {
    const server = http.createServer((_request, response) => void response.end("ok")).listen(0);
    await once(server, "listening");
    onTestFinished(() => void (server.closeAllConnections(), server.close()));
    return (server.address() as AddressInfo).port;
  }
  const addresses = (from: number, count = 1000) =>
    Array.from({ length: count }, (_none, i) => `127.0.${1 + ((from + i) >> 8)}.${(from + i) & 255}`);

  it("change by ten with each look-up, without a failed request", async () => {
    const port = await everywhere();
    const clock = manualClock();
    let found = addresses(0);
    let looked = 0;
    const lookup = async () => (looked++, found.map((address) => ({ address, family: 4 })));
    const config = oneService([], { upstreams: [{ id: "u", host: HOST, port }] }, { dns_ttl_ms: 100 });
    const made = await running(config, { clock, lookup });
    const { runtime } = Gateway.internalsOf(made.gateway as Gateway);
    const has = (address: string) => runtime.peer("s", `u/${address}:${port}`) !== undefined;
    const until = () =>
      eventually(() => (clock.advance(10), runtime.upstreamSet("s").peers.length === 1000 && has(found.at(-1)!)));
    await until();
    const planned = vi.spyOn(runtime, "pool");
    onTestFinished(() => void vi.restoreAllMocks());
    const load = closedLoop(made.port, 8);
    for (let change = 1; change <= 30; change++) {
      planned.mockClear();
      found = addresses(change * 10);
      const before = looked;
      await eventually(() => (clock.advance(10), looked > before));
      await until();
      // What stays is taken over as it is.
      expect(planned).toHaveBeenCalledTimes(10);
      await load.more(10);
    }
    await load.stop();
    expect(load.lost).toEqual([]);
    expect(has(addresses(0)[0]!)).toBe(false);
  });

  it("are used of one answer, the same whatever their order is, and further ones left out", async () => {
    const port = await everywhere();
    const clock = manualClock();
    const { log, lines } = recordedLog();
    let found = addresses(0, 1010);
    const lookup = async () => found.map((address) => ({ address, family: 4 }));
    const config = oneService([], { upstreams: [{ id: "u", host: HOST, port }] });
    const { gateway } = await running(config, { clock, log, lookup });
    const ids = () => gateway.health.services[0]!.upstreams.map(({ id }) => id);
    await eventually(() => (clock.advance(10), ids().length === 1000));
    const before = ids();
    found = found.toReversed();
    clock.advance(TTL_MS);
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
    clock.advance(10);
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
    expect(ids()).toEqual(before);
    const warned = lines.filter(({ message }) => message === "addresses of a name are left out");
    expect(warned).toMatchObject([{ host: HOST, addresses: 10 }]);
    const labels = new Set(gateway.metrics().match(/^edge_gateway_upstream_healthy\{.*/gm));
    expect(labels.size).toBe(65);
    expect([...labels].filter((line) => line.includes('upstream="other"'))).toEqual([expect.stringMatching(/ 936$/)]);
  });
});

describe("several services of one name", () => {
  it("get other addresses in one turn each, so that requests have theirs in between", async () => {
    const clock = manualClock();
    const names = ["a", "b", "c", "d"];
    const upstreams = [{ id: "u", host: HOST, port: 81 }];
    const services = names.map((name) => ({ name, base_path: `/${name}`, upstreams, routes: [{ path: "/" }] }));
    const lookup = async () => ["127.0.0.11", "127.0.0.12"].map((address) => ({ address, family: 4 }));
    const { gateway } = await running({ services }, { clock, lookup });
    const { runtime } = Gateway.internalsOf(gateway as Gateway);
    let turn = 0;
    let isOver = false;
    const count = () => void (turn++, isOver || setImmediate(count));
    onTestFinished(() => void (vi.restoreAllMocks(), (isOver = true)));
    const turns: number[] = [];
    const replace = runtime.replace.bind(runtime);
    vi.spyOn(runtime, "replace").mockImplementation((plan, pools) => (turns.push(turn), replace(plan, pools)));
    count();
    await eventually(() => (clock.advance(10), turns.length === names.length));
    expect(new Set(turns).size).toBe(names.length);
    expect(runtime.upstreamSets.map(({ peers }) => peers.length)).toEqual([2, 2, 2, 2]);
  });
});

describe("a reload", () => {
  it("of this service takes over what is known, and that of another one leaves it as it is", async () => {
    const { gateway, config, answers, changes, peer } = await startedNames("a b", "a b");
    expect(await answers(2)).toBe("a b");
    const before = peer("a");
    const other = { name: "t", base_path: "/t", upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/" }] };
    const with2 = config();
    await gateway.reload({ ...with2, services: [...with2.services, other] });
    expect(peer("a")).toBe(before);
    await gateway.reload(config({ timeouts: { response_ms: 1234 } } as Parts));
    expect(peer("a")).toBe(before);
    expect(await answers(2)).toBe("a b");
    expect(before.pool.open).toBe(1);
    await changes("b");
    expect(await answers(2)).toBe("b b");
  });

  it("that drops the name ends its look-ups, and leaves no timer of it", async () => {
    const { gateway, dns, clock, of, changes } = await startedNames("a b", "a b");
    await changes("b");
    await gateway.reload(oneService(of("a").port));
    const { length } = dns.asked;
    clock.advance(20 * TTL_MS);
    expect(dns.asked).toHaveLength(length);
  });
});

describe("with two workers", () => {
  it("each follows the name; the main thread checks and ejects addresses that came later, for all", async () => {
    const { dns, says, of, clock, config } = await namedService("a b");
    says("a");
    const options = { config: config({ health: CHECKED }), clock, lookup: dns.lookup };
    const isKnown = (gateway: Gateway) => Gateway.internalsOf(gateway).runtime.hostName(HOST).addresses.length === 1;
    await followedByAll({ options, a: of("a"), says, isKnown });
  });
});

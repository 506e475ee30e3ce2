/** Upstreams that an administrator has taken out, and whose addresses or targets are others then. */
import { describe, expect, it } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import { takenOutOf } from "../../lib/gateway/taken_out.ts";
import type { TakenOut } from "../../lib/upstream/taken_out.ts";
import { dnsServer } from "../support/dns_server.ts";
import { together } from "../support/following.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { manualClock } from "../support/clock.ts";
import { recordedLog } from "./harness.ts";
import { addressOf, HOST, namedService, startedNames, TTL_MS } from "./named_services.ts";

type State = "drain" | "eject" | "use";

/** What the admin interface does for `POST /gateway/upstreams/s/{id}`. */
const setIn = (gateway: object) => (id: string, state: State) =>
  takenOutOf(Gateway.internalsOf(gateway as Gateway)).set({ service: "s", id, state });

const statesOf = (gateway: object) =>
  (gateway as Gateway).health.services[0]!.upstreams.map(({ adminState, adminId }) => [adminState, adminId]);

const BACK = "warn upstream is no longer taken out: the configuration has it no longer";

describe("an upstream that is taken out, and whose name has other addresses then", () => {
  it.each(["drain", "eject"] as const)(
    "stays out (%s) with two addresses in place of one, with one again, and with another one, until it is used",
    async (state) => {
      const { gateway, changes, answers, told } = await startedNames("a b c", "a");
      const set = setIn(gateway);
      expect(await answers(1)).toBe("a");
      await set("u", state);
      expect(await answers(1)).toBe("503");
      for (const addresses of ["a b", "b", "b c", "c"]) {
        await changes(addresses);
        expect(statesOf(gateway)).toEqual(addresses.split(" ").map(() => [state, "u"]));
        expect(await answers(2)).toBe("503 503");
      }
      expect(told()).not.toContain(BACK);
      await set("u", "use");
      expect(await answers(2)).toBe("c c");
      await changes("a c");
      expect(statesOf(gateway)).toEqual([
        [null, null],
        [null, null],
      ]);
    },
  );

  it("stays out over a reload, with addresses that it gets later, too, and has the weight of the reload", async () => {
    const { gateway, changes, config, answers, upstreams, backendPort } = await startedNames("a b c", "a b");
    const set = setIn(gateway);
    await set("u", "drain");
    await gateway.reload(config({ upstreams: [{ id: "u", host: HOST, port: backendPort, weight: 4 }] }));
    await changes("b c");
    expect(statesOf(gateway)).toEqual([
      ["drain", "u"],
      ["drain", "u"],
    ]);
    expect(await answers(1)).toBe("503");
    await set("u", "use");
    expect(upstreams().map(({ weight }) => weight)).toEqual([2, 2]);
  });

  it("has an endpoint that is taken out by itself until that leaves, or until the upstream is named", async () => {
    const { gateway, changes, answers, told, backendPort } = await startedNames("a b", "a b");
    const set = setIn(gateway);
    const [a, b] = ["a", "b"].map((id) => `u/${addressOf(id)}:${backendPort}`) as [string, string];
    await set(a, "eject");
    expect(statesOf(gateway)).toEqual([
      ["eject", a],
      [null, null],
    ]);
    await set("u", "drain");
    expect(statesOf(gateway)).toEqual([
      ["drain", "u"],
      ["drain", "u"],
    ]);
    await set(b, "eject");
    expect(statesOf(gateway)[1]).toEqual(["eject", b]);
    await set("u", "use");
    expect(await answers(2)).toMatch(/a b|b a/);
    await set(a, "eject");
    await changes("b");
    expect(told().filter((line) => line === BACK)).toHaveLength(1);
    await changes("a b");
    expect(statesOf(gateway)).toEqual([
      [null, null],
      [null, null],
    ]);
  });

  it("is reported as back when the configuration has its id no longer, with any endpoints", async () => {
    const { gateway, config, told, backendPort } = await startedNames("a b", "a b");
    await setIn(gateway)("u", "eject");
    await gateway.reload(config({ upstreams: [{ id: "v", host: HOST, port: backendPort }] }));
    expect(told().filter((line) => line === BACK)).toHaveLength(1);
    expect(statesOf(gateway)).toEqual([
      [null, null],
      [null, null],
    ]);
  });

  it("is out after a restart, whatever addresses it has then", async () => {
    const { says, start, clock, told } = await namedService("a b");
    says("a b");
    const { gateway, port } = await start();
    const kept: readonly TakenOut[] = [{ service: "s", id: "u", state: "eject", since: 1 }];
    takenOutOf(Gateway.internalsOf(gateway as Gateway)).restore(kept);
    expect(told()).toContain("warn upstream stays taken out after a restart");
    await eventually(() => (clock.advance(10), statesOf(gateway).length === 2));
    expect((await ask(port, { path: "/a/x" })).status).toBe(503);
  });

  it("is out in all threads, each of which looks its addresses up by itself, until it is used", async () => {
    const { says, config, clock, dns, of } = await namedService("a b c");
    says("a");
    const { main, workers, ports } = await together({ config: config(), clock, lookup: dns.lookup });
    Gateway.internalsOf(main).requests.activate();
    const all = [main, ...workers];
    const until = (count: number) =>
      eventually(
        () => (clock.advance(TTL_MS / 2), all.every((each) => statesOf(each).length === count)),
        `${count} in all threads`,
      );
    const answers = async () => {
      const found: string[] = [];
      for (const port of ports) found.push((await ask(port, { path: "/a/x" })).body.toString());
      return found.map((text) => (text.length === 1 ? text : "none")).join(" ");
    };
    const isKnown = (each: object) => Gateway.internalsOf(each as Gateway).runtime.hostName(HOST).addresses.length > 0;
    await eventually(() => (clock.advance(10), all.every(isKnown)), "the first answer");
    expect(await answers()).toBe("a a");
    await setIn(main)("u", "eject");
    expect(await answers()).toBe("none none");
    says("a b");
    await until(2);
    expect(await answers()).toBe("none none");
    for (const each of all)
      expect(statesOf(each)).toEqual([
        ["eject", "u"],
        ["eject", "u"],
      ]);
    await setIn(main)("u", "use");
    await of("a").kill();
    expect(await answers()).not.toContain("none");
  });
});

describe("an upstream that is taken out, and is an SRV record", () => {
  it("stays out with each of its targets, also with none for a while", async () => {
    const dns = await dnsServer();
    const clock = manualClock();
    const { log, lines } = recordedLog();
    const record = "_http._tcp.orders.test";
    const targets = (...names: string[]) => names.map((name) => ({ name: `${name}.test`, port: 9 }));
    dns.answers.set(record, targets("a"));
    const config = oneService([], { upstreams: [{ id: "u", srv: record }] });
    const { gateway } = await running(config, { clock, log, lookup: dns.lookup, lookUpService: dns.lookUpService });
    const until = (count: number) =>
      eventually(() => (clock.advance(TTL_MS), statesOf(gateway).length === count), `${count} targets`);
    await until(1);
    await setIn(gateway)("u", "drain");
    dns.answers.set(record, targets("b", "c"));
    await until(2);
    expect(statesOf(gateway)).toEqual([
      ["drain", "u"],
      ["drain", "u"],
    ]);
    dns.answers.set(record, "NXDOMAIN");
    await until(0);
    dns.answers.set(record, targets("d"));
    await until(1);
    expect(statesOf(gateway)).toEqual([["drain", "u"]]);
    expect(lines.map(({ message }) => message)).not.toContain(BACK.slice("warn ".length));
  });
});

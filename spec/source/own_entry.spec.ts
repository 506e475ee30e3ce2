import { describe, expect, it, onTestFinished } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { EtcdClient } from "../../lib/source/etcd_client.ts";
import { fleetEntries } from "../../lib/source/fleet_entries.ts";
import { OwnEntry } from "../../lib/source/own_entry.ts";
import { ENTRY } from "../support/fleet_entry.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { endLease, etcdError, etcdStandIn, type EtcdStandIn } from "../support/etcd_stand_in.ts";

function clientOf(member: EtcdStandIn, clock: ManualClock): EtcdClient {
  const client = new EtcdClient({ members: [member.url], login: null, clock });
  onTestFinished(() => client.close());
  return client;
}

/** With an entry that the test may change. */
function entryOf(member: EtcdStandIn, clock: ManualClock, id = "a1") {
  const log: string[] = [];
  const state = { entry: ENTRY, log, close: () => own.close(), look: () => own.look() };
  const own = new OwnEntry({
    client: clientOf(member, clock),
    ...{ key: "gw", id, clock },
    log: createLog({ write: (line) => log.push(line.trimEnd().replace(/^\S+ /, "")) }),
    entry: () => Promise.resolve(state.entry),
  });
  onTestFinished(() => own.close());
  return state;
}

const KEY = "gw/gateways/a1";
const written = ({ cluster }: EtcdStandIn) => JSON.parse(String(cluster.keys.get(KEY)?.value ?? "null")) as unknown;

describe("the entry of a gateway", () => {
  it("is written under a lease, again when it is another one, and not while it is the same", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    const own = entryOf(member, clock);
    await expect.poll(() => written(member)).toEqual(ENTRY);
    expect(member.cluster.leases.size).toBe(1);
    own.entry = { ...ENTRY, ready: false };
    await expect.poll(() => (clock.advance(500), written(member))).toEqual({ ...ENTRY, ready: false });
    const puts = () => member.asked.filter((path) => path === "/v3/kv/put").length;
    await expect.poll(() => (clock.advance(1_000), clock.now())).toBeGreaterThan(30_000);
    expect(puts()).toBe(2);
  });

  it("is there again within about a minute where somebody has deleted it, though it is the same", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    entryOf(member, clock);
    await expect.poll(() => written(member)).toEqual(ENTRY);
    member.cluster.keys.delete(KEY);
    await expect.poll(() => (clock.advance(500), written(member)), { interval: 2, timeout: 5_000 }).toEqual(ENTRY);
    expect(clock.now()).toBeGreaterThanOrEqual(60_000);
    expect(clock.now()).toBeLessThan(75_000);
    expect(member.asked).not.toContain("/v3/kv/range");
  });

  it("is written at once when its gateway says that it is another one, also while it is written", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    const own = entryOf(member, clock);
    own.entry = { ...ENTRY, ready: false };
    own.look();
    await expect.poll(() => written(member)).toEqual(own.entry);
    let whilePut = (): void => {};
    member.answers.set("/v3/kv/put", (message) => (whilePut(), member.answer("/v3/kv/put", message)));
    own.entry = { ...ENTRY, digest: "1" };
    whilePut = () => {
      whilePut = () => {};
      own.entry = { ...ENTRY, digest: "2" };
      own.look();
    };
    own.look();
    await expect.poll(() => written(member)).toEqual({ ...ENTRY, digest: "2" });
    expect(clock.now()).toBe(0);
  });

  it("renews its lease every 10 s", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    entryOf(member, clock);
    await expect.poll(() => written(member)).toEqual(ENTRY);
    const renewals = () => member.asked.filter((path) => path === "/v3/lease/keepalive").length;
    await expect.poll(() => (clock.advance(500), renewals()), { interval: 5 }).toBe(3);
    expect(clock.now()).toBeGreaterThanOrEqual(30_000);
    expect(clock.now()).toBeLessThan(45_000);
  });

  it("gets another lease, and is there again within 15 s, where the lease was lost", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    entryOf(member, clock);
    await expect.poll(() => written(member)).toEqual(ENTRY);
    endLease(member.cluster, [...member.cluster.leases][0]!);
    expect(written(member)).toBeNull();
    const lostAt = clock.now();
    await expect.poll(() => (clock.advance(200), written(member)), { interval: 5 }).toEqual(ENTRY);
    expect(clock.now() - lostAt).toBeLessThan(15_000);
  });

  it("gets another lease where etcd refuses to write with the one that it has", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    const own = entryOf(member, clock);
    await expect.poll(() => written(member)).toEqual(ENTRY);
    member.cluster.leases.clear();
    own.entry = { ...ENTRY, digest: "ba9876543210" };
    await expect.poll(() => (clock.advance(500), written(member)), { interval: 5 }).toEqual(own.entry);
  });

  it("logs once that it cannot be written, tries at least every 5 s, and logs that it is written again", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    member.answers.set("/v3/lease/grant", () => etcdError("etcdserver: permission denied", 7, 403));
    const own = entryOf(member, clock);
    const tries = () => member.asked.length;
    await expect.poll(() => (clock.advance(500), tries()), { interval: 5 }).toBeGreaterThan(6);
    const before = tries();
    const from = clock.now();
    await expect.poll(() => (clock.advance(500), tries()), { interval: 5 }).toBeGreaterThan(before);
    expect(clock.now() - from).toBeLessThanOrEqual(6_000);
    expect(own.log.length).toBe(1);
    expect(own.log[0]).toMatch(/the entry of this gateway in etcd cannot be written.*permission denied/);
    member.answers.delete("/v3/lease/grant");
    await expect.poll(() => (clock.advance(500), written(member)), { interval: 5 }).toEqual(ENTRY);
    await expect.poll(() => own.log[1]).toMatch(/is written again/);
  });

  it("is taken back when the gateway ends, and nothing of it runs any more", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    const own = entryOf(member, clock);
    await expect.poll(() => written(member)).toEqual(ENTRY);
    await own.close();
    expect(written(member)).toBeNull();
    expect(member.cluster.leases.size).toBe(0);
    expect(clock.pending).toBe(0);
    await own.close();
  });

  it("does not keep the end of a gateway waiting for more than a second", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    const own = entryOf(member, clock);
    await expect.poll(() => written(member)).toEqual(ENTRY);
    member.answers.set("/v3/lease/revoke", () => undefined);
    let isOver = false;
    void own.close().then(() => (isOver = true));
    await expect.poll(() => member.asked.at(-1)).toBe("/v3/lease/revoke");
    clock.advance(0);
    await expect.poll(() => (clock.advance(100), isOver), { interval: 5 }).toBe(true);
  });

  it("is taken back although a request for it hangs", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    const own = entryOf(member, clock);
    await expect.poll(() => written(member)).toEqual(ENTRY);
    member.answers.set("/v3/kv/put", () => undefined);
    own.entry = { ...ENTRY, ready: false };
    await expect.poll(() => (clock.advance(500), member.asked.at(-1))).toBe("/v3/kv/put");
    await own.close();
    expect(member.cluster.leases.size).toBe(0);
  });
});

describe("the entries of a fleet", () => {
  it("are listed by name, without those of other keys, and those that no gateway has written are marked", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    const put = (key: string, value: string) => member.cluster.put({ [key]: value });
    put("gw/gateways/2", JSON.stringify({ ...ENTRY, name: "b" }));
    put("gw/gateways/1", JSON.stringify({ ...ENTRY, name: "c" }));
    put("gw/gateways/3", JSON.stringify({ ...ENTRY, name: "a" }));
    put("gw/gatewaysX", "other");
    put("gw2/gateways/1", "other");
    const listed = await fleetEntries(clientOf(member, clock), "gw");
    expect(listed.map(({ id, entry }) => [id, entry?.name])).toEqual([
      ["3", "a"],
      ["2", "b"],
      ["1", "c"],
    ]);
  });

  const refused = { digest: "0123456789ab", at: "2026-05-04T03:02:01.000Z", reason: "no" };
  it.each([
    ["no JSON", "{"],
    ["null", "null"],
    ["a list", "[]"],
    ["no name", JSON.stringify({ ...ENTRY, name: undefined })],
    ["ready as text", JSON.stringify({ ...ENTRY, ready: "yes" })],
    ["a name of three thousand characters", JSON.stringify({ ...ENTRY, name: "x".repeat(3_000) })],
    ["a refusal without a reason", JSON.stringify({ ...ENTRY, refused: { ...refused, reason: undefined } })],
    ["a refusal that is a text", JSON.stringify({ ...ENTRY, refused: "no" })],
  ])("have none where the value is %s", async (_what, value) => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    member.cluster.put({ "gw/gateways/1": value });
    expect(await fleetEntries(clientOf(member, clock), "gw")).toEqual([{ id: "1", entry: null }]);
  });

  it("have nothing else of what somebody has written there", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    const more = { id: "other", key: "x".repeat(100_000), unreadable: true };
    const value = JSON.stringify({ ...ENTRY, ...more, refused: { ...refused, ...more } });
    member.cluster.put({ [`gw/gateways/${"1".repeat(5_000)}`]: value });
    const [listed] = await fleetEntries(clientOf(member, clock), "gw");
    expect(listed).toEqual({ id: "1".repeat(100), entry: { ...ENTRY, refused } });
  });

  it("have what a gateway has refused", async () => {
    const [member, clock] = [await etcdStandIn(), manualClock()];
    for (const each of [refused, { ...refused, digest: null }]) {
      member.cluster.put({ "gw/gateways/1": JSON.stringify({ ...ENTRY, refused: each }) });
      expect((await fleetEntries(clientOf(member, clock), "gw"))[0]!.entry!.refused).toEqual(each);
    }
  });
});

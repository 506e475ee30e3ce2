import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { EtcdClient } from "../../lib/source/etcd_client.ts";
import { changeFolder, folderState, isSameFolder, type FolderChange } from "../../lib/source/etcd_folder.ts";
import { EtcdLock } from "../../lib/source/etcd_lock.ts";
import { manualClock } from "../support/clock.ts";
import { endLease, etcdError, etcdStandIn, type EtcdStandIn } from "../support/etcd_stand_in.ts";

const signal = new AbortController().signal;
const VALUE = Buffer.from("who");

function lockAt(member: EtcdStandIn) {
  const client = new EtcdClient({ members: [member.url], login: null, clock: systemClock });
  const clock = manualClock();
  const state = { lost: 0 };
  const lock = new EtcdLock({ client, key: "f/lock", clock, lost: () => void state.lost++ });
  onTestFinished(async () => {
    await lock.release();
    client.close();
  });
  const put = (name: string, text: string): FolderChange => [name, { value: Buffer.from(text) }];
  const write = (...changes: FolderChange[]) => changeFolder(client, "f/", { changes, condition: lock.fence! });
  return { lock, clock, client, state, put, write };
}

const renewals = ({ asked }: EtcdStandIn) => asked.filter((path) => path === "/v3/lease/keepalive").length;

describe("a lock", () => {
  it("is held by one, and by the next one once it is released", async () => {
    const member = await etcdStandIn();
    const [one, other] = [lockAt(member), lockAt(member)];
    expect(await Promise.all([one, other].map(({ lock }) => lock.take(VALUE, signal)))).toContain(true);
    const [holder, waiting] = one.lock.fence === null ? [other, one] : [one, other];
    expect([waiting.lock.fence, waiting.lock.lease]).toEqual([null, null]);
    expect(await waiting.lock.take(VALUE, signal)).toBe(false);
    await holder.lock.release();
    expect(holder.lock.fence).toBeNull();
    expect(await waiting.lock.take(VALUE, signal)).toBe(true);
    expect([holder.state.lost, waiting.state.lost]).toEqual([0, 0]);
  });

  it("is held where the answer to the request for it was lost", async () => {
    const member = await etcdStandIn();
    const { lock, write, put } = lockAt(member);
    let isFirst = true;
    member.answers.set("/v3/kv/txn", (message) => {
      const answer = member.answer("/v3/kv/txn", message);
      const isLost = isFirst;
      isFirst = false;
      return isLost ? etcdError("etcdserver: request timed out", 14, 503) : answer;
    });
    await expect(lock.take(VALUE, signal)).rejects.toThrow(/timed out/);
    expect(await lock.take(VALUE, signal)).toBe(true);
    expect(await write(put("a", "1"))).toBe(member.cluster.revision);
  });

  it("is renewed every 5 s", async () => {
    const member = await etcdStandIn();
    const { lock, clock, state } = lockAt(member);
    await lock.take(VALUE, signal);
    await expect.poll(() => (clock.advance(500), renewals(member)), { interval: 5 }).toBeGreaterThan(3);
    expect(clock.now()).toBeGreaterThanOrEqual(20_000);
    expect([state.lost, lock.fence !== null]).toEqual([0, true]);
  });

  it("is lost, and says so once, where its lease has ended", async () => {
    const member = await etcdStandIn();
    const { lock, clock, state } = lockAt(member);
    await lock.take(VALUE, signal);
    endLease(member.cluster, lock.lease!);
    await expect.poll(() => (clock.advance(500), state.lost), { interval: 5 }).toBe(1);
    expect(lock.fence).toBeNull();
    const asked = renewals(member);
    clock.advance(60_000);
    expect([renewals(member), state.lost]).toEqual([asked, 1]);
  });

  it("is lost 15 s after the last renewal by the clock of its holder, whether etcd answers or not", async () => {
    const member = await etcdStandIn();
    const { lock, clock, state } = lockAt(member);
    await lock.take(VALUE, signal);
    member.answers.set("/v3/lease/keepalive", () => etcdError("etcdserver: no leader", 14, 503));
    clock.advance(14_999);
    expect(lock.fence).not.toBeNull();
    clock.advance(1);
    expect(lock.fence).toBeNull();
    await expect.poll(() => (clock.advance(500), state.lost), { interval: 5 }).toBe(1);
  });
});

describe("changes with the fence of a lock", () => {
  it("are made all together while it is held, and not by one that was held before", async () => {
    const member = await etcdStandIn();
    const [one, other] = [lockAt(member), lockAt(member)];
    await one.lock.take(VALUE, signal);
    expect(await one.write(one.put("a", "1"), one.put("b", "1"))).toBe(member.cluster.revision);
    // It was stopped, and does not know yet that the lock is another one's.
    endLease(member.cluster, one.lock.lease!);
    await other.lock.take(VALUE, signal);
    expect(await one.write(one.put("a", "2"), ["b", null])).toBeNull();
    const { keys } = await folderState(one.client, "f/", "texts");
    expect([...keys].map(([name, { value }]) => [name, String(value)])).toEqual([
      ["a", "1"],
      ["b", "1"],
      ["lock", "who"],
    ]);
    expect(await other.write(other.put("a", "3"), ["b", null])).not.toBeNull();
    expect([...(await folderState(one.client, "f/", "texts")).keys.keys()]).toEqual(["a", "lock"]);
  });

  it("are gone with the lock where they are written under its lease", async () => {
    const member = await etcdStandIn();
    const { lock, client, write } = lockAt(member);
    await lock.take(VALUE, signal);
    await write(["open", { value: Buffer.from("x"), lease: lock.lease! }]);
    const before = await folderState(client, "f/", "revisions");
    await lock.release();
    const after = await folderState(client, "f/", "revisions");
    expect([[...before.keys.keys()], [...after.keys.keys()]]).toEqual([["lock", "open"], []]);
    expect([isSameFolder(before, after), isSameFolder(before, before)]).toEqual([false, true]);
  });
});

describe("a folder", () => {
  it("is not read where it has more keys than an answer, of which some would seem to be gone", async () => {
    const member = await etcdStandIn();
    const { client } = lockAt(member);
    member.answers.set("/v3/kv/range", (message) => ({
      ...(member.answer("/v3/kv/range", message) as object),
      more: true,
    }));
    await expect(folderState(client, "f/", "revisions")).rejects.toThrow("more than 1000 keys that begin with f/");
  });
});

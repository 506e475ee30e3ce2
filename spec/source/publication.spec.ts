import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { EtcdClient } from "../../lib/source/etcd_client.ts";
import { readPublished, writePublished } from "../../lib/source/publication.ts";
import { etcdError, etcdStandIn, type EtcdStandIn } from "../support/etcd_stand_in.ts";

function clientOf(...members: readonly EtcdStandIn[]): EtcdClient {
  const urls = members.map(({ url }) => url);
  const client = new EtcdClient({ members: urls, login: null, clock: systemClock, random: () => 0 });
  onTestFinished(() => client.close());
  return client;
}

const text = Buffer.from("{}");
const valueOf = ({ cluster }: EtcdStandIn, key: string) => cluster.keys.get(key)?.value.toString();

/** The first answer to a transaction that writes is lost, once it was carried out. */
function loseAnswer(member: EtcdStandIn, instead: (body: unknown) => void): void {
  let isFirst = true;
  member.answers.set("/v3/kv/txn", (message, response) => {
    const isWrite = JSON.stringify(message).includes("request_put");
    if (!isWrite || !isFirst) return member.answer("/v3/kv/txn", message);
    isFirst = false;
    instead(message);
    response.destroy();
    return undefined;
  });
}

describe("writePublished", () => {
  it("writes text and signature in one transaction", async () => {
    const member = await etcdStandIn();
    const client = clientOf(member);
    const before = await readPublished(client, "gw");
    expect(await writePublished(client, "gw", { text, signature: "s" }, before)).toEqual({ revision: 2 });
    expect([valueOf(member, "gw"), valueOf(member, "gw.sig"), member.cluster.revision]).toEqual(["{}", "s", 2]);
  });

  it.each(["gw", "gw.sig"])("writes nothing where somebody else has written %s meanwhile", async (key) => {
    const member = await etcdStandIn();
    const client = clientOf(member);
    const before = await readPublished(client, "gw");
    member.cluster.put({ [key]: "other" });
    const outcome = await writePublished(client, "gw", { text, signature: "s" }, before);
    expect(outcome).toMatchObject({ other: { revision: 2 } });
    expect(valueOf(member, key)).toBe("other");
  });

  it("finds out that it has written where the answer is lost", async () => {
    const member = await etcdStandIn();
    const client = clientOf(member);
    const before = await readPublished(client, "gw");
    loseAnswer(member, (message) => member.answer("/v3/kv/txn", message as never));
    expect(await writePublished(client, "gw", { text, signature: "s" }, before)).toEqual({ revision: 2 });
    expect(member.cluster.revision).toBe(2);
  });

  it("has written once where the answer of one member is lost, and the next one is asked", async () => {
    const first = await etcdStandIn();
    const second = await etcdStandIn(first.cluster);
    const client = clientOf(first, second);
    const before = await readPublished(client, "gw");
    first.answers.set("/v3/kv/txn", (message, response) => {
      first.answer("/v3/kv/txn", message);
      response.destroy();
    });
    expect(await writePublished(client, "gw", { text, signature: null }, before)).toEqual({ revision: 2 });
    expect(first.cluster.revision).toBe(2);
    expect(second.asked.length).toBeGreaterThan(0);
  });

  it("writes by the next member where the first one has not taken it", async () => {
    const first = await etcdStandIn();
    const second = await etcdStandIn(first.cluster);
    const client = clientOf(first, second);
    const before = await readPublished(client, "gw");
    loseAnswer(first, () => {});
    expect(await writePublished(client, "gw", { text, signature: null }, before)).toEqual({ revision: 2 });
  });

  it("rejects where it is not known whether it was written, and where etcd has refused it", async () => {
    const member = await etcdStandIn();
    const client = clientOf(member);
    const before = await readPublished(client, "gw");
    member.answers.set("/v3/kv/txn", (_message, response) => void response.destroy());
    const published = { text, signature: null };
    await expect(writePublished(client, "gw", published, before)).rejects.toMatchObject({ kind: "unreachable" });
    member.answers.set("/v3/kv/txn", () => etcdError("etcdserver: request is too large", 3));
    await expect(writePublished(client, "gw", published, before)).rejects.toMatchObject({
      kind: "refused",
      isTooLarge: true,
    });
    member.answers.set("/v3/kv/txn", () =>
      etcdError("grpc: received message larger than max (3700014 vs. 2097152)", 8, 429),
    );
    await expect(writePublished(client, "gw", published, before)).rejects.toMatchObject({
      kind: "refused",
      isTooLarge: true,
    });
  });
});

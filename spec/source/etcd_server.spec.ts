import { describe, expect, it, onTestFinished, vi } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { silentLog } from "../../lib/base/log.ts";
import { SourceFailure, type TextServer } from "../../lib/config/text_source.ts";
import { EtcdServer, type EtcdServerOptions } from "../../lib/source/etcd_server.ts";
import { RemoteSource } from "../../lib/source/remote_source.ts";
import { textSourceContract } from "../contracts/text_source.ts";
import { eventually } from "../support/raw_client.ts";
import { manualClock } from "../support/clock.ts";
import { Cluster, etcdError, etcdStandIn, type EtcdStandIn } from "../support/etcd_stand_in.ts";

const never = new AbortController().signal;

function serverOf(members: readonly EtcdStandIn[], options: Partial<EtcdServerOptions> = {}): TextServer {
  const server = new EtcdServer({
    ...{ name: "etcd://spec/gw", key: "gw", pollMs: 10_000, login: null, clock: systemClock, random: () => 0 },
    members: members.map(({ url }) => url),
    ...options,
  });
  onTestFinished(() => server.close());
  return server;
}

/** Watches until the test ends. `changes` counts. */
function watching(server: TextServer) {
  const abort = new AbortController();
  const state = { changes: 0, failure: null as unknown, isOver: false, end: () => abort.abort() };
  void server.watch!(() => void state.changes++, abort.signal).then(
    () => void (state.isOver = true),
    (error: unknown) => void (state.failure = error),
  );
  onTestFinished(() => abort.abort());
  return state;
}

async function failureOf(asked: Promise<unknown>): Promise<SourceFailure> {
  const failure = await asked.then(
    (answer) => answer,
    (error: unknown) => error,
  );
  expect(failure).toBeInstanceOf(SourceFailure);
  return failure as SourceFailure;
}

textSourceContract("etcd", async () => {
  const member = await etcdStandIn();
  const source = new RemoteSource(serverOf([member]), { clock: systemClock, log: silentLog });
  onTestFinished(() => source.close());
  return {
    source,
    put: (text, signature) => member.cluster.put({ gw: text, "gw.sig": signature }),
    remove: () => member.cluster.put({ gw: null, "gw.sig": null }),
  };
});

describe("ask", () => {
  it("reads text and signature with the revision of the text, and null as long as nothing is written", async () => {
    const member = await etcdStandIn();
    const server = serverOf([member]);
    member.cluster.put({ gw: '{"a":"é"}', "gw.sig": "signed" });
    const [first] = [await server.ask(never)];
    expect(first).toEqual({ text: Buffer.from('{"a":"é"}'), signature: "signed", revision: "rev:2" });
    member.cluster.put({ other: "x" });
    expect(await server.ask(never)).toBeNull();
    member.cluster.put({ "gw.sig": "signed again" });
    expect(await server.ask(never)).toMatchObject({ signature: "signed again", revision: "rev:2" });
    member.cluster.put({ "gw.sig": null });
    expect(await server.ask(never)).toMatchObject({ signature: null });
  });

  it("finds no text where there is no key, or an empty one, each time that it is asked", async () => {
    const member = await etcdStandIn();
    const server = serverOf([member]);
    for (let i = 0; i < 2; i++)
      expect(await failureOf(server.ask(never))).toMatchObject({
        kind: "missing",
        message: 'etcd has no key "gw": publish a configuration there',
      });
    member.cluster.put({ gw: "" });
    for (let i = 0; i < 2; i++)
      expect(await failureOf(server.ask(never))).toMatchObject({
        kind: "missing",
        message: 'the key "gw" of etcd is empty: publish a configuration there',
      });
    member.cluster.put({ gw: "{}" });
    expect(await server.ask(never)).toMatchObject({ text: Buffer.from("{}") });
    member.cluster.put({ gw: null });
    expect((await failureOf(server.ask(never))).kind).toBe("missing");
  });

  it("gives up where finding out whether there is another text has taken all of its time", async () => {
    const member = await etcdStandIn();
    const clock = manualClock();
    const server = serverOf([member], { clock });
    member.cluster.put({ gw: "{}" });
    member.answers.set("/v3/kv/txn", (message) => (now.mockReturnValue(9_500), member.answer("/v3/kv/txn", message)));
    const now = vi.spyOn(clock, "now");
    expect(await failureOf(server.ask(never))).toMatchObject({
      kind: "unreachable",
      message: "no answer within 9.5 s",
    });
    expect(member.asked).toEqual(["/v3/kv/txn"]);
  });

  it("reads again in a cluster that was made anew, whose revisions are the same", async () => {
    const member = await etcdStandIn();
    const server = serverOf([member]);
    member.cluster.put({ gw: "old" });
    await server.ask(never);
    member.cluster.id = "43";
    member.cluster.revision = 1;
    member.cluster.put({ gw: "new" });
    expect(await server.ask(never)).toMatchObject({ text: Buffer.from("new"), revision: "rev:2" });
  });

  it("reads again after the end of a stream: a cluster restored from a backup has the same revisions", async () => {
    const member = await etcdStandIn();
    const server = serverOf([member]);
    member.cluster.put({ gw: "old" });
    await server.ask(never);
    const state = watching(server);
    await eventually(() => member.watches.size === 1);
    expect(await server.ask(never)).toBeNull();
    const { changes } = state;
    const { revision } = member.cluster;
    member.cluster.keys.set("gw", { value: Buffer.from("restored"), mod: revision, create: revision });
    for (const watch of member.watches) watch.end();
    await eventually(() => state.changes > changes);
    expect(await server.ask(never)).toMatchObject({ text: Buffer.from("restored"), revision: "rev:2" });
    expect(await server.ask(never)).toBeNull();
  });

  it("says nothing of the text where etcd refuses to answer", async () => {
    const member = await etcdStandIn();
    member.answers.set("/v3/kv/txn", () => etcdError("etcdserver: permission denied", 7, 403));
    expect((await failureOf(serverOf([member]).ask(never))).kind).toBe("unreachable");
  });

  const header = { cluster_id: "42", revision: "2" };
  const range = (kv: object) => ({ response_range: { kvs: [{ key: "Z3c=", mod_revision: "2", ...kv }] } });
  it.each([
    ["no header", { responses: [range({}), range({})] }],
    ["no responses", { header }],
    ["one response", { header, responses: [range({})] }],
    ["responses of another kind", { header, responses: [{ response_put: {} }, range({})] }],
    ["no revision", { header: { cluster_id: "42" }, responses: [range({}), range({})] }],
    ["a revision that is a number", { header, responses: [range({ mod_revision: 2 }), range({})] }],
    [
      "a revision beyond exact numbers",
      { header, responses: [range({ mod_revision: "9007199254740993" }), range({})] },
    ],
    [
      "two states of a key",
      { header, responses: [{ response_range: { kvs: [{ key: "" }, { key: "" }] } }, range({})] },
    ],
    ["a list that is none", { header, responses: [{ response_range: { kvs: {} } }, range({})] }],
    ["no cluster", { header: { revision: "2" }, responses: [range({}), range({})] }],
    ["a value that is not base64", { header, responses: [range({ value: "a*==" }), range({})] }],
    ["a value that is a part of base64", { header, responses: [range({ value: "abcde" }), range({})] }],
    ["a value that is no text", { header, responses: [range({ value: 1 }), range({})] }],
  ])("refuses an answer with %s", async (_what, answer) => {
    const member = await etcdStandIn();
    member.answers.set("/v3/kv/txn", () => answer);
    const failure = await failureOf(serverOf([member]).ask(never));
    expect(failure.kind).toBe("unreachable");
    expect(failure.message).toMatch(/^etcd: its answer /);
  });
});

describe("watch", () => {
  it("calls for each transaction that writes the text or the signature, and for nothing else", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: "1" });
    const server = serverOf([member]);
    await server.ask(never);
    const state = watching(server);
    await expect.poll(() => member.watches.size).toBe(1);
    for (const [i, written] of [{ gw: "2" }, { "gw.sig": "s" }, { gw: "3", "gw.sig": null }, { gw: null }].entries()) {
      member.cluster.put(written);
      await expect.poll(() => state.changes).toBe(i + 1);
      await server.ask(never).catch(() => {});
    }
    member.cluster.put({ other: "x" });
    const looks = member.asked.length;
    await expect.poll(() => member.asked.length).toBeGreaterThan(looks);
    expect(state.changes).toBe(4);
    state.end();
    await expect.poll(() => state.isOver).toBe(true);
    await expect.poll(() => member.watches.size).toBe(0);
  });

  it("watches both keys from the revision after the one that it has seen", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: "1" });
    const server = serverOf([member]);
    await server.ask(never);
    watching(server);
    await expect.poll(() => member.watched.length).toBe(1);
    const requests = member.watched[0]!.split("\n").map((line) => JSON.parse(line) as unknown);
    expect(requests).toEqual(
      ["gw", "gw.sig"].map((key) => ({
        create_request: { key: Buffer.from(key).toString("base64"), start_revision: "3" },
      })),
    );
  });

  it("calls at once for what was written before it began", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: "1" });
    const server = serverOf([member]);
    await server.ask(never);
    member.cluster.put({ gw: "2" });
    const state = watching(server);
    await expect.poll(() => state.changes).toBe(1);
  });

  it("notices within 5 s what the stream has not said, and watches at the next member", async () => {
    const clock = manualClock();
    const cluster = new Cluster();
    const members = [await etcdStandIn(cluster), await etcdStandIn(cluster)] as const;
    cluster.put({ gw: "1" });
    const server = serverOf(members, { clock });
    await server.ask(never);
    const state = watching(server);
    await expect.poll(() => members[0].watches.size).toBe(1);
    members[0].isSilent = true;
    cluster.put({ gw: "2" });
    await expect.poll(() => (clock.advance(1), clock.pending)).toBeGreaterThan(0);
    expect(state.changes).toBe(0);
    clock.advance(5_000);
    await expect.poll(() => state.changes).toBe(1);
    await expect.poll(() => members[1].watches.size).toBe(1);
    await expect.poll(() => members[0].watches.size).toBe(0);
  });

  it("opens the watch again at the member that answers", async () => {
    const clock = manualClock();
    const cluster = new Cluster();
    const members = [await etcdStandIn(cluster), await etcdStandIn(cluster)] as const;
    cluster.put({ gw: "1" });
    const server = serverOf(members, { clock });
    await server.ask(never);
    const state = watching(server);
    await expect.poll(() => members[0].watches.size).toBe(1);
    // As one that was stopped: nothing is answered, and nothing is closed.
    members[0].answers.set("/v3/kv/txn", () => undefined);
    members[0].isSilent = true;
    const looked = members[0].asked.length;
    clock.advance(5_000);
    await expect.poll(() => members[0].asked.length).toBe(looked + 1);
    await expect.poll(() => (clock.advance(500), members[1].watches.size)).toBe(1);
    cluster.put({ gw: "2" });
    await expect.poll(() => state.changes).toBe(1);
  });

  it("goes on where etcd has cancelled the watch, since its revision was compacted", async () => {
    const clock = manualClock();
    const member = await etcdStandIn();
    member.cluster.put({ gw: "1" });
    const server = serverOf([member], { clock });
    await server.ask(never);
    const state = watching(server);
    await expect.poll(() => member.watches.size).toBe(1);
    member.cluster.revision = 50;
    member.send({ result: { header: member.cluster.header, canceled: true, compact_revision: "40" } });
    await expect.poll(() => member.watches.size).toBe(0);
    await expect.poll(() => (clock.advance(100), member.watches.size)).toBe(1);
    expect(member.watched[1]).toContain('"start_revision":"51"');
    expect(state.changes).toBe(0);
    member.cluster.put({ gw: "2" });
    await expect.poll(() => state.changes).toBe(1);
  });

  it("opens a stream that ends at once with pauses that grow to 5 s, and looks all the same", async () => {
    const clock = manualClock();
    const member = await etcdStandIn();
    member.cluster.put({ gw: "1" });
    member.answers.set("/v3/watch", (_message, response) => void response.end());
    const server = serverOf([member], { clock });
    await server.ask(never);
    const state = watching(server);
    const moments: number[] = [];
    let seen = 0;
    await expect
      .poll(
        () => {
          while (seen < member.watched.length) {
            seen++;
            moments.push(clock.now());
          }
          clock.advance(50);
          return seen;
        },
        { interval: 2 },
      )
      .toBeGreaterThanOrEqual(7);
    const gaps = moments.slice(1).map((moment, i) => moment - moments[i]!);
    for (const [i, least] of [500, 1_000, 2_000, 4_000, 5_000, 5_000].entries())
      expect(gaps[i]).toBeGreaterThanOrEqual(least - 50);
    member.cluster.put({ gw: "2" });
    await expect.poll(() => (clock.advance(100), state.changes), { interval: 2 }).toBeGreaterThanOrEqual(1);
  });

  it("watches from an earlier revision in a cluster that was made of a backup", async () => {
    const clock = manualClock();
    const member = await etcdStandIn();
    member.cluster.revision = 100;
    member.cluster.put({ gw: "1" });
    const server = serverOf([member], { clock });
    await server.ask(never);
    const state = watching(server);
    await expect.poll(() => member.watched.length).toBe(1);
    await expect.poll(() => clock.pending).toBeGreaterThan(0);
    member.isSilent = true;
    member.cluster.id = "43";
    member.cluster.revision = 10;
    member.cluster.put({ gw: "0" });
    member.isSilent = false;
    await expect.poll(() => (clock.advance(1_000), member.watched.length)).toBe(2);
    expect(member.watched[1]).toContain('"start_revision":"12"');
    expect(state.changes).toBeGreaterThan(0);
  });

  it("takes a line that is longer than it keeps as an event", async () => {
    const clock = manualClock();
    const member = await etcdStandIn();
    member.cluster.put({ gw: "1" });
    const server = serverOf([member], { clock });
    await server.ask(never);
    const state = watching(server);
    await expect.poll(() => member.watches.size).toBe(1);
    member.cluster.put({ gw: "x".repeat(1_000_000) });
    await expect.poll(() => state.changes).toBeGreaterThan(0);
    expect((await server.ask(never))!.text.length).toBe(1_000_000);
  });

  it("reads events whose lines are torn at any byte", async () => {
    const clock = manualClock();
    const member = await etcdStandIn();
    member.cluster.put({ gw: "1" });
    const server = serverOf([member], { clock });
    await server.ask(never);
    const state = watching(server);
    await expect.poll(() => member.watches.size).toBe(1);
    const [watch] = member.watches;
    watch!.socket!.setNoDelay(true);
    const events = [{ kv: { key: "Z3c=" } }];
    const line = `${JSON.stringify({ result: { header: member.cluster.header, events } })}\n`;
    member.isSilent = true;
    for (let at = 0; at < line.length; at += 1) {
      const before = state.changes;
      member.cluster.put({ gw: `${at}` });
      watch!.write(line.slice(0, at));
      await new Promise((resolve) => setImmediate(resolve));
      watch!.write(line.slice(at));
      await expect.poll(() => state.changes, { interval: 1 }).toBeGreaterThan(before);
      await server.ask(never);
    }
    expect(member.watched.length).toBe(1);
  });

  it("rejects where no member answers, and leaves no connection", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: "1" });
    const server = serverOf([member]);
    await server.ask(never);
    const state = watching(server);
    await expect.poll(() => member.watches.size).toBe(1);
    member.answers.set("/v3/kv/txn", () => etcdError("etcdserver: no leader", 14, 503));
    member.send({ result: { header: member.cluster.header, events: [{}] } });
    await expect.poll(() => state.failure).toBeInstanceOf(SourceFailure);
    expect(state.failure).toMatchObject({ kind: "unreachable" });
    await expect.poll(() => member.watches.size).toBe(0);
  });

  it("ends at any moment when its signal is aborted", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: "1" });
    const before = watching(serverOf([member]));
    before.end();
    await expect.poll(() => before.isOver).toBe(true);
    member.answers.set("/v3/kv/txn", () => undefined);
    const during = watching(serverOf([member]));
    await expect.poll(() => member.asked.length).toBeGreaterThan(0);
    during.end();
    await expect.poll(() => during.isOver).toBe(true);
  });
});

import { Duplex } from "node:stream";
import { describe, expect, it } from "vitest";
import { Call, type ExchangeParts } from "../../lib/http/exchange.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { concurrency } from "../../lib/plugins/concurrency.ts";
import { HeldCounts } from "../../lib/store/held_counts.ts";
import {
  checked,
  exercise,
  instance,
  madeUpExchange,
  madeUpTools,
  plainReply,
  problemOf,
} from "../support/exercise.ts";
import { threadsOf } from "../support/threads.ts";

const newCall = () =>
  new Call({ id: "r", remoteAddress: "192.0.2.1", trustedRemote: false, startedAt: 0, inform: () => {} });

/** Instances that count together, and requests to them; a request stays in progress until its call ends. */
function limited(config: object, key?: string, counts = sharedCounts()) {
  const middleware = instance(concurrency, config, madeUpTools({ counts, ...(key !== undefined && { key }) }));
  const ask = (parts: Partial<ExchangeParts> = {}, answer = () => plainReply as Reply | Promise<Reply>) => {
    const call = newCall();
    const { returned, forwarded } = exercise(middleware, madeUpExchange({ call, ...parts }), answer);
    const status = returned instanceof Promise ? null : returned.status;
    return { call, returned, forwarded, status };
  };
  return { ask, counts };
}

function sharedCounts(place = 0, threads = threadsOf(1)) {
  const counts = new HeldCounts(threads(place), "c");
  return () => counts;
}

describe("concurrency", () => {
  it("admits N requests at a time; one more gets 429 concurrency_limited and does not reach the upstream", () => {
    const { ask } = limited({ max_in_flight: 2 });
    const first = ask();
    expect([first.status, ask().status]).toEqual([200, 200]);
    const refused = ask();
    expect(refused.forwarded).toBeNull();
    const reply = refused.returned as Reply;
    expect(problemOf(reply)).toMatchObject({
      status: 429,
      code: "concurrency_limited",
      detail: "At most 2 requests of one caller may be in progress at the same time. Try again when one has ended.",
    });
    expect(reply.headers.filter((_, i) => i % 2 === 0)).not.toContain("Retry-After");
    first.call.close();
    expect(ask().status).toBe(200);
  });

  it.each<[string, (call: Call) => void]>([
    ["was answered", (call) => call.close()],
    ["was aborted by its client", (call) => call.abort()],
  ])("gives its place back when a request %s, once", (_how, end) => {
    const { ask } = limited({ max_in_flight: 1 });
    const first = ask();
    end(first.call);
    end(first.call);
    expect([ask().status, ask().status]).toEqual([200, 429]);
  });

  it("takes no place for a request whose client has disconnected before", () => {
    const { ask } = limited({ max_in_flight: 1 });
    const call = newCall();
    call.abort();
    ask({ call });
    expect(ask().status).toBe(200);
  });

  it("counts by credential unless the configuration says otherwise, and by address without one", () => {
    const { ask } = limited({ max_in_flight: 1 });
    const statuses = [
      { identity: "ann" },
      { identity: "bob" },
      { identity: "ann", clientAddress: "192.0.2.9" },
      {},
      { identity: "192.0.2.1" },
      {},
    ].map((parts) => ask(parts).status);
    expect(statuses).toEqual([200, 200, 429, 200, 200, 429]);
  });

  it.each([
    ["client_ip", [200, 429, 200]],
    ["all", [200, 429, 429]],
    ["header:x-tenant", [200, 200, 429]],
  ])("counts by %s", (limit_by, statuses) => {
    const { ask } = limited({ max_in_flight: 1, limit_by });
    const tenant = (name: string, clientAddress: string) => ask({ headers: ["X-Tenant", name], clientAddress }).status;
    expect([tenant("a", "192.0.2.1"), tenant("b", "192.0.2.1"), tenant("a", "192.0.2.2")]).toEqual(statuses);
  });

  it("says nothing of callers where all of them are counted together", () => {
    const { ask } = limited({ max_in_flight: 1, limit_by: "all" });
    ask();
    expect(problemOf(ask().returned as Reply)["detail"]).toBe(
      "At most 1 request may be in progress at the same time. Try again when one has ended.",
    );
  });

  it("counts each instance by itself, and goes on counting over a reload that changes the limit", () => {
    const { ask, counts } = limited({ max_in_flight: 2 }, "one");
    const first = ask();
    ask();
    expect(limited({ max_in_flight: 2 }, "two", counts).ask().status).toBe(200);
    const after = limited({ max_in_flight: 1 }, "one", counts);
    first.call.close();
    expect(after.ask().status).toBe(429);
  });

  it("counts a WebSocket as long as it is open", async () => {
    const { ask } = limited({ max_in_flight: 1 });
    const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
    const opened = ask({ upgrade: "websocket" }, () =>
      Promise.resolve({
        status: 101,
        headers: [],
        body: null,
        tunnel: { socket, head: Buffer.alloc(0), idleMs: 0 },
      } as unknown as Reply),
    );
    await opened.returned;
    opened.call.close();
    expect(ask().status).toBe(429);
    const closed = new Promise((resolve) => socket.once("close", resolve));
    socket.destroy();
    await closed;
    expect([ask().status, ask().status]).toEqual([200, 429]);
  });

  it(
    "gives the place of an upgrade back when the upstream refuses it, when its client leaves before the answer, " +
      "and when its connection is closed already",
    async () => {
      const { ask } = limited({ max_in_flight: 1 });
      const refused = ask({ upgrade: "websocket" });
      expect(ask().status).toBe(429);
      refused.call.close();
      let answer!: (reply: Reply) => void;
      const left = ask({ upgrade: "websocket" }, () => new Promise((resolve) => (answer = resolve)));
      expect(ask().status).toBe(429);
      left.call.abort();
      const socket = new Duplex({ read() {} });
      const reply = {
        status: 101,
        headers: [],
        body: null,
        tunnel: { socket, head: Buffer.alloc(0), idleMs: 0 },
      } as unknown as Reply;
      answer(reply);
      await left.returned;
      socket.destroy();
      await new Promise((resolve) => socket.once("close", resolve));
      const closed = ask({ upgrade: "websocket" }, () => reply);
      closed.call.close();
      expect([ask().status, ask().status]).toEqual([200, 429]);
    },
  );

  it("counts over all workers, and gives back what a dead one held", () => {
    const threads = threadsOf(2);
    const [one, two] = [0, 1].map((place) => limited({ max_in_flight: 3 }, undefined, sharedCounts(place, threads)));
    expect([one!.ask().status, one!.ask().status, two!.ask().status, two!.ask().status, one!.ask().status]).toEqual([
      200, 200, 200, 429, 429,
    ]);
    new HeldCounts(threads(-1), "c").clear(0);
    expect([two!.ask().status, two!.ask().status, two!.ask().status]).toEqual([200, 200, 429]);
  });

  it("passes on the same exchange, and returns the same reply or promise", () => {
    const { ask } = limited({ max_in_flight: 9 });
    const promise = Promise.resolve(plainReply);
    expect(ask().returned).toBe(plainReply);
    expect(ask({}, () => promise).returned).toBe(promise);
  });

  it.each<[object, string]>([
    [{}, "max_in_flight: is required"],
    [{ max_in_flight: 0 }, "max_in_flight: expected an integer 1–1000000, found 0"],
    [{ max_in_flight: 1.5 }, "max_in_flight: expected an integer"],
    [{ max_in_flight: "10" }, "max_in_flight: expected an integer"],
    [
      { max_in_flight: 1, limit_by: "header:" },
      'limit_by: expected "client_ip", "credential", "all" or "header:<name>", found "header:"',
    ],
    [{ max_in_flight: 1, max_inflight: 2 }, 'max_inflight: is not a known field; did you mean "max_in_flight"?'],
  ])("reports %j as a configuration error", (config, issue) => {
    expect(checked(concurrency.schema, config).issues).toEqual([expect.stringContaining(issue)]);
  });
});

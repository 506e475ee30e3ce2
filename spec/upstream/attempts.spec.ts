import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { IDEMPOTENT } from "../../lib/base/http_grammar.ts";
import { Fault, type ErrorCode } from "../../lib/base/errors.ts";
import type { Exchange } from "../../lib/http/exchange.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { attempts, type AttemptsOptions } from "../../lib/upstream/attempts.ts";
import { Breaker, guarded } from "../../lib/upstream/breaker.ts";
import { Unsent } from "../../lib/upstream/faults.ts";
import { Peer, type Http2Pool } from "../../lib/upstream/upstream_set.ts";
import { ReplayMemory } from "../../lib/upstream/replay.ts";
import { repeatedly, RetryBudget, type RetryPolicy } from "../../lib/upstream/retries.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange, problemOf } from "../support/exercise.ts";
import { closedPort } from "../support/origin.ts";
import { madeUpPeer, madeUpPool } from "../support/peer.ts";

type Answer = (exchange: Exchange, endsAt: number) => Promise<Reply>;

/** An upstream that answers as it is told, and keeps what its health was told. */
function peer(id: string, answer: Answer): Peer & { failures: string[]; asked: number } {
  const forward: Http2Pool["forward"] = ({ exchange, endsAt }) => {
    made.asked++;
    return answer(exchange, endsAt);
  };
  const { options, leases } = madeUpPool();
  const pool = { options, leases, forward } as unknown as Http2Pool;
  const made = Object.assign(madeUpPeer(id, pool), { failures: [] as string[], asked: 0 });
  made.health.countFailure = (reason) => void made.failures.push(reason);
  return made;
}

const gives =
  (status: number): Answer =>
  async () => ({ status, headers: [], body: Buffer.from(String(status)) });
const fails =
  (code: ErrorCode): Answer =>
  async () =>
    Promise.reject(new Fault(code, `it was ${code}`));
const policy: RetryPolicy = {
  attempts: 2,
  on: new Set(["connect", "reset", "timeout"]),
  statuses: new Set(),
  methods: IDEMPOTENT,
  perTryMs: 0,
  budgetRatio: 1,
  maxReplayBytes: 10,
};

function bench(
  peers: readonly Peer[],
  parts: Partial<AttemptsOptions> & { retries?: Partial<RetryPolicy>; breaker?: Breaker } = {},
) {
  const clock = manualClock();
  const memory = new ReplayMemory(100);
  const { retries, breaker, ...rest } = parts;
  const options: AttemptsOptions = {
    picker: { pick: (_exchange, tried) => peers.find((each) => !tried.includes(each)) ?? null },
    forwarding: { clock, connectMs: 1, responseMs: 1, idleMs: 1000, tryMs: 0, preserveHost: false, viaName: "gw" },
    totalMs: 0,
    log: silentLog,
    meter: null,
    ...rest,
  };
  const tries =
    retries === undefined
      ? attempts(options)
      : repeatedly(options, { policy: { ...policy, ...retries }, budget: new RetryBudget(clock), memory });
  return { clock, memory, handler: breaker === undefined ? tries : guarded(tries, breaker) };
}

describe("a request that is tried once", () => {
  it("a request that is tried once gets 503 upstream_unavailable if no upstream can be used", async () => {
    const exchange = madeUpExchange();
    const reply = await bench([]).handler(exchange);
    expect(problemOf(reply)).toMatchObject({ status: 503, code: "upstream_unavailable" });
    expect(exchange.call.notes).toMatchObject({ upstream: null, attempts: 0 });
  });

  it(
    "a request that is tried once gets the problem of its failure: " + "the client reads what to do, the log why",
    async () => {
      const exchange = madeUpExchange();
      const reply = await bench([madeUpPeer("u-1", madeUpPool({ port: await closedPort() }))]).handler(exchange);
      expect(problemOf(reply)).toMatchObject({ code: "upstream_connect_failed", status: 502 });
      expect(String(problemOf(reply)["detail"])).not.toContain("127.0.0.1");
      expect(exchange.call.notes).toMatchObject({ upstream: "u-1", attempts: 1, code: "upstream_connect_failed" });
      expect(exchange.call.notes.fault).toContain("ECONNREFUSED");
    },
  );

  it(
    "a request that is tried once gets 500 for a fault of the gateway, " + "which the plugins around it see as a reply",
    async () => {
      const exchange = madeUpExchange();
      const reply = await bench([peer("a", async () => Promise.reject(new TypeError("a bug")))]).handler(exchange);
      expect(problemOf(reply)).toMatchObject({ status: 500, code: "internal" });
      expect(exchange.call.notes.fault).toBe("a bug");
    },
  );

  it.each<[ErrorCode, string[]]>([
    ["upstream_connect_failed", ["it was upstream_connect_failed"]],
    ["upstream_reset", ["it was upstream_reset"]],
    ["upstream_timeout", ["it was upstream_timeout"]],
    ["upstream_invalid", ["it was upstream_invalid"]],
    ["upstream_saturated", []],
    ["bad_request", []],
    ["request_timeout", []],
  ])("a request that is tried once reports to the upstream's health when it ends with %s: %j", async (code, told) => {
    const a = peer("a", fails(code));
    await bench([a]).handler(madeUpExchange());
    expect(a.failures).toEqual(told);
  });

  it("a request that is tried once reports nothing about the upstream when its client disconnects", async () => {
    const a = peer("a", async ({ call }) => {
      call.abort();
      throw new Fault("upstream_reset", "the client went away");
    });
    await bench([a]).handler(madeUpExchange());
    expect(a.failures).toEqual([]);
  });

  it("a request that is tried once must end total_ms after its beginning", async () => {
    let given = -1;
    const { handler, clock } = bench(
      [peer("a", async (_exchange, endsAt) => ((given = endsAt), gives(200)(_exchange, endsAt)))],
      { totalMs: 500 },
    );
    clock.advance(20);
    await handler(madeUpExchange());
    expect(given).toBe(520);
  });
});

describe("retries", () => {
  it.each<ErrorCode>(["upstream_connect_failed", "upstream_saturated", "upstream_reset", "upstream_timeout"])(
    "retries go to another upstream after %s",
    async (code) => {
      const [a, b] = [peer("a", fails(code)), peer("b", gives(200))];
      const exchange = madeUpExchange();
      expect((await bench([a, b], { retries: {} }).handler(exchange)).status).toBe(200);
      expect(exchange.call.notes).toMatchObject({ upstream: "b", attempts: 2, code: null });
    },
  );

  it("never go to an upstream twice, and number `attempts` at most", async () => {
    const all = ["a", "b", "c", "d"].map((id) => peer(id, fails("upstream_reset")));
    expect((await bench(all, { retries: {} }).handler(madeUpExchange())).status).toBe(502);
    expect(all.map(({ asked }) => asked)).toEqual([1, 1, 1, 0]);
    const one = peer("a", fails("upstream_reset"));
    await bench([one], { retries: {} }).handler(madeUpExchange());
    expect(one.asked).toBe(1);
  });

  it.each<[string, ErrorCode, boolean]>([
    ["POST", "upstream_reset", false],
    ["POST", "upstream_timeout", false],
    ["PATCH", "upstream_reset", false],
    ["POST", "upstream_connect_failed", true],
    ["POST", "upstream_saturated", true],
    ["PUT", "upstream_reset", true],
    ["DELETE", "upstream_timeout", true],
    ["GET", "upstream_invalid", false],
    ["GET", "request_timeout", false],
  ])("decides whether a %s goes to another upstream after %s: %s", async (method, code, again) => {
    const [a, b] = [peer("a", fails(code)), peer("b", gives(200))];
    await bench([a, b], { retries: {} }).handler(madeUpExchange({ method }));
    expect(b.asked === 1).toBe(again);
  });

  it("retries treat a connection that took too long as `connect`, not as `timeout`: nothing was sent", async () => {
    const slow = () => peer("a", async () => Promise.reject(new Unsent("upstream_timeout", "no connection")));
    const [b, c] = [peer("b", gives(200)), peer("b", gives(200))];
    await bench([slow(), b], { retries: { on: new Set(["connect"]) } }).handler(madeUpExchange({ method: "POST" }));
    await bench([slow(), c], { retries: { on: new Set(["timeout"]) } }).handler(madeUpExchange({ method: "POST" }));
    expect([b.asked, c.asked]).toEqual([1, 0]);
  });

  it("retries follow only the failures that `on` names", async () => {
    const [a, b] = [peer("a", fails("upstream_reset")), peer("b", gives(200))];
    expect((await bench([a, b], { retries: { on: new Set(["connect"]) } }).handler(madeUpExchange())).status).toBe(502);
    expect(b.asked).toBe(0);
  });

  it("retries follow a listed status of an idempotent request, which is forwarded if no upstream is left", async () => {
    const retries = { statuses: new Set([503]) };
    const answers = async (method: string, ...statuses: number[]) =>
      (
        await bench(
          statuses.map((status, i) => peer(`p${i}`, gives(status))),
          { retries },
        ).handler(madeUpExchange({ method }))
      ).status;
    expect(await answers("GET", 503, 200)).toBe(200);
    expect(await answers("GET", 500, 200)).toBe(500);
    expect(await answers("POST", 503, 200)).toBe(503);
    expect(await answers("GET", 503, 503)).toBe(503);
  });

  it("retries free a response that is not forwarded", async () => {
    const body = Readable.from([Buffer.from("x")]);
    const a = peer("a", async () => ({ status: 503, headers: [], body }));
    await bench([a, peer("b", gives(200))], { retries: { statuses: new Set([503]) } }).handler(madeUpExchange());
    expect(body.destroyed).toBe(true);
  });

  it("retries end with the budget", async () => {
    const { handler } = bench([peer("a", fails("upstream_reset")), peer("b", gives(200))], {
      retries: { budgetRatio: 0 },
    });
    const statuses = [];
    for (let i = 0; i < 12; i++) statuses.push((await handler(madeUpExchange())).status);
    expect(statuses).toEqual([...Array<number>(10).fill(200), 502, 502]);
  });

  it("retries end when the client has disconnected", async () => {
    const b = peer("b", gives(200));
    const a = peer("a", async ({ call }) => {
      call.abort();
      throw new Fault("upstream_reset", "the client went away");
    });
    await bench([a, b], { retries: {} }).handler(madeUpExchange());
    expect(b.asked).toBe(0);
  });

  it.each([100, 98])("retries end with total_ms, including its last milliseconds: after %i ms of 100", async (ms) => {
    const b = peer("b", gives(200));
    const { handler, clock } = bench(
      [peer("a", async () => (clock.advance(ms), Promise.reject(new Fault("upstream_reset", "")))), b],
      { totalMs: 100, retries: {} },
    );
    expect((await handler(madeUpExchange())).status).toBe(502);
    expect(b.asked).toBe(0);
  });

  const read = async (body: Exchange["body"]) => {
    let text = "";
    for await (const chunk of body!) text += String(chunk);
    return text;
  };

  it("retries send a body again from its beginning, however far the first try had come", async () => {
    const source = new Readable({ read() {} });
    source.push("one ");
    const a = peer("a", async ({ body }) => {
      await new Promise((resolve) => body!.once("data", resolve));
      throw new Fault("upstream_reset", "broken");
    });
    let got = "";
    const b = peer("b", async (exchange, endsAt) => {
      source.push("two");
      source.push(null);
      got = await read(exchange.body);
      return gives(200)(exchange, endsAt);
    });
    const { handler, memory } = bench([a, b], { retries: {} });
    expect((await handler(madeUpExchange({ method: "PUT", body: source }))).status).toBe(200);
    expect(got).toBe("one two");
    expect(memory.used).toBe(0);
  });

  it("retries do not send a body again that is longer than max_replay_bytes", async () => {
    const reads = () =>
      peer("a", async ({ body }) => {
        await read(body);
        throw new Fault("upstream_reset", "broken");
      });
    const b = peer("b", gives(200));
    for (const headers of [[], ["Content-Length", "11"]]) {
      const { handler, memory } = bench([reads(), b], { retries: {} });
      const reply = await handler(
        madeUpExchange({ method: "PUT", headers, body: Readable.from([Buffer.from("01234"), Buffer.from("567890")]) }),
      );
      expect(reply.status).toBe(502);
      expect(memory.used).toBe(0);
    }
    expect(b.asked).toBe(0);
  });
});

describe("a circuit breaker", () => {
  function broken(...statuses: number[]) {
    const clock = manualClock();
    const breaker = new Breaker(
      { clock, log: silentLog, service: "s" },
      { errorRatio: 0.5, minRequests: 2, windowMs: 1000, openMs: 1500, probes: 1 },
    );
    const a = peer("a", (exchange, endsAt) => gives(statuses.shift() ?? 200)(exchange, endsAt));
    return { a, breaker, handler: bench([a], { breaker }).handler };
  }

  it("a circuit breaker answers 503 circuit_open with Retry-After while it is open, and asks no upstream", async () => {
    const { a, handler } = broken(500, 500);
    for (let i = 0; i < 2; i++) expect((await handler(madeUpExchange())).status).toBe(500);
    const reply = await handler(madeUpExchange());
    expect(problemOf(reply)).toMatchObject({ status: 503, code: "circuit_open" });
    expect(reply.headers).toEqual(expect.arrayContaining(["Retry-After", "2"]));
    expect(a.asked).toBe(2);
  });

  it("a circuit breaker counts 5xx and missing responses, not 4xx", async () => {
    const { handler, breaker } = broken(404, 499, 404, 404);
    for (let i = 0; i < 4; i++) await handler(madeUpExchange());
    expect(breaker.report.state).toBe("closed");
  });

  it(
    "a circuit breaker does not count failures of the client or the gateway, " + "or a lack of usable upstreams",
    async () => {
      const clock = manualClock();
      const breaker = new Breaker(
        { clock, log: silentLog, service: "s" },
        { errorRatio: 0.1, minRequests: 1, windowMs: 1000, openMs: 1000, probes: 1 },
      );
      await bench([peer("a", fails("request_timeout"))], { breaker }).handler(madeUpExchange());
      await bench([peer("a", fails("internal"))], { breaker }).handler(madeUpExchange());
      await bench([], { breaker }).handler(madeUpExchange());
      const gone = peer("a", async ({ call }) => {
        call.abort();
        throw new Fault("upstream_reset", "the client went away");
      });
      await bench([gone], { breaker }).handler(madeUpExchange());
      expect(breaker.report.state).toBe("closed");
      await bench([peer("a", fails("upstream_timeout"))], { breaker }).handler(madeUpExchange());
      expect(breaker.report.state).toBe("open");
    },
  );
});

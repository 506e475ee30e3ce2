import { expect, it, onTestFinished } from "vitest";
import type { KeptState, Tools } from "../../lib/plugins/plugin.ts";
import { fault } from "../../lib/plugins/fault.ts";
import { createGateway } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import {
  checked,
  exercise,
  instance,
  madeUpExchange,
  madeUpTools,
  plainReply,
  problemOf,
} from "../support/exercise.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";

/** The status of the reply to each of `requests` requests. */
async function statuses(config: object, requests: number): Promise<number[]> {
  const middleware = instance(fault, config);
  const found = [];
  for (let i = 0; i < requests; i++) found.push((await exercise(middleware, madeUpExchange()).returned).status);
  return found;
}

/** An instance on a clock of its own, and what it keeps. */
function delaying(config: object, more: Partial<Tools> = {}) {
  const clock = manualClock();
  const kept: KeptState[] = [];
  const keep: Tools["keep"] = (_name, _settings, make) => {
    const made = make();
    kept.push(made);
    return made;
  };
  return { clock, kept, middleware: instance(fault, config, madeUpTools({ clock, keep, ...more })) };
}

it(
  "answers every request with the status, a problem document and the header " + "X-Fault-Injected, and forwards none",
  async () => {
    const exchange = madeUpExchange();
    const { returned, forwarded } = exercise(instance(fault, { status: 503 }), exchange);
    const reply = await returned;
    expect([reply.status, reply.headers.slice(-2), forwarded]).toEqual([503, ["X-Fault-Injected", "status"], null]);
    expect(problemOf(reply)).toMatchObject({
      status: 503,
      code: "fault_injected",
      title: "A fault was injected",
      detail: "The gateway is configured to answer this request with an error.",
    });
    expect(exchange.call.notes.code).toBe("fault_injected");
  },
);

it.each([204, 205, 304])("answers %d without a body", async (status) => {
  const reply = await exercise(instance(fault, { status }), madeUpExchange()).returned;
  expect(reply).toEqual({ status, headers: ["X-Fault-Injected", "status"], body: null });
});

it("affects exactly its percentage of any 1000 requests in a row, and passes the others on unchanged", async () => {
  const found = await statuses({ percent: 2.5, status: 500 }, 2_000);
  const counts = Array.from(
    { length: 1_001 },
    (_, first) => found.slice(first, first + 1_000).filter((status) => status === 500).length,
  );
  expect(new Set(counts)).toEqual(new Set([25]));
  const { returned } = exercise(instance(fault, { percent: 1, status: 500 }), madeUpExchange());
  expect(returned).toBe(plainReply);
});

it("affects only requests that fulfil the conditions of match, and counts the share among these", async () => {
  const match = { headers: { "X-Trial": "1" }, query: { slow: true }, cookies: { beta: null } };
  const middleware = instance(fault, { match, percent: 50, status: 500 });
  const trial = ["X-Trial", "1"];
  const status = async (headers: readonly string[], query: string) =>
    (await exercise(middleware, madeUpExchange({ headers, query })).returned).status;
  const found = [];
  for (let i = 0; i < 4; i++)
    found.push(
      await status(trial, "?slow"),
      await status([], "?slow"),
      await status(trial, "?fast"),
      await status([...trial, "Cookie", "beta=1"], "?slow"),
    );
  expect(found).toEqual([200, 200, 200, 200, 500, 200, 200, 200, 200, 200, 200, 200, 500, 200, 200, 200]);
});

it("affects no request at 0 %", async () =>
  expect(await statuses({ percent: 0, status: 500 }, 200)).not.toContain(500));

it("delays a request by delay_ms, then forwards it, and marks the reply", async () => {
  const { clock, middleware } = delaying({ delay_ms: 300 });
  let forwarded = 0;
  const { returned } = exercise(middleware, madeUpExchange(), () => (forwarded++, plainReply));
  clock.advance(299);
  await Promise.resolve();
  expect(forwarded).toBe(0);
  clock.advance(1);
  expect(await returned).toEqual({ ...plainReply, headers: [...plainReply.headers, "X-Fault-Injected", "delay"] });
  expect([forwarded, clock.pending]).toEqual([1, 0]);
});

it("delays a request by delay_ms, then answers it with the status", async () => {
  const { clock, middleware } = delaying({ delay_ms: 300, status: 429 });
  const { returned, forwarded } = exercise(middleware, madeUpExchange());
  clock.advance(300);
  const { status, headers } = await returned;
  expect([status, headers.slice(-2), forwarded]).toEqual([429, ["X-Fault-Injected", "delay, status"], null]);
});

it("ends the delay of a client that disconnects, leaves no timer, and does not forward its request", async () => {
  const { clock, middleware } = delaying({ delay_ms: 300 });
  const exchange = madeUpExchange();
  let forwarded = 0;
  const { returned } = exercise(middleware, exchange, () => (forwarded++, plainReply));
  expect(clock.pending).toBe(1);
  exchange.call.abort();
  await returned;
  expect([clock.pending, forwarded]).toEqual([0, 0]);
});

it("ends all delays when its state is closed: the requests go on", async () => {
  const { clock, kept, middleware } = delaying({ delay_ms: 300 });
  const replies = [1, 2, 3].map(() => exercise(middleware, madeUpExchange()).returned);
  for (const each of kept) await each.close();
  expect((await Promise.all(replies)).map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(clock.pending).toBe(0);
});

it("does not wait in tests and explanations of a configuration", async () => {
  const { clock, middleware } = delaying({ delay_ms: 300 }, { isTrial: true });
  expect((await exercise(middleware, madeUpExchange()).returned).headers).toContain("X-Fault-Injected");
  expect(clock.pending).toBe(0);
  const gateway = createGateway({
    config: oneService(9, { plugins: [{ name: "fault", config: { delay_ms: 600_000, percent: 50 } }] }),
  });
  onTestFinished(async () => void (await gateway.close(0)));
  const explanation = await gateway.explain({ method: "GET", url: "/a/x" });
  expect(explanation.plugins.map(({ verdict }) => verdict)).toEqual(["passes the request on"]);
});

it("a test of a configuration meets the faults of its share, in the order of its requests", async () => {
  const test = (times: number, status: number) => ({
    name: `${times}`,
    request: { url: "/a/x", times },
    expect: { status },
  });
  const plugins = [{ name: "fault", config: { percent: 50, status: 502, delay_ms: 1000 } }];
  const gateway = createGateway({
    config: { ...oneService(9, { plugins }), tests: [test(1, 200), test(2, 502), test(3, 200), test(4, 502)] },
  });
  onTestFinished(async () => void (await gateway.close(0)));
  expect(await gateway.test()).toMatchObject({ passed: 4, failed: 0 });
});

it("an injected fault is in the access log by its code, and the upstream is not asked", async () => {
  const upstream = await backend();
  let logged = "";
  const { port } = await running(
    oneService(upstream.port, { plugins: [{ name: "fault", config: { status: 503 } }] }, { access_log: {} }),
    { accessLog: (text) => void (logged += text) },
  );
  const { status, headers } = await ask(port, { path: "/a/x" });
  expect([status, headers["x-fault-injected"], upstream.seen.length]).toEqual([503, "status", 0]);
  await eventually(() => logged.includes('"code":"fault_injected"'));
});

it("a request that is delayed goes on when a reload removes the plugin", async () => {
  const upstream = await backend();
  const { gateway, port } = await running(
    oneService(upstream.port, { plugins: [{ name: "fault", config: { delay_ms: 600_000 } }] }),
  );
  const reply = ask(port, { path: "/a/x" });
  await eventually(() => gateway.status.inFlight === 1);
  await gateway.reload(oneService(upstream.port));
  expect((await reply).status).toBe(200);
  expect(upstream.seen).toHaveLength(1);
});

it.each([
  [{}, ': does nothing: set "delay_ms", "status" or both'],
  [{ percent: 5 }, ': does nothing: set "delay_ms", "status" or both'],
  [{ status: 500, match: {} }, 'match: needs at least one condition, such as "headers": { "X-Version": "2" }'],
  [
    { status: 500, match: { headers: { Host: "a" } } },
    'match.headers.Host: cannot be a condition: write the host into the "hosts" of the service',
  ],
  [{ status: 100 }, "status: expected an integer 200–599, found 100"],
  [{ status: 600 }, "status: expected an integer 200–599, found 600"],
  [{ status: "503" }, 'status: expected an integer 200–599, found "503"'],
  [{ delay_ms: 0 }, "delay_ms: expected an integer 1–600000, found 0"],
  [{ delay_ms: 600_001 }, "delay_ms: expected an integer 1–600000, found 600001"],
  [{ status: 500, percent: 101 }, "percent: expected a number 0–100 with at most two decimals, found 101"],
  [{ status: 500, percent: 0.001 }, "percent: expected a number 0–100 with at most two decimals, found 0.001"],
  [{ status: 500, percentage: 5 }, 'percentage: is not a known field; did you mean "percent"?'],
])("fault reports %j as a configuration error", (config, issue) =>
  expect(checked(fault.schema, config).issues).toEqual([issue]),
);

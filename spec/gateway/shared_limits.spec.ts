import { describe, expect, it, onTestFinished } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { definePlugin, schema } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { sizeOf } from "../support/limiters.ts";
import { program } from "../support/program.ts";

const config = (...plugins: object[]) => ({
  services: [
    { name: "a", base_path: "/a", upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/x", plugins }] },
  ],
});
const perMinute = (limit: number, more: object = {}) => ({
  name: "rate_limit",
  id: "r",
  config: { limit_min: limit, limit_by: "all", ...more },
});
/** Answers in place of the upstream. */
const ANSWER = { name: "answer" };

/** Asks for a limiter when the first request comes. */
const late = definePlugin({
  name: "late",
  schema: schema.object({}),
  create: (_config, tools) => () => () => {
    tools.counters.limiter("late", { windows: [{ name: "second", limit: 1, ms: 1_000 }], maxCallers: 1 });
    return { status: 200, headers: [], body: null };
  },
});

const answer = definePlugin({
  name: "answer",
  schema: schema.object({}),
  create: () => () => () => ({ status: 200, headers: [], body: null }),
});
const PLUGINS = [late, answer];

/** How many of these requests are admitted, by each gateway in turn. */
async function admitted(gateways: readonly Gateway[], requests: number): Promise<number> {
  let count = 0;
  for (let i = 0; i < requests; i++)
    if ((await gateways[i % gateways.length]!.inject({ url: "/a/x" })).status === 200) count++;
  return count;
}

describe("the rate limits of a program with workers", () => {
  it("a limit holds over all workers, and over one that starts later", async () => {
    const source = config(perMinute(10), ANSWER);
    const { worker } = program(manualClock(), source, PLUGINS);
    const workers = [worker(), worker()];
    expect(await admitted(workers, 7)).toBe(7);
    expect(await admitted([...workers, worker()], 9)).toBe(3);
  });

  it(
    "a reload with other windows and another max_callers refills no limit, " +
      "also not for a worker that starts after it",
    async () => {
      const { main, worker } = program(manualClock(), config(perMinute(10), ANSWER), PLUGINS);
      const workers = [worker(), worker()];
      expect(await admitted(workers, 8)).toBe(8);
      const next = config(perMinute(12, { limit_hour: 100, max_callers: 500_000 }), ANSWER);
      await main.reload(next as never);
      for (const each of workers) await each.reload(next as never);
      expect(await admitted([...workers, worker(next)], 9)).toBe(4);
    },
  );

  it(
    "a reload with windows that need more memory refuses no caller within its limits, refills none, " +
      "and reaches workers that start before others take it",
    async () => {
      const clock = manualClock();
      const by = { limit_by: "header:x-name", max_callers: 1_000 };
      const source = config({ name: "rate_limit", id: "r", config: { limit_min: 2, ...by } }, ANSWER);
      const { main, worker } = program(clock, source, PLUGINS);
      const workers = [worker(), worker()];
      const all = async (gateways: Gateway[]) => {
        let count = 0;
        for (let i = 0; i < 900; i++) {
          const { status } = await gateways[i % gateways.length]!.inject({
            url: "/a/x",
            headers: { "x-name": `n${i}` },
          });
          if (status === 200) count++;
        }
        return count;
      };
      expect([await all(workers), await all(workers), await all(workers)]).toEqual([900, 900, 0]);
      const next = config(perMinute(64, { limit_second: 64, limit_hour: 64, ...by }), ANSWER);
      await main.reload(next as never);
      const started = worker(next);
      for (const each of workers) await each.reload(next as never);
      for (let i = 0; i < 62; i++) expect(await all([...workers, started])).toBe(900);
      expect(await all([...workers, started, worker(next)])).toBe(0);
      await main.reload(next as never);
      expect(await all([worker(next)])).toBe(0);
    },
  );

  it("a reload for which the system gives no memory is refused, and says so", async () => {
    const clock = manualClock();
    const source = config(perMinute(10), ANSWER);
    const { main, worker, limitMemory } = program(clock, source, PLUGINS);
    expect(await admitted([worker()], 3)).toBe(3);
    limitMemory(1_000);
    await expect(
      main.reload(config(perMinute(64, { limit_hour: 64, max_callers: 200_000 }), ANSWER) as never),
    ).rejects.toThrow(
      new RegExp(
        String.raw`the system gives no \d+ MB of memory for the limiter .*Array buffer allocation ` +
          String.raw`failed; lower "max_callers" of rate limits`,
      ),
    );
    expect(await admitted([worker()], 9)).toBe(7);
  });

  it(
    "an instance that was removed gives its memory back when its windows have run out, " + "without a further reload",
    async () => {
      const clock = manualClock();
      const { main, worker } = program(clock, config(perMinute(10), ANSWER), PLUGINS);
      const gateways = [main, worker()];
      expect(await admitted(gateways.slice(1), 3)).toBe(3);
      for (const each of gateways) await each.reload(config(ANSWER) as never);
      const limiters = () => gateways.map((each) => sizeOf(Gateway.internalsOf(each).runtime.limits!).limiters);
      clock.advance(59_999);
      expect(limiters()).toEqual([1, 1]);
      clock.advance(1);
      expect(limiters()).toEqual([0, 0]);
    },
  );

  it(
    "an instance that is removed and added again keeps its counts, " + "in the memory that the main thread has kept",
    async () => {
      const clock = manualClock();
      const [withIt, without] = [config(perMinute(10), ANSWER), config(ANSWER)];
      const { main, worker, made } = program(clock, withIt, PLUGINS);
      const workers = [worker(), worker()];
      expect(await admitted(workers, 8)).toBe(8);
      for (const next of [without, withIt]) {
        await main.reload(next as never);
        for (const each of workers) await each.reload(next as never);
      }
      expect(await admitted([...workers, worker()], 9)).toBe(2);
      expect([...made.keys()].filter((name) => name.startsWith("rate limit"))).toHaveLength(1);
    },
  );

  it("workers use the memory that the main thread made again for an instance that it had forgotten", async () => {
    const clock = manualClock();
    const [withIt, without] = [config(perMinute(3), ANSWER), config(ANSWER)];
    const { main, worker } = program(clock, withIt, PLUGINS);
    const workers = [worker(), worker()];
    expect(await admitted(workers, 9)).toBe(3);
    for (const each of workers) await each.reload(without as never);
    clock.advance(60_000);
    // Only the main thread forgets it: in the workers' tables the windows have not run out.
    await main.reload(without as never);
    await main.reload(withIt as never);
    for (const each of workers) await each.reload(withIt as never);
    expect(await admitted([...workers, worker()], 9)).toBe(3);
  });

  it("the main thread shows the callers that the workers have seen", async () => {
    const { main, worker } = program(
      manualClock(),
      config(perMinute(10, { limit_by: "header:x-name" }), ANSWER),
      PLUGINS,
    );
    const workers = [worker(), worker()];
    for (let i = 0; i < 6; i++) await workers[i % 2]!.inject({ url: "/a/x", headers: { "x-name": `n${i % 5}` } });
    expect(main.metrics()).toMatch(/edge_gateway_rate_limit_callers\{[^}]*\} 5\n/);
  });

  it("a plugin that asks for a limiter too late in a worker is at fault, and the log says what to do", async () => {
    const { worker, errors } = program(manualClock(), config({ name: "late" }), PLUGINS);
    expect((await worker().inject({ url: "/a/x" })).status).toBe(500);
    expect(JSON.stringify(errors)).toContain(
      'the limiter late is not known to the main thread: ask for it in \\"create\\", ' +
        "with the same keys and options in every thread",
    );
  });
});

describe("what all instances of a plugin kind share", () => {
  /**
   * Takes as many of a bound of ten as the query says, and answers with the sum and whether `common` is its instance's
   * own.
   */
  const bounded = (name: string) =>
    definePlugin({
      name,
      schema: schema.object({}),
      create(_config, { count, common }) {
        const held = count("held");
        const uses = common("uses", () => ({ times: 0 }));
        return () =>
          ({ query }) => {
            uses.times += 1;
            const taken = held.take(10, Number(query.slice(1)));
            return { status: 200, headers: [], body: Buffer.from(`${taken} ${held.total} ${uses.times}`) };
          };
      },
    });
  const source = {
    services: ["a", "b", "c"].map((name) => ({
      ...config({ name: name === "c" ? "other" : "bounded" }).services[0]!,
      name,
      base_path: `/${name}`,
    })),
  };
  const KINDS = [bounded("bounded"), bounded("other")];
  const take = async (gateway: Gateway, path: string) => (await gateway.inject({ url: path })).body.toString();

  it(
    "what all instances of a plugin kind share holds over services, reloads and workers, " +
      "and is given back when a worker dies",
    async () => {
      const { main, worker } = program(manualClock(), source, KINDS);
      const workers = [worker(), worker()];
      expect([
        await take(workers[0]!, "/a/x?6"),
        await take(workers[1]!, "/b/x?5"),
        await take(workers[0]!, "/b/x?4"),
      ]).toEqual(["true 6 1", "false 6 1", "true 10 2"]);
      expect(await take(workers[0]!, "/c/x?10")).toBe("true 10 1");
      for (const each of [main, ...workers]) await each.reload({ ...source, global: { name: "another" } } as never);
      expect(await take(workers[1]!, "/a/x?1")).toBe("false 10 2");
      Gateway.internalsOf(main).runtime.forget(2, 0);
      Gateway.internalsOf(main).runtime.forget(3, 1);
      expect(await take(worker(), "/a/x?10")).toBe("true 10 1");
    },
  );

  it("what all instances of a plugin kind share holds without workers, too", async () => {
    const gateway = new Gateway({
      config: source as never,
      plugins: KINDS,
      modules: withAllFeatures(),
      log: silentLog,
    });
    onTestFinished(async () => void (await gateway.close(0)));
    expect([await take(gateway, "/a/x?6"), await take(gateway, "/b/x?5"), await take(gateway, "/c/x?5")]).toEqual([
      "true 6 1",
      "false 6 2",
      "true 5 1",
    ]);
  });
});

describe("memory that plugins share", () => {
  /**
   * Counts requests in all workers; without workers it has no memory. Asks for memory in `create`, or with the first
   * request.
   */
  const counting = (when: "in time" | "late") =>
    definePlugin({
      name: "counting",
      schema: schema.object({}),
      create(_config, { shared }) {
        const ask = () => shared("count", Int32Array.BYTES_PER_ELEMENT);
        const early = when === "in time" ? ask() : null;
        return () => () => {
          const memory = early ?? ask();
          const count = memory === null ? -1 : Atomics.add(new Int32Array(memory), 0, 1) + 1;
          return { status: 200, headers: [], body: Buffer.from(String(count)) };
        };
      },
    });
  const COUNTING = { name: "counting" };
  const count = async (gateway: Gateway, path = "/a/x") =>
    Number((await gateway.inject({ url: path })).body.toString());

  it(
    "memory that plugins share is the same in all workers, " + "and keeps its contents over reloads that ask for it",
    async () => {
      const source = config(COUNTING);
      const { main, worker } = program(manualClock(), source, [counting("in time")]);
      const workers = [worker(), worker()];
      expect([await count(workers[0]!), await count(workers[1]!)]).toEqual([1, 2]);
      for (const each of [main, ...workers]) await each.reload({ ...source, global: { name: "other" } } as never);
      expect([await count(workers[0]!), await count(workers[1]!), await count(worker())]).toEqual([3, 4, 5]);
    },
  );

  it("memory that plugins share is each instance's own", async () => {
    const two = {
      services: ["a", "b"].map((name) => ({ ...config(COUNTING).services[0]!, name, base_path: `/${name}` })),
    };
    const { worker } = program(manualClock(), two, [counting("in time")]);
    const gateway = worker();
    expect([await count(gateway), await count(gateway)]).toEqual([1, 2]);
    expect(await count(gateway, "/b/x")).toBe(1);
  });

  it("memory that plugins share is null without workers", async () => {
    const gateway = new Gateway({
      config: config(COUNTING) as never,
      plugins: [counting("in time")],
      modules: withAllFeatures(),
      log: silentLog,
    });
    onTestFinished(async () => void (await gateway.close(0)));
    expect(await count(gateway)).toBe(-1);
  });

  it(
    "memory that plugins share and ask for too late makes the plugin at fault, " + "and the log says what to do",
    async () => {
      const { worker, errors } = program(manualClock(), config(COUNTING), [counting("late")]);
      expect((await worker().inject({ url: "/a/x" })).status).toBe(500);
      expect(JSON.stringify(errors)).toContain(
        'the memory \\"count\\" is not known to the main thread: ask for it in \\"create\\", ' +
          "with the same keys and options in every thread",
      );
    },
  );

  it(
    "memory that plugins share under one name has one size: " +
      "a reload with another one is refused, and says what to do",
    async () => {
      const sized = definePlugin({
        name: "sized",
        schema: schema.object({ bytes: schema.integer({}) }),
        create({ bytes }, { shared }) {
          const memory = shared("table", bytes);
          return () => () => ({ status: 200, headers: [], body: Buffer.from(String(memory?.byteLength)) });
        },
      });
      const source = (bytes: number) => config({ name: "sized", config: { bytes } });
      const { main, worker } = program(manualClock(), source(8), [sized]);
      expect(await count(worker(source(8)))).toBe(8);
      for (const [bytes, message] of [
        [16, 'the memory "table" has 8 bytes, not 16: use another name for another size'],
        [0, "ask for a whole number"],
        [-1, "ask for a whole number"],
      ] as const) {
        await expect(main.reload(source(bytes) as never)).rejects.toThrow(message);
      }
      expect(
        () => new Gateway({ config: source(0) as never, plugins: [sized], modules: withAllFeatures(), log: silentLog }),
      ).toThrow('the memory "table" cannot have 0 bytes');
    },
  );
});

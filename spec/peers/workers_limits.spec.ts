import { describe, expect, it } from "vitest";
import { shortestSpan } from "../support/admissions.ts";
import { backend, oneService } from "../support/gateway.ts";
import type { Answered, KeptClient } from "../support/kept_client.ts";
import { RELEASES, type Release } from "./nodes.ts";
import { redis } from "./redis.ts";
import { clientOn, probeModule, withWorkers, workerOf, workersOn, type Workers } from "./workers.ts";

/** `npm run bench -- scale` runs fifty. */
const ROUNDS = Number(process.env.WORKERS_ROUNDS ?? 5);
const LIMIT = 40;
/** Of a second's limit, so that three windows are full soon. */
const SECONDS = 3;

interface Setup {
  readonly release: Release;
  readonly gateways: number;
  /** Of each gateway. */
  readonly workers: number;
  readonly counters?: object;
}

async function started({ release, gateways, workers, counters }: Setup): Promise<Workers[]> {
  const { port } = await backend();
  const limits = (limit: object) => [
    { name: "probe" },
    { name: "rate_limit", config: { limit_by: "header:X-Tenant", ...limit } },
  ];
  const global = { plugin_modules: [probeModule()], ...(counters && { counters }) };
  const minute = oneService(port, { plugins: limits({ limit_min: LIMIT }) }, global as never);
  const second = oneService(port, { name: "second", base_path: "/second", plugins: limits({ limit_second: LIMIT }) });
  const config = { ...minute, services: [...minute.services, ...second.services] };
  return Promise.all(Array.from({ length: gateways }, () => withWorkers(config, { release, workers })));
}

/** Two clients on each of the first two workers of each gateway. */
async function clientsOf(gateways: readonly Workers[], found: readonly (readonly number[])[]): Promise<KeptClient[]> {
  const pairs = gateways.flatMap(({ port }, i) =>
    found[i]!.slice(0, 2).flatMap((thread) => [
      { port, thread },
      { port, thread },
    ]),
  );
  return Promise.all(pairs.map(({ port, thread }) => clientOn(port, (worker) => worker === thread)));
}

/** Each client sends `each` requests without waiting for answers. */
async function burst(clients: readonly KeptClient[], path: string, tenant: string, each: number): Promise<Answered[]> {
  const answers = await Promise.all(
    clients.flatMap((client) => Array.from({ length: each }, () => client.ask(path, { "X-Tenant": tenant }))),
  );
  expect(answers.filter(({ status }) => status !== 200 && status !== 429)).toEqual([]);
  return answers;
}

const admittedOf = (answers: readonly Answered[]) => answers.filter(({ status }) => status === 200);

/** Bursts of one tenant until a limit of a second has admitted requests in several windows; all that were admitted. */
async function seconds(clients: readonly KeptClient[], tenant: string): Promise<Answered[]> {
  const admitted: Answered[] = [];
  while (admitted.length < SECONDS * LIMIT) admitted.push(...admittedOf(await burst(clients, "/second/x", tenant, 5)));
  return admitted;
}

/**
 * Until it is stopped: requests of other tenants to every worker but the spared ones, which then ends, at a random
 * moment of its work.
 */
function killing(
  { port }: Workers,
  spared: readonly number[],
): { readonly killed: () => number; stop(): Promise<void> } {
  let [killed, isStopped] = [0, false];
  const victim = (worker: number) => worker > 0 && !spared.includes(worker);
  const one = async () => {
    const client = await clientOn(port, (worker) => isStopped || victim(worker));
    const work = Array.from({ length: 50 }, (_, i) =>
      client.ask("/a/x", { "X-Tenant": `victim ${i % 5}` }).catch(() => null),
    );
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
    // Its successor needs time, so that there may be none for a while.
    if (!isStopped) await client.ask("/a/x?exit").catch(() => killed++);
    await Promise.all(work);
    client.close();
  };
  const running = (async () => {
    while (!isStopped) await one().catch(() => null);
  })();
  return {
    killed: () => killed,
    stop: () => {
      isStopped = true;
      return running;
    },
  };
}

describe.each(RELEASES)("rate limits over the workers of Node %i", (release) => {
  it(
    "admit exactly N of N of four clients on two workers, each minute and each second, " +
      "while a third worker is killed again and again",
    { timeout: 600_000 },
    async () => {
      const gateways = await started({ release, gateways: 1, workers: 3 });
      const found = await workersOn(gateways[0]!.port, 3);
      const clients = await clientsOf(gateways, [found]);
      const kills = killing(gateways[0]!, found.slice(0, 2));
      for (let round = 0; round < ROUNDS || kills.killed() < 3; round++) {
        const answers = await burst(clients, "/a/x", `tenant ${round}`, LIMIT / 2);
        expect([round, admittedOf(answers).length]).toEqual([round, LIMIT]);
        expect(new Set(answers.map(workerOf))).toEqual(new Set(found.slice(0, 2)));
      }
      for (let round = 0; round < ROUNDS / 5; round++) {
        const first = admittedOf(await burst(clients, "/second/x", `tenant ${round}`, LIMIT / 2));
        expect(first.length).toBeGreaterThanOrEqual(LIMIT);
        expect(
          shortestSpan([...first, ...(await seconds(clients, `tenant ${round}`))], LIMIT + 1),
        ).toBeGreaterThanOrEqual(1_000);
      }
      await kills.stop();
    },
  );

  it("admit exactly N of N over two gateways of two workers each, which share their counts in Redis", async () => {
    const server = await redis();
    const counters = { store: "redis", url: `redis://127.0.0.1:${server.port}`, timeout_ms: 5_000, on_error: "deny" };
    const gateways = await started({ release, gateways: 2, workers: 2, counters });
    const clients = await clientsOf(gateways, await Promise.all(gateways.map(({ port }) => workersOn(port, 2))));
    for (let round = 0; round < ROUNDS; round++) {
      const answers = await burst(clients, "/a/x", `tenant ${round}`, LIMIT / 2);
      expect([round, admittedOf(answers).length]).toEqual([round, LIMIT]);
    }
    expect(shortestSpan(await seconds(clients, "tenant"), LIMIT + 1)).toBeGreaterThanOrEqual(1_000);
  });

  it("would be seen to admit twice as many if each of two gateways counted by itself", async () => {
    const gateways = await started({ release, gateways: 2, workers: 2 });
    const clients = await clientsOf(gateways, await Promise.all(gateways.map(({ port }) => workersOn(port, 2))));
    expect(admittedOf(await burst(clients, "/a/x", "tenant", LIMIT / 2))).toHaveLength(2 * LIMIT);
  });
});

import { createHash } from "node:crypto";
import { describe, expect, it, onTestFinished } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import type { KeptClient } from "../support/kept_client.ts";
import { fileWith, logLines } from "../support/process.ts";
import { RELEASES, type Release } from "./nodes.ts";
import { until } from "./redis.ts";
import { clientOn, probeModule, withWorkers, workersOn, type Workers } from "./workers.ts";

/** Two workers, found by their connections, and requests without end to the second, over connections that stay. */
async function started(release: Release, environment: Record<string, string> = {}) {
  const { port } = await backend();
  const config = oneService(port, { plugins: [{ name: "probe" }] }, { plugin_modules: [probeModule()] });
  const running = await withWorkers(config, { release, environment });
  const [victim, healthy] = (await workersOn(running.port, 2)) as [number, number];
  return { running, victim, healthy, load: await steady(running.port, healthy) };
}

interface Steady {
  readonly failures: string[];
  readonly answered: () => number;
}

/** Four clients of one worker that ask one request after the other; a connection that ends is a failure. */
async function steady(port: number, worker: number): Promise<Steady> {
  const failures: string[] = [];
  let [answered, isStopped] = [0, false];
  const serve = async (client: KeptClient) => {
    while (!isStopped) {
      const { status, headers } = await client.ask("/a/x");
      if (status !== 200 || headers["x-worker"] !== String(worker)) failures.push(JSON.stringify([status, headers]));
      answered++;
    }
  };
  const clients = await Promise.all(Array.from({ length: 4 }, () => clientOn(port, (each) => each === worker)));
  const running = Promise.all(clients.map(serve)).catch((error: Error) => void failures.push(error.message));
  onTestFinished(() => {
    isStopped = true;
    return running.then(() => {});
  });
  return { failures, answered: () => answered };
}

interface Status {
  readonly workers: { readonly configured: number; readonly serving: number; readonly restarts: number };
  readonly warnings: readonly { readonly code: string }[];
}

async function statusOf(running: Workers): Promise<Status> {
  return JSON.parse(await running.admin("/gateway/status")) as Status;
}

const ready = async ({ adminUrl }: Workers) => (await fetch(`${adminUrl}/readyz`)).status;

/**
 * The heap of each thread is full soon. Node lets it grow by 16 MiB until the thread has ended; a garbage collection
 * that needs more for the survivors of the young generation would abort the process, so these are few (docs/scale.md).
 */
const SMALL_HEAPS = { NODE_OPTIONS: "--max-old-space-size=96 --max-semi-space-size=1" };

describe.each(RELEASES)("a worker that fails, on Node %i", (release) => {
  it(
    "by process.exit, an error without a stack or lack of memory loses its own connections alone, " +
      "and is logged and replaced",
    async () => {
      const { running, victim, healthy, load } = await started(release, SMALL_HEAPS);
      const kept = await clientOn(running.port, (worker) => worker === healthy);
      let before = victim;
      const faults = [
        ["?exit", /3/],
        ["?throw", /thrown by the probe/],
        // On a machine so busy that the last garbage collections take ten seconds, it is ended as one that hangs.
        ["?memory", /ERR_WORKER_OUT_OF_MEMORY|no sign of life for 10 seconds/],
      ] as const;
      for (const [nth, [fault, said]] of faults.entries()) {
        const clients = await Promise.all([0, 1].map(() => clientOn(running.port, (worker) => worker === before)));
        const broken = expect(clients[0]!.ask("/a/x"))
          .resolves.toBeDefined()
          .then(() => expect(clients[1]!.ask(`/a/x${fault}`)).rejects.toThrow());
        await broken;
        await expect(clients[0]!.ask("/a/x")).rejects.toThrow();
        expect(await ready(running)).toBe(200);
        const now = before;
        await clientOn(
          running.port,
          (worker) => worker > 0 && worker !== healthy && worker !== now && (before = worker) > 0,
        );
        await until(async () => (await statusOf(running)).workers.serving === 2);
        const { workers, warnings } = await statusOf(running);
        expect(workers).toEqual({ configured: 2, serving: 2, restarts: nth + 1 });
        expect(warnings.map(({ code }) => code)).not.toContain("workers_missing");
        const ends = logLines(running.stderr()).filter(({ message }) => /worker has ended/.test(String(message)));
        expect(ends).toHaveLength(nth + 1);
        expect(JSON.stringify(ends.at(-1))).toMatch(said);
      }
      const answered = load.answered();
      await until(() => load.answered() > answered);
      expect(load.failures).toEqual([]);
      expect((await kept.ask("/a/x")).status).toBe(200);
    },
  );
});

describe("a plugin module that throws outside of a request", () => {
  it("ends no thread: neither a worker, nor the main thread, which runs create too", async () => {
    const { port } = await backend();
    const module =
      'export default (kit) => kit.definePlugin({ name: "own", schema: kit.schema.object({}), create() ' +
      '{ setTimeout(() => { throw new Error("lost"); }, 20); return (next) => next; } });';
    const plugin_modules = [
      probeModule(),
      { path: fileWith(module, "own.mjs"), sha256: createHash("sha256").update(module).digest("hex") },
    ];
    const running = await withWorkers(
      oneService(port, { plugins: [{ name: "own" }, { name: "probe" }] }, { plugin_modules }),
    );
    const faults = () =>
      logLines(running.stderr()).filter(({ message }) => message === "a plugin module failed outside of a request");
    await until(async () => faults().length === 3);
    const client = await clientOn(running.port, (worker) => worker > 0);
    expect((await client.ask("/a/x?fault")).status).toBe(200);
    await until(async () => faults().length === 4);
    expect((await client.ask("/a/x")).status).toBe(200);
    expect((await statusOf(running)).workers).toEqual({ configured: 2, serving: 2, restarts: 0 });
    const metrics = await running.admin("/metrics");
    expect(metrics).toContain('edge_gateway_plugin_faults_total{plugin="own.mjs"} 3\n');
    expect(metrics).toContain('edge_gateway_plugin_faults_total{plugin="probe.mjs"} 1\n');
  });
});

describe("a plugin that posts to the main thread", () => {
  it("messages that are not the gateway's own ends neither its worker nor the program", async () => {
    const { running, victim, load } = await started(24);
    const client = await clientOn(running.port, (worker) => worker === victim);
    expect((await client.ask("/a/x?post")).status).toBe(200);
    // The report of the worker is behind them.
    expect(await statusOf(running)).toMatchObject({ workers: { configured: 2, serving: 2, restarts: 0 } });
    expect((await client.ask("/a/x")).status).toBe(200);
    expect(load.failures).toEqual([]);
  });
});

describe("a worker that hangs", () => {
  it(
    "is ended and replaced after ten seconds on Node 22 and 24; " +
      "a program that was stopped for as long goes on with all its workers",
    async () => {
      const stoppedOne = async () => {
        const { running, victim, healthy } = await started(24);
        const clients = await Promise.all(
          [victim, healthy].map((thread) => clientOn(running.port, (worker) => worker === thread)),
        );
        return { running, clients };
      };
      const hangs = await Promise.all(RELEASES.map((release) => started(release)));
      const stopped = await stoppedOne();
      stopped.running.child.kill("SIGSTOP");
      await Promise.all(
        hangs.map(async ({ running, victim, healthy, load }) => {
          const client = await clientOn(running.port, (worker) => worker === victim);
          await expect(client.ask("/a/x?hang")).rejects.toThrow();
          await clientOn(running.port, (worker) => worker > 0 && worker !== healthy && worker !== victim);
          expect(load.failures).toEqual([]);
          const ends = logLines(running.stderr()).filter(({ message }) => /worker has ended/.test(String(message)));
          expect(ends).toEqual([
            expect.objectContaining({ error: expect.stringMatching(/no sign of life for 10 seconds/) }),
          ]);
        }),
      );
      stopped.running.child.kill("SIGCONT");
      for (const client of stopped.clients) expect((await client.ask("/a/x")).status).toBe(200);
      expect((await statusOf(stopped.running)).workers).toEqual({ configured: 2, serving: 2, restarts: 0 });
    },
  );
});

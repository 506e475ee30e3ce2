import type { ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import type { KeptClient } from "../support/kept_client.ts";
import { eventually } from "../support/raw_client.ts";
import { RELEASES, type Release } from "./nodes.ts";
import { clientOn, probeModule, withWorkers, workersOn } from "./workers.ts";

const MOST = 4;
const ROUNDS = 20;

/** Two workers, and an upstream that holds requests for `/hold` until it is told to answer them. */
async function holding(release: Release) {
  const held: ServerResponse[] = [];
  const upstream = await backend((request, response) => {
    if (request.url!.startsWith("/hold")) held.push(response);
    else response.end("ok");
  });
  const limit = { name: "concurrency", config: { max_in_flight: MOST, limit_by: "header:X-Tenant" } };
  const { port } = await withWorkers(
    oneService(upstream.port, { plugins: [{ name: "probe" }, limit] }, { plugin_modules: [probeModule()] } as never),
    { release, workers: 2 },
  );
  const on = (worker: number) => clientOn(port, (each) => each === worker);
  /** The answers to these requests for one tenant, sent at the same time; undefined: the upstream has it. */
  const hold = (clients: readonly KeptClient[], tenant: string) => {
    const statuses: (number | undefined)[] = clients.map(() => undefined);
    clients.forEach(
      (client, i) =>
        void client.ask("/a/hold", { "X-Tenant": tenant }).then(
          ({ status }) => (statuses[i] = status),
          () => (statuses[i] = 0),
        ),
    );
    return statuses;
  };
  const answer = () => held.splice(0).forEach((response) => void response.end("done"));
  const status = async (client: KeptClient, tenant: string) =>
    (await client.ask("/a/x", { "X-Tenant": tenant })).status;
  return { port, held, on, hold, answer, status };
}

describe.each(RELEASES)("concurrency over the workers of Node %i", (release) => {
  it("admits exactly N requests at a time of clients that send at once to two workers", async () => {
    const { port, held, on, hold, answer } = await holding(release);
    const [first, second] = await workersOn(port, 2);
    const clients = await Promise.all(
      [first, second, first, second, first, second, first, second].map((worker) => on(worker!)),
    );
    for (let round = 0; round < ROUNDS; round++) {
      // The same tenant each time: its places have to be free again.
      const statuses = hold(clients, "t");
      await eventually(
        () => statuses.filter((status) => status === 429).length + held.length === clients.length,
        "each request to be answered or to reach the upstream",
      );
      expect([round, held.length]).toEqual([round, MOST]);
      answer();
      await eventually(() => statuses.every((status) => status !== undefined), "the held requests to be answered");
      expect(statuses.filter((status) => status === 200)).toHaveLength(MOST);
    }
  });

  it("gives back what a worker held that was ended in the middle of its requests", async () => {
    const { port, held, on, hold, status } = await holding(release);
    const [first, second] = await workersOn(port, 2);
    const ended = await Promise.all([on(first!), on(first!), on(first!)]);
    hold([...ended, await on(second!)], "t");
    await eventually(() => held.length === MOST, "the requests to reach the upstream");
    const [onFirst, onSecond] = [await on(first!), await on(second!)];
    expect([await status(onFirst, "t"), await status(onSecond, "t")]).toEqual([429, 429]);
    await onFirst.ask("/a/x?exit", { "X-Tenant": "other" }).catch(() => null);
    // The successor listens once the dead worker's places have been given back.
    const successor = (await workersOn(port, 2)).find((worker) => worker !== second)!;
    const onSuccessor = await on(successor);
    expect([await status(onSecond, "t"), await status(onSuccessor, "t")]).toEqual([200, 200]);
    hold([await on(successor), await on(second!), await on(successor)], "t");
    await eventually(() => held.length === MOST + 3, "three more requests to reach the upstream");
    expect([await status(onSecond, "t"), await status(onSuccessor, "t")]).toEqual([429, 429]);
  });
});

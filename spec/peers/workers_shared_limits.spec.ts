/** Limits of connections, requests and circuits over the workers of the built program. */
import { readFileSync, writeFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import net, { type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { backend, oneService } from "../support/gateway.ts";
import { over, type Answered, type KeptClient } from "../support/kept_client.ts";
import { logLines } from "../support/process.ts";
import { RELEASES, type Release } from "./nodes.ts";
import { until } from "./redis.ts";
import { clientOn, probeModule, withWorkers, workerOf, workersOn, type Workers } from "./workers.ts";

type Service = Partial<AnyConfigInput["services"][number]>;
type Limits = NonNullable<AnyConfigInput["global"]>["limits"];

interface Setup {
  readonly release: Release;
  readonly ports: readonly number[];
  readonly service?: Service;
  readonly limits?: Limits;
  readonly workers?: number;
}

function started({ release, ports, service = {}, limits = {}, workers = 2 }: Setup): Promise<Workers> {
  const config = oneService(
    ports,
    { plugins: [{ name: "probe" }], ...service },
    { plugin_modules: [probeModule()], limits },
  );
  return withWorkers(config, { release, workers });
}

/** Holds requests from `hold` on until it is told to answer them. */
async function holdingBackend() {
  const held: ServerResponse[] = [];
  let isHolding = false;
  const made = await backend((_request, response) => void (isHolding ? held.push(response) : response.end("ok")));
  const answer = () => held.splice(0).forEach((response) => response.end("ok"));
  const hold = (does: boolean) => {
    isHolding = does;
    if (!does) answer();
  };
  return { port: made.port, held, connections: made.connections, hold };
}

interface Accepted {
  readonly client: KeptClient;
  readonly answer: Answered;
}

/** Clients whose connections the gateway has accepted, in the order of their answers; the others were reset. */
async function accepted(port: number, count: number, from = "127.0.0.1"): Promise<Accepted[]> {
  const tried = Array.from({ length: count }, async () => {
    const socket: Socket = net.connect({ port, host: "127.0.0.1", localAddress: from, noDelay: true });
    const client = over(socket);
    onTestFinished(client.close);
    return client.ask("/a/x").then(
      (answer) => ({ client, answer }),
      () => null,
    );
  });
  return (await Promise.all(tried)).filter((each) => each !== null);
}

async function metric(gateway: Workers, name: string): Promise<number> {
  const line = (await gateway.admin("/metrics")).split("\n").find((each) => each.startsWith(`${name} `));
  return Number(line?.split(" ")[1]);
}

const open = (gateway: Workers) => metric(gateway, "edge_gateway_client_connections");
const inFlight = (gateway: Workers) => metric(gateway, "edge_gateway_http_requests_in_flight");
const statusesOf = (answers: readonly Answered[]) => [...new Set(answers.map(({ status }) => status))].sort();
const askAll = (clients: readonly KeptClient[], each: number) =>
  clients.flatMap((client) => Array.from({ length: each }, () => client.ask("/a/x")));
/** `each` clients on each of the workers. */
const clientsOn = (port: number, workers: readonly number[], each: number) =>
  Promise.all(
    workers.flatMap((thread) => Array.from({ length: each }, () => clientOn(port, (worker) => worker === thread))),
  );

describe.each(RELEASES)("limits of connections over the workers of Node %i", (release) => {
  it(
    "accept exactly max_connections, on whichever worker they come, " + "and one more for each that has closed",
    async () => {
      const { port } = await backend();
      const gateway = await started({ release, ports: [port], limits: { max_connections: 20 } });
      const first: Accepted[] = [];
      // One after the other, since otherwise the first worker that wakes up may accept all.
      for (let i = 0; i < 15; i++) first.push(...(await accepted(gateway.port, 1)));
      first.push(...(await accepted(gateway.port, 45)));
      expect(first).toHaveLength(20);
      expect(new Set(first.map(({ answer }) => workerOf(answer))).size).toBe(2);
      expect([await open(gateway), await metric(gateway, "edge_gateway_client_connections_refused_total")]).toEqual([
        20, 40,
      ]);
      for (const { client } of first.slice(0, 5)) client.close();
      await until(async () => (await open(gateway)) === 15);
      expect(await accepted(gateway.port, 30)).toHaveLength(5);
    },
  );

  it("accept exactly max_connections_per_ip of each address, whichever workers they reach", async () => {
    const { port } = await backend();
    const gateway = await started({ release, ports: [port], limits: { max_connections_per_ip: 5 } });
    const found = await Promise.all(
      ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map((from) => accepted(gateway.port, 30, from)),
    );
    expect(found.map(({ length }) => length)).toEqual([5, 5, 5]);
    for (const { client } of found[1]!) client.close();
    await until(async () => (await open(gateway)) === 10);
    expect([
      (await accepted(gateway.port, 10, "127.0.0.1")).length,
      (await accepted(gateway.port, 10, "127.0.0.2")).length,
    ]).toEqual([0, 5]);
  });

  it("give back the connections of a worker that has died, in all and by address, and only those", async () => {
    const { port } = await backend();
    const gateway = await started({
      release,
      ports: [port],
      limits: { max_connections: 20, max_connections_per_ip: 16 },
    });
    const first = [...(await accepted(gateway.port, 40)), ...(await accepted(gateway.port, 20, "127.0.0.2"))];
    expect(first).toHaveLength(20);
    const victim = workerOf(first[0]!.answer);
    const lost = first.filter(({ answer }) => workerOf(answer) === victim).length;
    await expect(first[0]!.client.ask("/a/x?exit")).rejects.toThrow();
    await until(async () => (await open(gateway)) === 20 - lost);
    await gateway.says("a worker serves again");
    const later = [...(await accepted(gateway.port, 40)), ...(await accepted(gateway.port, 20, "127.0.0.2"))];
    expect([later.length, await open(gateway)]).toEqual([lost, 20]);
  });
});

describe.each(RELEASES)("max_requests_in_flight over the workers of Node %i", (release) => {
  it(
    "admits exactly that many requests of all workers together, " + "and as many again when they are answered",
    async () => {
      const { port, held, hold } = await holdingBackend();
      const gateway = await started({
        release,
        ports: [port],
        limits: { max_requests_in_flight: 10, max_client_share: 1 },
      });
      const clients = await clientsOn(gateway.port, await workersOn(gateway.port, 2), 15);
      for (let round = 0; round < 3; round++) {
        hold(true);
        const answers = askAll(clients, 1);
        let refused = 0;
        for (const each of answers) void each.then(({ status }) => (refused += Number(status === 503)));
        await until(
          () => refused === 20 && held.length === 10,
          () => `${refused} refused, ${held.length} held`,
        );
        expect(await inFlight(gateway)).toBe(10);
        hold(false);
        const given = await Promise.all(answers);
        expect([statusesOf(given), given.filter(({ status }) => status === 200).length]).toEqual([[200, 503], 10]);
        await until(async () => (await inFlight(gateway)) === 0);
      }
    },
  );
});

describe.each(RELEASES)("a circuit breaker over the workers of Node %i", (release) => {
  it(
    "opens for all workers by the failures of all, is logged once, stays open over a reload, " +
      "admits exactly `probes` probes, and closes for all",
    async () => {
      let answers: "pass" | "fail" | "hold" = "pass";
      const held: ServerResponse[] = [];
      const { port } = await backend((_request, response) => {
        if (answers === "hold") return void held.push(response);
        response.statusCode = answers === "fail" ? 500 : 200;
        response.end("x");
      });
      const breaker = { error_ratio: 0.5, min_requests: 100, window_ms: 600_000, open_ms: 4_000, probes: 3 };
      const gateway = await started({ release, ports: [port], service: { circuit_breaker: breaker } });
      const [one, two] = await workersOn(gateway.port, 2);
      const [first, second] = [await clientsOn(gateway.port, [one!], 2), await clientsOn(gateway.port, [two!], 2)];
      answers = "fail";
      // Each worker alone has too few requests.
      await Promise.all(askAll([first[0]!, second[0]!], 60));
      answers = "hold";
      expect(statusesOf(await Promise.all(askAll([...first, ...second], 3)))).toEqual([503]);
      await gateway.says("circuit opened");
      expect(
        logLines(gateway.stderr()).filter(({ message }) => String(message).startsWith("circuit opened")),
      ).toHaveLength(1);
      expect(await gateway.admin("/gateway/health")).toContain('"state":"open"');
      // The state survives a reload.
      const config = JSON.parse(readFileSync(gateway.file, "utf8")) as AnyConfigInput;
      writeFileSync(gateway.file, JSON.stringify({ ...config, global: { ...config.global, name: "another" } }));
      await gateway.admin("/gateway/reload", "POST");
      expect([
        await gateway.admin("/gateway/health"),
        statusesOf(await Promise.all(askAll([...first, ...second], 1))),
      ]).toEqual([expect.stringContaining('"state":"open"'), [503]]);
      const probes: Promise<Answered>[] = [];
      const ends: number[] = [];
      await until(() => {
        for (const client of [...first, ...second]) probes.push(client.ask("/a/x"));
        for (const probe of probes.slice(-4)) void probe.then(({ status }) => ends.push(status));
        return held.length > 0;
      });
      await until(() => held.length === 3);
      await until(() => ends.length > 0 && probes.length - ends.length >= 3);
      expect([held.length, new Set(ends)]).toEqual([3, new Set([503])]);
      answers = "pass";
      held.forEach((response) => response.end("ok"));
      await Promise.all(probes);
      expect(statusesOf(await Promise.all(askAll([...first, ...second], 5)))).toEqual([200]);
      await gateway.says("circuit closed");
      expect(
        logLines(gateway.stderr()).filter(({ message }) => String(message).startsWith("circuit closed")),
      ).toHaveLength(1);
    },
  );
});

describe.each(RELEASES)("upstreams of the workers of Node %i", (release) => {
  it("an upstream that fails requests of several workers is ejected for all of them, and logged once", async () => {
    let isBroken = false;
    const healthy = await backend((_request, response) => void response.end("healthy"));
    const broken = await backend((_request, response) => {
      if (isBroken) response.socket!.destroy();
      else response.end("broken");
    });
    const passive = { max_failures: 6, window_ms: 600_000, eject_ms: 600_000 };
    const gateway = await started({ release, ports: [healthy.port, broken.port], service: { health: { passive } } });
    const [one, two] = (await workersOn(gateway.port, 2)) as [number, number];
    const clients = await clientsOn(gateway.port, [one, two], 1);
    isBroken = true;
    // Three failures of each worker: neither has enough alone.
    const failed = await Promise.all(clients.map((client) => failuresOf(client, 3)));
    expect(failed).toEqual([3, 3]);
    await gateway.says("upstream ejected");
    for (const client of clients) {
      const answers = await Promise.all(Array.from({ length: 10 }, () => client.ask("/a/x")));
      expect(new Set(answers.map(({ body }) => body))).toEqual(new Set(["healthy"]));
    }
    expect(
      logLines(gateway.stderr()).filter(({ message }) => String(message).startsWith("upstream ejected")),
    ).toHaveLength(1);
    const shown = JSON.parse(await gateway.admin("/gateway/health")) as {
      services: { upstreams: { state: string }[] }[];
    };
    expect(shown.services[0]!.upstreams.map(({ state }) => state)).toEqual(["unknown", "ejected"]);
  });

  it(
    "an upstream that its checks find unhealthy gets no request of any worker, " +
      "and one check at a time for all of them",
    async () => {
      let isBroken = false;
      const checks: string[] = [];
      let [running, most] = [0, 0];
      const answer =
        (name: string) =>
        ({ url }: IncomingMessage, response: ServerResponse) => {
          if (url !== "/healthz") return void response.end(name);
          checks.push(name);
          if (name === "second") most = Math.max(most, ++running);
          response.statusCode = isBroken && name === "second" ? 500 : 200;
          // Checks of several threads would meet here.
          setTimeout(() => {
            if (name === "second") running--;
            response.end();
          }, 100);
        };
      const [first, second] = [await backend(answer("first")), await backend(answer("second"))];
      const health = {
        enabled: true,
        path: "/healthz",
        interval_ms: 100,
        timeout_ms: 5_000,
        unhealthy_threshold: 1,
        healthy_threshold: 1,
      };
      const gateway = await started({ release, ports: [first.port, second.port], service: { health }, workers: 3 });
      const clients = await clientsOn(gateway.port, await workersOn(gateway.port, 3), 1);
      isBroken = true;
      await gateway.says("upstream unhealthy");
      for (const client of clients) {
        const answers = await Promise.all(Array.from({ length: 10 }, () => client.ask("/a/x")));
        expect(new Set(answers.map(({ body }) => body))).toEqual(new Set(["first"]));
      }
      await until(() => checks.length > 20);
      expect(most).toBe(1);
    },
  );

  it("each worker has its share of pool.max_connections", async () => {
    const { port, held, hold, connections } = await holdingBackend();
    const gateway = await started({
      release,
      ports: [port],
      service: { pool: { max_connections: 3 } },
      limits: { max_client_share: 1 },
    });
    const clients = await clientsOn(gateway.port, await workersOn(gateway.port, 2), 4);
    hold(true);
    const answers = Promise.all(askAll(clients, 1));
    await until(() => held.length === 3);
    expect(connections.open).toBe(3);
    hold(false);
    expect(statusesOf(await answers)).toEqual([200]);
    expect([connections.total, connections.open]).toEqual([3, 3]);
  });

  it("each worker gives a client its share of what it has of pool.max_connections", async () => {
    const { port, held, hold, connections } = await holdingBackend();
    const gateway = await started({ release, ports: [port], service: { pool: { max_connections: 8 } } });
    const clients = await clientsOn(gateway.port, await workersOn(gateway.port, 2), 4);
    hold(true);
    const answers = Promise.all(askAll(clients, 1));
    await until(() => held.length === 4);
    expect(connections.open).toBe(4);
    hold(false);
    expect(statusesOf(await answers)).toEqual([200]);
    expect([connections.total, connections.open]).toEqual([4, 4]);
  });
});

/** Asks until that many requests have failed. */
async function failuresOf(client: KeptClient, count: number): Promise<number> {
  let failures = 0;
  while (failures < count) if ((await client.ask("/a/x")).status === 502) failures++;
  return failures;
}

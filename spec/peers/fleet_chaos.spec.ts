/**
 * Three gateways with one configuration in three members of etcd, and one Redis for their limits, while processes are
 * killed, stopped and started again and ways between them are cut, at random: no wrong answer, nothing refused that a
 * gateway which runs has to serve, limits within what the documents promise, and all of one mind at the end.
 * CHAOS_SEED and CHAOS_S run another one, or for longer.
 */
import { join } from "node:path";
import { expect, it } from "vitest";
import { sourceDigest } from "../../lib/config/load.ts";
import { keptClient, monotonic, type KeptClient } from "../support/kept_client.ts";
import { cuttableLink, type CuttableLink } from "../support/cuttable_link.ts";
import { freePort } from "../support/origin.ts";
import { emptyFolder, fileWith, program, type Program } from "../support/process.ts";
import { random } from "../support/random.ts";
import { etcd } from "./etcd.ts";
import { redis } from "./redis.ts";

const SEED = Number(process.env.CHAOS_SEED ?? 20261129);
const LASTS_MS = Number(process.env.CHAOS_S ?? 120) * 1000;
const KEY = "edge/gw.json";
const GATEWAYS = [0, 1, 2] as const;
/** In each second, over all gateways; see docs/scale.md. */
const LIMIT = 20;
/** How long a request may take on a gateway that runs, with two processors for all of this. */
const ANSWER_MS = 8_000;
/** Counts are shared again within 5 s after an outage of Redis (docs/scale.md); and a margin for a busy machine. */
const CALM_AFTER_MS = 8_000;
const PAUSES_MS = [500, 2_500] as const;

const pause = (ms: number) => new Promise<void>((resolve) => void setTimeout(resolve, ms));

function configOf(generation: number, redisPort: number) {
  return {
    // Each gateway reaches Redis over a way of its own.
    global: { counters: { store: "redis", url: `redis://127.0.0.1:${redisPort}`, timeout_ms: 200, on_error: "local" } },
    services: [
      {
        ...{ name: "s", base_path: "/", upstreams: [{ host: "127.0.0.1", port: 9 }] },
        routes: [
          { path: "/generation", plugins: [answering(`generation ${generation}`)] },
          {
            path: "/limited",
            plugins: [
              { name: "rate_limit", id: "all", config: { limit_second: LIMIT, limit_by: "all" } },
              answering("admitted"),
            ],
          },
        ],
      },
    ],
  };
}

const answering = (body: string) => ({ name: "request_termination", config: { status: 200, body } });

/** One gateway, its ways to etcd, and what its clients have seen. */
class ChaosGateway {
  readonly name: string;
  readonly ways: readonly CuttableLink[];
  readonly admitted: number[] = [];
  readonly wrong: string[] = [];
  /** The newest generation that was seen: an older one must not come again, also after a restart. */
  newest = -1;
  answers = 0;
  #running: Program | null = null;
  #isStopped = false;
  /** Requests that began before this moment may have failed. */
  #disturbedUntil = Infinity;
  readonly #words: readonly string[];
  readonly #port: number;

  constructor(index: number, port: number, ways: readonly CuttableLink[]) {
    this.name = `gateway ${index}`;
    this.ways = ways;
    this.#port = port;
    const url = `etcd://${ways.map((way) => `127.0.0.1:${way.port}`).join(",")}/${KEY}`;
    const ports = ["--http-port", String(port), "--listen-host", "127.0.0.1"];
    this.#words = ["--config", url, ...ports, "--state-dir", join(emptyFolder(), "state")];
  }

  get isUp(): boolean {
    return this.#running !== null && !this.#isStopped;
  }

  /** Resolves when it serves. */
  async start(): Promise<void> {
    this.#running = program(this.#words);
    await this.#running.says(/"message":"edge-gateway [^"]+ started"/);
    this.#disturbedUntil = monotonic();
  }

  async kill(): Promise<void> {
    const running = this.#running!;
    this.#running = null;
    this.#disturbedUntil = Infinity;
    running.child.kill("SIGKILL");
    await running.ended;
  }

  stop(): void {
    this.#isStopped = true;
    this.#disturbedUntil = Infinity;
    this.#running!.child.kill("SIGSTOP");
  }

  continue(): void {
    this.#running!.child.kill("SIGCONT");
    this.#isStopped = false;
    this.#disturbedUntil = monotonic();
  }

  /** Asks until `isOver`, and notes what a gateway that runs must not answer. */
  async ask(isOver: () => boolean): Promise<void> {
    let client: KeptClient | null = null;
    for (let i = 0; !isOver(); i++) {
      await pause(20);
      if (!this.isUp) {
        client?.close();
        client = null;
        continue;
      }
      const began = monotonic();
      const path = i % 4 === 0 ? "/generation" : "/limited";
      try {
        client ??= await keptClient(this.#port);
        const { status, body } = await inTime(client.ask(path));
        this.#note(path, status, body);
      } catch (error) {
        client?.close();
        client = null;
        if (began > this.#disturbedUntil) this.wrong.push(`${path}: ${String(error)}`);
      }
    }
    client?.close();
  }

  #note(path: string, status: number, body: string): void {
    this.answers++;
    if (path === "/limited") {
      if (status === 200 && body === "admitted") this.admitted.push(monotonic());
      else if (status !== 429) this.wrong.push(`${path}: ${status} ${body}`);
      return;
    }
    const generation = Number(/^generation (\d+)$/.exec(body)?.[1] ?? NaN);
    if (status !== 200 || !(generation >= this.newest))
      this.wrong.push(`${path}: ${status} ${body} after ${this.newest}`);
    else this.newest = generation;
  }
}

async function inTime<T>(answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ANSWER_MS} ms`)), ANSWER_MS);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

it(
  "three gateways, etcd and Redis survive what processes and networks do",
  async () => {
    const { int, pick, chance } = random(SEED);
    const [store, server] = await Promise.all([etcd(3), redis()]);
    const toRedis = await cuttableLink(server.port);
    let generation = 0;
    const textOf = () => JSON.stringify(configOf(generation, toRedis.port));
    const url = store.urlOf(KEY);
    const publish = async () => {
      generation++;
      const publishing = program(["publish", fileWith(textOf()), url]);
      return (await publishing.ended).code;
    };
    expect(await publish()).toBe(0);
    const gateways: ChaosGateway[] = [];
    for (const index of GATEWAYS) {
      const ways = await Promise.all(store.members.map(({ url: { port } }) => cuttableLink(Number(port))));
      gateways.push(new ChaosGateway(index, await freePort(), ways));
    }
    await Promise.all(gateways.map((gateway) => gateway.start()));
    const beganAt = monotonic();
    const isOver = () => monotonic() - beganAt > LASTS_MS;
    const clients = gateways.flatMap((gateway) => [gateway.ask(isOver), gateway.ask(isOver)]);
    const counts = new Map<string, number>();
    /** When Redis was disturbed last, and the calm times before. */
    const calm: { readonly from: number; to: number }[] = [];
    let calmFrom = monotonic() + CALM_AFTER_MS;
    const disturbRedis = () => {
      if (monotonic() > calmFrom) calm.push({ from: calmFrom, to: monotonic() });
      calmFrom = Infinity;
    };
    const redisIsBack = () => void (calmFrom = monotonic() + CALM_AFTER_MS);
    const faults: Readonly<Record<string, () => Promise<void>>> = {
      async "a gateway is killed and started again"() {
        const gateway = pick(gateways);
        await gateway.kill();
        await pause(int(...PAUSES_MS));
        await gateway.start();
        // It has asked Redis for nothing yet, and counts alone until it is connected.
        disturbRedis();
        redisIsBack();
      },
      async "a gateway is stopped and continues"() {
        const gateway = pick(gateways);
        disturbRedis();
        gateway.stop();
        await pause(int(...PAUSES_MS));
        gateway.continue();
        redisIsBack();
      },
      async "a member of etcd is killed and started again"() {
        const member = pick(store.members);
        await member.stop();
        await pause(int(...PAUSES_MS));
        member.start();
      },
      async "a member of etcd is stopped and continues"() {
        const member = pick(store.members);
        member.process.kill("SIGSTOP");
        await pause(int(...PAUSES_MS) * 3);
        member.process.kill("SIGCONT");
      },
      async "all members of etcd are away"() {
        await Promise.all(store.members.map((member) => member.stop()));
        await pause(int(...PAUSES_MS) * 2);
        for (const member of store.members) member.start();
      },
      async "Redis is killed and started again"() {
        disturbRedis();
        await server.restart("SIGKILL");
        redisIsBack();
      },
      async "the way to Redis is cut"() {
        disturbRedis();
        toRedis.cut();
        await pause(int(...PAUSES_MS));
        toRedis.heal();
        redisIsBack();
      },
      async "a gateway's ways to etcd are cut"() {
        const { ways } = pick(gateways);
        const some = ways.filter(() => chance(0.7));
        for (const way of some) way.cut();
        await pause(int(...PAUSES_MS) * 3);
        for (const way of some) way.heal();
      },
      async "a configuration is published"() {
        await publish();
      },
    };
    while (!isOver()) {
      const name = chance(0.3) ? "a configuration is published" : pick(Object.keys(faults));
      counts.set(name, (counts.get(name) ?? 0) + 1);
      await faults[name]!();
      if (chance(0.2)) await pause(CALM_AFTER_MS + int(...PAUSES_MS));
    }
    await Promise.all(clients);
    disturbRedis();
    const seen = `seed ${SEED}: ${[...counts].map(([name, count]) => `${name} ${count}`).join(", ")}`;
    for (const { name, wrong, answers } of gateways) {
      expect([seen, name, wrong]).toEqual([seen, name, []]);
      expect(answers).toBeGreaterThan(LASTS_MS / 1000);
    }
    const admitted = gateways.flatMap((gateway) => gateway.admitted).sort((a, b) => a - b);
    for (const { from, to } of calm) {
      const count = admitted.filter((at) => at >= from && at <= to).length;
      // Windows slide: one more at each end, where answers are late.
      expect(count, `${seen}: in ${to - from} ms`).toBeLessThanOrEqual(LIMIT * ((to - from) / 1000 + 2));
    }
    const seconds = (monotonic() - beganAt) / 1000;
    expect(admitted.length).toBeLessThanOrEqual(LIMIT * (GATEWAYS.length + 1) * (seconds + 1));
    await soonPublished(publish);
    const waiting = program(["fleet", url, "--wait", sourceDigest(textOf()), "--timeout", "30"]);
    const { code, stdout, stderr } = await waiting.ended;
    expect([code, stdout + stderr]).toEqual([0, expect.stringContaining(sourceDigest(textOf()))]);
  },
  LASTS_MS + 120_000,
);

/** The last fault may have left etcd without a leader for a moment. */
async function soonPublished(publish: () => Promise<number | null>): Promise<void> {
  for (let tries = 0; (await publish()) !== 0; tries++) {
    if (tries === 20) throw new Error("etcd takes nothing any more");
    await pause(500);
  }
}

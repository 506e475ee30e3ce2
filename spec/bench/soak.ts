/**
 * Runs every kind of client at once, well and badly behaved, over HTTP/1.1, HTTP/2 and WebSocket, with a misbehaving
 * upstream. No socket, lease, timer or memory may be left behind.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { systemClock, type Clock } from "../../lib/base/clock.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { createGateway, type Gateway } from "../../lib/index.ts";
import { SERVER } from "../support/certs.ts";
import { random } from "../support/random.ts";
import { ask } from "../support/raw_client.ts";
import { CLIENTS, type Ports, type Tally } from "./soak_clients.ts";
import { startOrigin, type Origin } from "./soak_origin.ts";

const MB = 1024 * 1024;
const POOL = 64;
/** The first round warms up code and buffers; later rounds must not add to them. */
const ROUNDS = 4;
const MAX_GROWTH = 2 * MB;

/** Takes the seconds it lasts as its first word, 60 by default. Prints its figures; true when all is well. */
export async function soak([given = "60"]: readonly string[]): Promise<boolean> {
  const seconds = Number(given);
  if (!(seconds >= 4)) throw new RangeError("the soak lasts four seconds at least");
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const resources = resourcesInUse();
  const origin = await startOrigin();
  try {
    return await soakAt(origin, seconds, collect, resources);
  } finally {
    await origin.close();
  }
}

async function soakAt(
  origin: Origin,
  seconds: number,
  collect: () => void,
  resources: readonly string[],
): Promise<boolean> {
  const clock = countingClock();
  const config = (name: string) => configured(name, origin.port);
  const gateway = createGateway({ config: config("soak"), clock });
  const ports = await listening(gateway);
  // The timer of the statistics runs as long as the gateway serves.
  const ofItsOwn = clock.pending().length;
  const tally: Tally = { done: new Map(), wrong: [] };
  const heaps: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await gateway.reload(config(`soak ${round}`));
    await together(ports, tally, seconds / ROUNDS, round + 1);
    await atRest(gateway, origin, () => clock.pending().length === ofItsOwn);
    heaps.push(await heapAtRest(collect));
  }
  const leases = await freeLeases(ports.plain);
  const timers = clock.pending();
  const inFlight = gateway.inFlight;
  const outcome = await gateway.close(5_000);
  await until(() => origin.open === 0, 5_000);
  const socketsLeft = origin.open;
  await origin.close();
  await until(() => resourcesInUse().length <= resources.length, 5_000);
  const left = surplus(resourcesInUse(), resources);
  const growth = Math.max(...heaps.slice(1)) - heaps[0]!;

  console.log(`soak of ${seconds} s, ${[...tally.done.values()].reduce((sum, each) => sum + each, 0)} exchanges`);
  for (const [what, times] of [...tally.done].sort()) console.log(`  ${what.padEnd(28)} ${times}`);
  for (const each of [...new Set(tally.wrong)].slice(0, 20)) console.log(`  wrong: ${each}`);
  const figures: [what: string, value: string, fine: boolean][] = [
    ["wrong answers", String(tally.wrong.length), tally.wrong.length === 0],
    ["requests in flight", String(inFlight), inFlight === 0],
    ["leases free", `${leases} of ${POOL}`, leases === POOL],
    [
      "timers pending",
      `${timers.length}, ${ofItsOwn} before any ` +
        `request${timers.length === ofItsOwn ? "" : ` (${timers.join(", ")} ms)`}`,
      timers.length === ofItsOwn,
    ],
    ["heap after each round", heaps.map((each) => `${(each / MB).toFixed(1)} MiB`).join(", "), growth < MAX_GROWTH],
    ["drained or cut", outcome, outcome === "drained"],
    ["upstream sockets left", String(socketsLeft), socketsLeft === 0],
    ["resources left", left.length === 0 ? "0" : left.join(", "), left.length === 0],
  ];
  for (const [what, value, fine] of figures) console.log(`${fine ? "ok    " : "FAILED"} ${what}: ${value}`);
  return figures.every(([, , fine]) => fine);
}

function configured(name: string, port: number): AnyConfigInput {
  return {
    // All clients have one address.
    global: {
      name,
      access_log: { enabled: false },
      limits: { max_body_bytes: 64 * MB, min_body_bytes_per_s: 100, max_client_share: 1 },
    },
    services: [
      {
        name: "s",
        base_path: "/a",
        upstreams: [{ host: "127.0.0.1", port }],
        routes: [{ path: "/{rest*}" }],
        // Longer than a busy machine takes: clients and gateway share one thread here.
        timeouts: { connect_ms: 10_000, response_ms: 10_000, idle_ms: 10_000 },
        pool: { max_connections: POOL, keepalive_idle_ms: 1_000 },
      },
    ],
  };
}

async function listening(gateway: Gateway): Promise<Ports> {
  const plain = await gateway.listen({ port: 0 });
  const tls = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };
  const secure = await gateway.listen({ port: 0, tls });
  return { plain: plain.port, secure: secure.port };
}

/** Runs all kinds of clients at once, each repeatedly until the time is over. */
async function together(ports: Ports, tally: Tally, seconds: number, seed: number): Promise<void> {
  const deadline = performance.now() + seconds * 1000;
  const loops = CLIENTS.map(async ({ what, run }, i) => {
    const dice = random(seed * 100 + i);
    while (performance.now() < deadline) {
      try {
        await bounded(run(ports, dice));
        tally.done.set(what, (tally.done.get(what) ?? 0) + 1);
      } catch (error) {
        tally.wrong.push(`${what}: ${(error as Error).message}`);
      }
    }
  });
  await Promise.all(loops);
}

/** A client's exchange takes longer only if the gateway has lost it. */
const MAX_EXCHANGE_MS = 15_000;

async function bounded(work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`did not come to an end within ${MAX_EXCHANGE_MS} ms`)), MAX_EXCHANGE_MS);
  });
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Resolves when nothing is under way, or when the rest does not end. */
async function atRest(gateway: Gateway, origin: Origin, noTimersLeft: () => boolean): Promise<void> {
  await until(() => gateway.inFlight === 0 && origin.open === 0 && noTimersLeft(), 8_000);
}

/** The smallest of several measurements: finalizers and streams of closed sockets need a turn or two. */
async function heapAtRest(collect: () => void): Promise<number> {
  let least = Infinity;
  for (let i = 0; i < 5; i++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    collect();
    const { heapUsed, external } = process.memoryUsage();
    least = Math.min(least, heapUsed + external);
  }
  return least;
}

/** The number of requests that reach the upstream at one time: a leaked lease reduces it for good. */
async function freeLeases(port: number): Promise<number> {
  const answers = await Promise.all(
    Array.from({ length: POOL }, () => ask(port, { path: `/a/together/${POOL}` }).catch(() => null)),
  );
  return answers.filter((answer) => answer?.status === 200).length;
}

interface CountingClock extends Clock {
  /** Durations of the timers that are pending. */
  pending(): number[];
}

function countingClock(): CountingClock {
  const running = new Map<object, number>();
  return {
    now: systemClock.now,
    wall: systemClock.wall,
    after(ms, run) {
      const key = {};
      running.set(key, ms);
      const timer = systemClock.after(ms, () => {
        running.delete(key);
        run();
      });
      return {
        cancel() {
          running.delete(key);
          timer.cancel();
        },
        restart() {
          running.set(key, ms);
          timer.restart();
        },
      };
    },
    pending: () => [...running.values()],
  };
}

function resourcesInUse(): string[] {
  return process.getActiveResourcesInfo();
}

/** The resources of `now` that are not in `before`; a timer of `until` itself does not count. */
function surplus(now: readonly string[], before: readonly string[]): string[] {
  const known = [...before];
  return now.filter((each) => {
    const at = known.indexOf(each);
    if (at >= 0) known.splice(at, 1);
    return at < 0;
  });
}

async function until(holds: () => boolean, ms: number): Promise<void> {
  const deadline = performance.now() + ms;
  while (!holds() && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 10));
}

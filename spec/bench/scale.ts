/**
 * Measures the gateway with one and two workers on Node 24, runs fifty rounds of exact limits, and computes from measured times which lock
 * many processors would wait for first.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { nodeOf } from "../peers/nodes.ts";
import { brief, markdown, median } from "./figures.ts";
import { simulate, type LockFigures } from "./lock_model.ts";
import { pause } from "./load.ts";
import { backend, competitors, type Place } from "./peers/competitors.ts";
import { faultOf, fullLoad } from "./peers/gauge.ts";
import { costsOf, freePort, OTHERS, withMachine, type Machine, type Running } from "./peers/machine.ts";
import { SCENARIOS } from "./peers/scenarios.ts";
import { build, install, ROOT, run } from "./ready.ts";

const ROUNDS = 50;
const WORKERS = [1, 2];
/** So many that no worker has far fewer than another. */
const CONNECTIONS = 128;
const SCENARIO = { ...SCENARIOS.find(({ name }) => name === "guarded")!, connections: CONNECTIONS };
const READY_MS = 10_000;
const PROCESSORS = [2, 8, 16, 64];
const HERE = availableParallelism();
/** What a thread needs until it runs again after `Atomics.wait`, and how long it tries before, in microseconds: see `lib/base/lock.ts`. */
const WAKE_MICROS = 50;
const SPIN_MICROS = 5;

interface Gateway {
  readonly workers: number;
  readonly running: Running;
  readonly port: number;
  readonly restMib: number;
  readonly rounds: { readonly rps: number; readonly cpuMicros: number; readonly p99: number | null }[];
}

/** Takes the number of turns of a second as its first word, 5 by default. True when no limit was exceeded. */
export async function scale([given = "5"]: readonly string[]): Promise<boolean> {
  const turns = Number(given);
  if (!(Number.isInteger(turns) && turns >= 1 && turns <= 50)) throw new RangeError("there are 1 to 50 turns");
  run("npm", ["ci", "--prefix", "spec/peers", "--no-audit", "--no-fund", "--silent"]);
  build();
  install();
  // Before `withMachine`, which leaves this process one processor.
  const figures = JSON.parse(run(nodeOf(24), [fileURLToPath(new URL("scale_threads.mjs", import.meta.url))])) as Figures;
  const areExact = rounds();
  waiting(figures, await throughput(turns));
  return areExact;
}

/** Prints requests a second, processor time and memory. Returns the processor time of a request with one worker, in microseconds. */
async function throughput(turns: number): Promise<number> {
  return withMachine(async (machine) => {
    const backendPort = await freePort();
    machine.start(backend({ folder: mkdtempSync(join(machine.folder, "backend-")), port: backendPort }), OTHERS);
    const gateways: Gateway[] = [];
    for (const workers of WORKERS) gateways.push(await started(machine, workers, backendPort));
    for (let turn = 0; turn <= turns; turn++) {
      for (const { running, port, rounds: figures } of gateways) {
        const before = costsOf(running.pid).cpuMicros;
        const { rps, requests, failures, p99 } = await fullLoad(machine, SCENARIO, port, 1);
        if (failures > 0) throw new Error(`${failures} requests failed`);
        // The first turn warms up.
        if (turn > 0) figures.push({ rps, cpuMicros: (costsOf(running.pid).cpuMicros - before) / requests, p99 });
      }
    }
    console.log(`${SCENARIO.title}, ${CONNECTIONS} connections; load, backend and gateway share ${HERE} processors; medians of ${turns} turns\n`);
    const rows = gateways.map(({ workers, running, restMib, rounds: figures }) => [
      ...[workers, brief(median(figures.map(({ rps }) => rps))), brief(median(figures.map(({ cpuMicros }) => cpuMicros)))],
      ...[brief(median(figures.map(({ p99 }) => p99 ?? NaN))), brief(restMib), brief(costsOf(running.pid).rssMib)],
    ]);
    console.log(`${markdown(["workers", "requests/s", "CPU µs of a request", "p99 ms", "MiB at rest", "MiB under load"], rows)}\n`);
    return median(gateways[0]!.rounds.map(({ cpuMicros }) => cpuMicros));
  });
}

/** On Node 24, on all processors, with a configuration as in `npm run bench -- peers guarded`. */
async function started(machine: Machine, workers: number, backendPort: number): Promise<Gateway> {
  const ours = competitors().find(({ name }) => name === "ours")!;
  const place: Place = { folder: mkdtempSync(join(machine.folder, `workers-${workers}-`)), port: await freePort(), backendPort };
  const { words, environment } = ours.command(SCENARIO, place);
  const everywhere = machine.notPinned === null ? ["taskset", "-c", `0-${HERE - 1}`] : ["env"];
  const [program = "", ...before] = everywhere;
  const running = machine.start({ program, words: [...before, nodeOf(24), ...words, "--workers", String(workers)], ...(environment && { environment }) }, OTHERS);
  const deadline = performance.now() + READY_MS;
  for (let fault: string | null = ""; fault !== null; await pause(50)) {
    fault = await faultOf(ours, SCENARIO, place.port).catch((error: Error) => error.message);
    if (fault !== null && (running.over() || performance.now() > deadline)) throw new Error(`${fault}: ${running.errors()}`);
  }
  return { workers, running, port: place.port, restMib: costsOf(running.pid).rssMib, rounds: [] };
}

/** Nanoseconds of one operation of one thread alone, and of each of two threads at the same time. */
type Figures = Readonly<Record<string, { readonly alone: number; readonly both: number }>>;

/** Prints what shared memory costs, and what many processors would lose by waiting for a lock. `cpuMicros` is the processor time of a request. */
function waiting(figures: Figures, cpuMicros: number): void {
  console.log("shared memory: one operation, ns\n");
  console.log(`${markdown(["", "one thread", "each of two threads"], Object.entries(figures).map(([what, { alone, both }]) => [what, brief(alone), brief(both)]))}\n`);
  const model = (name: string, shards: (processors: number) => number) => {
    const { alone, both } = figures[name]!;
    const holdMicros = alone / 1_000;
    // Two threads at the same lock make two operations in the time of `both`.
    const times = { workMicros: cpuMicros, holdMicros, movedMicros: Math.max(holdMicros, both / 2_000), spinMicros: SPIN_MICROS, wakeMicros: WAKE_MICROS };
    return (processors: number, requests: number) => simulate({ ...times, processors, shards: shards(processors), requests });
  };
  const models = [
    ["limiter, many callers: locks for parts", model("limiter, other callers", shardsOf)],
    ["limiter, one caller: one lock", model("limiter, one caller", () => 1)],
  ] as const;
  console.log(`model: every processor answers requests of ${brief(cpuMicros)} µs without pause, each of which takes one lock\n`);
  const rows = models.flatMap(([what, each]) =>
    PROCESSORS.map((processors) => {
      const { share, meanWait, p99Wait, slept, busy } = each(processors, 200_000);
      return [what, processors, `${(busy * 100).toFixed(1)} %`, brief(meanWait), brief(p99Wait), `${(slept * 100).toFixed(2)} %`, `${(share * 100).toFixed(1)} %`];
    }),
  );
  console.log(`${markdown(["lock", "processors", "held", "mean wait µs", "p99 µs", "slept", "of the ideal rate"], rows)}\n`);
  for (const [what, each] of models) console.log(`${what}: ${firstToLose(each)}`);
  console.log("");
}

/** The locks of a limiter with 100,000 callers, see `sharedTable` in `lib/store/memory.ts`. */
function shardsOf(workers: number): number {
  return Math.min(256, 2 ** Math.ceil(Math.log2(8 * workers)));
}

/** The fewest processors that lose a twentieth to waiting. */
function firstToLose(model: (processors: number, requests: number) => LockFigures): string {
  for (let processors = 2; processors <= 512; processors = Math.ceil(processors * 1.1)) {
    if (model(processors, 50_000).share < 0.95) return `a twentieth is lost from ${processors} processors on`;
  }
  return "less than a twentieth is lost up to 512 processors";
}

/** The specs of exact limits, with more rounds. */
function rounds(): boolean {
  const words = ["node_modules/vitest/vitest.mjs", "run", "--config", "spec/peers/vitest.config.ts", "spec/peers/workers_limits.spec.ts"];
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { cwd: ROOT, encoding: "utf8", env: { ...process.env, WORKERS_ROUNDS: String(ROUNDS) } });
  console.log(`${ROUNDS} rounds of N of N over workers, with kills and controls: ${status === 0 ? "exact" : `FAILED\n${stdout}${stderr}`}`);
  return status === 0;
}

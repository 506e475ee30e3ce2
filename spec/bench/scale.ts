/**
 * Measures the gateway with one and two workers on Node 24, runs fifty rounds of exact limits, and computes from measured times which lock
 * or shared word many processors would wait for first.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { nodeOf } from "../peers/nodes.ts";
import { brief, markdown, median, verdictTable, type Verdict } from "./figures.ts";
import { simulate, type LockFigures } from "./lock_model.ts";
import { pause } from "./load.ts";
import { backend, competitors, type Place } from "./peers/competitors.ts";
import { faultOf, fullLoad } from "./peers/gauge.ts";
import { costsOf, freePort, MEASURED, OTHERS, withMachine, type Machine, type Running } from "./peers/machine.ts";
import { SCENARIOS, type Scenario } from "./peers/scenarios.ts";
import { build, install, ROOT, run } from "./ready.ts";

const ROUNDS = 50;
const WORKERS = [1, 2];
/** So many that no worker has far fewer than another. */
const CONNECTIONS = 128;
const scenarioOf = (name: string): Scenario => ({ ...SCENARIOS.find((each) => each.name === name)!, connections: CONNECTIONS });
const GUARDED = scenarioOf("guarded");
const PLAIN = scenarioOf("small");
const READY_MS = 10_000;
const PROCESSORS = [4, 16, 64];
const HERE = availableParallelism();
/** What a thread needs until it runs again after `Atomics.wait`, and how long it tries before, in microseconds: see `lib/base/lock.ts`. */
const WAKE_MICROS = 50;
const SPIN_MICROS = 5;
const MIN_TIMES = 1.8;
const MAX_SHARED_MICROS = 1;

interface Gateway {
  readonly scenario: Scenario;
  readonly workers: number;
  readonly running: Running;
  readonly port: number;
  readonly restMib: number;
  readonly rounds: { readonly rps: number; readonly cpuMicros: number; readonly mainMicros: number; readonly p99: number | null }[];
}

/** Takes the number of turns of a second as its first word, 5 by default. True when no limit was exceeded, and the targets are met. */
export async function scale([given = "5"]: readonly string[]): Promise<boolean> {
  const turns = Number(given);
  if (!(Number.isInteger(turns) && turns >= 1 && turns <= 50)) throw new RangeError("there are 1 to 50 turns");
  if (!existsSync(new URL("../peers/node_modules", import.meta.url))) run("npm", ["ci", "--prefix", "spec/peers", "--no-audit", "--no-fund", "--silent"]);
  build();
  install();
  // Before `withMachine`, which leaves this process one processor.
  const figures = JSON.parse(run(nodeOf(24), [fileURLToPath(new URL("scale_threads.mjs", import.meta.url))])) as Figures;
  const apart = await throughput(turns, "apart");
  const together = await throughput(turns, "together");
  waiting(figures, apart.of(GUARDED, 1));
  const verdicts = judged(figures, apart, together);
  console.log(`${verdictTable(verdicts)}\n`);
  return rounds() && verdicts.every(({ met }) => met !== false);
}

interface Throughput {
  /** Processor time of a request, in microseconds. */
  of(scenario: Scenario, workers: number): number;
}

/**
 * Prints requests a second, processor time and memory. "apart": the gateway has one processor to itself, however many workers it has, and
 * load and backend have the other; so nobody competes with its workers but they with each other, and a request costs what it costs.
 * "together": all have all processors, so that the workers run at the same time, and load and backend beside them.
 */
async function throughput(turns: number, arrangement: "apart" | "together"): Promise<Throughput> {
  return withMachine(async (machine) => {
    const backendPort = await freePort();
    machine.start(backend({ folder: mkdtempSync(join(machine.folder, "backend-")), port: backendPort }), OTHERS);
    const gateways: Gateway[] = [];
    for (const scenario of arrangement === "apart" ? [GUARDED, PLAIN] : [GUARDED]) {
      for (const workers of WORKERS) gateways.push(await started(machine, { scenario, workers, backendPort, isApart: arrangement === "apart" }));
    }
    for (let turn = 0; turn <= turns; turn++) {
      for (const { scenario, running, port, rounds: figures } of gateways) {
        const [before, mainBefore] = [costsOf(running.pid).cpuMicros, mainCpuMicros(running.pid)];
        const { rps, requests, failures, p99 } = await fullLoad(machine, scenario, port, 1);
        if (failures > 0) throw new Error(`${failures} requests failed`);
        const [after, mainAfter] = [costsOf(running.pid).cpuMicros, mainCpuMicros(running.pid)];
        // The first turn warms up.
        if (turn > 0) figures.push({ rps, cpuMicros: (after - before) / requests, mainMicros: (mainAfter - mainBefore) / requests, p99 });
      }
    }
    const of = (scenario: Scenario, workers: number) => {
      const gateway = gateways.find((each) => each.scenario === scenario && each.workers === workers)!;
      return median(gateway.rounds.map(({ cpuMicros }) => cpuMicros));
    };
    console.log(`${arrangement}: ${CONNECTIONS} connections, ${HERE} processors, medians of ${turns} turns\n`);
    const rows = gateways.map(({ scenario, workers, running, restMib, rounds: figures }) => [
      ...[scenario.title, workers, brief(median(figures.map(({ rps }) => rps))), brief(of(scenario, workers))],
      ...[workers === 1 ? "" : brief(median(figures.map(({ mainMicros }) => mainMicros)))],
      ...[brief(median(figures.map(({ p99 }) => p99 ?? NaN))), brief(restMib), brief(costsOf(running.pid).rssMib)],
    ]);
    console.log(`${markdown(["", "workers", "requests/s", "CPU µs of a request", "main thread's", "p99 ms", "MiB at rest", "MiB under load"], rows)}\n`);
    return { of };
  });
}

/** Processor time of the thread that has the process's id, in microseconds: with several workers it serves no requests. */
function mainCpuMicros(pid: number): number {
  const text = readFileSync(`/proc/${pid}/task/${pid}/stat`, "utf8");
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

function judged(figures: Figures, apart: Throughput, together: Throughput): Verdict[] {
  const [one, two] = WORKERS as [number, number];
  // What one worker pays for the other's writes, which on one processor are in its cache.
  const moved = SHARED.reduce((sum, name) => sum + Math.max(0, figures[name]!.both - figures[name]!.alone), 0) / 1_000;
  const [alone, both] = [apart.of(GUARDED, one), apart.of(GUARDED, two) + moved];
  const times = (two * alone) / both;
  const spent = SHARED.reduce((sum, name) => sum + figures[name]!.both, 0) / 1_000;
  const here = (two * together.of(GUARDED, one)) / together.of(GUARDED, two);
  return [
    {
      what: "requests of two workers on two processors, of those of one, when load and backend do not compete",
      ...{ figure: `${brief(times)}× (2 × ${brief(alone)} : ${brief(both)} µs)`, target: `≥ ${MIN_TIMES}×`, met: times >= MIN_TIMES },
    },
    { what: "the same when they do", figure: `${brief(here)}×`, target: "told only", met: null },
    {
      what: "all shared operations of a request with key and limit, while another thread does the same without pause",
      ...{ figure: `${brief(spent)} µs`, target: `≤ ${MAX_SHARED_MICROS} µs`, met: spent <= MAX_SHARED_MICROS },
    },
  ];
}

interface Asked {
  readonly scenario: Scenario;
  readonly workers: number;
  readonly backendPort: number;
  readonly isApart: boolean;
}

/** On Node 24, with a configuration as in `npm run bench -- peers`. */
async function started(machine: Machine, { scenario, workers, backendPort, isApart }: Asked): Promise<Gateway> {
  const ours = competitors().find(({ name }) => name === "ours")!;
  const place: Place = { folder: mkdtempSync(join(machine.folder, `workers-${workers}-`)), port: await freePort(), backendPort };
  const { words, environment } = ours.command(scenario, place);
  const everywhere = machine.notPinned === null && !isApart ? ["taskset", "-c", `0-${HERE - 1}`] : ["env"];
  const [program = "", ...before] = everywhere;
  const command = { program, words: [...before, nodeOf(24), ...words, "--workers", String(workers)], ...(environment && { environment }) };
  const running = machine.start(command, MEASURED);
  const deadline = performance.now() + READY_MS;
  for (let fault: string | null = ""; fault !== null; await pause(50)) {
    fault = await faultOf(ours, scenario, place.port).catch((error: Error) => error.message);
    if (fault !== null && (running.over() || performance.now() > deadline)) throw new Error(`${fault}: ${running.errors()}`);
  }
  return { scenario, workers, running, port: place.port, restMib: costsOf(running.pid).rssMib, rounds: [] };
}

/** Nanoseconds of one operation of one thread alone, and of each of two threads at the same time. */
type Figures = Readonly<Record<string, { readonly alone: number; readonly both: number }>>;

/** The shared operations of a request with a key and a limit. Everything else is a worker's own, or is read and hardly ever written. */
const SHARED = ["limiter, other callers", "circuit breaker", "requests in flight"];

/** Threads that count side by side in one cache line: see `SharedCount`. */
const WORDS_PER_LINE = 16;

/** Prints what shared memory costs, and what many processors would lose by waiting for it. `cpuMicros` is the processor time of a request. */
function waiting(figures: Figures, cpuMicros: number): void {
  console.log("shared memory: one operation, ns\n");
  console.log(`${markdown(["", "one thread", "each of two threads"], Object.entries(figures).map(([what, { alone, both }]) => [what, brief(alone), brief(both)]))}\n`);
  const model = (name: string, shards: (processors: number) => number, spinMicros = SPIN_MICROS) => {
    const { alone, both } = figures[name]!;
    const holdMicros = alone / 1_000;
    // Two threads at the same lock make two operations in the time of `both`.
    const times = { workMicros: cpuMicros, holdMicros, movedMicros: Math.max(holdMicros, both / 2_000), spinMicros, wakeMicros: WAKE_MICROS };
    return (processors: number, requests: number) => simulate({ ...times, processors, shards: shards(processors), requests });
  };
  // A cache line that several processors write is a lock that never sleeps: the next one gets it when the one before has written.
  const models = [
    ["limiter, one caller: one lock", model("limiter, one caller", () => 1)],
    ["limiter, many callers: locks for parts", model("limiter, other callers", shardsOf)],
    ["circuit breaker: one cache line", model("circuit breaker", () => 1, Infinity)],
    ["requests in flight: a cache line for 16 workers", model("requests in flight", (workers) => Math.ceil((workers + 1) / WORDS_PER_LINE), Infinity)],
  ] as const;
  console.log(`model: every processor answers requests of ${brief(cpuMicros)} µs without pause, each of which takes each of these once\n`);
  const rows = models.flatMap(([what, each]) =>
    PROCESSORS.map((processors) => {
      const { share, meanWait, p99Wait, slept, busy } = each(processors, 200_000);
      const figures = [`${(busy * 100).toFixed(1)} %`, brief(meanWait), brief(p99Wait), `${(slept * 100).toFixed(2)} %`, `${(share * 100).toFixed(1)} %`];
      return [what, processors, ...figures, thousands((share * processors * 1e6) / cpuMicros)];
    }),
  );
  const heads = ["what is shared", "processors", "held", "mean wait µs", "p99 µs", "slept", "of the ideal rate", "requests/s"];
  console.log(`${markdown(heads, rows)}\n`);
  for (const [what, each] of models) console.log(`${what}: ${firstToLose(each, cpuMicros)}`);
  console.log("");
}

function thousands(requests: number): string {
  return `${Math.round(requests / 1_000)},000`.replace(/(\d)(\d{3}),000$/, "$1,$2,000");
}

/** The locks of a limiter with 100,000 callers, see `sharedTable` in `lib/store/memory.ts`. */
function shardsOf(workers: number): number {
  return Math.min(256, 2 ** Math.ceil(Math.log2(8 * workers)));
}

/** The fewest processors that lose a twentieth to waiting, and the most requests a second that pass there. */
function firstToLose(model: (processors: number, requests: number) => LockFigures, cpuMicros: number): string {
  for (let processors = 2; processors <= 512; processors = Math.ceil(processors * 1.1)) {
    const { share } = model(processors, 50_000);
    if (share < 0.95) return `a twentieth is lost from ${processors} processors on, at ${thousands((share * processors * 1e6) / cpuMicros)} requests/s`;
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
